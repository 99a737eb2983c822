//! Llama (Touvron and others, *LLaMA: open and efficient foundation language models*, 2023), with
//! the grouped queries of *Llama 2* (2023).

use wengert::nn::{GroupedQueryAttention, RmsNorm, Rotary, SwiGlu};
use wengert::prelude::*;

/// The decoder. Its variables have the names of published weights.
#[derive(Differentiable, Clone)]
pub struct Llama {
    embed_tokens: Embedding,
    layers: Vec<Block>,
    norm: RmsNorm,
    lm_head: Linear,
}

/// A layer of the decoder: attention and a feed-forward layer, each after a norm and in a residual
/// branch.
#[derive(Differentiable, Clone)]
struct Block {
    input_layernorm: RmsNorm,
    self_attn: GroupedQueryAttention,
    post_attention_layernorm: RmsNorm,
    mlp: SwiGlu,
}

/// The sizes of a decoder.
pub struct Sizes {
    pub vocabulary: usize,
    pub width: usize,
    pub inner: usize,
    pub heads: usize,
    pub key_value_heads: usize,
    pub layers: usize,
}

impl Llama {
    pub fn new(sizes: &Sizes) -> Self {
        let &Sizes { vocabulary, width, inner, heads, key_value_heads, layers } = sizes;
        let block = || Block {
            input_layernorm: RmsNorm::new(width),
            self_attn: GroupedQueryAttention::new(width, heads, key_value_heads)
                .rotary(Rotary::new(width / heads)),
            post_attention_layernorm: RmsNorm::new(width),
            mlp: SwiGlu::new(width, inner),
        };
        Llama {
            embed_tokens: Embedding::new(vocabulary, width),
            layers: (0..layers).map(|_| block()).collect(),
            norm: RmsNorm::new(width),
            lm_head: Linear::new(width, vocabulary).without_bias(),
        }
    }

    /// Logits `[B, T, vocabulary]` of the tokens after `[B, T]`.
    pub fn call(&self, tokens: &Tensor) -> Tensor {
        let mut x = self.embed_tokens.call(tokens);
        for block in &self.layers {
            x = &x + block.self_attn.call(&block.input_layernorm.call(&x));
            x = &x + block.mlp.call(&block.post_attention_layernorm.call(&x));
        }
        self.lm_head.call(&self.norm.call(&x))
    }

    /// Mean cross-entropy of each token after the first.
    pub fn loss(&self, tokens: &Tensor) -> Tensor {
        let logits = self.call(&tokens.slice(s![.., ..-1]));
        cross_entropy(&logits, &tokens.slice(s![.., 1..]))
    }
}
