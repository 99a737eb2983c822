//! Affine layers, GPT-2 and BERT in candle.

use super::layers::{Form, Layers};
use crate::case::{Bert, Gpt, Inference, Mlp};
use crate::drawing::{labels, uniform};
use anyhow::Result;
use candle_core::{DType, Device, IndexOp, Tensor};
use candle_nn::attention::AttnMask;

/// Affine layers with relu between.
pub fn mlp(network: &Mlp, layers: Layers<'_>, x: &Tensor) -> Result<Tensor> {
    let mut x = layers.affine(x)?;
    for _ in 2..network.widths.len() {
        x = layers.affine(&x.relu()?)?;
    }
    Ok(x)
}

/// The causal mask, an addend of the scores: −∞ for later tokens, 0 elsewhere.
fn later(steps: usize, dtype: DType) -> Result<Tensor> {
    let at = |n: usize| if n % steps > n / steps { f32::NEG_INFINITY } else { 0.0 };
    let hidden = (0..steps * steps).map(at).collect();
    Ok(Tensor::from_vec(hidden, (steps, steps), &Device::Cpu)?.to_dtype(dtype)?)
}

/// Logits of GPT-2, one row per token of `x`, `[B·T]`.
pub fn gpt(network: &Gpt, layers: Layers<'_>, x: &Tensor) -> Result<Tensor> {
    let Gpt { layers: blocks, width: c, heads, batch: b, steps: t, .. } = *network;
    let (wte, wpe) = (layers.next()?, layers.next()?);
    let hidden = later(t, wte.dtype())?;
    let h = wte.index_select(x, 0)?.reshape((b, t, c))?.broadcast_add(wpe)?;
    let mut h = h.reshape((b * t, c))?;
    for _ in 0..blocks {
        let parts = layers.affine(&layers.norm(&h, 1e-5)?)?.reshape((b, t, 3, heads, c / heads))?;
        let [q, k, v] = [parts.i((.., .., 0))?, parts.i((.., .., 1))?, parts.i((.., .., 2))?];
        let mixed = layers.attention([&q, &k, &v], &hidden, AttnMask::causal())?;
        h = (h + layers.affine(&mixed)?)?;
        let wide = layers.affine(&layers.norm(&h, 1e-5)?)?.gelu()?;
        h = (h + layers.affine(&wide)?)?;
    }
    Ok(layers.norm(&h, 1e-5)?.matmul(&wte.t()?)?)
}

/// BERT's mask, for the mean and for attention.
struct Mask {
    /// 1 at valid tokens, 0 at masked ones, `[B, T, 1]`.
    there: Tensor,
    /// −∞ at masked tokens, 0 at valid ones, `[B, 1, 1, T]`.
    hidden: Tensor,
}

impl Mask {
    fn of(network: &Bert, dtype: DType) -> Result<Mask> {
        let (b, t) = (network.batch, network.steps);
        let numbers = |there: f32, not: f32| -> Vec<f32> {
            network.mask().iter().map(|is| if *is { there } else { not }).collect()
        };
        let there =
            Tensor::from_vec(numbers(1.0, 0.0), (b, t, 1), &Device::Cpu)?.to_dtype(dtype)?;
        let hidden = Tensor::from_vec(numbers(0.0, f32::NEG_INFINITY), (b, 1, 1, t), &Device::Cpu)?;
        Ok(Mask { there, hidden: hidden.to_dtype(dtype)? })
    }
}

/// A vector of length 1 for each sequence of the tokens `x`, `[B·T]`.
fn bert(network: &Bert, layers: Layers<'_>, x: &Tensor, mask: &Mask) -> Result<Tensor> {
    let Bert { layers: blocks, width: c, heads, batch: b, steps: t, .. } = *network;
    let (words, positions, types) = (layers.next()?, layers.next()?, layers.next()?);
    let h =
        words.index_select(x, 0)?.reshape((b, t, c))?.broadcast_add(&positions.narrow(0, 0, t)?)?;
    let mut h = layers.norm(&h.broadcast_add(&types.i(0)?)?.reshape((b * t, c))?, 1e-12)?;
    // Flash attention needs a row of the mask for each token.
    let rows = AttnMask::Mask(mask.hidden.i((0, 0))?.broadcast_as((t, t))?);
    for _ in 0..blocks {
        let part =
            || -> Result<Tensor> { Ok(layers.affine(&h)?.reshape((b, t, heads, c / heads))?) };
        let (q, k, v) = (part()?, part()?, part()?);
        let mixed = layers.attention([&q, &k, &v], &mask.hidden, rows.clone())?;
        h = layers.norm(&(layers.affine(&mixed)? + h)?, 1e-12)?;
        let wide = layers.affine(&h)?.gelu_erf()?;
        h = layers.norm(&(layers.affine(&wide)? + h)?, 1e-12)?;
    }
    let total = h.reshape((b, t, c))?.broadcast_mul(&mask.there)?.sum(1)?;
    Ok(total.broadcast_div(&total.sqr()?.sum_keepdim(1)?.sqrt()?)?)
}

/// Inference of a network on fixed inputs, as a function of its parameters and form.
pub type Asked = Box<dyn Fn(&[Tensor], Form) -> Result<Tensor>>;

/// Inference of a network on the inputs of its case.
///
/// Error: candle fails.
pub fn infer(network: &Inference, dtype: DType) -> Result<Asked> {
    let tokens =
        |count, vocabulary| Tensor::from_vec(labels("x", count, vocabulary), count, &Device::Cpu);
    Ok(match network.clone() {
        Inference::Mlp(network) => {
            let shape = (network.batch, network.widths[0]);
            let x =
                Tensor::from_vec(uniform("x", shape.0 * shape.1, 0.0, 1.0), shape, &Device::Cpu)?;
            let x = x.to_dtype(dtype)?;
            Box::new(move |parameters, form| mlp(&network, Layers::new(parameters, form), &x))
        }
        Inference::Gpt { network } => {
            let x = tokens(network.batch * network.steps, network.vocabulary)?;
            Box::new(move |parameters, form| gpt(&network, Layers::new(parameters, form), &x))
        }
        Inference::Bert { network } => {
            let x = tokens(network.batch * network.steps, network.vocabulary)?;
            let mask = Mask::of(&network, dtype)?;
            Box::new(move |parameters, form| {
                bert(&network, Layers::new(parameters, form), &x, &mask)
            })
        }
    })
}
