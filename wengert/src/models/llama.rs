//! Llama (Touvron and others, *LLaMA: open and efficient foundation language models*, 2023), in
//! any size, with the grouped queries of Llama 2 and 3.
//!
//! [`Llama::call`] computes the logits of whole sequences, as in training. Text is generated token
//! by token: [`Llama::call_cached`] computes the logits of new tokens only, and reads the keys and
//! values of earlier positions from one cache per layer.

use super::torch::{Layout, from_torch};
use crate::data::Arrays;
use crate::nn::{
    Embedding, GroupedQueryAttention, KeyValueCache, Linear, RmsNorm, Rotary, RotaryPairs,
    RotaryScaling, SwiGlu, parameters,
};
use wengert_core::{Differentiable, Location, Result, Tensor, diagnostic};

/// Sizes of the network.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LlamaSettings {
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Elements of a token's vector.
    pub width: usize,
    /// Blocks.
    pub layers: usize,
    /// N: heads of queries, which share the width.
    pub heads: usize,
    /// K: heads of keys and values; N is a multiple of K.
    pub key_value_heads: usize,
    /// Elements of the hidden layer of a block's MLP.
    pub intermediate: usize,
    /// S: the longest sequence that the caches hold.
    pub positions: usize,
    /// The base of the rotary embedding's frequencies.
    pub base: f64,
    /// The change of these frequencies for long sequences.
    pub scaling: RotaryScaling,
    /// ε of the norms.
    pub epsilon: f64,
    /// The token embedding is also the matrix of the last layer.
    pub tied: bool,
}

impl LlamaSettings {
    /// Llama 2 with 6.7 billion parameters.
    pub const LLAMA_2_7B: Self = LlamaSettings {
        vocabulary: 32000,
        width: 4096,
        layers: 32,
        heads: 32,
        key_value_heads: 32,
        intermediate: 11008,
        positions: 4096,
        base: 1e4,
        scaling: RotaryScaling::None,
        epsilon: 1e-5,
        tied: false,
    };
    /// Llama 3 with 8.0 billion.
    pub const LLAMA_3_8B: Self = LlamaSettings {
        vocabulary: 128_256,
        key_value_heads: 8,
        intermediate: 14336,
        positions: 8192,
        base: 5e5,
        ..Self::LLAMA_2_7B
    };
    /// Llama 3.2 with 1.2 billion.
    pub const LLAMA_3_2_1B: Self = LlamaSettings {
        width: 2048,
        layers: 16,
        intermediate: 8192,
        positions: 131_072,
        scaling: RotaryScaling::Llama3 { factor: 32.0, trained: 8192, low: 1.0, high: 4.0 },
        tied: true,
        ..Self::LLAMA_3_8B
    };

    /// Number of learnt parameters.
    pub fn parameters(&self) -> usize {
        parameters(&Llama::new(self))
    }
}

/// A Llama decoder. Its variables have the names of Hugging Face's `LlamaForCausalLM`.
///
/// A step of generation, with caches that stay on the device between runs:
///
/// ```
/// # use wengert::models::{Llama, LlamaSettings};
/// # use wengert::prelude::*;
/// # fn main() -> Result<()> {
/// let settings =
///     LlamaSettings { width: 256, layers: 4, positions: 512, ..LlamaSettings::LLAMA_3_8B };
/// let mut program = Program::new();
/// program.function("step", |f| {
///     let llama = Llama::new(&settings);
///     let caches = f.state("caches", llama.first_caches(1));
///     let llama = f.param("llama", llama);
///     let (token, position) = (f.input("token", i32("1,1")), f.input("position", i32("")));
///     let (logits, caches) = llama.call_cached(&token, &caches, &position);
///     for (path, tensor) in caches.tensors() {
///         f.update(&format!("caches.{path}"), &tensor);
///     }
///     f.output("next", logits.argmax(2));
/// })
/// # }
/// ```
#[derive(Differentiable, Clone, Debug)]
pub struct Llama {
    /// Everything but the last layer.
    pub model: LlamaModel,
    /// Width to vocabulary: the last layer. None if the token embedding is its matrix.
    pub lm_head: Option<Linear>,
    /// S: positions of the caches.
    #[no_derivative]
    pub positions: usize,
}

