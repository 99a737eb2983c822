//! Marks and attributes that are misspelt, misplaced, or contradict each other.
use wengert_core::{Differentiable, Tensor};

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Misspelt {
    weight: Tensor,
    #[no_derivativ]
    name: String,
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core, tangnet = Tensor)]
struct MisspeltKey(Tensor);

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct WithArguments(Tensor, #[no_derivative(true)] String);

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct Twice(
    Tensor,
    #[no_derivative]
    #[no_derivative]
    String,
);

#[derive(Differentiable)]
#[differentiable(crate = wengert_core, tangent = Tensor, synthesize = ConflictTangent)]
struct Conflict(Tensor);

#[derive(Differentiable)]
#[no_derivative]
struct OnType(Tensor);

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
struct OnField(#[differentiable(synthesize = A)] Tensor);

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
enum OnVariant {
    #[no_derivative]
    Flag(bool),
}

#[derive(Differentiable)]
#[differentiable(crate = wengert_core)]
union Union {
    bits: u32,
}

fn main() {}
