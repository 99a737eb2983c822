//! Affine layers, GPT-2 and BERT in burn.

use super::layers::{Form, Hidden, Layers, Parameters, tensor};
use crate::case::{Bert, Gpt, Inference, Mlp};
use crate::drawing::{labels, uniform};
use burn::tensor::activation::{gelu, gelu_approximate, relu};
use burn::tensor::module::embedding;
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};

/// A tensor with these integers.
pub fn integers<const D: usize>(
    values: Vec<u32>,
    shape: [usize; D],
    device: &Device,
) -> Tensor<D, Int> {
    let values: Vec<i32> = values.into_iter().map(|v| v as i32).collect();
    Tensor::from_data(TensorData::new(values, shape), (device, DType::I32))
}

/// Affine layers with relu between.
pub fn mlp(network: &Mlp, layers: &Layers<'_>, x: Tensor<2>) -> Tensor<2> {
    let mut x = layers.affine(x);
    for _ in 2..network.widths.len() {
        x = layers.affine(relu(x));
    }
    x
}

/// The mask that hides all later tokens from a token.
pub fn causal(steps: usize, device: &Device) -> Hidden {
    let mask: Tensor<2, Bool> = Tensor::tril_mask([steps, steps], 0, device);
    Hidden { mask: mask.reshape([1, 1, steps, steps]), causal: true }
}

/// Logits of GPT-2, one row per token of `x`, `[B, T]`.
pub fn gpt(network: &Gpt, layers: &Layers<'_>, x: Tensor<2, Int>, hidden: &Hidden) -> Tensor<2> {
    let Gpt { layers: blocks, width: c, heads, batch: b, steps: t, .. } = *network;
    let (wte, wpe) = (layers.matrix(), layers.matrix());
    let mut h = embedding(wte.clone(), x) + wpe.reshape([1, t, c]);
    for _ in 0..blocks {
        let parts = layers.affine(layers.norm(h.clone(), 1e-5));
        let [q, k, v] = [0, 1, 2].map(|n| parts.clone().narrow(2, n * c, c));
        h = h + layers.affine(layers.attention([q, k, v], heads, hidden));
        let wide = gelu_approximate(layers.affine(layers.norm(h.clone(), 1e-5)));
        h = h + layers.affine(wide);
    }
    layers.norm(h, 1e-5).reshape([b * t, c]).matmul(wte.transpose())
}

/// BERT's mask, for the mean and for attention.
struct Mask {
    /// 1 at valid tokens, 0 at masked ones, `[B, T, 1]`.
    there: Tensor<3>,
    hidden: Hidden,
}

impl Mask {
    fn of(network: &Bert, device: &Device, dtype: DType) -> Mask {
        let (b, t, there) = (network.batch, network.steps, network.mask());
        let numbers = there.iter().map(|is| if *is { 1.0 } else { 0.0 }).collect();
        let missing: Vec<bool> = there.iter().map(|is| !is).collect();
        let mask = Tensor::from_data(TensorData::new(missing, [b, 1, 1, t]), device);
        Mask {
            there: tensor(numbers, [b, t, 1], device, dtype),
            hidden: Hidden { mask, causal: false },
        }
    }
}

/// Embeddings of the token sequences `x`, `[B, T]`.
fn bert(network: &Bert, layers: &Layers<'_>, x: Tensor<2, Int>, mask: &Mask) -> Tensor<2> {
    let Bert { layers: blocks, width: c, heads, batch: b, steps: t, .. } = *network;
    let (words, positions, types) = (layers.matrix(), layers.matrix(), layers.matrix());
    let places = positions.narrow(0, 0, t).reshape([1, t, c]);
    let h = embedding(words, x) + places + types.narrow(0, 0, 1).reshape([1, 1, c]);
    let mut h = layers.norm(h, 1e-12);
    for _ in 0..blocks {
        let parts = [0, 1, 2].map(|_| layers.affine(h.clone()));
        let mixed = layers.attention(parts, heads, &mask.hidden);
        h = layers.norm(layers.affine(mixed) + h, 1e-12);
        let wide = gelu(layers.affine(h.clone()));
        h = layers.norm(layers.affine(wide) + h, 1e-12);
    }
    let total = (h * mask.there.clone()).sum_dim(1).reshape([b, c]);
    total.clone() / total.square().sum_dim(1).sqrt()
}

/// Inference of a network on fixed inputs, as a function of its parameters and form.
pub type Asked = Box<dyn Fn(&Parameters, Form) -> Tensor<2>>;

/// Inference of a network on the inputs of its case.
pub fn infer(network: &Inference, device: &Device) -> Asked {
    let dtype = DType::F32;
    let tokens =
        |b: usize, t: usize, vocabulary| integers(labels("x", b * t, vocabulary), [b, t], device);
    match network.clone() {
        Inference::Mlp(network) => {
            let shape = [network.batch, network.widths[0]];
            let x = tensor(uniform("x", shape[0] * shape[1], 0.0, 1.0), shape, device, dtype);
            Box::new(move |parameters, form| {
                mlp(&network, &Layers::new(parameters, form), x.clone())
            })
        }
        Inference::Gpt { network } => {
            let x = tokens(network.batch, network.steps, network.vocabulary);
            let hidden = causal(network.steps, device);
            Box::new(move |parameters, form| {
                gpt(&network, &Layers::new(parameters, form), x.clone(), &hidden)
            })
        }
        Inference::Bert { network } => {
            let x = tokens(network.batch, network.steps, network.vocabulary);
            let mask = Mask::of(&network, device, dtype);
            Box::new(move |parameters, form| {
                bert(&network, &Layers::new(parameters, form), x.clone(), &mask)
            })
        }
    }
}
