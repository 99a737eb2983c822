//! Capabilities of earlier systems for differentiation: a test for each capability, and a module
//! for each system. The table in `docs/differentiation.md` names the sources.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod modular;
mod source;
mod swift;
mod tracing;
mod types;

use wengert::core::graph::Function;
use wengert::core::interpret;
use wengert::prelude::*;

/// Builds a function of scalars, or returns the error.
fn try_build(count: usize, f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Result<Function> {
    FunctionBuilder::build("f", |b| {
        let x: Vec<Tensor> = (0..count).map(|i| b.input(&format!("x{i}"), f64(""))).collect();
        for (i, y) in f(&x).iter().enumerate() {
            b.output(&format!("y{i}"), y);
        }
    })
}

/// Builds a function of scalars.
fn build(count: usize, f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Function {
    try_build(count, f).unwrap_or_else(|e| panic!("{e}"))
}

/// Evaluates a function of scalars at a point.
fn at<const N: usize>(x: [f64; N], f: impl FnOnce(&[Tensor]) -> Vec<Tensor>) -> Vec<f64> {
    let inputs: Vec<Literal> = x.into_iter().map(Literal::from).collect();
    let results = interpret::run(&build(N, f), &inputs).unwrap();
    results.iter().flat_map(|l| l.scalars().map(|s| s.to_f64()).collect::<Vec<_>>()).collect()
}

fn constant(x: f64) -> Tensor {
    Tensor::constant(x)
}

/// The number of occurrences of an op.
fn count(f: &Function, op: &str) -> usize {
    f.body.equations.iter().filter(|e| e.op.name() == op).count()
}

/// A model: an affine map, applied `steps` times. The count is not part of its tangent vector.
#[derive(Differentiable)]
struct Layer {
    weight: Tensor,
    bias: Tensor,
    #[no_derivative]
    steps: usize,
}

impl Layer {
    fn call(&self, x: &Tensor) -> Tensor {
        (0..self.steps).fold(x.clone(), |x, _| x * &self.weight + &self.bias)
    }
}

fn layer(v: &[Tensor], steps: usize) -> Layer {
    Layer { weight: v[0].clone(), bias: v[1].clone(), steps }
}
