//! Affine layers, GPT-2 and BERT as ONNX graphs.

use super::graph::{Graph, Value, float, integer, integers, text};
use crate::case::{Bert, Gpt, Inference, Mlp};
use crate::network;
use std::vec::IntoIter;
use tract_onnx::pb::ModelProto;
use tract_onnx::pb::tensor_proto::DataType;

/// A graph, and the parameters in the order in which its layers take them.
struct Network {
    graph: Graph,
    parameters: IntoIter<Value>,
    /// True if GELU and attention are one operator each. Otherwise they are decomposed into simpler
    /// operators, as exporters do for the runtimes in use.
    fused: bool,
}

impl Network {
    fn next(&mut self) -> Value {
        self.parameters.next().expect("a network has all parameters that its layers ask for")
    }

    fn op(&mut self, op: &str, inputs: &[&Value]) -> Value {
        self.graph.op(op, inputs)
    }

    fn affine(&mut self, x: &Value) -> Value {
        let (weight, bias) = (self.next(), self.next());
        let y = self.op("MatMul", &[x, &weight]);
        self.op("Add", &[&y, &bias])
    }

    fn norm(&mut self, x: &Value, epsilon: f32) -> Value {
        let (gamma, beta) = (self.next(), self.next());
        let attributes = vec![integer("axis", -1), float("epsilon", epsilon)];
        self.graph.op_with("LayerNormalization", &[x, &gamma, &beta], attributes)
    }

    /// Attention of queries, keys and values `[B, T, C]`. `hidden`, `[T, T]` or broadcast to it, is
    /// added to the scores; it is nearly −∞ at masked pairs.
    fn attention(
        &mut self,
        [q, k, v]: [Value; 3],
        hidden: &Value,
        [b, t, heads, extent]: [usize; 4],
    ) -> Value {
        if self.fused {
            let attributes =
                ["q_num_heads", "kv_num_heads"].map(|name| integer(name, heads as i64));
            return self.graph.op_with("Attention", &[&q, &k, &v, hidden], attributes.into());
        }
        let split = self.graph.numbers(&[b, t, heads, extent]);
        let [q, k, v] =
            [(q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3])].map(|(x, order)| {
                let x = self.op("Reshape", &[&x, &split]);
                self.graph.op_with("Transpose", &[&x], vec![integers("perm", &order)])
            });
        let scores = self.op("MatMul", &[&q, &k]);
        let scale = self.graph.number((extent as f32).sqrt());
        let scores = self.op("Div", &[&scores, &scale]);
        let scores = self.op("Add", &[&scores, hidden]);
        let shares = self.graph.op_with("Softmax", &[&scores], vec![integer("axis", -1)]);
        let mixed = self.op("MatMul", &[&shares, &v]);
        let mixed =
            self.graph.op_with("Transpose", &[&mixed], vec![integers("perm", &[0, 2, 1, 3])]);
        let joined = self.graph.numbers(&[b, t, heads * extent]);
        self.op("Reshape", &[&mixed, &joined])
    }

    fn gelu(&mut self, x: &Value) -> Value {
        if self.fused {
            return self.op("Gelu", &[x]);
        }
        let [root, one, half] = [2.0_f32.sqrt(), 1.0, 0.5].map(|v| self.graph.number(v));
        let bent = self.op("Div", &[x, &root]);
        let bent = self.op("Erf", &[&bent]);
        let bent = self.op("Add", &[&bent, &one]);
        let y = self.op("Mul", &[x, &bent]);
        self.op("Mul", &[&y, &half])
    }

    fn gelu_tanh(&mut self, x: &Value) -> Value {
        if self.fused {
            return self.graph.op_with("Gelu", &[x], vec![text("approximate", "tanh")]);
        }
        let factor = (2.0 / std::f32::consts::PI).sqrt();
        let [three, little, factor, half, one] =
            [3.0, 0.044_715, factor, 0.5, 1.0].map(|v| self.graph.number(v));
        let cubed = self.op("Pow", &[x, &three]);
        let cubed = self.op("Mul", &[&cubed, &little]);
        let inner = self.op("Add", &[x, &cubed]);
        let inner = self.op("Mul", &[&inner, &factor]);
        let bent = self.op("Tanh", &[&inner]);
        let bent = self.op("Add", &[&bent, &one]);
        let halved = self.op("Mul", &[x, &half]);
        self.op("Mul", &[&halved, &bent])
    }
}

/// Affine layers with relu between. They are `Gemm` operators, as exporters write them.
fn mlp(network: &Mlp, mut n: Network) -> ModelProto {
    let mut x = n.graph.input("x", DataType::Float, &[network.batch, network.widths[0]]);
    for layer in 1..network.widths.len() {
        if layer > 1 {
            x = n.op("Relu", &[&x]);
        }
        let (weight, bias) = (n.next(), n.next());
        x = n.op("Gemm", &[&x, &weight, &bias]);
    }
    n.graph.model(x, &[network.batch, network.widths[network.widths.len() - 1]])
}

