//! Loss scaling: it changes no step in f32, saves small gradients in f16, and skips steps whose
//! gradient is not finite.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use wengert::nn::Linear;
use wengert::optim::{LOSS_SCALE, SKIPPED, clip_by_global_norm, global_norm};
use wengert::prelude::*;

const NONE: [(&str, Literal); 0] = [];

/// A session with the values of `init`.
fn session(program: &Program, device: Device) -> Session {
    let mut session = Session::open(device).unwrap();
    let mut init = session.compile(program, "init", bind!()).unwrap();
    let key = Literal::from_vec(&[2], vec![0u32, 7]).unwrap();
    let keys = &program.get("init").unwrap().inputs;
    init.run(&keys.iter().map(|input| (input.name.as_str(), key.clone())).collect::<Vec<_>>())
        .unwrap();
    session
}

/// A step of a layer on given data, with clipping. The batch is divided in two parts whose
/// gradients are added.
fn layered(scale: &LossScale) -> Program {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let layer = f.state("layer", Linear::new(4, 3));
            let x = Tensor::constant(
                Literal::from_vec(&[6, 4], (0..24).map(|i| (i as f32 * 0.7).sin()).collect())
                    .unwrap(),
            );
            let loss = |layer: &Linear, from: usize| {
                let x = x.slice_axis(0, from, from + 3);
                (layer.call(&x).tanh() - 0.3).square().sum()
            };
            let scaled = scale.clone().begin(f);
            let of = |from| scaled.value_and_grad(&layer, |layer| loss(layer, from));
            let ((first, a), (second, b)) = (of(0), of(3));
            let gradient = a.move_along(&b);
            let (clipped, norm) = clip_by_global_norm(&gradient, 0.5);
            AdamW::new(0.1).step(f, &layer, &clipped);
            scaled.finish(f, &clipped);
            f.output("loss", first + second);
            f.output("norm", norm);
        })
        .unwrap();
    program
}

#[test]
fn a_scale_changes_no_bit_of_a_step_in_f32() {
    for device in [Device::Interpreter, Device::Cpu] {
        let run = |scale: LossScale| {
            let program = layered(&scale);
            let mut session = session(&program, device);
            let mut step = session.compile(&program, "step", bind!()).unwrap();
            let mut found = Vec::new();
            for _ in 0..6 {
                let outputs = step.run(&NONE).unwrap();
                found.extend(["loss", "norm"].map(|name| outputs.scalar(name).unwrap()));
                for name in ["layer.weight", "adamw.v.layer.bias"] {
                    let variable = session.variable(name).unwrap();
                    found.extend(variable.scalars().map(|x| x.to_f64()));
                }
            }
            found
        };
        let plain = run(LossScale::none());
        assert!(plain[0] > 0.0 && plain[1] > 0.5, "the gradient is clipped: {plain:?}");
        let text = layered(&LossScale::none()).get("step").unwrap().to_string();
        assert!(!text.contains("loss_scale") && !text.contains("skipped"), "{text}");
        assert_eq!(plain, run(LossScale::dynamic()));
        assert_eq!(plain, run(LossScale::dynamic().initial(4.0).interval(2)));
    }
}

/// One weight w = 1 times 8: the gradient of the loss with respect to the product is 1.
fn product(scale: LossScale, factor: f32) -> Program {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let start = Initializer::Ones;
            let w = f.state("w", Tensor::variable(TensorType::new(DType::F32, [1, 1]), start));
            let x = Tensor::constant(Literal::from_vec(&[1, 1], vec![8.0f32]).unwrap());
            let scaled = scale.begin(f);
            let (loss, gradient) = scaled.value_and_grad(&w, |w| {
                let product = x.convert(DType::F16).dot(&w.convert(DType::F16));
                product.convert(DType::F32).sum() * factor
            });
            Sgd::new(0.125).momentum(0.5).step(f, &w, &gradient);
            scaled.finish(f, &gradient);
            f.output("loss", loss);
            f.output("gradient", &gradient);
        })
        .unwrap();
    program
}

/// The scale of each step, whether it was skipped, and w and the velocity after it.
fn trace(program: &Program, device: Device, steps: usize) -> Vec<(f64, bool, [f64; 2])> {
    let mut session = session(program, device);
    let mut step = session.compile(program, "step", bind!()).unwrap();
    (0..steps)
        .map(|_| {
            let outputs = step.run(&NONE).unwrap();
            let state =
                ["w", "sgd.velocity.w"].map(|name| session.variable(name).unwrap().get(0).to_f64());
            let skipped = outputs.scalar(SKIPPED).unwrap() != 0.0;
            (outputs.scalar(LOSS_SCALE).unwrap(), skipped, state)
        })
        .collect()
}

