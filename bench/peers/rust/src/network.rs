//! Initial parameters of networks: names, shapes and bounds, the same as in `bench/src/case`.

use crate::case::{Bert, Convnet, Gpt, Inference, Lstm, Mlp};
use crate::drawing::uniform;

/// A parameter: its name, its shape, and the bounds of its random initial values.
pub struct Drawn {
    pub name: String,
    pub shape: Vec<usize>,
    pub bounds: [f64; 2],
}

impl Drawn {
    fn new(name: String, shape: &[usize], bounds: [f64; 2]) -> Drawn {
        Drawn { name, shape: shape.into(), bounds }
    }

    /// Its initial values.
    pub fn values(&self) -> Vec<f32> {
        let [low, high] = self.bounds;
        uniform(&format!("model.{}", self.name), self.len(), low, high)
    }

    /// Number of its elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True for the weight matrices of affine layers, `[inputs, outputs]`; false for embedding
    /// tables.
    pub fn is_affine(&self) -> bool {
        let is_table =
            self.name.contains("embeddings") || ["wte.weight", "wpe.weight"].contains(&&*self.name);
        self.shape.len() == 2 && !is_table
    }
}

/// Bound of a symmetric uniform distribution whose standard deviation is 0.02.
const EVEN: f64 = 0.02 * 1.732_050_807_568_877_2;

fn pair(found: &mut Vec<Drawn>, name: &str, shape: &[usize], bounds: [f64; 2], of_bias: f64) {
    found.push(Drawn::new(format!("{name}.weight"), shape, bounds));
    found.push(Drawn::new(format!("{name}.bias"), &shape[shape.len() - 1..], [-of_bias, of_bias]));
}

pub fn mlp(network: &Mlp) -> Vec<Drawn> {
    let mut found = Vec::new();
    for (n, width) in network.widths.windows(2).enumerate() {
        let bound = (6.0 / width[0] as f64).sqrt();
        pair(&mut found, &format!("layers.{n}"), width, [-bound, bound], 0.1);
    }
    found
}

pub fn gpt(network: &Gpt) -> Vec<Drawn> {
    let Gpt { layers, width: c, vocabulary, steps, .. } = *network;
    let added = EVEN / ((2 * layers) as f64).sqrt();
    let mut found = vec![
        Drawn::new("wte.weight".into(), &[vocabulary, c], [-EVEN, EVEN]),
        Drawn::new("wpe.weight".into(), &[steps, c], [-EVEN, EVEN]),
    ];
    for layer in 0..layers {
        let mut put = |part: &str, shape: &[usize], bounds| {
            pair(&mut found, &format!("h.{layer}.{part}"), shape, bounds, 0.02);
        };
        put("ln_1", &[c], [0.9, 1.1]);
        put("attn.c_attn", &[c, 3 * c], [-EVEN, EVEN]);
        put("attn.c_proj", &[c, c], [-added, added]);
        put("ln_2", &[c], [0.9, 1.1]);
        put("mlp.c_fc", &[c, 4 * c], [-EVEN, EVEN]);
        put("mlp.c_proj", &[4 * c, c], [-added, added]);
    }
    pair(&mut found, "ln_f", &[c], [0.9, 1.1], 0.02);
    found
}

pub fn bert(network: &Bert) -> Vec<Drawn> {
    let Bert { layers, width: c, intermediate, vocabulary, positions, .. } = *network;
    let mut found = Vec::new();
    for (name, rows) in [("word", vocabulary), ("position", positions), ("token_type", 2)] {
        let name = format!("embeddings.{name}_embeddings.weight");
        found.push(Drawn::new(name, &[rows, c], [-EVEN, EVEN]));
    }
    pair(&mut found, "embeddings.LayerNorm", &[c], [0.9, 1.1], 0.02);
    for layer in 0..layers {
        let mut put = |part: &str, shape: &[usize], bounds| {
            pair(&mut found, &format!("encoder.layer.{layer}.{part}"), shape, bounds, 0.02);
        };
        for part in ["self.query", "self.key", "self.value", "output.dense"] {
            put(&format!("attention.{part}"), &[c, c], [-EVEN, EVEN]);
        }
        put("attention.output.LayerNorm", &[c], [0.9, 1.1]);
        put("intermediate.dense", &[c, intermediate], [-EVEN, EVEN]);
        put("output.dense", &[intermediate, c], [-EVEN, EVEN]);
        put("output.LayerNorm", &[c], [0.9, 1.1]);
    }
    found
}

pub fn convnet(network: &Convnet) -> Vec<Drawn> {
    let Convnet { extent, channels, features: [first, second], width, classes, .. } = *network;
    let layers: [(&str, &[usize]); 4] = [
        ("conv1", &[3, 3, channels, first]),
        ("conv2", &[3, 3, first, second]),
        ("fc1", &[second * (extent / 4).pow(2), width]),
        ("fc2", &[width, classes]),
    ];
    let mut found = Vec::new();
    for (name, shape) in layers {
        let inputs = shape[..shape.len() - 1].iter().product::<usize>();
        let bound = (6.0 / inputs as f64).sqrt();
        pair(&mut found, name, shape, [-bound, bound], 0.1);
    }
    found
}

pub fn lstm(network: &Lstm) -> Vec<Drawn> {
    let Lstm { inputs, width, classes, .. } = *network;
    let bound = 1.0 / (width as f64).sqrt();
    let shapes: [(&str, &[usize]); 5] = [
        ("lstm.input", &[inputs, 4 * width]),
        ("lstm.recurrent", &[width, 4 * width]),
        ("lstm.bias", &[4 * width]),
        ("out.weight", &[width, classes]),
        ("out.bias", &[classes]),
    ];
    shapes.map(|(name, shape)| Drawn::new(name.into(), shape, [-bound, bound])).into()
}

pub fn inference(network: &Inference) -> Vec<Drawn> {
    match network {
        Inference::Mlp(network) => mlp(network),
        Inference::Gpt { network } => gpt(network),
        Inference::Bert { network } => bert(network),
    }
}

impl Bert {
    /// True for valid tokens, false for masked ones.
    pub fn mask(&self) -> Vec<bool> {
        let there = self.steps - self.steps / 16;
        (0..self.batch * self.steps).map(|n| n % self.steps < there).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::{Kind, catalogue};

    /// The number of parameters is that of `cases.json`, except for BERT's pooler: inference does
    /// not use it, so its parameters are left out here.
    #[test]
    fn parameters_are_counted() {
        let count = |drawn: Vec<Drawn>| drawn.iter().map(Drawn::len).sum::<usize>();
        for case in catalogue() {
            let (found, without) = match &case.kind {
                Kind::Training { network } => (mlp(network), 0),
                Kind::Transformer { network } => (gpt(network), 0),
                Kind::Convolutional { network } => (convnet(network), 0),
                Kind::Recurrent { network } => (lstm(network), 0),
                Kind::Inference { network: Inference::Bert { network } } => {
                    (bert(network), network.width * (network.width + 1))
                }
                Kind::Inference { network } => (inference(network), 0),
                _ => continue,
            };
            assert_eq!(count(found) + without, case.work.elements, "{}", case.id);
        }
    }
}
