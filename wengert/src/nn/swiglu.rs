//! The feed-forward layer with a gate.

use super::Linear;
use wengert_core::{Differentiable, Location, Tensor};

/// `down(silu(gate(x)) · up(x))`, three linear layers without biases (Shazeer, *GLU variants
/// improve Transformer*, 2020, `FFN_SwiGLU`). The variables have the names of Llama's.
#[derive(Differentiable, Clone, Debug)]
pub struct SwiGlu {
    /// Width to inner width: its `silu` is the gate.
    pub gate_proj: Linear,
    /// Width to inner width.
    pub up_proj: Linear,
    /// Inner width to width.
    pub down_proj: Linear,
}

impl SwiGlu {
    /// A layer with [Glorot's](super::glorot_uniform) weights. An inner width of 8/3 of the width
    /// gives as many variables as a layer of two matrices with four times the width.
    #[track_caller]
    pub fn new(width: usize, inner: usize) -> Self {
        let _user = Location::caller().attributed();
        SwiGlu {
            gate_proj: Linear::new(width, inner).without_bias(),
            up_proj: Linear::new(width, inner).without_bias(),
            down_proj: Linear::new(inner, width).without_bias(),
        }
    }

    /// `[…, width]` to the same.
    ///
    /// # Errors
    ///
    /// The last axis of x has another extent than the width, or another dtype than the weights.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        self.down_proj.call(&(self.gate_proj.call(x).silu() * self.up_proj.call(x)))
    }
}
