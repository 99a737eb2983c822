//! Translation by two GRUs with attention (Bahdanau, Cho and Bengio, *Neural machine translation by
//! jointly learning to align and translate*, 2015, appendix A). The gated units are [`Gru`]'s,
//! which reset after the product.

use wengert::nn::Gru;
use wengert::nn::loss::CrossEntropy;
use wengert::prelude::*;

/// The number that ends a batch's shorter sentences. It is no word.
pub const PADDING: i64 = 0;

/// Encoder and decoder.
#[derive(Differentiable, Clone)]
pub struct Translator {
    source: Embedding,
    target: Embedding,
    forward: Gru,
    backward: Gru,
    begin: Linear,
    decoder: Gru,
    /// Of the alignment: W, U and v.
    from_state: Linear,
    from_source: Linear,
    score: Tensor,
    /// To twice as many units as the maxout keeps.
    maxout: Linear,
    output: Linear,
}

impl Translator {
    pub fn new([source, target]: [usize; 2], embedding: usize, width: usize) -> Self {
        Translator {
            source: Embedding::new(source, embedding),
            target: Embedding::new(target, embedding),
            forward: Gru::new(embedding, width),
            backward: Gru::new(embedding, width),
            begin: Linear::new(width, width),
            decoder: Gru::new(embedding + 2 * width, width),
            from_state: Linear::new(width, width),
            from_source: Linear::new(2 * width, width).without_bias(),
            score: Tensor::variable(f32([width]), nn::glorot_uniform(width, 1)),
            maxout: Linear::new(3 * width + embedding, 2 * width),
            output: Linear::new(width, target).without_bias(),
        }
    }

    /// The annotations `[S, B, 2·width]` of sentences `[S, B]`, and the decoder's first state.
    fn encode(&self, sentences: &Tensor, exists: &Tensor) -> (Tensor, Tensor) {
        let x = self.source.call(sentences);
        let zeros = self.forward.zero_state(sentences.dim(1));
        let step = |gru: &Gru, state: &Tensor, (projected, exists): &(Tensor, Tensor)| {
            let state = exists.unsqueeze(-1).select(gru.step(state, projected), state);
            (state.clone(), state)
        };
        let each = |gru: &Gru| (gru.project(&x), exists.clone());
        let (_, forward) =
            control::scan(&zeros, &each(&self.forward), |s, x| step(&self.forward, s, x));
        let (first, backward) =
            control::scan_reverse(&zeros, &each(&self.backward), |s, x| step(&self.backward, s, x));
        (Tensor::concatenate(&[forward, backward], -1), self.begin.call(&first).tanh())
    }

    /// Logits `[T, B, words]` of the words that follow each of `[T, B]` in translations of the
    /// sentences `[S, B]`.
    pub fn call(&self, sentences: &Tensor, translations: &Tensor) -> Tensor {
        let exists = sentences.ne(PADDING);
        let (annotations, begin) = self.encode(sentences, &exists);
        let keys = self.from_source.call(&annotations);
        let words = self.target.call(translations);
        let (_, hidden) = control::scan(&begin, &words, |state, word| {
            let scores = (self.from_state.call(state) + &keys).tanh().matmul(&self.score);
            let alignment = scores.masked_fill(&!&exists, f64::NEG_INFINITY).softmax(0);
            let context = Tensor::einsum("sb,sbw->bw", &[&alignment, &annotations]);
            let all = Tensor::concatenate(&[state, word, &context], -1);
            let hidden = self.maxout.call(&all).unflatten(-1, [-1, 2]).max_axes(-1);
            let input = Tensor::concatenate(&[word, &context], -1);
            (self.decoder.step(state, &self.decoder.project(&input)), hidden)
        });
        self.output.call(&hidden)
    }

    /// Mean cross-entropy of the translations' words after the first.
    pub fn loss(&self, sentences: &Tensor, translations: &Tensor) -> Tensor {
        let logits = self.call(sentences, &translations.slice(s![..-1]));
        let loss = CrossEntropy { ignored: Some(PADDING), ..Default::default() };
        loss.call(&logits, &translations.slice(s![1..]))
    }
}
