//! Training steps with small collectives joined, on ranks that are threads, against those without.
#![allow(clippy::unwrap_used)] // Helpers outside of `#[test]` functions unwrap too.

use std::time::Duration;
use wengert::DeviceOptions;
use wengert::core::graph::{Function, InputRole};
use wengert::core::plan::{Plan, Step, verify_ranks};
use wengert::core::{Target, Verified};
use wengert::models::{Gpt, GptSettings};
use wengert::nn::Linear;
use wengert::operators::value_and_grad;
use wengert::optim::AdamW;
use wengert::pipeline::{Bound, Options};
use wengert::prelude::*;
use wengert::ranks::{DataParallel, Sharding, Shards};
use wengert::transport::{self, Communicator, shared};
use wengert_testing::Random;

fn without() -> Options {
    Options { fuel: [("buckets".to_string(), 0)].into(), ..Options::default() }
}

fn plan(function: &Function, options: &Options) -> Verified<Plan> {
    let bound = Bound::new(function, &bind!()).unwrap_or_else(|e| panic!("{e}"));
    bound.compile(&Target::cpu(), options).unwrap_or_else(|e| panic!("{e}")).0
}

fn step<M: Differentiable>(
    inputs: [TensorType; 2],
    model: impl FnOnce() -> M,
    loss: impl Fn(&M, &Tensor, &Tensor) -> Tensor,
) -> Function {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let [x, y] = inputs;
            let (x, y) = (f.input("x", x), f.input("y", y));
            let model = f.state("model", model());
            let (loss, gradient) = value_and_grad(&model, |m| loss(m, &x, &y));
            AdamW::new(1e-3).step(f, &model, &gradient);
            f.output("loss", loss);
        })
        .unwrap_or_else(|e| panic!("{e}"));
    program.get("step").unwrap().clone()
}

fn gpt(settings: &GptSettings, batch: usize) -> Function {
    let tokens = TensorType::new(DType::I32, [batch, settings.positions]);
    step([tokens.clone(), tokens], || Gpt::new(settings), Gpt::loss)
}

fn mlp() -> Function {
    let x = TensorType::new(DType::F32, [8, 24]);
    let y = TensorType::new(DType::F32, [8, 40]);
    let model = || (Linear::new(24, 64), Linear::new(64, 1024), Linear::new(1024, 40));
    step([x, y], model, |m, x, y| {
        let hidden = m.1.call(&m.0.call(x).tanh()).tanh();
        (m.2.call(&hidden) - y).square().mean()
    })
}

fn of_rank(function: &Function, ranks: usize, parts: usize, sharding: Sharding) -> Function {
    let parallel = DataParallel::new(["x", "y"]).ranks(ranks).microbatches(parts);
    let of_rank = parallel.apply(function).unwrap_or_else(|e| panic!("{e}"));
    let shards = Shards::choose(&of_rank, sharding, []);
    shards.apply(&of_rank).unwrap_or_else(|e| panic!("{e}"))
}

/// Outputs and variables after three steps, on each rank.
fn trained(function: &Function, plan: &Verified<Plan>) -> Vec<(Vec<f64>, wengert::data::Arrays)> {
    let options = transport::Options { timeout: Duration::from_secs(60), ..Default::default() };
    let world = shared::threads(function.mesh.ranks(), &options).unwrap();
    let run = |rank: Communicator| {
        let options = DeviceOptions { threads: Some(1), ..DeviceOptions::default() };
        let mut session = Session::open_with(Device::Cpu, &options).unwrap();
        let mut alike = Random(1);
        let mut own = Random(2 + rank.rank() as u64);
        session.join(rank).unwrap();
        let mut given = Vec::new();
        for (i, input) in function.inputs.iter().enumerate() {
            let ty = function.input_type(i);
            let shape = ty.extents().unwrap();
            let random = if ty.varying.is_empty() { &mut alike } else { &mut own };
            let value = match ty.dtype {
                DType::I32 => {
                    let count = shape.iter().product();
                    let tokens = (0..count).map(|_| random.below(7) as i32).collect();
                    Literal::from_vec(&shape, tokens).unwrap()
                }
                // States of the optimiser are squares.
                _ => random.literal(&ty.invariant()).square_of_elements(),
            };
            match input.role {
                InputRole::Input | InputRole::Key => given.push((input.name.as_str(), value)),
                _ => session.set_variable(&input.name, &value).unwrap(),
            }
        }
        let mut compiled = session.load_plan(plan.clone()).unwrap();
        let losses = (0..3).map(|_| compiled.run(&given).unwrap().scalar("loss").unwrap());
        let losses: Vec<f64> = losses.collect();
        (losses, session.variables().unwrap())
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> =
            world.into_iter().map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

trait Squares {
    fn square_of_elements(self) -> Literal;
}

impl Squares for Literal {
    fn square_of_elements(self) -> Literal {
        let squares = self.scalars().map(|s| (s.to_f64() * s.to_f64()) as f32).collect();
        Literal::from_vec(self.shape(), squares).unwrap()
    }
}

/// Starts and calls of collectives.
fn collectives(plan: &Plan) -> usize {
    let mut count = 0;
    plan.visit(&mut |step| {
        let call = matches!(step, Step::Call { call, .. } if call.collective().is_some());
        count += usize::from(call || matches!(step, Step::Start { .. }));
    });
    count
}

#[test]
fn steps_have_the_bits_of_single_collectives() {
    let settings = GptSettings { vocabulary: 7, positions: 6, width: 32, heads: 2, layers: 2 };
    for (name, function) in [("mlp", mlp()), ("gpt", gpt(&settings, 8))] {
        for (ranks, parts) in [(2, 2), (2, 4), (4, 4)] {
            for sharding in Sharding::ALL {
                let name = format!("{name}, {ranks} ranks, {parts} parts, {sharding:?}");
                let of_rank = of_rank(&function, ranks, parts, sharding);
                let joined = plan(&of_rank, &Options::default());
                let single = plan(&of_rank, &without());
                assert!(collectives(&joined) < collectives(&single), "{name}: {joined}");
                verify_ranks(&vec![&*joined; ranks]).unwrap();
                let (found, wanted) = (trained(&of_rank, &joined), trained(&of_rank, &single));
                assert!(found == wanted, "{name}: the bits differ");
                let finite = wanted.iter().flat_map(|(losses, _)| losses).all(|l| l.is_finite());
                assert!(finite, "{name}: {:?}", wanted[0].0);
            }
        }
    }
}

/// GPT-2's widths, with two layers: 28 gradients, of which 20 are small, and the loss.
#[test]
fn a_step_of_gpt_2_has_few_collectives() {
    let settings = GptSettings { vocabulary: 512, positions: 64, layers: 2, ..GptSettings::SMALL };
    let function = gpt(&settings, 2);
    let counts = |parts| {
        let of_rank = of_rank(&function, 2, parts, Sharding::Replicated);
        [without(), Options::default()].map(|options| collectives(&plan(&of_rank, &options)))
    };
    assert_eq!(counts(2), [30, 12]);
}
