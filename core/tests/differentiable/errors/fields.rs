//! Fields that hold no tensors and are not marked.
use wengert_core::{Differentiable, Tensor};

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Dropout {
    scale: Tensor,
    training: bool,
    #[no_derivative]
    name: String,
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
enum Layer {
    Repeat(Tensor, i32),
    Named { weight: Tensor, name: String },
}

fn main() {}