/// Logits of GPT-2.
fn gpt(network: &Gpt, mut n: Network) -> ModelProto {
    let Gpt { layers, width: c, heads, vocabulary, batch: b, steps: t } = *network;
    let x = n.graph.input("x", DataType::Int64, &[b, t]);
    let (wte, wpe) = (n.next(), n.next());
    let later: Vec<f32> = (0..t * t).map(|i| if i % t > i / t { -1e30 } else { 0.0 }).collect();
    let hidden = n.graph.floats(&later, &[t, t]);
    let mut h = n.op("Gather", &[&wte, &x]);
    h = n.op("Add", &[&h, &wpe]);
    for _ in 0..layers {
        let normed = n.norm(&h, 1e-5);
        let parts = n.affine(&normed);
        let parts = n.graph.thirds(&parts, c);
        let mixed = n.attention(parts, &hidden, [b, t, heads, c / heads]);
        let mixed = n.affine(&mixed);
        h = n.op("Add", &[&h, &mixed]);
        let normed = n.norm(&h, 1e-5);
        let wide = n.affine(&normed);
        let wide = n.gelu_tanh(&wide);
        let back = n.affine(&wide);
        h = n.op("Add", &[&h, &back]);
    }
    h = n.norm(&h, 1e-5);
    let head = n.graph.op_with("Transpose", &[&wte], vec![integers("perm", &[1, 0])]);
    let logits = n.op("MatMul", &[&h, &head]);
    n.graph.model(logits, &[b, t, vocabulary])
}

/// Embeddings of sequences.
fn bert(network: &Bert, mut n: Network) -> ModelProto {
    let Bert { layers, width: c, heads, batch: b, steps: t, .. } = *network;
    let x = n.graph.input("x", DataType::Int64, &[b, t]);
    let mask = n.graph.input("mask", DataType::Bool, &[b, t]);
    let (words, positions, types) = (n.next(), n.next(), n.next());
    let places = n.graph.numbers(&(0..t).collect::<Vec<_>>());
    let first = n.graph.numbers(&[0]);
    let places = n.op("Gather", &[&positions, &places]);
    let of_type = n.op("Gather", &[&types, &first]);
    let mut h = n.op("Gather", &[&words, &x]);
    h = n.op("Add", &[&h, &places]);
    h = n.op("Add", &[&h, &of_type]);
    h = n.norm(&h, 1e-12);
    let there = n.graph.op_with("Cast", &[&mask], vec![integer("to", DataType::Float as i64)]);
    let (one, much) = (n.graph.number(1.0), n.graph.number(1e30));
    let missing = n.op("Sub", &[&there, &one]);
    let missing = n.op("Mul", &[&missing, &much]);
    let by_key = n.graph.numbers(&[b, 1, 1, t]);
    let mut hidden = n.op("Reshape", &[&missing, &by_key]);
    if n.fused {
        // tract's attention needs a row of the mask for each query.
        let rows = n.graph.numbers(&[b, 1, t, t]);
        hidden = n.op("Expand", &[&hidden, &rows]);
    }
    for _ in 0..layers {
        let parts = [0, 1, 2].map(|_| n.affine(&h));
        let mixed = n.attention(parts, &hidden, [b, t, heads, c / heads]);
        let mixed = n.affine(&mixed);
        h = n.op("Add", &[&h, &mixed]);
        h = n.norm(&h, 1e-12);
        let wide = n.affine(&h);
        let wide = n.gelu(&wide);
        let back = n.affine(&wide);
        h = n.op("Add", &[&h, &back]);
        h = n.norm(&h, 1e-12);
    }
    let by_step = n.graph.numbers(&[b, t, 1]);
    let there = n.op("Reshape", &[&there, &by_step]);
    let kept = n.op("Mul", &[&h, &there]);
    let axis = n.graph.numbers(&[1]);
    let total = n.graph.op_with("ReduceSum", &[&kept, &axis], vec![integer("keepdims", 0)]);
    let squares = n.op("Mul", &[&total, &total]);
    let length = n.graph.op_with("ReduceSum", &[&squares, &axis], vec![integer("keepdims", 1)]);
    let length = n.op("Sqrt", &[&length]);
    let found = n.op("Div", &[&total, &length]);
    n.graph.model(found, &[b, c])
}

/// A network as a model, with its initial parameters.
pub fn model(network: &Inference, fused: bool) -> ModelProto {
    let mut graph = Graph::default();
    let parameters: Vec<Value> =
        network::inference(network).iter().map(|drawn| graph.parameter(drawn)).collect();
    let n = Network { graph, parameters: parameters.into_iter(), fused };
    match network {
        Inference::Mlp(network) => mlp(network, n),
        Inference::Gpt { network } => gpt(network, n),
        Inference::Bert { network } => bert(network, n),
    }
}
