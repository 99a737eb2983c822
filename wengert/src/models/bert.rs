//! BERT (Devlin, Chang, Lee and Toutanova 2019), in any size, and sentence embeddings.

use super::torch::{Layout, from_torch};
use crate::data::Arrays;
use crate::nn::{Embedding, LayerNorm, Linear, Mask, dot_product_attention, parameters};
use wengert_core::{DType, Differentiable, Dim, KeyPath, Location, Result, Tensor, TensorType};

/// Sizes of the network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BertSettings {
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// The longest sequence.
    pub positions: usize,
    /// Kinds of segments of a sequence.
    pub types: usize,
    /// Elements of a token's vector.
    pub width: usize,
    /// Elements of the hidden layer of a block's MLP.
    pub intermediate: usize,
    /// Heads of attention, which share the width.
    pub heads: usize,
    /// Blocks.
    pub layers: usize,
}

impl BertSettings {
    /// BERT base, 109 million parameters.
    pub const BASE: Self = BertSettings {
        vocabulary: 30522,
        positions: 512,
        types: 2,
        width: 768,
        intermediate: 3072,
        heads: 12,
        layers: 12,
    };
    /// BERT large, 335 million.
    pub const LARGE: Self =
        BertSettings { width: 1024, intermediate: 4096, heads: 16, layers: 24, ..Self::BASE };
    /// MiniLM of six layers (Wang and others 2020), 23 million: the network of `all-MiniLM-L6-v2`.
    pub const MINILM_L6: Self =
        BertSettings { width: 384, intermediate: 1536, layers: 6, ..Self::BASE };

    /// Number of learnt parameters.
    pub fn parameters(&self) -> usize {
        parameters(&Bert::new(self))
    }
}

/// A BERT encoder. Its variables have the names of Hugging Face's `BertModel`.
#[derive(Differentiable, Clone, Debug)]
pub struct Bert {
    /// Tokens, positions and segments.
    pub embeddings: BertEmbeddings,
    /// The blocks.
    pub encoder: BertEncoder,
    /// A layer on the first token.
    pub pooler: BertDense,
}

/// The input of the first block.
#[derive(Differentiable, Clone, Debug)]
#[allow(non_snake_case)] // As in published weights.
pub struct BertEmbeddings {
    /// Tokens.
    pub word_embeddings: Embedding,
    /// Positions.
    pub position_embeddings: Embedding,
    /// Segments.
    pub token_type_embeddings: Embedding,
    /// Of the sum of the three.
    pub LayerNorm: LayerNorm,
}

/// The blocks.
#[derive(Differentiable, Clone, Debug)]
pub struct BertEncoder {
    /// One after the other.
    pub layer: Vec<BertLayer>,
}

/// Attention, then an MLP, each followed by a residual addition and a norm.
#[derive(Differentiable, Clone, Debug)]
pub struct BertLayer {
    /// Attention.
    pub attention: BertAttention,
    /// The MLP's first layer, followed by a GELU.
    pub intermediate: BertDense,
    /// Its second.
    pub output: BertOutput,
}

/// Attention over the whole sequence.
#[derive(Clone, Debug)]
pub struct BertAttention {
    /// Queries, keys and values. The field is `self` in key paths; in Rust that is a keyword.
    pub this: BertSelfAttention,
    /// Projection of the heads' results.
    pub output: BertOutput,
    /// Heads; they share the width.
    pub heads: usize,
}

/// Queries, keys and values.
#[derive(Differentiable, Clone, Debug)]
pub struct BertSelfAttention {
    /// Queries.
    pub query: Linear,
    /// Keys.
    pub key: Linear,
    /// Values.
    pub value: Linear,
}

/// A layer followed by a residual addition and a norm.
#[derive(Differentiable, Clone, Debug)]
#[allow(non_snake_case)] // As in published weights.
pub struct BertOutput {
    /// The layer.
    pub dense: Linear,
    /// Of the sum.
    pub LayerNorm: LayerNorm,
}

