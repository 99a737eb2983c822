//! Parameters of networks in candle, one after the other, and the layers that they belong to.

use crate::case::{Inference, Kind};
use crate::network::Drawn;
use anyhow::{Context, Result};
use candle_core::{DType, Device, Tensor};
use candle_nn::attention::{AttnMask, flash_attn};
use candle_nn::ops;
use std::cell::RefCell;
use std::fmt::{self, Display, Formatter};
use std::slice::Iter;

/// In which of candle's ways a network is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Form {
    /// Matrices lie as `[outputs, inputs]`, as those of `candle_nn::Linear`.
    pub turned: bool,
    /// Norms and softmaxes are one op each, which has no derivative.
    pub fused: bool,
    /// Attention is one op, which has no derivative and f32 only.
    pub flash: bool,
    /// The layer is candle's own.
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
    /// All that make sense for a network that is asked.
    pub fn of_inference(network: &Inference) -> Vec<Form> {
        let is_mlp = matches!(network, Inference::Mlp(_));
        // Flash attention takes a mask for one sequence only.
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

    /// All that make sense for a training step.
    pub fn of_training(kind: &Kind) -> Vec<Form> {
        let plain = Form::default();
        match kind {
            Kind::Recurrent { .. } => vec![plain, Form { layer: true, ..plain }],
            _ => vec![plain, Form { turned: true, ..plain }],
        }
    }
}

/// The numbers that parameters begin with.
///
/// Error: candle's.
pub fn parameters(drawn: &[Drawn], form: Form, dtype: DType) -> Result<Vec<Tensor>> {
    let tensor = |drawn: &Drawn| {
        let t = Tensor::from_vec(drawn.values(), drawn.shape.as_slice(), &Device::Cpu)?
            .to_dtype(dtype)?;
        if form.turned && drawn.is_affine() { t.t()?.contiguous() } else { Ok(t) }
    };
    Ok(drawn.iter().map(tensor).collect::<candle_core::Result<_>>()?)
}

/// Parameters in their order, handed to the layers that come by.
pub struct Layers<'a> {
    rest: RefCell<Iter<'a, Tensor>>,
    /// How they are written.
    pub form: Form,
}

impl<'a> Layers<'a> {
    /// All of them.
    pub fn new(parameters: &'a [Tensor], form: Form) -> Layers<'a> {
        Layers { rest: RefCell::new(parameters.iter()), form }
    }

    /// The next one.
    pub fn next(&self) -> Result<&'a Tensor> {
        self.rest
            .borrow_mut()
            .next()
            .context("a network has all parameters that its layers ask for")
    }

    /// x · weight + bias; x has as many rows as it likes.
    pub fn affine(&self, x: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (self.next()?, self.next()?);
        let y = if self.form.turned { x.matmul(&weight.t()?)? } else { x.matmul(weight)? };
        Ok(y.broadcast_add(bias)?)
    }

    /// A norm of rows.
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
