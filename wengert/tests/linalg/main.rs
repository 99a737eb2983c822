//! Linear algebra against JAX, against defining identities, against finite differences, on a batch,
//! and on devices.
#![allow(clippy::print_stdout)] // Prints the greatest error that was found.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod degenerate;
mod devices;
mod identities;
mod jax;
mod mistakes;

use wengert::Outputs;
use wengert::core::Scalar;
use wengert::core::graph::{self, Function};
use wengert::prelude::*;
use wengert::random::SplitMix64;

/// Numbers from [−1, 1), as `generate.py` draws them.
fn draw(seed: u64, shape: &[usize]) -> Literal {
    let mut stream = SplitMix64::new(seed);
    let values: Vec<f64> =
        (0..shape.iter().product()).map(|_| stream.unit_f64() * 2.0 - 1.0).collect();
    Literal::from_vec(shape, values).unwrap()
}

fn doubles(literal: &Literal) -> Vec<f64> {
    literal.scalars().map(Scalar::to_f64).collect()
}

/// A function of tensors, whose inputs have the given types.
fn function(types: &[TensorType], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Result<Function> {
    FunctionBuilder::build("f", |b| {
        let inputs = types.iter().enumerate().map(|(i, ty)| b.input(&format!("x{i}"), ty.clone()));
        let inputs: Vec<Tensor> = inputs.collect();
        for (i, result) in f(&inputs).iter().enumerate() {
            b.output(&format!("y{i}"), result);
        }
    })
}

fn run(function: &Function, device: Device, inputs: &[Literal]) -> Vec<Literal> {
    let program = graph::Program::from_functions(vec![function.clone()]).unwrap();
    let named: Vec<(String, &Literal)> =
        inputs.iter().enumerate().map(|(i, l)| (format!("x{i}"), l)).collect();
    let named: Vec<(&str, &Literal)> = named.iter().map(|(n, l)| (n.as_str(), *l)).collect();
    let mut session = Session::open(device).unwrap();
    let outputs = session.compile(&program, "f", bind!()).and_then(|mut f| f.run(&named));
    outputs.and_then(Outputs::into_values).unwrap_or_else(|e| panic!("{device}: {e}"))
}

/// The results of `f` for these values on the CPU.
fn compute(inputs: &[Literal], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Vec<Literal> {
    let types: Vec<TensorType> = inputs.iter().map(Literal::ty).collect();
    run(&function(&types, f).unwrap_or_else(|e| panic!("{e}")), Device::Cpu, inputs)
}

/// Row numbers and column numbers of a matrix.
fn places(x: &Tensor) -> (Tensor, Tensor) {
    let along = |axis| Tensor::iota(DType::I32, x.shape().to_vec(), axis);
    (along(x.rank() - 2), along(x.rank() - 1))
}

fn eye(x: &Tensor) -> Tensor {
    let (row, column) = places(x);
    row.eq(column).convert(x.dtype())
}

/// low, low + 1, … on the diagonal.
fn ramp(x: &Tensor, low: f64) -> Tensor {
    eye(x) * (places(x).0.convert(x.dtype()) + low)
}

/// Threes on the antidiagonal, so that rows are exchanged.
fn turned(x: &Tensor) -> Tensor {
    let extents: Vec<i64> = x.shape().iter().map(|d| d.as_constant().unwrap()).collect();
    let (row, column) = places(x);
    (row + column).eq(extents[0].min(extents[1]) as i32 - 1).convert(x.dtype()) * 3.0
}

/// A positive definite matrix made from any matrix.
fn spd(x: &Tensor) -> Tensor {
    let n = x.shape()[0].as_constant().unwrap();
    x.dot(&x.matrix_transpose()) / n as f64 + eye(x)
}