/// A layer alone.
#[derive(Differentiable, Clone, Debug)]
pub struct BertDense {
    /// The layer.
    pub dense: Linear,
}

impl Differentiable for BertAttention {
    type TangentVector = Self;
    fn visit_tensors(&self, path: &KeyPath, visit: &mut dyn FnMut(&KeyPath, &Tensor)) {
        self.this.visit_tensors(&path.child("self"), visit);
        self.output.visit_tensors(&path.child("output"), visit);
    }
    fn map_tensors(
        &self,
        path: &KeyPath,
        map: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor,
    ) -> Self {
        let this = self.this.map_tensors(&path.child("self"), map);
        BertAttention {
            this,
            output: self.output.map_tensors(&path.child("output"), map),
            heads: self.heads,
        }
    }
    fn tangent(&self, path: &KeyPath, make: &mut dyn FnMut(&KeyPath, &Tensor) -> Tensor) -> Self {
        let this = self.this.tangent(&path.child("self"), make);
        BertAttention {
            this,
            output: self.output.tangent(&path.child("output"), make),
            heads: self.heads,
        }
    }
}

/// A layer with weights of standard deviation 0.02.
#[track_caller]
fn linear(inputs: usize, outputs: usize) -> Linear {
    Linear::normal(inputs, outputs, 0.02)
}

#[track_caller]
fn norm(width: usize) -> LayerNorm {
    LayerNorm { epsilon: 1e-12, ..LayerNorm::new(width) }
}

#[track_caller]
fn output(inputs: usize, width: usize) -> BertOutput {
    BertOutput { dense: linear(inputs, width), LayerNorm: norm(width) }
}

impl Bert {
    /// A network with BERT's initialization: weights of standard deviation 0.02.
    ///
    /// # Panics
    ///
    /// If the width is no multiple of the heads.
    #[track_caller]
    pub fn new(settings: &BertSettings) -> Self {
        let _user = Location::caller().attributed();
        let BertSettings { vocabulary, positions, types, width, intermediate, heads, layers } =
            *settings;
        assert!(
            heads > 0 && width % heads == 0,
            "a width of {width} is not shared by {heads} heads"
        );
        let layer = |_| BertLayer {
            attention: BertAttention {
                this: BertSelfAttention {
                    query: linear(width, width),
                    key: linear(width, width),
                    value: linear(width, width),
                },
                output: output(width, width),
                heads,
            },
            intermediate: BertDense { dense: linear(width, intermediate) },
            output: output(intermediate, width),
        };
        Bert {
            embeddings: BertEmbeddings {
                word_embeddings: Embedding::new(vocabulary, width),
                position_embeddings: Embedding::new(positions, width),
                token_type_embeddings: Embedding::new(types, width),
                LayerNorm: norm(width),
            },
            encoder: BertEncoder { layer: (0..layers).map(layer).collect() },
            pooler: BertDense { dense: linear(width, width) },
        }
    }

    /// The last block's output `[B, T, width]` for tokens, integers `[B, T]`. `mask`, bools
    /// `[B, T]`, is true for the valid tokens; attention ignores the others, and each sequence
    /// has at least one valid token. `types`, integers `[B, T]`, are the segments of the tokens;
    /// by default all are 0.
    #[track_caller]
    pub fn call(&self, tokens: &Tensor, mask: &Tensor, types: Option<&Tensor>) -> Tensor {
        let _user = Location::caller().attributed();
        let x = self.embeddings.call(tokens, types);
        if x.error().is_some() || mask.error().is_some() {
            return x;
        }
        let zeros = Tensor::zeros(&TensorType::of(x.dtype(), mask.shape().to_vec()));
        let hidden = mask.select(&zeros, &zeros.full_like(f64::NEG_INFINITY));
        let [batch, length] = [0, 1].map(|axis| tokens.shape()[axis].clone());
        let hidden = hidden.reshape([batch, Dim::constant(1), Dim::constant(1), length]);
        self.encoder.layer.iter().fold(x, |x, layer| layer.call(&x, &hidden))
    }

