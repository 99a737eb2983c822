//! Training steps in mixed precision on devices: their losses and parameters against the CPU's,
//! steps that loss scaling skips, and states that are rounded stochastically, bit by bit.

use wengert::models::{Gpt, GptSettings};
use wengert::nn::{self, Linear};
use wengert::prelude::*;
use wengert_testing::Random;
use wengert_testing::random::floats;

const SMALL: GptSettings =
    GptSettings { vocabulary: 32, positions: 64, width: 64, heads: 2, layers: 2 };
const BATCH: usize = 2;
const STEPS: usize = 3;

/// A training step of a GPT under a policy.
fn gpt(precision: &Precision, scale: &LossScale) -> Program {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let tokens = TensorType::new(DType::I32, [BATCH, SMALL.positions]);
            let (x, y) = (f.input("x", tokens.clone()), f.input("y", tokens));
            let model = f.state("model", Gpt::new(&SMALL));
            let scaled = scale.clone().begin(f);
            let (loss, gradient) = scaled.value_and_grad(&model, |m| m.loss(&x, &y));
            AdamW::new(3e-3).step(f, &model, &gradient);
            scaled.finish(f, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    program.precision(precision).unwrap();
    program
}

/// The losses of some steps from one beginning, and the parameters after them.
fn trained(device: Device, program: &Program) -> (Vec<f64>, Vec<(String, Vec<f64>)>) {
    let mut session = Session::open(device).unwrap();
    session.initialize(program, 1).unwrap();
    let mut stream = Random(5);
    let mut tokens = || {
        let count = BATCH * SMALL.positions;
        let all: Vec<i32> = (0..count).map(|_| stream.below(32) as i32).collect();
        Literal::from_vec(&[BATCH, SMALL.positions], all).unwrap()
    };
    let given = [("x", tokens()), ("y", tokens())];
    let mut step = session.compile(program, "step", bind!()).unwrap();
    let losses = (0..STEPS).map(|_| step.run(&given).unwrap().scalar("loss").unwrap()).collect();
    let inputs = &program.get("step").unwrap().inputs;
    let parameters = inputs
        .iter()
        .filter(|input| input.name.starts_with("model."))
        .map(|input| (input.name.clone(), floats(&session.variable(&input.name).unwrap())))
        .collect();
    (losses, parameters)
}

/// Losses agree within the rounding of halves. A step of Adam moves a parameter by at most the
/// rate or so, whatever the size of its gradient, so few parameters may differ by as much.
fn steps_agree(device: Device) {
    let policies = [
        ("bf16", Precision::bf16(), LossScale::none()),
        ("f16", Precision::f16(), LossScale::dynamic().initial(1024.0)),
    ];
    for (name, precision, scale) in policies {
        let program = gpt(&precision, &scale);
        let (expected, expected_parameters) = trained(Device::Cpu, &program);
        let (found, found_parameters) = trained(device, &program);
        assert!(expected[STEPS - 1] < expected[0], "{name}: {expected:?}");
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() <= 0.01 * expected, "{name}: {found} {expected}");
        }
        assert!(found_parameters.len() > 20, "{name}");
        let (mut off, mut moved) = (0f64, 0usize);
        for ((path, found), (_, expected)) in found_parameters.iter().zip(&expected_parameters) {
            for (x, y) in found.iter().zip(expected) {
                assert!((x - y).abs() <= 7.0 * 3e-3, "{name}, {path}: {x} and {y}");
                off += (x - y).abs();
                moved += 1;
            }
        }
        let mean = off / moved as f64;
        assert!(mean <= 0.1 * 3e-3, "{name}: parameters differ by {mean} on average");
    }
}

