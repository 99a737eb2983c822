//! An LSTM in burn. Its time steps run eagerly, one after another.

use super::layers::{Layers, Parameters, laid};
use crate::case::Lstm;
use burn::module::Param;
use burn::nn::{GateController, LstmConfig};
use burn::tensor::activation::{sigmoid, tanh};
use burn::tensor::{Device, Tensor};

/// Moves the LSTM's parameters into burn's own layer, which has a separate product for each gate.
pub fn own_layer(network: &Lstm, parameters: &mut Parameters, device: &Device) {
    let Lstm { inputs, width, .. } = *network;
    let mut lstm = LstmConfig::new(inputs, width, true).with_batch_first(false).init(device);
    let (matrices, vectors) = parameters.take(2, 1);
    let part = |n: usize, gate: usize| {
        Param::from_tensor(laid(matrices[n].clone().narrow(1, gate * width, width)))
    };
    let fill = |gate: &mut GateController, n: usize| {
        gate.input_transform.weight = part(0, n);
        gate.input_transform.bias =
            Some(Param::from_tensor(laid(vectors[0].clone().narrow(0, n * width, width))));
        gate.hidden_transform.weight = part(1, n);
        // This bias would be added to the same sum as the input's bias.
        gate.hidden_transform.bias = None;
    };
    fill(&mut lstm.input_gate, 0);
    fill(lstm.forget_gate.as_mut().expect("gates are not coupled unless asked for"), 1);
    fill(&mut lstm.cell_gate, 2);
    fill(&mut lstm.output_gate, 3);
    parameters.lstm = Some(lstm);
}

/// Logits of all time steps of `x`, `[T, B, inputs]`.
pub fn logits(network: &Lstm, layers: &Layers<'_>, x: Tensor<3>) -> Tensor<2> {
    let Lstm { inputs, width, steps, batch, .. } = *network;
    if let Some(lstm) = layers.lstm() {
        let (hidden, _) = lstm.forward(x, None);
        return layers.affine(hidden.reshape([steps * batch, width]));
    }
    let (of_input, recurrent, bias) = (layers.matrix(), layers.matrix(), layers.vector());
    let zeros = Tensor::<2>::zeros([batch, width], (&x.device(), x.dtype()));
    let (mut h, mut c) = (zeros.clone(), zeros);
    let mut hidden = Vec::with_capacity(steps);
    let projected =
        x.reshape([steps * batch, inputs]).matmul(of_input) + bias.reshape([1, 4 * width]);
    for step in 0..steps {
        let gates = projected.clone().narrow(0, step * batch, batch) + h.matmul(recurrent.clone());
        let [i, f, g, o] = [0, 1, 2, 3].map(|gate| gates.clone().narrow(1, gate * width, width));
        c = sigmoid(f) * c + sigmoid(i) * tanh(g);
        h = sigmoid(o) * tanh(c.clone());
        hidden.push(h.clone());
    }
    layers.affine(Tensor::cat(hidden, 0))
}
