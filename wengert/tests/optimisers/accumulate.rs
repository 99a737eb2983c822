//! Gradients accumulated over parts of a batch, against those of the whole batch.

use super::begun;
use wengert::core::{Scalar, Target};
use wengert::optim::{LossScale, accumulate};
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;

type Model = (Linear, Linear);

fn model(width: usize, dtype: DType) -> Model {
    nn::with_dtype(&(Linear::new(5, width), Linear::new(width, 3)), dtype)
}

fn loss(model: &Model, x: &Tensor, y: &Tensor) -> Tensor {
    cross_entropy(&model.1.call(&model.0.call(x).tanh()), y)
}

/// A step with its batch in `parts` parts, or as a whole.
fn program(ty: &str, width: usize, dtype: DType, parts: Option<usize>) -> Program {
    let mut program = Program::new();
    program
        .function("step", |f| {
            let x = f.input("x", f32(&*format!("{ty},5")).map(|ty| ty.with_dtype(dtype)));
            let y = f.input("y", i32(ty));
            let model = f.state("model", model(width, dtype));
            let of = |x: &Tensor, y: &Tensor| {
                let (loss, right, gradient) = value_aux_and_grad(&model, |model| {
                    let right = model.0.call(x).argmax(1).convert(DType::I32).sum();
                    (loss(model, x, y), right)
                });
                (loss, (right, gradient))
            };
            let (loss, (right, gradient)) = match parts {
                Some(parts) => accumulate(parts, &(x, y), |(x, y)| of(x, y)),
                None => of(&x, &y),
            };
            f.output("loss", loss);
            f.output("right", right);
            for (path, t) in gradient.tensors() {
                f.output(&format!("gradient.{path}"), t);
            }
        })
        .unwrap();
    program
}

fn batch(examples: usize, dtype: DType) -> [(&'static str, Literal); 2] {
    let x = (0..5 * examples).map(|i| (i as f64 * 0.7).sin()).collect();
    let y = (0..examples).map(|i| (i * i % 3) as i32).collect();
    [
        ("x", Literal::from_vec(&[examples, 5], x).unwrap().convert(dtype)),
        ("y", Literal::from_vec(&[examples], y).unwrap()),
    ]
}

/// The results of a step of 12 examples, by name.
fn results(program: &Program, binding: Binding, dtype: DType) -> Vec<(String, Literal)> {
    let mut session = begun(program);
    let mut step = session.compile(program, "step", binding).unwrap();
    let outputs = step.run(&batch(12, dtype)).unwrap();
    outputs.iter().unwrap().map(|(name, value)| (name.to_owned(), value.clone())).collect()
}

fn assert_close(found: &[(String, Literal)], wanted: &[(String, Literal)], bound: f64) {
    assert_eq!(found.len(), wanted.len());
    for ((name, found), (_, wanted)) in found.iter().zip(wanted) {
        assert_eq!(found.shape(), wanted.shape(), "{name}");
        for (a, b) in found.scalars().zip(wanted.scalars()).map(|(a, b)| (a.to_f64(), b.to_f64())) {
            assert!((a - b).abs() <= bound * (1.0 + b.abs()), "{name}: {a} and {b}");
        }
    }
}

#[test]
fn parts_add_up_to_the_whole_batch() {
    let whole = results(&program("12", 7, DType::F64, None), bind!(), DType::F64);
    assert_eq!(whole.len(), 6);
    for parts in [1, 3, 4, 12] {
        let found = results(&program("12", 7, DType::F64, Some(parts)), bind!(), DType::F64);
        assert_close(&found, &whole, 1e-14);
    }
    // The parts are of B examples.
    let found = results(&program("4*B", 7, DType::F64, Some(4)), bind!(B = 3), DType::F64);
    assert_close(&found, &whole, 1e-14);
    let [whole, found] = [None, Some(4)]
        .map(|parts| results(&program("12", 7, DType::F32, parts), bind!(), DType::F32));
    assert_close(&found, &whole, 1e-6);
}

/// Halves are added in f32. Gradients of 1/3000, added to 1 in halves, would be lost.
#[test]
fn halves_are_added_in_f32() {
    for dtype in [DType::F16, DType::BF16] {
        let mut program = Program::new();
        program
            .function("step", |f| {
                let x = f.input("x", TensorType::new(dtype, [4usize]));
                f.output("mean", accumulate(4, &x, |x| x.sum()));
            })
            .unwrap();
        let mut session = Session::open(Device::Interpreter).unwrap();
        let mut step = session.compile(&program, "step", bind!()).unwrap();
        let values = Literal::from_vec(&[4], vec![1.0, 1.0 / 4096.0, 1.0 / 4096.0, 2.0]).unwrap();
        let outputs = step.run(&[("x", values.convert(dtype))]).unwrap();
        let mean = outputs.get("mean").unwrap();
        assert_eq!(mean.get(0), Scalar::of((3.0f32 + 2.0 / 4096.0) / 4.0));
    }
}

/// Activations take the memory of one part.
#[test]
fn memory_shrinks() {
    let arena = |parts: Option<usize>| {
        let program = program("4096", 64, DType::F32, parts);
        let target = Target::cpu();
        compile(&program, "step", &bind!(), &target, &Options::default()).unwrap().arena
    };
    let (whole, parts) = (arena(None), arena(Some(16)));
    assert!(parts * 6 < whole, "{parts} and {whole} bytes");
}

/// A whole step: with a scaled loss and an optimiser.
#[test]
fn a_training_step_of_parts() {
    let step = |parts: Option<usize>| {
        let mut program = Program::new();
        program
            .function("step", |f| {
                let (x, y) = (f.input("x", f32("12,5")), f.input("y", i32("12")));
                let model = f.state("model", model(7, DType::F32));
                let scaled = LossScale::dynamic().begin(f);
                let of = |x: &Tensor, y: &Tensor| {
                    scaled.value_and_grad(&model, |model| loss(model, x, y))
                };
                let (loss, gradient) = match parts {
                    Some(parts) => accumulate(parts, &(x, y), |(x, y)| of(x, y)),
                    None => of(&x, &y),
                };
                Sgd::new(0.5).step(f, &model, &gradient);
                scaled.finish(f, &gradient);
                f.output("loss", loss);
            })
            .unwrap();
        let mut session = Session::open(Device::Cpu).unwrap();
        session.initialize(&program, 1).unwrap();
        let mut step = session.compile(&program, "step", bind!()).unwrap();
        let mut losses = vec![];
        for _ in 0..20 {
            let outputs = step.run(&batch(12, DType::F32)).unwrap();
            losses.push(outputs.scalar("loss").unwrap());
        }
        losses
    };
    let (whole, parts) = (step(None), step(Some(3)));
    assert!(whole[19] < 0.9 * whole[0], "{whole:?}");
    assert!(whole.iter().zip(&parts).all(|(a, b)| (a - b).abs() < 1e-5), "{whole:?} {parts:?}");
}
