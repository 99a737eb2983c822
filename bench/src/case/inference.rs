//! Inference: a network's results for one batch, from the same weights for all contenders.
//!
//! Contenders are compared by three numbers of the result ([`digest`]), in place of the losses of
//! training steps.

use super::training::parameters as of_layers;
use super::{
    Case, Drawn, Float, Kind, Made, Transformer, bert, drawn, first, gpt, plain, program, read,
};
use crate::data::{labels, uniform};
use crate::parity::{Comparison, Parity, digest};
use crate::record::Work;
use crate::resident::Resident;
use serde::{Deserialize, Serialize};
use wengert::models::{Bert, BertSettings, Gpt, Mlp};
use wengert::nn::Activation;
use wengert::{DType, Literal, Program, Result};

/// A network and its batch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case", deny_unknown_fields)]
pub enum Inference {
    /// Affine layers with relu between.
    Mlp {
        /// Widths: of the input, of the hidden layers, of the result.
        widths: Vec<usize>,
        /// Examples.
        batch: usize,
    },
    /// A GPT-2 network: logits of the token after each token.
    Gpt {
        /// The network.
        network: Transformer,
    },
    /// A BERT network: a vector of length 1 for each sequence.
    Bert {
        /// The network.
        network: Encoder,
    },
}

/// A BERT encoder; the last sixteenth of each sequence is masked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Encoder {
    /// Blocks.
    pub layers: usize,
    /// Elements of a token's vector.
    pub width: usize,
    /// Elements of the hidden layer of a block's MLP.
    pub intermediate: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Number of positions.
    pub positions: usize,
    /// Sequences.
    pub batch: usize,
    /// Tokens of a sequence.
    pub steps: usize,
}

impl Encoder {
    fn settings(&self) -> BertSettings {
        let Encoder { layers, width, intermediate, heads, vocabulary, positions, .. } = *self;
        BertSettings { vocabulary, positions, types: 2, width, intermediate, heads, layers }
    }

    /// All parameters: names, shapes, and bounds of their initial values, like
    /// [`Transformer::parameters`].
    pub fn parameters(&self) -> Vec<Drawn> {
        let Encoder { layers, width: c, intermediate, vocabulary, positions, .. } = *self;
        let even = 0.02 * 3f64.sqrt();
        let mut found: Vec<Drawn> = Vec::new();
        for (name, rows) in [("word", vocabulary), ("position", positions), ("token_type", 2)] {
            found.push((
                format!("embeddings.{name}_embeddings.weight"),
                vec![rows, c],
                [-even, even],
            ));
        }
        let mut pair = |name: String, shape: &[usize], bounds: [f64; 2]| {
            found.push((format!("{name}.weight"), shape.into(), bounds));
            found.push((format!("{name}.bias"), vec![shape[shape.len() - 1]], [-0.02, 0.02]));
        };
        pair("embeddings.LayerNorm".into(), &[c], [0.9, 1.1]);
        for layer in 0..layers {
            let at = |part: &str| format!("encoder.layer.{layer}.{part}");
            for part in ["self.query", "self.key", "self.value", "output.dense"] {
                pair(at(&format!("attention.{part}")), &[c, c], [-even, even]);
            }
            pair(at("attention.output.LayerNorm"), &[c], [0.9, 1.1]);
            pair(at("intermediate.dense"), &[c, intermediate], [-even, even]);
            pair(at("output.dense"), &[intermediate, c], [-even, even]);
            pair(at("output.LayerNorm"), &[c], [0.9, 1.1]);
        }
        pair("pooler.dense".into(), &[c, c], [-even, even]);
        found
    }

    /// Number of valid tokens in each sequence.
    fn there(&self) -> usize {
        self.steps - self.steps / 16
    }

    fn mask(&self) -> Vec<bool> {
        (0..self.batch * self.steps).map(|n| n % self.steps < self.there()).collect()
    }
}

impl Inference {
    fn parameters(&self) -> Vec<Drawn> {
        match self {
            Inference::Mlp { widths, .. } => of_layers(widths),
            Inference::Gpt { network } => network.parameters(),
            Inference::Bert { network } => network.parameters(),
        }
    }