    /// The pooler's output `[B, width]` for the first token of [`call`](Self::call)'s result,
    /// `[B, T, width]`.
    #[track_caller]
    pub fn pool(&self, hidden: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        if hidden.error().is_some() {
            return hidden.clone();
        }
        let shape = [hidden.shape()[0].clone(), hidden.shape()[2].clone()];
        self.pooler.dense.call(&hidden.slice_axis(1, 0, 1).reshape(shape)).tanh()
    }

    /// A vector of length 1 for each sequence, `[B, width]`: the normalised mean over the valid
    /// tokens (Reimers and Gurevych 2019). The inner product of two is their cosine.
    #[track_caller]
    pub fn embed(&self, tokens: &Tensor, mask: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let hidden = self.call(tokens, mask, None);
        if hidden.error().is_some() {
            return hidden;
        }
        let there = mask.broadcast_in_dim(hidden.shape().to_vec(), &[0, 1]);
        // The sum replaces the mean: normalisation cancels their common factor.
        let sum = there.select(&hidden, &hidden.zeros_like()).sum_axes(&[1]);
        let length = sum.square().sum_axes(&[1]).sqrt();
        &sum / length.restore_axes(sum.shape(), &[1])
    }

    /// The variables of a Hugging Face `BertModel` file.
    ///
    /// Errors: a tensor that is missing, or has another type than this network's.
    pub fn from_torch(&self, arrays: &Arrays) -> Result<Arrays> {
        from_torch(self, arrays, |path, rank| match rank == 2 && !path.starts_with("embeddings.") {
            true => Layout::Matrix,
            false => Layout::Same,
        })
    }
}

impl BertEmbeddings {
    /// Integers `[B, T]` to `[B, T, width]`. Positions beyond the last known one use the last.
    #[track_caller]
    pub fn call(&self, tokens: &Tensor, types: Option<&Tensor>) -> Tensor {
        let _user = Location::caller().attributed();
        let words = self.word_embeddings.call(tokens);
        if words.error().is_some() {
            return words;
        }
        let positions = self.position_embeddings.call(&Tensor::iota(
            DType::I32,
            [tokens.shape()[1].clone()],
            0,
        ));
        let segments = match types {
            Some(types) => self.token_type_embeddings.call(types),
            None => self.token_type_embeddings.call(&tokens.zeros_like()),
        };
        let positions = positions.broadcast_in_dim(words.shape().to_vec(), &[1, 2]);
        self.LayerNorm.call(&(words + segments + positions))
    }
}

impl BertLayer {
    /// `[B, T, width]` to the same; `hidden`, `[B, 1, 1, T]`, is −∞ at masked tokens.
    #[track_caller]
    pub fn call(&self, x: &Tensor, hidden: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let x = self.attention.call(x, hidden);
        self.output.call(&self.intermediate.dense.call(&x).gelu(), &x)
    }
}

impl BertAttention {
    /// `[B, T, width]` to the same; `hidden`, `[B, 1, 1, T]`, is −∞ at masked tokens.
    #[track_caller]
    pub fn call(&self, x: &Tensor, hidden: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let shape = x.shape().to_vec();
        let Some(width) = shape.last().and_then(Dim::as_extent) else { return x.clone() };
        let heads = |layer: &Linear| {
            let heads = [Dim::from(self.heads), Dim::from(width / self.heads)];
            layer.call(x).reshape(shape[..2].iter().cloned().chain(heads))
        };
        let BertSelfAttention { query, key, value } = &self.this;
        let mixed = dot_product_attention(
            &heads(query),
            &heads(key),
            &heads(value),
            Mask::None,
            Some(hidden),
        );
        self.output.call(&mixed.reshape(shape), x)
    }
}

impl BertOutput {
    #[track_caller]
    fn call(&self, x: &Tensor, residual: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        self.LayerNorm.call(&(self.dense.call(x) + residual))
    }
}
