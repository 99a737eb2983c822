//! The stack of WaveNet (van den Oord and others, *WaveNet: a generative model for raw audio*,
//! 2016): causal dilated convolutions with gates, residual and skip connections, and a softmax over
//! the next sample's code.

use wengert::prelude::*;

/// The number of codes of a sample less 1: µ of the companding.
const MU: usize = 255;

/// The network.
#[derive(Differentiable, Clone)]
pub struct WaveNet {
    input: Conv1d,
    layers: Vec<Layer>,
    hidden: Linear,
    output: Linear,
}

/// A dilated convolution with a gate, and 1 × 1 convolutions of its result.
#[derive(Differentiable, Clone)]
struct Layer {
    dilated: Conv1d,
    skip: Linear,
    /// The last layer has none, since no layer follows.
    residual: Option<Linear>,
}

impl WaveNet {
    /// Layers of dilation 1, 2, 4, …, 2^(`doublings` − 1), and these once more for each block.
    pub fn new(width: usize, skip: usize, doublings: u32, blocks: usize) -> Self {
        let dilations: Vec<usize> =
            (0..blocks).flat_map(|_| (0..doublings).map(|n| 1 << n)).collect();
        let layer = |(n, dilation): (usize, &usize)| Layer {
            dilated: Conv1d::new(width, 2 * width, [2]).dilation([*dilation]).causal(),
            skip: Linear::new(width, skip),
            residual: (n + 1 < dilations.len()).then(|| Linear::new(width, width)),
        };
        WaveNet {
            input: Conv1d::new(MU + 1, width, [2]).causal(),
            layers: dilations.iter().enumerate().map(layer).collect(),
            hidden: Linear::kaiming(skip, skip),
            output: Linear::new(skip, MU + 1),
        }
    }

    /// Logits `[B, T, 256]` of the code after each of `[B, T]`.
    pub fn call(&self, codes: &Tensor) -> Tensor {
        let dtype = self.output.weight.dtype();
        let mut x = self.input.call(&codes.one_hot(MU + 1, dtype));
        let mut skips = Vec::new();
        for layer in &self.layers {
            let parts = layer.dilated.call(&x).chunk(2, -1);
            let gated = parts[0].tanh() * parts[1].logistic();
            skips.push(layer.skip.call(&gated));
            if let Some(residual) = &layer.residual {
                x = x + residual.call(&gated);
            }
        }
        let sum = Tensor::stack(&skips, 0).sum_axes(0);
        self.output.call(&self.hidden.call(&sum.relu()).relu())
    }

    /// Mean cross-entropy of the codes of waves `[B, T]` after the first.
    pub fn loss(&self, waves: &Tensor) -> Tensor {
        let codes = encode(waves);
        cross_entropy(&self.call(&codes.slice(s![.., ..-1])), &codes.slice(s![.., 1..]))
    }
}

/// The codes 0..=255 of samples in −1..=1 by the µ-law of ITU-T G.711 (section 2.2).
pub fn encode(waves: &Tensor) -> Tensor {
    let mu = MU as f64;
    let companded = waves.sign() * (waves.abs() * mu).log1p() / mu.ln_1p();
    ((companded + 1.0) / 2.0 * mu + 0.5).floor().convert(DType::I32)
}
