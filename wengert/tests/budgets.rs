//! Training steps within memory budgets. Recomputation does not change the bits of losses,
//! parameters and moments. For gradients of random layers, a budget that is feasible stays feasible
//! when it is raised, and every point of a frontier is feasible.
#![allow(clippy::print_stdout)] // The script of the deep tests reads how many functions passed.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::Compiled;
use wengert::core::Target;
use wengert::core::plan::Account;
use wengert::data::Arrays;
use wengert::memory::Point;
use wengert::models::{
    Convnet, ConvnetSettings, Gpt, GptSettings, LstmModel, LstmModelSettings, Mlp, ResNet,
    ResNetSettings, UNet, UNetSettings,
};
use wengert::pipeline::{Options, compile, frontier};
use wengert::prelude::*;
use wengert::random::SplitMix64;

const STEPS: usize = 2;

/// The training step of a network over `x` and `y`.
fn step<M: Differentiable<TangentVector = M>>(
    model: M,
    x: TensorType,
    y: TensorType,
    loss: impl Fn(&M, &Tensor, &Tensor) -> Tensor,
) -> Program {
    let mut program = Program::new();
    let build = |f: &mut FunctionBuilder| {
        let (x, y) = (f.input("x", x.clone()), f.input("y", y.clone()));
        let model = f.state("model", model);
        let (loss, gradient) = value_and_grad(&model, |m| loss(m, &x, &y));
        AdamW::new(0.01).step(f, &model, &gradient);
        f.output("loss", loss);
    };
    program.function("step", build).unwrap();
    program
}

fn gpt() -> Program {
    let settings = GptSettings { vocabulary: 13, positions: 8, width: 16, heads: 2, layers: 4 };
    step(Gpt::new(&settings), i32([2, 8]).unwrap(), i32([2, 8]).unwrap(), |m, x, y| m.loss(x, y))
}

fn mlp() -> Program {
    let (x, y) = (f32([64, 16]).unwrap(), i32([64]).unwrap());
    step(Mlp::new(&[16, 24, 24, 24, 24, 3], Activation::Gelu), x, y, |m, x, y| {
        cross_entropy(&m.call(x), y)
    })
}

fn convnet() -> Program {
    let settings = ConvnetSettings {
        image: [8, 8],
        channels: 2,
        features: [3, 5],
        width: 7,
        classes: 4,
        dropout: 0.0,
    };
    let (x, y) = (f32([4, 8, 8, 2]).unwrap(), i32([4]).unwrap());
    step(Convnet::new(&settings), x, y, |m, x, y| cross_entropy(&m.call(x, None), y))
}

fn resnet() -> Program {
    let settings = ResNetSettings { channels: 3, width: 4, blocks: [1, 2, 1, 1], classes: 3 };
    let mut program = Program::new();
    let build = |f: &mut FunctionBuilder| {
        let (x, y) = (f.input("x", f32([2, 32, 32, 3])), f.input("y", i32([2])));
        let network = ResNet::new(&settings);
        let statistics = f.param("statistics", network.statistics());
        let model = f.state("model", network);
        let (loss, gradient) =
            value_and_grad(&model, |m| cross_entropy(&m.train(&x, &statistics).0, &y));
        AdamW::new(0.01).step(f, &model, &gradient);
        f.output("loss", loss);
    };
    program.function("step", build).unwrap();
    program
}

fn unet() -> Program {
    let settings = UNetSettings { channels: 1, width: 4, depth: 2, classes: 3 };
    let (x, y) = (f32([1, 16, 16, 1]).unwrap(), i32([1, 16, 16]).unwrap());
    step(UNet::new(&settings), x, y, |m, x, y| cross_entropy(&m.call(x), y))
}

fn lstm() -> Program {
    let settings =
        LstmModelSettings { vocabulary: 9, embedding: 5, width: 6, layers: 3, dropout: 0.0 };
    let (x, y) = (i32([6, 3]).unwrap(), i32([6, 3]).unwrap());
    step(LstmModel::new(&settings), x, y, |m, x, y| {
        cross_entropy(&m.call(x, &m.zero_state(3usize), None).0, y)
    })
}

/// The inputs of a step.
fn batch(program: &Program, run: usize) -> Vec<(String, Literal)> {
    let mut stream = SplitMix64::of(5, &[run as u64]);
    let function = program.get("step").unwrap();
    let mut literal = |ty: &TensorType| {
        let shape = ty.extents().unwrap();
        let count: usize = shape.iter().product();
        match ty.dtype {
            DType::I32 => {
                Literal::from_vec(&shape, (0..count).map(|_| stream.below(3) as i32).collect())
            }
            _ => Literal::from_vec(
                &shape,
                (0..count).map(|_| stream.unit_f64() as f32 - 0.5).collect(),
            ),
        }
    };
    let given =
        function.inputs.iter().enumerate().filter(|(_, input)| ["x", "y"].contains(&&*input.name));
    given.map(|(n, input)| (input.name.clone(), literal(function.input_type(n)).unwrap())).collect()
}

/// The outputs of the steps, and the variables after them.
fn train(
    session: &mut Session,
    step: &mut Compiled,
    program: &Program,
    begin: &Arrays,
) -> (Vec<Literal>, Arrays) {
    session.set_variables(begin).unwrap();
    let run = |n| {
        let batch = batch(program, n);
        let given: Vec<(&str, &Literal)> =
            batch.iter().map(|(name, value)| (name.as_str(), value)).collect();
        step.run(&given).unwrap().get("loss").unwrap().clone()
    };
    let losses = (0..STEPS).map(run).collect();
    (losses, session.variables().unwrap())
}