/// A gradient that is not finite in f16: the device skips the step, and halves the scale.
fn a_step_is_skipped(device: Device) {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let x = f.input("x", TensorType::new(DType::F32, [16, 32]));
            let layer = f.state("layer", Linear::new(32, 16));
            let scaled = LossScale::dynamic().initial(65536.0).begin(f);
            let (loss, gradient) =
                scaled.value_and_grad(&layer, |layer| layer.call(&x).square().sum());
            Sgd::new(1e-4).step(f, &layer, &gradient);
            scaled.finish(f, &gradient);
            f.output("loss", loss);
        })
        .unwrap();
    program.precision(&Precision::f16()).unwrap();
    let mut session = Session::open(device).unwrap();
    session.initialize(&program, 1).unwrap();
    let x = Random(3).scaled(&TensorType::new(DType::F32, [16, 32]), 1.0);
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    let before = floats(&session.variable("layer.weight").unwrap());
    let (mut scales, mut moved) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        assert!(step.run(&[("x", &x)]).unwrap().scalar("loss").unwrap().is_finite());
        scales.push(floats(&session.variable("loss_scale.scale").unwrap())[0]);
        moved.push(floats(&session.variable("layer.weight").unwrap()) != before);
    }
    let skipped = moved.iter().take_while(|moved| !**moved).count();
    assert!((1..20).contains(&skipped), "{scales:?}");
    let expected = (1..=20).map(|step| 65536.0 * 0.5f64.powi(step.min(skipped as i32)));
    assert_eq!(scales, expected.collect::<Vec<_>>());
}

/// A step of Adam whose gradient is elementwise, with parameters and moments in bf16.
fn stored(device: Device) -> Vec<Vec<f64>> {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let start = Literal::from_vec(&[3000], (0..3000).map(|i| i as f32 / 997.0).collect());
            let start = Initializer::Constant(start.unwrap());
            let p = Tensor::variable(TensorType::new(DType::F32, [3000]), start);
            let p = f.state("p", nn::with_dtype(&p, DType::BF16));
            let key = f.key("key");
            let gradient = p.convert(DType::F32) - 1.0;
            AdamW::new(0.0625).moments(DType::BF16).stochastic_rounding(&key).step(
                f,
                &p,
                &gradient.convert(DType::BF16),
            );
        })
        .unwrap();
    let mut session = Session::open(device).unwrap();
    let none: [(&str, Literal); 0] = [];
    session.compile(&program, "init", bind!()).unwrap().run(&none).unwrap();
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    for seed in 0..8 {
        step.run(&[("key", Literal::from_vec(&[2], vec![0u32, seed]).unwrap())]).unwrap();
    }
    let inputs = &program.get("step").unwrap().inputs;
    let variables = inputs.iter().filter(|input| input.name != "key");
    variables.map(|input| floats(&session.variable(&input.name).unwrap())).collect()
}

/// Random bits are integers, so they are the same on every device; f32 arithmetic before a rounding
/// may differ in its last bits (fused multiply-adds), so a few results may be the other neighbour.
fn stored_halves_agree(device: Device) {
    let (expected, found) = (stored(Device::Cpu), stored(device));
    assert_eq!(expected.len(), found.len());
    let pairs = || expected.iter().flatten().zip(found.iter().flatten());
    let count = pairs().count();
    let different = pairs().filter(|(x, y)| x != y).count();
    assert!(count >= 9000 && 500 * different <= count, "{different} of {count} differ");
}

/// Rounding alone: no arithmetic is before it, so every bit is equal.
fn rounded(device: Device) -> Vec<f64> {
    let mut program = Program::new();
    program
        .function("round", |f| {
            let key = f.key("key");
            let x = f.input("x", TensorType::new(DType::F32, [5000]));
            f.output("y", x.round_stochastically(DType::BF16, &key).convert(DType::F32));
        })
        .unwrap();
    let mut session = Session::open(device).unwrap();
    let x = Random(3).scaled(&TensorType::new(DType::F32, [5000]), 1.0);
    let key = Literal::from_vec(&[2], vec![7u32, 11]).unwrap();
    let mut round = session.compile(&program, "round", bind!()).unwrap();
    floats(round.run(&[("x", &x), ("key", &key)]).unwrap().get("y").unwrap())
}

fn all_on(device: Device) {
    steps_agree(device);
    a_step_is_skipped(device);
    stored_halves_agree(device);
    assert_eq!(rounded(device), rounded(Device::Cpu));
}

#[test]
fn mixed_steps_on_the_emulator() {
    all_on(Device::Emulator);
}

#[test]
fn mixed_steps_on_the_device_that_is_asked_for() {
    if let Ok(name) = std::env::var("WENGERT_TEST_DEVICE") {
        all_on(name.parse().unwrap());
    }
}
