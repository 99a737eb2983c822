//! The examples that solve equations: a network of infinite depth, and Newton's method.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

use python_free_examples::deep_equilibrium::{self, Depth};
use python_free_examples::digits::{digits, inputs};
use python_free_examples::newton;
use wengert::core::Target;
use wengert::pipeline::{Options, compile};
use wengert::prelude::*;

/// The first images of a part of the digits, in a dtype.
fn images(part: &str, count: usize, dtype: DType) -> [(&'static str, Literal); 2] {
    let [(x, pixels), (y, labels)] = inputs(&digits().unwrap(), part).unwrap();
    let first: Vec<f64> = pixels.scalars().take(count * 64).map(|s| s.to_f64()).collect();
    let labels: Vec<i32> = labels.scalars().take(count).map(|s| s.to_f64() as i32).collect();
    let pixels = Literal::from_vec(&[count, 64], first).unwrap().convert(dtype);
    [(x, pixels), (y, Literal::from_vec(&[count], labels).unwrap())]
}

fn gradient(depth: Depth, inputs: &[(&'static str, Literal); 2]) -> Vec<f64> {
    let program = deep_equilibrium::gradient(24, depth).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 3).unwrap();
    let found = session.compile(&program, "gradient", bind!(B = 32)).unwrap().run(inputs).unwrap();
    found.get("gradient").unwrap().scalars().map(|s| s.to_f64()).collect()
}

#[test]
fn the_gradient_of_an_equilibrium_is_that_of_very_many_layers() {
    let inputs = images("train", 32, DType::F64);
    let implicit = gradient(Depth::Infinite(1e-13), &inputs);
    let layers = gradient(Depth::Layers(300), &inputs);
    let scale = layers.iter().fold(0f64, |s, v| s.max(v.abs()));
    let worst = implicit.iter().zip(&layers).fold(0f64, |w, (a, b)| w.max((a - b).abs()));
    println!("{} numbers up to {scale:.3}, differences at most {worst:.2e}", layers.len());
    assert!(scale > 0.01 && worst < 1e-10 * scale, "{worst:e} of {scale:e}");
    // A few layers give another gradient.
    let shallow = gradient(Depth::Layers(3), &inputs);
    assert!(implicit.iter().zip(&shallow).any(|(a, b)| (a - b).abs() > 1e-3 * scale));
}

/// Bytes of the arena of a training step.
fn memory(depth: Depth) -> u64 {
    let program = deep_equilibrium::program(24, depth).unwrap();
    compile(&program, "train_step", &bind!(B = 64), &Target::cpu(), &Options::default())
        .unwrap()
        .arena
}

#[test]
fn the_memory_of_an_equilibrium_is_that_of_a_few_layers() {
    let (infinite, few, many) =
        (memory(Depth::Infinite(1e-6)), memory(Depth::Layers(10)), memory(Depth::Layers(100)));
    println!("infinitely many layers {infinite} bytes, 10 layers {few}, 100 layers {many}");
    assert!(many > few + 80 * 64 * 24 * 4, "each layer remembers its state: {few}, {many}");
    assert!(infinite < few + 10 * 64 * 24 * 4, "{infinite}, {few}");
}

#[test]
fn an_equilibrium_learns_to_read() {
    let program = deep_equilibrium::program(48, Depth::Infinite(1e-5)).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 1).unwrap();
    let (train, test) = (images("train", 600, DType::F32), images("test", 360, DType::F32));
    let mut step = session.compile(&program, "train_step", bind!(B = 600)).unwrap();
    let losses: Vec<f64> =
        (0..80).map(|_| step.run(&train).unwrap().scalar("loss").unwrap()).collect();
    let mut accuracy = session.compile(&program, "accuracy", bind!(B = 360)).unwrap();
    let accuracy = accuracy.run(&test).unwrap().scalar("accuracy").unwrap();
    println!("loss {} to {}, test accuracy {accuracy}", losses[0], losses[79]);
    assert!(losses[0] > 1.5 && accuracy > 0.9, "{losses:?}, {accuracy}");
}

#[test]
fn newtons_method_is_done_in_a_few_steps() {
    let program = newton::program(1e-3, 1e-6).unwrap();
    let mut session = Session::open(Device::Cpu).unwrap();
    session.initialize(&program, 0).unwrap();
    let train = images("train", 600, DType::F64);
    let mut step = session.compile(&program, "newton_step", bind!(B = 600)).unwrap();
    let mut sizes = Vec::new();
    while sizes.last().is_none_or(|size| *size >= 1e-8) && sizes.len() < 15 {
        sizes.push(step.run(&train).unwrap().scalar("gradient").unwrap());
    }
    println!("gradients {sizes:?}");
    assert!(sizes.len() < 15 && sizes[0] > 0.1, "{sizes:?}");
    // Convergence is faster than linear: the last steps shrink by far more than half.
    assert!(sizes[sizes.len() - 1] < 1e-2 * sizes[sizes.len() - 2], "{sizes:?}");
}
