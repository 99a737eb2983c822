//! GPT-2 (Radford and others 2019), in any size.

use crate::nn::loss::linear_cross_entropy;
use crate::nn::{Dropout, Embedding, LayerNorm, Linear, Mask, SelfAttention, parameters};
use wengert_core::{DType, Differentiable, Location, Tensor};

/// Sizes of the network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GptSettings {
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// The longest sequence.
    pub positions: usize,
    /// Elements of a token's vector.
    pub width: usize,
    /// Heads of attention, which share the width.
    pub heads: usize,
    /// Blocks.
    pub layers: usize,
}

impl GptSettings {
    /// GPT-2 with 124 million parameters.
    pub const SMALL: Self =
        GptSettings { vocabulary: 50257, positions: 1024, width: 768, heads: 12, layers: 12 };
    /// 355 million.
    pub const MEDIUM: Self = GptSettings { width: 1024, heads: 16, layers: 24, ..Self::SMALL };
    /// 774 million.
    pub const LARGE: Self = GptSettings { width: 1280, heads: 20, layers: 36, ..Self::SMALL };
    /// 1558 million.
    pub const XL: Self = GptSettings { width: 1600, heads: 25, layers: 48, ..Self::SMALL };

    /// Number of learnt parameters.
    pub fn parameters(&self) -> usize {
        parameters(&Gpt::new(self))
    }
}

/// A GPT-2 decoder. The token embedding is also the matrix of the last layer.
#[derive(Differentiable, Clone, Debug)]
pub struct Gpt {
    /// Tokens.
    pub wte: Embedding,
    /// Positions.
    pub wpe: Embedding,
    /// Blocks.
    pub h: Vec<GptBlock>,
    /// The last norm.
    pub ln_f: LayerNorm,
}

/// Attention, then an MLP, each after a norm and with a residual addition.
#[derive(Differentiable, Clone, Debug)]
pub struct GptBlock {
    /// Before attention.
    pub ln_1: LayerNorm,
    /// Causal attention.
    pub attn: SelfAttention,
    /// Before the MLP.
    pub ln_2: LayerNorm,
    /// The MLP.
    pub mlp: GptMlp,
}

/// A layer to four times the width, `gelu_tanh`, and a layer back.
#[derive(Differentiable, Clone, Debug)]
pub struct GptMlp {
    /// To four times the width.
    pub c_fc: Linear,
    /// Back.
    pub c_proj: Linear,
}

impl Gpt {
    /// A network with GPT-2's initialization: weights of standard deviation 0.02, divided by the
    /// square root of the number of residual additions for layers whose results are added to the
    /// residual stream.
    ///
    /// # Panics
    ///
    /// If the width is no multiple of the heads.
    #[track_caller]
    pub fn new(settings: &GptSettings) -> Self {
        let _user = Location::caller().attributed();
        let GptSettings { vocabulary, positions, width, heads, layers } = *settings;
        assert!(
            heads > 0 && width % heads == 0,
            "a width of {width} is not shared by {heads} heads"
        );
        let added = 0.02 / ((2 * layers.max(1)) as f64).sqrt();
        let block = |_| GptBlock {
            ln_1: LayerNorm::new(width),
            attn: SelfAttention {
                c_attn: Linear::normal(width, 3 * width, 0.02),
                c_proj: Linear::normal(width, width, added),
                heads,
                mask: Mask::Causal,
            },
            ln_2: LayerNorm::new(width),
            mlp: GptMlp {
                c_fc: Linear::normal(width, 4 * width, 0.02),
                c_proj: Linear::normal(4 * width, width, added),
            },
        };
        Gpt {
            wte: Embedding::new(vocabulary, width),
            wpe: Embedding::new(positions, width),
            h: (0..layers).map(block).collect(),
            ln_f: LayerNorm::new(width),
        }
    }

    /// The last norm's output `[B, T, width]` for tokens, integers `[B, T]`. Positions beyond the
    /// last known one use the last.
    #[track_caller]
    pub fn hidden(&self, tokens: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        self.stream(tokens, &mut |x| x)
    }

    /// The residual stream from the embedding to the last norm. `drop` is applied to the
    /// embedding and to every term added to the stream.
    #[track_caller]
    fn stream(&self, tokens: &Tensor, drop: &mut dyn FnMut(Tensor) -> Tensor) -> Tensor {
        let embedded = self.wte.call(tokens);
        if embedded.error().is_some() {
            return embedded;
        }
        let length = tokens.shape()[1].clone();
        let positions = self.wpe.call(&Tensor::iota(DType::I32, [length], 0));
        let positions = positions.broadcast_in_dim(embedded.shape().to_vec(), &[1, 2]);
        let begin = drop(embedded + positions);
        let end = self.h.iter().fold(begin, |x, block| block.call_with(&x, drop));
        self.ln_f.call(&end)
    }

    /// Logits `[…, vocabulary]` of the results of [`hidden`](Self::hidden), `[…, width]`.
    #[track_caller]
    pub fn logits(&self, hidden: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        hidden.dot(&self.wte.weight.matrix_transpose())
    }

    /// Logits of the next token for tokens, integers `[B, T]`: `[B, T, vocabulary]`.
    #[track_caller]
    pub fn call(&self, tokens: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        self.logits(&self.hidden(tokens))
    }

    /// [`call`](Self::call) in training: dropout with `key` on the embedded tokens and on every
    /// term added to the residual stream. (GPT-2 also drops out attention weights.)
    #[track_caller]
    pub fn call_dropping(&self, tokens: &Tensor, dropout: Dropout, key: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let keys = key.split_key(1 + 2 * self.h.len());
        let mut keys = keys.iter();
        self.logits(&self.stream(tokens, &mut |x| {
            dropout.call(
                &x,
                Some(keys.next().expect("the embedding and two layers of each block have a key")),
            )
        }))
    }

    /// The mean cross-entropy of the next tokens; both arguments are integers `[B, T]`.
    #[track_caller]
    pub fn loss(&self, tokens: &Tensor, targets: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        self.call(tokens).softmax_cross_entropy(targets).mean()
    }

    /// [`loss`](Self::loss) with one of `chunks` equal parts of the logits in memory at a time;
    /// see [`linear_cross_entropy`]. The logits of [`GptSettings::SMALL`] for 32 × 1024 tokens take
    /// 3.3 GB in bf16: with two chunks the arena of a mixed training step is 9.0 GiB instead of
    /// 10.4, and other kernels than products and attention move 31.3 GB instead of 30.9.
    #[track_caller]
    pub fn loss_in_chunks(&self, tokens: &Tensor, targets: &Tensor, chunks: usize) -> Tensor {
        let _user = Location::caller().attributed();
        linear_cross_entropy(&self.hidden(tokens), &self.wte.weight, targets, chunks)
    }
}

impl GptBlock {
    /// `[B, T, width]` to the same.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        self.call_with(x, &mut |x| x)
    }

    #[track_caller]
    fn call_with(&self, x: &Tensor, drop: &mut dyn FnMut(Tensor) -> Tensor) -> Tensor {
        let x = x + drop(self.attn.call(&self.ln_1.call(x)));
        &x + drop(self.mlp.c_proj.call(&self.mlp.c_fc.call(&self.ln_2.call(&x)).gelu_tanh()))
    }
}