    fn program(&self) -> Result<Program> {
        program(|f| {
            let y = match self {
                Inference::Mlp { widths, batch } => {
                    let x = read(f, "x", DType::F32, &[*batch, widths[0]]);
                    f.param("model", Mlp::new(widths, Activation::Relu)).call(&x)
                }
                Inference::Gpt { network } => {
                    let x = read(f, "x", DType::I32, &[network.batch, network.steps]);
                    f.param("model", Gpt::new(&network.settings())).call(&x)
                }
                Inference::Bert { network } => {
                    let tokens = [network.batch, network.steps];
                    let (x, mask) =
                        (read(f, "x", DType::I32, &tokens), read(f, "mask", DType::Bool, &tokens));
                    f.param("model", Bert::new(&network.settings())).embed(&x, &mask)
                }
            };
            f.create("y", &y);
        })
    }

    /// The inputs of the network.
    fn inputs(&self) -> Result<Vec<(String, Literal)>> {
        let tokens = |[batch, steps]: [usize; 2], vocabulary: usize| {
            let drawn = labels("x", batch * steps, vocabulary)?;
            Literal::from_vec(&[batch, steps], drawn.scalars().map(|s| s.to_f64() as i32).collect())
        };
        Ok(match self {
            Inference::Mlp { widths, batch } => {
                vec![("x".into(), uniform("x", DType::F32, &[*batch, widths[0]], 0.0, 1.0)?)]
            }
            Inference::Gpt { network } => {
                vec![("x".into(), tokens([network.batch, network.steps], network.vocabulary)?)]
            }
            Inference::Bert { network } => {
                let extents = [network.batch, network.steps];
                let mask = Literal::from_vec(&extents, network.mask())?;
                vec![("x".into(), tokens(extents, network.vocabulary)?), ("mask".into(), mask)]
            }
        })
    }
}

pub(super) fn cases(small: bool) -> Vec<Case> {
    let gpt =
        Transformer { layers: 12, width: 768, heads: 12, vocabulary: 50257, batch: 1, steps: 128 };
    let tiny_gpt =
        Transformer { layers: 2, width: 12, heads: 3, vocabulary: 11, batch: 1, steps: 5 };
    let minilm = Encoder {
        layers: 6,
        width: 384,
        intermediate: 1536,
        heads: 12,
        vocabulary: 30522,
        positions: 512,
        batch: 1,
        steps: 128,
    };
    let tiny = Encoder {
        layers: 2,
        width: 12,
        intermediate: 20,
        heads: 3,
        vocabulary: 13,
        positions: 19,
        batch: 2,
        steps: 16,
    };
    let networks = match small {
        true => [
            Inference::Mlp { widths: vec![40, 24, 24, 10], batch: 1 },
            Inference::Bert { network: tiny },
            Inference::Gpt { network: tiny_gpt },
        ],
        false => [
            Inference::Mlp { widths: vec![784, 512, 512, 10], batch: 1 },
            Inference::Bert { network: minilm },
            Inference::Gpt { network: gpt },
        ],
    };
    networks.into_iter().map(case).collect()
}

/// The work: two operations per row for each element of the matrices that the row is multiplied
/// with, and the operations of attention. Each matrix is read once. Of embedding tables only the
/// looked-up rows are read. The result is written.
fn case(network: Inference) -> Case {
    let (id, elements, matrices, rows, attention, ends) = match &network {
        Inference::Mlp { widths, batch } => {
            let shape: Vec<String> = widths.iter().map(usize::to_string).collect();
            let matrices = widths.windows(2).map(|w| w[0] * w[1]).sum::<usize>();
            let ends = batch * (widths[0] + widths[widths.len() - 1]);
            let id = format!("infer mlp {} B{batch}", shape.join("-"));
            (id, Mlp::parameters(widths), matrices, *batch, 0, ends)
        }
        Inference::Gpt { network } => {
            let Transformer { layers: l, width: c, heads, vocabulary: v, batch: b, steps: t } =
                *network;
            let id = format!("infer gpt L{l} C{c} H{heads} V{v} B{b} T{t}");
            let matrices = 12 * l * c * c + v * c;
            let ends = b * t * (1 + v) + t * c;
            (id, network.settings().parameters(), matrices, b * t, 4 * l * c * t * t * b, ends)
        }
        Inference::Bert { network } => {
            let Encoder {
                layers: l,
                width: c,
                intermediate,
                heads,
                vocabulary: v,
                batch: b,
                steps: t,
                ..
            } = *network;
            let id = format!("infer bert L{l} C{c} H{heads} V{v} B{b} T{t}");
            let matrices = l * (4 * c * c + 2 * c * intermediate);
            let ends = b * t * (1 + c) + t * c + b * c;
            (id, network.settings().parameters(), matrices, b * t, 4 * l * c * t * t * b, ends)
        }
    };
    Case {
        id,
        group: "inference".into(),
        dtype: Float::F32,
        work: Work {
            elements: elements as u64,
            bytes: 4 * (matrices + ends) as u64,
            flops: (2 * matrices * rows + attention) as u64,
        },
        reference: None,
        kind: Kind::Inference { network },
    }
}

