//! Moving averages of weights, against a plain recurrence in f64.

use super::{NONE, begun, numbers, step_program};
use wengert::optim::{Ema, LossScale};
use wengert::prelude::*;

/// The averages of a series: `fresh(t)` is 1 − d at step t.
fn averages(series: &[Vec<f64>], fresh: impl Fn(f64) -> f64) -> Vec<Vec<f64>> {
    let mut average = vec![0.0; series[0].len()];
    let mut next = |(t, values): (usize, &Vec<f64>)| {
        let fresh = fresh(t as f64 + 1.0);
        average.iter_mut().zip(values).for_each(|(a, p)| *a = (1.0 - fresh) * *a + fresh * p);
        average.clone()
    };
    series.iter().enumerate().map(&mut next).collect()
}

#[test]
fn averages_follow_the_weights() {
    type Fresh = fn(f64) -> f64;
    let cases: [(Ema, Fresh); 3] = [
        (Ema::new(0.75), |t| if t == 1.0 { 1.0 } else { 0.25 }),
        (Ema::new(0.75).warmup(1.0), |t| (1.0 / t).max(0.25)),
        (Ema::new(0.9).warmup(0.75), |t| t.powf(-0.75).max(0.1)),
    ];
    for (ema, fresh) in cases {
        let program = step_program(|f, p, gradient| {
            Sgd::new(0.02).step(f, p, gradient);
            ema.step(f, p);
        });
        let mut session = begun(&program);
        let mut step = session.compile(&program, "step", bind!()).unwrap();
        let (mut weights, mut found) = (vec![], vec![]);
        for _ in 0..12 {
            step.run(&NONE).unwrap();
            weights.push(numbers(&mut session, "p"));
            found.push(numbers(&mut session, "ema.p"));
        }
        assert_ne!(weights[10], weights[11]);
        super::assert_same(&found, &averages(&weights, fresh));
    }
}

/// The plain mean, by a warm-up that does not end.
#[test]
fn a_warm_up_of_power_one_is_the_mean() {
    let program = step_program(|f, p, gradient| {
        Sgd::new(0.02).step(f, p, gradient);
        Ema::new(0.999).warmup(1.0).named("mean").step(f, p);
    });
    let mut session = begun(&program);
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    let mut sums = [0.0; super::N];
    for _ in 0..20 {
        step.run(&NONE).unwrap();
        sums.iter_mut().zip(numbers(&mut session, "p")).for_each(|(sum, p)| *sum += p);
    }
    let mean = sums.map(|sum| sum / 20.0).to_vec();
    super::assert_same(&[numbers(&mut session, "mean.p")], &[mean]);
}

/// A model of a half, a float and integers: what `param` declares, and what it reads.
#[test]
fn a_model_is_built_on_averages() {
    let parts = || {
        let of =
            |dtype, initializer| Tensor::variable(TensorType::new(dtype, [2usize]), initializer);
        let (half, float) = (of(DType::F16, Initializer::Ones), of(DType::F32, Initializer::Ones));
        (half, (float, of(DType::I32, Initializer::Ones)))
    };
    let mut program = Program::new();
    program
        .function("step", |f| {
            let model = f.state("model", parts());
            let loss = |(half, (float, _)): &(Tensor, (Tensor, Tensor))| {
                half.convert(DType::F32).sum() + float.sum()
            };
            let gradient = grad(&model, loss);
            Sgd::new(0.25).step(f, &model, &gradient);
            Ema::new(0.5).step(f, &model);
        })
        .unwrap();
    program
        .function("predict", |f| {
            let (half, (float, count)) = Ema::param(f, "model", parts());
            assert_eq!(half.dtype(), DType::F16);
            f.output("half", half);
            f.output("float", float);
            f.output("count", count);
        })
        .unwrap();
    let predict = program.get("predict").unwrap();
    let names: Vec<&str> = predict.inputs.iter().map(|input| input.name.as_str()).collect();
    assert_eq!(names, ["ema.model.0", "ema.model.1.0", "model.1.1"]);
    assert_eq!(predict.input_type(0).dtype, DType::F32);
    let mut session = begun(&program);
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    // Weights of 3/4 and 1/2.
    (0..2).for_each(|_| drop(step.run(&NONE).unwrap()));
    let mut predict = session.compile(&program, "predict", bind!()).unwrap();
    let outputs = predict.run(&NONE).unwrap();
    for (name, wanted) in [("half", 0.625), ("float", 0.625), ("count", 1.0)] {
        let found: Vec<f64> = outputs.get(name).unwrap().scalars().map(|x| x.to_f64()).collect();
        assert_eq!(found, [wanted; 2], "{name}");
    }
}

/// A step that loss scaling skips changes no average.
#[test]
fn skipped_steps_are_not_averaged() {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let factor = f.input("factor", f32(""));
            let ty = TensorType::new(DType::F32, [2usize]);
            let w = f.state("w", Tensor::variable(ty, Initializer::Ones));
            let scaled = LossScale::dynamic().begin(f);
            let (_, gradient) = scaled.value_and_grad(&w, |w| (w * &factor).sum());
            Sgd::new(0.25).step(f, &w, &gradient);
            Ema::new(0.5).step(f, &w);
            scaled.finish(f, &gradient);
        })
        .unwrap();
    let mut session = begun(&program);
    let mut step = session.compile(&program, "step", bind!()).unwrap();
    let mut run = |factor: f32| {
        step.run(&[("factor", Literal::from(factor))]).unwrap();
        ["w", "ema.w", "ema.step"].map(|path| numbers(&mut session, path)[0])
    };
    assert_eq!(run(1.0), [0.75, 0.75, 1.0]);
    assert_eq!(run(f32::INFINITY), [0.75, 0.75, 1.0]);
    assert_eq!(run(1.0), [0.5, 0.625, 2.0]);
}