/// The network without its last layer.
#[derive(Differentiable, Clone, Debug)]
pub struct LlamaModel {
    /// Tokens.
    pub embed_tokens: Embedding,
    /// Blocks.
    pub layers: Vec<LlamaLayer>,
    /// The last norm.
    pub norm: RmsNorm,
}

/// Attention, then an MLP, each after a norm and with a residual addition.
#[derive(Differentiable, Clone, Debug)]
pub struct LlamaLayer {
    /// Causal attention with a rotary embedding of positions.
    pub self_attn: GroupedQueryAttention,
    /// The MLP.
    pub mlp: SwiGlu,
    /// Before attention.
    pub input_layernorm: RmsNorm,
    /// Before the MLP.
    pub post_attention_layernorm: RmsNorm,
}

impl Llama {
    /// A network with weights of standard deviation 0.02, the default of Hugging Face's
    /// `LlamaConfig`. Settings that do not fit each other are errors of [`call`](Self::call).
    #[track_caller]
    pub fn new(settings: &LlamaSettings) -> Self {
        let _user = Location::caller().attributed();
        let LlamaSettings { vocabulary, width, layers, positions, epsilon, tied, .. } = *settings;
        Llama {
            model: LlamaModel {
                embed_tokens: Embedding::new(vocabulary, width),
                layers: (0..layers).map(|_| LlamaLayer::new(settings)).collect(),
                norm: RmsNorm { epsilon, ..RmsNorm::new(width) },
            },
            lm_head: (!tied).then(|| linear(width, vocabulary)),
            positions,
        }
    }

    /// The last norm's output `[B, T, width]` for tokens, integers `[B, T]`.
    ///
    /// # Errors
    ///
    /// The tokens have another type; the heads of keys and values do not divide the heads, or
    /// these the width; the width of a head is odd.
    #[track_caller]
    pub fn hidden(&self, tokens: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        let first = self.embed(tokens);
        let last = self.model.layers.iter().fold(first, |x, layer| layer.call(&x));
        self.model.norm.call(&last)
    }

    /// Logits `[…, vocabulary]` of results of [`hidden`](Self::hidden), `[…, width]`.
    #[track_caller]
    pub fn logits(&self, hidden: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        match &self.lm_head {
            Some(head) => head.call(hidden),
            None => hidden.dot(&self.model.embed_tokens.weight.matrix_transpose()),
        }
    }

    /// Logits of the next token for tokens, integers `[B, T]`: `[B, T, vocabulary]`, of the dtype
    /// of the variables.
    ///
    /// # Errors
    ///
    /// Those of [`hidden`](Self::hidden).
    #[track_caller]
    pub fn call(&self, tokens: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        self.logits(&self.hidden(tokens))
    }

    /// [`call`](Self::call) for tokens `[B, T]` at the positions `position`, `position + 1`, … of
    /// longer sequences, whose earlier positions are in the caches, one per layer. `position` is an
    /// integer scalar. Returns the logits, `[B, T, vocabulary]`, and the caches with the keys and
    /// values of the T positions written to them.
    ///
    /// Positions that reach beyond the caches are an error where they are known. Otherwise, all
    /// logits of such a run are NaN.
    ///
    /// # Errors
    ///
    /// Those of [`call`](Self::call), and of [`GroupedQueryAttention::call_cached`]; there is not
    /// one cache per layer.
    #[track_caller]
    pub fn call_cached(
        &self,
        tokens: &Tensor,
        caches: &[KeyValueCache],
        position: &Tensor,
    ) -> (Tensor, Vec<KeyValueCache>) {
        let _user = Location::caller().attributed();
        let layers = &self.model.layers;
        if tokens.error().is_none() && caches.len() != layers.len() {
            let error = diagnostic!("{} caches for {} layers", caches.len(), layers.len())
                .help("make the caches by the model's `zero_caches` or `first_caches`");
            return (Tensor::fail_of(&[tokens], error), caches.to_vec());
        }
        let mut x = self.embed(tokens);
        let mut updated = Vec::with_capacity(layers.len());
        for (layer, cache) in layers.iter().zip(caches) {
            let (y, cache) = layer.call_cached(&x, cache, position);
            updated.push(cache);
            x = y;
        }
        (self.logits(&self.model.norm.call(&x)), updated)
    }

