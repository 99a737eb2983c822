//! Cases, as listed in `bench/peers/cases.json`. Kinds that no contender here computes are
//! [`Kind::Other`].

use serde::Deserialize;
use std::collections::BTreeMap;

/// The catalogue at compile time.
const CATALOGUE: &str = include_str!("../../cases.json");

/// A case.
#[derive(Clone, PartialEq, Debug, Deserialize)]
pub struct Case {
    /// Its name.
    pub id: String,
    /// Dtype of its floats.
    pub dtype: String,
    /// Its computation.
    pub kind: Kind,
    /// Its work.
    pub work: Work,
}

/// The work of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Work {
    /// Elements of the result, or number of a network's parameters.
    pub elements: usize,
}

/// The computation of a case.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Kind {
    Empty,
    Chain {
        chain: Chain,
        elements: usize,
    },
    Gemm {
        extent: usize,
        epilogue: String,
    },
    Product {
        product: Product,
    },
    Training {
        network: Mlp,
    },
    Transformer {
        network: Gpt,
    },
    Convolutional {
        network: Convnet,
    },
    Recurrent {
        network: Lstm,
    },
    Inference {
        network: Inference,
    },
    /// A computation that no contender here supports.
    #[serde(other)]
    Other,
}

impl Kind {
    /// The reason why no contender here computes it; None if one may.
    pub fn unknown(&self) -> Option<&'static str> {
        match self {
            Kind::Gemm { epilogue, .. } if epilogue != "none" => {
                Some("products with more behind them are fused by nobody here")
            }
            Kind::Recurrent { network } if network.form != "scan" => {
                Some("one form of an LSTM is enough")
            }
            Kind::Other => Some("nobody here computes it"),
            _ => None,
        }
    }
}

/// An elementwise chain; `bench/src/case/chain.rs` defines each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Chain {
    Copy,
    CopyPlain,
    MulAdd,
    Gelu,
    Eight,
}

/// `x·w`, or `x·wᵀ` if w is stored as `[columns, inner]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Product {
    pub rows: usize,
    pub inner: usize,
    pub columns: usize,
    pub transposed: bool,
}

/// Affine layers with relu between, trained by Adam or AdamW.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Mlp {
    pub widths: Vec<usize>,
    pub batch: usize,
    #[serde(default)]
    pub algorithm: Option<String>,
}

/// A GPT-2 network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Gpt {
    pub layers: usize,
    pub width: usize,
    pub heads: usize,
    pub vocabulary: usize,
    pub batch: usize,
    pub steps: usize,
}

/// A BERT encoder; the last sixteenth of each sequence is masked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Bert {
    pub layers: usize,
    pub width: usize,
    pub intermediate: usize,
    pub heads: usize,
    pub vocabulary: usize,
    pub positions: usize,
    pub batch: usize,
    pub steps: usize,
}

/// Two convolutions, each followed by pooling, then two affine layers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub struct Convnet {
    pub extent: usize,
    pub channels: usize,
    pub features: [usize; 2],
    pub width: usize,
    pub classes: usize,
    pub batch: usize,
}

/// An LSTM layer and an affine layer.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub struct Lstm {
    pub inputs: usize,
    pub width: usize,
    pub classes: usize,
    pub steps: usize,
    pub batch: usize,
    pub form: String,
}

/// A network for inference.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(tag = "model", rename_all = "snake_case")]
pub enum Inference {
    Mlp(Mlp),
    Gpt { network: Gpt },
    Bert { network: Bert },
}

/// The f32 cases of each list of the catalogue, by the list's name.
///
/// # Panics
///
/// If `cases.json` cannot be parsed; a test parses it.
pub fn lists() -> BTreeMap<String, Vec<Case>> {
    let mut lists: BTreeMap<String, Vec<Case>> =
        serde_json::from_str(CATALOGUE).expect("cases.json holds lists of cases by name");
    lists.values_mut().for_each(|cases| cases.retain(|case| case.dtype == "f32"));
    lists
}

/// All f32 cases of all lists, without duplicates.
pub fn catalogue() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    // A case may be in several lists; its name identifies it.
    for case in lists().into_values().flatten() {
        if !cases.iter().any(|known| known.id == case.id) {
            cases.push(case);
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_read() {
        let cases = catalogue();
        let kind = |id: &str| cases.iter().find(|case| case.id == id).map(|case| case.kind.clone());
        let gpt = Gpt { layers: 2, width: 12, heads: 3, vocabulary: 11, batch: 2, steps: 5 };
        assert_eq!(kind("step gpt L2 C12 H3 V11 B2 T5"), Some(Kind::Transformer { network: gpt }));
        let mlp = Mlp { widths: vec![784, 512, 512, 10], batch: 1, algorithm: None };
        let asked = Kind::Inference { network: Inference::Mlp(mlp) };
        assert_eq!(kind("infer mlp 784-512-512-10 B1"), Some(asked));
        assert_eq!(kind("gemm bf16 64"), None);
    }
}
