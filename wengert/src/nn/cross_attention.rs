//! Attention to another sequence.

use super::attention::split_heads;
use super::{Linear, VisibleKeys, dot_product_attention};
use wengert_core::{DType, Differentiable, Dim, Location, Tensor, TensorType, diagnostic};

/// Attention of several heads whose queries come from one sequence, and whose keys and values come
/// from another, the memory: that of a decoder to the results of an encoder (Vaswani and others
/// 2017, section 3.2.3).
#[derive(Differentiable, Clone, Debug)]
pub struct CrossAttention {
    /// Width to width: queries.
    pub q_proj: Linear,
    /// Width of the memory to width: keys.
    pub k_proj: Linear,
    /// Width of the memory to width: values.
    pub v_proj: Linear,
    /// Width to width: the result.
    pub o_proj: Linear,
    /// Heads; they share the width.
    #[no_derivative]
    pub heads: usize,
}

impl CrossAttention {
    /// A layer of this width, which is a multiple of the heads, for memories of width `memory`.
    #[track_caller]
    pub fn new(width: usize, memory: usize, heads: usize) -> Self {
        let _user = Location::caller().attributed();
        CrossAttention {
            q_proj: Linear::new(width, width),
            k_proj: Linear::new(memory, width),
            v_proj: Linear::new(memory, width),
            o_proj: Linear::new(width, width),
            heads,
        }
    }

    /// `[B, T, width]` to the same, for a memory `[B, S, memory]`. `valid` says which positions of
    /// the memory exist; without it all do. It has lengths, integers `[B]` or one for all, if the
    /// rest of a sequence is padding: this costs the time of the lengths, and a memory of length 0
    /// is attended to with the result 0 before `o_proj`. Or it has bools `[B, S]`, true for at
    /// least one position of each example.
    ///
    /// # Errors
    ///
    /// An operand has another shape; `valid` has another type; the heads do not divide the width.
    #[track_caller]
    pub fn call(&self, x: &Tensor, memory: &Tensor, valid: Option<&Tensor>) -> Tensor {
        let _user = Location::caller().attributed();
        let operands = [x, memory].into_iter().chain(valid);
        if let Some(poisoned) = operands.into_iter().find(|t| t.error().is_some()) {
            return poisoned.clone();
        }
        if x.rank() != 3 || memory.rank() != 3 || x.shape()[0] != memory.shape()[0] {
            let error = diagnostic!("attention of {} to {}", x.ty(), memory.ty());
            let help = "they are [batch, positions, width] with one batch";
            return Tensor::fail_of(&[x, memory], error.help(help));
        }
        let (mut visible, mut bias) = (VisibleKeys::All, None);
        match valid {
            None => {}
            Some(lengths) if lengths.dtype().is_integer() && lengths.rank() < 2 => {
                visible = VisibleKeys::Lengths(lengths);
            }
            Some(valid) => match hidden(memory, valid) {
                Ok(hidden) => bias = Some(hidden),
                Err(poisoned) => return poisoned,
            },
        }
        let heads = |projected: Tensor| split_heads(&projected, self.heads);
        let q = heads(self.q_proj.call(x));
        let (k, v) = (heads(self.k_proj.call(memory)), heads(self.v_proj.call(memory)));
        let mixed = dot_product_attention(&q, &k, &v, visible, bias.as_ref());
        if mixed.error().is_some() {
            return mixed;
        }
        self.o_proj.call(&mixed.flatten(2))
    }
}

/// The addend of scores that masks positions which do not exist: −∞ for these, else 0,
/// `[B, 1, 1, S]`.
#[track_caller]
fn hidden(memory: &Tensor, valid: &Tensor) -> Result<Tensor, Tensor> {
    if valid.dtype() != DType::Bool || valid.shape() != &memory.shape()[..2] {
        let error = diagnostic!("valid positions {} of {}", valid.ty(), memory.ty());
        let help = "they are lengths, integers [batch], or bools [batch, positions] of the memory";
        return Err(Tensor::fail_of(&[valid, memory], error.help(help)));
    }
    let zeros = Tensor::zeros(&TensorType::of(memory.dtype(), valid.shape().to_vec()));
    let hidden = valid.select(&zeros, &zeros.full_like(f64::NEG_INFINITY));
    let [batch, length] = [0, 1].map(|axis| valid.shape()[axis].clone());
    Ok(hidden.reshape([batch, Dim::constant(1), Dim::constant(1), length]))
}
