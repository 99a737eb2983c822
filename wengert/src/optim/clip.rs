//! The norm of gradients, and their clipping.

use wengert_core::{DType, Differentiable, KeyPath, Location, Tensor, diagnostic};

/// The name of a step function's output that a training log shows as the norm of the gradient.
pub const GRAD_NORM: &str = "grad_norm";

/// The global norm of a gradient, a scalar: over all float elements, computed in f32 (in f64 if an
/// element is f64).
///
/// `f.output(optim::GRAD_NORM, optim::global_norm(&gradient))` adds it to a training log.
#[track_caller]
pub fn global_norm<G: Differentiable>(gradient: &G) -> Tensor {
    let _user = Location::caller().attributed();
    let tensors = gradient.tensors();
    let wide = tensors.iter().any(|(_, t)| t.dtype() == DType::F64);
    let dtype = if wide { DType::F64 } else { DType::F32 };
    let floats = tensors.iter().filter(|(_, t)| t.dtype().is_float());
    let squares = floats.map(|(_, t)| t.convert(dtype).square().sum()).reduce(|a, b| a + b);
    squares.unwrap_or_else(|| Tensor::constant(0.0f64).convert(dtype)).sqrt()
}

/// The gradient, scaled down to a [norm](global_norm) of at most `limit`, and its norm before
/// scaling.
#[track_caller]
pub fn clip_by_global_norm<G: Differentiable>(gradient: &G, limit: f64) -> (G, Tensor) {
    let _user = Location::caller().attributed();
    let norm = global_norm(gradient);
    // A norm of zero gives limit / 0 = ∞, hence 1.
    let scale = (norm.full_like(limit) / &norm).min(1.0);
    let clipped =
        gradient.map_tensors(&KeyPath::default(), &mut |_, t| match t.dtype().is_float() {
            true => t * scale.convert(t.dtype()),
            false => t.clone(),
        });
    (clipped, norm)
}

/// The gradient with each float element limited to −`limit`..=`limit`. NaN stays NaN.
///
/// It changes the direction of the gradient, unlike [`clip_by_global_norm`].
///
/// Error, which the result reports where it is used: the limit is negative or NaN.
#[track_caller]
pub fn clip_by_value<G: Differentiable>(gradient: &G, limit: f64) -> G {
    let _user = Location::caller().attributed();
    gradient.map_tensors(&KeyPath::default(), &mut |_, t| match t.dtype().is_float() {
        true if limit >= 0.0 => t.clamp(-limit, limit),
        true => Tensor::poisoned(
            diagnostic!("a gradient is clipped to values of at most {limit}")
                .at(Location::caller(), "clipped here")
                .help("give the greatest magnitude, a number of at least 0"),
        ),
        false => t.clone(),
    })
}