    /// A cache of zeros for each layer, for the network's number of positions.
    #[track_caller]
    pub fn zero_caches(&self, batch: usize) -> Vec<KeyValueCache> {
        let _user = Location::caller().attributed();
        let of = |layer: &LlamaLayer| layer.self_attn.zero_cache(batch, self.positions);
        self.model.layers.iter().map(of).collect()
    }

    /// Caches kept from run to run: variables with zeros as initial values.
    #[track_caller]
    pub fn first_caches(&self, batch: usize) -> Vec<KeyValueCache> {
        let _user = Location::caller().attributed();
        let of = |layer: &LlamaLayer| layer.self_attn.first_cache(batch, self.positions);
        self.model.layers.iter().map(of).collect()
    }

    /// The mean cross-entropy of the next tokens; both arguments are integers `[B, T]`.
    ///
    /// # Errors
    ///
    /// Those of [`call`](Self::call); the targets have another type than the tokens.
    #[track_caller]
    pub fn loss(&self, tokens: &Tensor, targets: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        self.call(tokens).softmax_cross_entropy(targets).mean()
    }

    /// The variables of a Hugging Face `LlamaForCausalLM` file.
    ///
    /// # Errors
    ///
    /// A tensor is missing, or has another type than this network's.
    pub fn from_torch(&self, arrays: &Arrays) -> Result<Arrays> {
        from_torch(self, arrays, |path, rank| match rank == 2 && !path.contains("embed_tokens") {
            true => Layout::Matrix,
            false => Layout::Same,
        })
    }

    /// Integers `[B, T]` to `[B, T, width]`.
    #[track_caller]
    fn embed(&self, tokens: &Tensor) -> Tensor {
        if tokens.error().is_none() && tokens.rank() != 2 {
            let error = diagnostic!("tokens of type {}", tokens.ty());
            return Tensor::fail_of(&[tokens], error.help("they are integers [batch, positions]"));
        }
        self.model.embed_tokens.call(tokens)
    }
}

impl LlamaLayer {
    #[track_caller]
    fn new(settings: &LlamaSettings) -> Self {
        let LlamaSettings { width, heads, key_value_heads, intermediate, epsilon, .. } = *settings;
        let extent = width / heads.max(1);
        let norm = || RmsNorm { epsilon, ..RmsNorm::new(width) };
        LlamaLayer {
            self_attn: GroupedQueryAttention {
                q_proj: linear(width, width),
                k_proj: linear(width, key_value_heads * extent),
                v_proj: linear(width, key_value_heads * extent),
                o_proj: linear(width, width),
                heads,
                key_value_heads,
                rotary: Some(Rotary {
                    width: extent,
                    base: settings.base,
                    pairs: RotaryPairs::Halves,
                    scaling: settings.scaling,
                }),
            },
            mlp: SwiGlu {
                gate_proj: linear(width, intermediate),
                up_proj: linear(width, intermediate),
                down_proj: linear(intermediate, width),
            },
            input_layernorm: norm(),
            post_attention_layernorm: norm(),
        }
    }

    /// `[B, T, width]` to the same.
    #[track_caller]
    pub fn call(&self, x: &Tensor) -> Tensor {
        let _user = Location::caller().attributed();
        self.feed_forward(x + self.self_attn.call(&self.input_layernorm.call(x)))
    }

    /// [`call`](Self::call) at the positions from `position` on, like
    /// [`GroupedQueryAttention::call_cached`].
    #[track_caller]
    pub fn call_cached(
        &self,
        x: &Tensor,
        cache: &KeyValueCache,
        position: &Tensor,
    ) -> (Tensor, KeyValueCache) {
        let _user = Location::caller().attributed();
        let normal = self.input_layernorm.call(x);
        let (mixed, cache) = self.self_attn.call_cached(&normal, cache, position);
        (self.feed_forward(x + mixed), cache)
    }

    /// Adds the MLP's result to the residual stream.
    #[track_caller]
    fn feed_forward(&self, x: Tensor) -> Tensor {
        &x + self.mlp.call(&self.post_attention_layernorm.call(&x))
    }
}

/// A layer without bias, with weights of standard deviation 0.02.
#[track_caller]
fn linear(inputs: usize, outputs: usize) -> Linear {
    Linear::normal(inputs, outputs, 0.02).without_bias()
}