/// Trains with every plan of the frontier, and with budgets between them.
fn check(name: &str, program: &Program, device: Device, target: &Target, least: usize) {
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(program, 1).unwrap();
    let begin = session.variables().unwrap();
    let mut session = Session::open(device).unwrap();
    let plans = frontier(program, "step", &bind!(), target, &Options::default(), 5).unwrap();
    let points: Vec<Point> = plans.iter().map(Point::of).collect();
    assert!(points.len() > least, "{name}: {points:?}");
    let mut run = |plan| {
        let mut step = session.load_plan(plan).unwrap();
        train(&mut session, &mut step, program, &begin)
    };
    let wanted = run(plans.last().unwrap().plan.clone());
    assert!(wanted.0.iter().all(|loss| loss.get(0).to_f64().is_finite()), "{name}");
    for planned in &plans {
        let found = run(planned.plan.clone());
        assert!(found == wanted, "{name}: {} bytes", Account::sizes(&planned.plan).total());
    }
    for pair in points.windows(2) {
        let budget = (pair[0].bytes + pair[1].bytes) / 2;
        let options = Options { memory_budget: Some(budget), ..Options::default() };
        let plan = compile(program, "step", &bind!(), target, &options).unwrap();
        let bytes = Account::sizes(&plan).total();
        assert!(bytes <= budget, "{name}: {bytes} of {budget}");
        assert!(run(plan) == wanted, "{name}: a budget of {budget} bytes");
    }
}

#[test]
fn on_the_cpu() {
    let cpu = Target::cpu();
    for (name, program, least) in [
        ("gpt", gpt(), 3),
        ("mlp", mlp(), 1),
        ("convnet", convnet(), 0),
        ("resnet", resnet(), 2),
        ("unet", unet(), 1),
        ("lstm", lstm(), 0),
    ] {
        check(name, &program, Device::Cpu, &cpu, least);
    }
}

#[test]
fn on_the_emulator() {
    let gpu = wengert::target("sm_90").unwrap();
    for (name, program, least) in [("gpt", gpt(), 3), ("mlp", mlp(), 1)] {
        check(name, &program, Device::Emulator, &gpu, least);
    }
}

/// The gradient of a chain of random layers with skips.
fn layered(seed: u64) -> Program {
    let mut stream = SplitMix64::of(seed, &[]);
    let mut below = |limit: usize| stream.below(limit as u64) as usize;
    let (rows, width) = ([1, 3, 8, 17][below(4)], [4, 16, 64][below(3)]);
    let layers: Vec<[usize; 2]> = (0..2 + below(7)).map(|n| [below(7), below(n + 1)]).collect();
    let mut program = Program::new();
    let build = |f: &mut FunctionBuilder| {
        let (x, w) = (f.input("x", f32([rows, width])), f.input("w", f32([width, width])));
        let (d_x, d_w) = grad(&(x, w), |(x, w)| {
            let mut made = vec![x.clone()];
            for [kind, skip] in &layers {
                let last = made.last().unwrap();
                made.push(match kind {
                    0 | 1 => last.dot(w),
                    2 => last.tanh(),
                    3 => last.softmax(1),
                    4 => last * &made[*skip],
                    5 => last.sin() + &made[*skip],
                    _ => (last
                        - &last
                            .sum_axes(&[1])
                            .reshape([rows, 1])
                            .broadcast_in_dim(f32([rows, width]).unwrap().shape, &[0, 1])
                            * (1.0 / width as f32))
                        .exp()
                        .tanh(),
                });
            }
            made.last().unwrap().sum()
        });
        f.output("d_x", d_x);
        f.output("d_w", d_w);
    };
    program.function("f", build).unwrap();
    program
}

/// Compiles with budgets from below the minimum to the function's memory without a budget. An error
/// says which property does not hold.
fn monotone(program: &Program) -> std::result::Result<(), String> {
    let bytes = |budget: u64| {
        let options = Options { memory_budget: Some(budget), ..Options::default() };
        compile(program, "f", &bind!(), &Target::cpu(), &options)
            .map(|plan| Account::sizes(&plan).total())
    };
    let plans = frontier(program, "f", &bind!(), &Target::cpu(), &Options::default(), 4).unwrap();
    let points: Vec<u64> = plans.iter().map(|p| Account::sizes(&p.plan).total()).collect();
    let (least, most) = (points[0], *points.last().unwrap());
    let between = (0..4).map(|n| least + (most - least) * n / 4 + n);
    let mut budgets: Vec<u64> =
        points.iter().copied().chain(between).chain([least - 1, least - least / 8]).collect();
    budgets.sort_unstable();
    budgets.dedup();
    for budget in budgets {
        match bytes(budget) {
            Ok(taken) if taken <= budget && budget >= least => {}
            Err(error) if budget < least && error.to_string().contains(" does not fit into ") => {}
            Ok(taken) => return Err(format!("{taken} bytes of {budget}; the least is {least}")),
            Err(error) => return Err(format!("{budget} bytes, of {points:?}: {error}")),
        }
    }
    Ok(())
}

/// The number of cases: `few`, or the number that the deep tests set.
fn cases(few: u64) -> u64 {
    std::env::var("WENGERT_CASES")
        .map_or(few, |count| count.parse().expect("WENGERT_CASES is a number"))
}

#[test]
fn budgets_are_monotone() {
    let count = cases(12);
    let wrong: Vec<String> = (0..count)
        .filter_map(|seed| {
            monotone(&layered(seed)).err().map(|error| format!("seed {seed}: {error}"))
        })
        .collect();
    println!("{} passed, {} failed", count - wrong.len() as u64, wrong.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
