//! The parameters of networks in candle, as a list, and the layers that use them.

use crate::case::{Inference, Kind};
use crate::network::Drawn;
use anyhow::{Context, Result};
use candle_core::{DType, Device, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};
use candle_nn::ops;
use std::cell::RefCell;
use std::fmt::{self, Display, Formatter};
use std::slice::Iter;

/// A variant of a network: its use of candle's interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Form {
    /// Matrices are stored as `[outputs, inputs]`, like those of `candle_nn::Linear`.
    pub turned: bool,
    /// Norms and softmaxes are one op each, without a derivative.
    pub fused: bool,
    /// Attention is one op, without a derivative and only in f32.
    pub flash: bool,
    /// The recurrent layer is `candle_nn::LSTM`.
    pub layer: bool,
}

impl Display for Form {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.turned, "matrices as of Linear"),
            (self.fused, "fused norms"),
            (self.flash, "flash attention"),
            (self.layer, "its own layer"),
        ];
        let parts: Vec<&str> = parts.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
        write!(f, "{}", if parts.is_empty() { "plain".to_owned() } else { parts.join(", ") })
    }
}

impl Form {
    /// The variants for inference of a network.
    pub fn of_inference(network: &Inference) -> Vec<Form> {
        let is_mlp = matches!(network, Inference::Mlp(_));
        // Flash attention accepts a mask for a single sequence only.
        let flashes =
            !is_mlp && !matches!(network, Inference::Bert { network } if network.batch > 1);
        let mut forms = Vec::new();
        for turned in [false, true] {
            for flash in [false, true] {
                if flashes || !flash {
                    forms.push(Form { turned, flash, fused: !is_mlp, layer: false });
                }
            }
        }
        forms
    }

    /// The variants for a training step.
    pub fn of_training(kind: &Kind) -> Vec<Form> {
        let plain = Form::default();
        match kind {
            Kind::Recurrent { .. } => vec![plain, Form { layer: true, ..plain }],
            _ => vec![plain, Form { turned: true, ..plain }],
        }
    }
}

/// The initial parameters.
///
/// Error: candle fails.
pub fn parameters(drawn: &[Drawn], form: Form, dtype: DType) -> Result<Vec<Tensor>> {
    let tensor = |drawn: &Drawn| {
        let t = Tensor::from_vec(drawn.values(), drawn.shape.as_slice(), &Device::Cpu)?
            .to_dtype(dtype)?;
        if form.turned && drawn.is_affine() { t.t()?.contiguous() } else { Ok(t) }
    };
    Ok(drawn.iter().map(tensor).collect::<candle_core::Result<_>>()?)
}

/// The parameters of a network, in the order in which its layers take them.
pub struct Layers<'a> {
    rest: RefCell<Iter<'a, Tensor>>,
    /// The variant of the network.
    pub form: Form,
}

impl<'a> Layers<'a> {
    /// Starts at the first parameter.
    pub fn new(parameters: &'a [Tensor], form: Form) -> Layers<'a> {
        Layers { rest: RefCell::new(parameters.iter()), form }
    }

    /// The next parameter.
    pub fn next(&self) -> Result<&'a Tensor> {
        self.rest
            .borrow_mut()
            .next()
            .context("a network has all parameters that its layers ask for")
    }

    /// x · weight + bias, for any number of rows of x.
    pub fn affine(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (self.next()?, self.next()?);
        let y = if self.form.turned { x.matmul(&weight.t()?)? } else { x.matmul(weight)? };
        Ok(y.broadcast_add(bias)?)
    }

    /// Layer norm of the rows.
    pub fn norm(&self, x: &Tensor, epsilon: f32) -> Result<Tensor> {
        let norm = if self.form.fused { ops::layer_norm } else { ops::layer_norm_slow };
        Ok(norm(x, self.next()?, self.next()?, epsilon)?)
    }

    /// Attention: queries, keys and values `[B, T, H, D]` to `[B·T, H·D]`. `hidden`, `[T, T]` or
    /// broadcast to it, is added to the scores; it is −∞ at masked pairs. `mask` describes the same
    /// pairs for flash attention.
    pub fn attention(
        &self,
        [q, k, v]: [&Tensor; 3],
        hidden: &Tensor,
        mask: AttnMask,
    ) -> Result<Tensor> {
        let (b, t, heads, d) = q.dims4()?;
        let scale = 1.0 / (d as f64).sqrt();
        let mixed = if self.form.flash {
            flash_attn::<f32>(q, k, v, scale as f32, mask, None, None)?
        } else {
            let [q, k, v] = [q, k, v].map(|x| x.transpose(1, 2).and_then(|x| x.contiguous()));
            let scores = (q?.matmul(&k?.t()?)? * scale)?.broadcast_add(hidden)?;
            let shares = if self.form.fused {
                ops::softmax_last_dim(&scores)
            } else {
                ops::softmax(&scores, 3)
            };
            shares?.matmul(&v?)?
        };
        Ok(mixed.transpose(1, 2)?.reshape((b * t, heads * d))?)
    }
}
