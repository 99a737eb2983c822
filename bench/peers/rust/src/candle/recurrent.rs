//! An LSTM in candle. Its time steps run eagerly, one after another.

use super::layers::Layers;
use crate::case::Lstm;
use anyhow::Result;
use candle_core::{Device, Tensor};
use candle_nn::rnn::{LSTMConfig, LSTMState, RNN};
use candle_nn::{LSTM, VarBuilder, ops::sigmoid};
use std::collections::HashMap;

/// Logits of all time steps of `x`, `[T, B, inputs]`.
///
/// Error: candle fails.
pub fn logits(network: &Lstm, layers: Layers<'_>, x: &Tensor) -> Result<Tensor> {
    let Lstm { inputs, width, steps, batch, .. } = *network;
    let (of_input, recurrent, bias) = (layers.next()?, layers.next()?, layers.next()?);
    let zeros = Tensor::zeros((batch, width), x.dtype(), &Device::Cpu)?;
    let (mut h, mut c) = (zeros.clone(), zeros);
    let mut hidden = Vec::with_capacity(steps);
    if layers.form.layer {
        // The layer's second bias would be all zeros, so it is disabled.
        let parts = [
            ("weight_ih_l0", of_input.t()?),
            ("weight_hh_l0", recurrent.t()?),
            ("bias_ih_l0", bias.clone()),
        ];
        let parts: HashMap<String, Tensor> =
            parts.into_iter().map(|(name, t)| (name.to_owned(), t)).collect();
        let builder = VarBuilder::from_tensors(parts, x.dtype(), &Device::Cpu);
        let config = LSTMConfig { b_hh_init: None, ..LSTMConfig::default() };
        let layer = LSTM::new(inputs, width, config, builder)?;
        let mut state = LSTMState::new(h, c);
        for step in 0..steps {
            state = layer.step(&x.get(step)?, &state)?;
            hidden.push(state.h().clone());
        }
    } else {
        let projected =
            x.reshape((steps * batch, inputs))?.matmul(of_input)?.broadcast_add(bias)?;
        for step in 0..steps {
            let gates = (projected.narrow(0, step * batch, batch)? + h.matmul(recurrent)?)?;
            let [i, f, g, o] = [0, 1, 2, 3].map(|gate| gates.narrow(1, gate * width, width));
            c = ((sigmoid(&f?)? * c)? + (sigmoid(&i?)? * g?.tanh()?)?)?;
            h = (sigmoid(&o?)? * c.tanh()?)?;
            hidden.push(h.clone());
        }
    }
    layers.affine(&Tensor::cat(&hidden, 0)?)
}
