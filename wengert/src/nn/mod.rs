//! Layers: plain structs of tensors with a `call`.
//!
//! A layer is made without a device and without random numbers: its tensors are *variables* with
//! a type and an initializer. `param` or `state` of a function builder turns them into inputs of
//! the function; [`crate::Program`] makes the `@init` function that creates their values.
//!
//! Everything is f32 unless [`with_dtype`] says otherwise.
//!
//! Losses are in [`loss`], and values for metrics in [`metrics`].

mod activation;
mod attention;
mod batch_norm;
mod conv;
mod conv_transpose;
mod cross_attention;
mod dropout;
mod embedding;
mod group_norm;
mod grouped_query_attention;
mod gru;
mod instance_norm;
mod layer_norm;
mod linear;
pub mod loss;
mod lstm;
pub mod metrics;
mod mixture_of_experts;
mod rms_norm;
mod rotary;
mod swiglu;

pub use activation::Activation;
pub use attention::{Mask, SelfAttention, VisibleKeys, dot_product_attention};
pub use batch_norm::{BatchNorm, RunningStatistics, Statistics};
pub use conv::{Conv, Conv1d, Conv2d};
pub use conv_transpose::ConvTranspose2d;
pub use cross_attention::CrossAttention;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use group_norm::GroupNorm;
pub use grouped_query_attention::{GroupedQueryAttention, KeyValueCache};
pub use gru::Gru;
pub use instance_norm::InstanceNorm;
pub use layer_norm::LayerNorm;
pub use linear::Linear;
pub use lstm::{Lstm, LstmState};
pub use mixture_of_experts::MixtureOfExperts;
pub use rms_norm::RmsNorm;
pub use rotary::{Rotary, RotaryPairs, RotaryScaling};
pub use swiglu::SwiGlu;

use wengert_core::{DType, Differentiable, Initializer, KeyPath, Tensor, TensorType};

/// A variable of f32.
#[track_caller]
fn variable(shape: &[usize], initializer: Initializer) -> Tensor {
    Tensor::variable(TensorType::new(DType::F32, shape.iter().copied()), initializer)
}

/// Uniform numbers of variance 2/(inputs + outputs), in ±√(6/(inputs + outputs)) (Glorot and
/// Bengio 2010).
pub fn glorot_uniform(inputs: usize, outputs: usize) -> Initializer {
    let limit = (6.0 / (inputs + outputs).max(1) as f64).sqrt();
    Initializer::Uniform { low: -limit, high: limit }
}

/// Uniform numbers of variance 2/inputs, in ±√(6/inputs), for layers before a relu (He et al.
/// 2015).
pub fn kaiming_uniform(inputs: usize) -> Initializer {
    let limit = (6.0 / inputs.max(1) as f64).sqrt();
    Initializer::Uniform { low: -limit, high: limit }
}

/// Number of elements of a model's tensors: its learnt parameters.
///
/// # Panics
///
/// If a tensor has a dimension variable.
pub fn parameters<M: Differentiable>(model: &M) -> usize {
    let count = |tensor: &Tensor| tensor.ty().elements().expect("the extents of a model are known");
    model.tensors().iter().map(|(_, tensor)| count(tensor)).sum()
}

/// The same model with its float variables in another dtype. Call it before `param` or `state`.
#[must_use]
pub fn with_dtype<M: Differentiable>(model: &M, dtype: DType) -> M {
    model.map_tensors(&KeyPath::default(), &mut |_, tensor| match tensor.initializer() {
        Some(variable) if variable.ty.dtype.is_float() => {
            let initializer = match &variable.initializer {
                Initializer::Constant(literal) => Initializer::Constant(literal.convert(dtype)),
                other => other.clone(),
            };
            variable
                .location
                .attribute(|| Tensor::variable(variable.ty.with_dtype(dtype), initializer))
        }
        _ => tensor.clone(),
    })
}