/// In f16 a cotangent of 8 · scale is finite for scales of at most 4096.
#[test]
fn a_step_whose_gradient_is_not_finite_is_skipped() {
    for device in [Device::Interpreter, Device::Cpu] {
        let found = trace(&product(LossScale::dynamic().interval(2), 1.0), device, 10);
        let scales: Vec<(f64, bool)> =
            found.iter().map(|(scale, skip, _)| (*scale, *skip)).collect();
        let wanted = [
            (65536.0, true),
            (32768.0, true),
            (16384.0, true),
            (8192.0, true),
            (4096.0, false),
            (4096.0, false),
            (8192.0, true),
            (4096.0, false),
            (4096.0, false),
            (8192.0, true),
        ];
        assert_eq!(scales, wanted, "{device:?}");
        // Gradients of 8, with momentum: v = 8, 12, 14, 15 and w = 1 − (v₁ + … + vₙ)/8.
        let good: Vec<[f64; 2]> = found.iter().map(|(_, _, state)| *state).collect();
        assert_eq!(good[3], [1.0, 0.0]);
        assert_eq!([good[4], good[5], good[6]], [[0.0, 8.0], [-1.5, 12.0], [-1.5, 12.0]]);
        assert_eq!([good[7], good[8], good[9]], [[-3.25, 14.0], [-5.125, 15.0], [-5.125, 15.0]]);
    }
}

#[test]
fn the_scale_stays_within_its_bounds() {
    let scale = LossScale::dynamic().initial(16_777_216.0).interval(1);
    let found = trace(&product(scale, 1e-12), Device::Cpu, 3);
    assert!(
        found.iter().all(|(scale, skipped, _)| *scale == 16_777_216.0 && !skipped),
        "{found:?}"
    );
    let found = trace(&product(LossScale::dynamic().initial(2.0), 1e6), Device::Cpu, 4);
    let scales: Vec<(f64, bool)> = found.iter().map(|(scale, skip, _)| (*scale, *skip)).collect();
    assert_eq!(scales, [(2.0, true), (1.0, true), (1.0, true), (1.0, true)]);
}

/// Without a scale the cotangent 10⁻⁹ is 0 in f16.
#[test]
fn small_gradients_survive() {
    for device in [Device::Interpreter, Device::Cpu] {
        let gradient = |scale: f64| {
            let program = product(LossScale::dynamic().initial(scale), 1e-9);
            let mut session = session(&program, device);
            let mut step = session.compile(&program, "step", bind!()).unwrap();
            step.run(&NONE).unwrap().scalar("gradient").unwrap()
        };
        assert_eq!(gradient(1.0), 0.0);
        let found = gradient(65536.0);
        assert!((found / 8e-9 - 1.0).abs() < 1e-3, "{found}");
    }
}

#[test]
fn gradients_of_halves_are_wide() {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let ty = TensorType::new(DType::F16, [2]);
            let w = f.state("w", Tensor::variable(ty, Initializer::Ones));
            let scaled = LossScale::dynamic().begin(f);
            let (_, gradient) =
                scaled.value_and_grad(&w, |w: &Tensor| (w.convert(DType::F32) * 1e-9).sum());
            assert_eq!(gradient.dtype(), DType::F32);
            AdamW::new(0.1).step(f, &w, &gradient);
            scaled.finish(f, &gradient);
            f.output("norm", global_norm(&gradient));
        })
        .unwrap();
    let mut session = session(&program, Device::Cpu);
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    let norm = step.run(&NONE).unwrap().scalar("norm").unwrap();
    assert!((norm / (1e-9 * 2f64.sqrt()) - 1.0).abs() < 1e-3, "{norm}");
    assert_eq!(session.variable("w").unwrap().dtype(), DType::F16);
}

#[test]
fn mistakes_are_errors() {
    let fails = |begin: &dyn Fn(&mut FunctionBuilder), texts: &[&str]| {
        let mut program = Program::new();
        let error = program.function("step", |f| begin(f)).unwrap_err().to_string();
        for text in texts {
            assert!(error.contains(text), "{error}");
        }
    };
    let begin = |scale: LossScale| move |f: &mut FunctionBuilder| drop(scale.clone().begin(f));
    let power = ["the first scale of a loss is", "a power of two from 1 to 2^24", "loss_scale.rs"];
    for scale in [3.0, 0.5, 0.0, -4.0, f64::NAN, f64::INFINITY, 2f64.powi(25)] {
        fails(&begin(LossScale::dynamic().initial(scale)), &power);
    }
    fails(&begin(LossScale::dynamic().interval(0)), &["doubled after 0 steps", "at least 1"]);
    let twice = |f: &mut FunctionBuilder| {
        drop(LossScale::dynamic().begin(f));
        drop(LossScale::dynamic().begin(f));
    };
    fails(&twice, &["input `loss_scale.scale`: declared twice"]);
    let vector = |f: &mut FunctionBuilder| {
        let x = f.input("x", f32("3"));
        f.update_only_if(&x.gt(0.0));
    };
    fails(&vector, &["updates depend on a scalar of bool, not on bool[3]", "`all`"]);
}
