//! Clipping of gradients.

use wengert_core::{DType, Differentiable, KeyPath, Location, Tensor};

/// The gradient, scaled down to a norm of at most `limit`, and its norm before scaling. The norm
/// is over all float elements, computed in f32 (in f64 if an element is f64).
#[track_caller]
pub fn clip_by_global_norm<G: Differentiable>(gradient: &G, limit: f64) -> (G, Tensor) {
    let _user = Location::caller().attributed();
    let tensors = gradient.tensors();
    let is_float = |t: &Tensor| t.dtype().is_float();
    let wide = tensors.iter().any(|(_, t)| t.dtype() == DType::F64);
    let dtype = if wide { DType::F64 } else { DType::F32 };
    let mut squares = Tensor::constant(0.0f64).convert(dtype);
    let mut first = true;
    for (_, tensor) in tensors.iter().filter(|(_, t)| is_float(t)) {
        let square = tensor.convert(dtype).square().sum();
        squares = if first { square } else { squares + square };
        first = false;
    }
    let norm = squares.sqrt();
    // A norm of zero gives limit / 0 = ∞, hence 1.
    let scale = (norm.full_like(limit) / &norm).min(1.0);
    let clipped = gradient.map_tensors(&KeyPath::default(), &mut |_, t| match is_float(t) {
        true => t * scale.convert(t.dtype()),
        false => t.clone(),
    });
    (clipped, norm)
}