pub(super) fn make(network: &Inference) -> Result<Made> {
    let mut variables = network.inputs()?;
    variables.extend(drawn(network.parameters())?);
    Ok(Made { program: network.program()?, variables, init: None, check })
}

fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    resident.run()?;
    resident.finish()?;
    let Kind::Inference { network } = &case.kind else {
        unreachable!("this is the check of inference")
    };
    let values =
        |name: &str| -> Vec<f64> { first(variables, name).scalars().map(|s| s.to_f64()).collect() };
    let tokens = || -> Vec<usize> { values("x").iter().map(|v| *v as usize).collect() };
    let parameters: Vec<Vec<f64>> =
        network.parameters().iter().map(|(name, ..)| values(&format!("model.{name}"))).collect();
    let expected = match network {
        Inference::Mlp { .. } => affine(&parameters, values("x")),
        Inference::Gpt { network } => gpt::logits(network, &parameters, &tokens()),
        Inference::Bert { network } => {
            bert::embed(network, &parameters, &tokens(), &network.mask())
        }
    };
    let found: Vec<f64> = resident.variable("y")?.scalars().map(|s| s.to_f64()).collect();
    let greatest = expected.iter().fold(0.0f64, |a, v| a.max(v.abs()));
    let mut comparison = Comparison::default();
    found
        .iter()
        .zip(&expected)
        .for_each(|(found, expected)| comparison.add(*found, *expected, greatest));
    // Contenders round bf16 at other places.
    let losses = (case.dtype == Float::F32).then(|| digest(&found));
    Ok(Parity { losses, ..comparison.finish(case.dtype.bound())? })
}

/// Affine layers with relu between, parameters in the order weight, bias of each.
fn affine(parameters: &[Vec<f64>], x: Vec<f64>) -> Vec<f64> {
    let layers = parameters.chunks_exact(2).enumerate();
    layers.fold(x, |x, (n, p)| {
        let x: Vec<f64> = if n > 0 { x.iter().map(|v| v.max(0.0)).collect() } else { x };
        plain::linear(&x, &p[0], &p[1])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_by_hand() {
        let [mlp, bert, gpt] = &cases(false)[..] else { panic!("three networks") };
        assert_eq!(mlp.id, "infer mlp 784-512-512-10 B1");
        assert_eq!(mlp.work.flops, 2 * (784 * 512 + 512 * 512 + 5120));
        assert_eq!(bert.work.elements, 22_713_216);
        // A block has 1,769,472 elements in matrices.
        assert_eq!(bert.work.flops, 2 * 128 * 6 * 1_769_472 + 4 * 6 * 384 * 128 * 128);
        assert_eq!(gpt.work.flops, 2 * 128 * (84_934_656 + 50257 * 768) + 4 * 12 * 768 * 128 * 128);
    }

    /// The drawn parameters are exactly the program's.
    #[test]
    fn parameters_are_the_networks() {
        for case in cases(true) {
            let Kind::Inference { network } = case.kind else { panic!("inference") };
            let drawn: usize = network
                .parameters()
                .iter()
                .map(|(_, shape, _)| shape.iter().product::<usize>())
                .sum();
            assert_eq!(drawn as u64, case.work.elements, "{}", case.id);
        }
    }
}
