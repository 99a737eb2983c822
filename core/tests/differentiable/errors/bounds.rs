//! Type parameters that lack their bound, and fields that are not their own tangent vector.
use wengert_core::{Differentiable, NoDerivative, Tensor};

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Wrapper<M> {
    inner: M,
}

fn step<M>(model: &Wrapper<M>) -> Wrapper<M> {
    model.zero_tangent()
}

fn paths(model: &Wrapper<String>) -> usize {
    fn count(value: &impl Differentiable) -> usize {
        value.tensors().len()
    }
    count(model)
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct NotItself {
    weight: Tensor,
    labels: NoDerivative<Tensor>,
}

fn main() {}
