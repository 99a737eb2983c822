//! A linear-chain conditional random field (Lafferty, McCallum and Pereira 2001), as derivatives of
//! one differentiable sum.
//!
//! A chain of `T` words can be tagged with `K` tags in K^T ways. The score of a way is a sum of the
//! scores of its first tag, of each tag at its place, and of each pair of adjacent tags. The
//! probability of a way is e^score / Z, where Z is the sum of e^score over all ways. Dynamic
//! programming computes log Z in `T` steps of K² work. Everything else is a derivative of log Z:
//!
//! - Its gradient with respect to the scores is the expectation of the counts that the scores
//!   multiply: the *marginals* P(tag at place), and the expected number of each transition. Without
//!   automatic differentiation, the backward algorithm computes them.
//! - Its Hessian is the covariance of those counts.
//! - So the gradient of the log-likelihood, log p = score − log Z, is the observed counts less the
//!   expected counts.
//! - With the maximum in place of the sum, the same program gives the best way's score. The
//!   gradient of this score is 1 along the best way: Viterbi's algorithm without back pointers. If
//!   several ways are equally good, the gradient is shared among them.

use wengert::prelude::*;
use wengert::random::SplitMix64;

/// The scores of a chain, or the counts of the tags and transitions that have the scores. The score
/// of a way is the inner product of scores and counts.
#[derive(Clone, Differentiable)]
pub struct Chain {
    /// Of each tag at the beginning, `[K]`.
    pub start: Tensor,
    /// Of each tag at each place, `[T, K]`.
    pub places: Tensor,
    /// Of each tag (column) after each tag (row), `[K, K]`.
    pub transitions: Tensor,
}

/// How what was found for several ways is joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Join {
    /// log Σ exp: all ways count.
    LogSum,
    /// The greatest: the best way counts.
    Max,
}

impl Join {
    fn call(self, x: &Tensor, axis: usize) -> Tensor {
        match self {
            Join::LogSum => x.logsumexp(axis),
            Join::Max => x.max_axes(&[axis]),
        }
    }
}

impl Chain {
    /// The scores of all ways, joined: a scalar.
    pub fn join(&self, join: Join) -> Tensor {
        let (length, tags) = (self.places.shape()[0].clone(), self.start.shape()[0].clone());
        let first = self.places.slice_axis(0, 0, 1).reshape([tags.clone()]) + &self.start;
        let rest = self.places.slice_axis(0, 1, length);
        // What is carried is joined over all ways that end with each tag.
        let last = control::fold(&first, &rest, |ways, place| {
            let before = ways.reshape([tags.clone(), Dim::constant(1)]);
            join.call(&(before + &self.transitions), 0) + place
        });
        join.call(&last, 0)
    }

    /// log Z.
    pub fn log_partition(&self) -> Tensor {
        self.join(Join::LogSum)
    }

    /// The best way's tags, `i32[T]`.
    pub fn best(&self) -> Tensor {
        grad(self, |chain: &Chain| chain.join(Join::Max)).places.argmax(1)
    }

    /// How often a way with these tags, `i32[T]`, does what is scored.
    pub fn counts(&self, tags: &Tensor) -> Chain {
        let (length, kinds) =
            (tags.shape()[0].clone(), self.start.shape()[0].as_extent().unwrap_or(0));
        let places = tags.one_hot(kinds, self.start.dtype());
        let start = places.slice_axis(0, 0, 1).reshape([kinds]);
        let after = places.slice_axis(0, 1, length);
        let before = places.slice_axis(0, 0, after.shape()[0].clone());
        Chain { start, transitions: before.matrix_transpose().dot(&after), places }
    }

    /// The score of the way with these tags, `i32[T]`.
    pub fn score(&self, tags: &Tensor) -> Tensor {
        self.inner(&self.counts(tags))
    }

    /// The log-probability of these tags, `i32[T]`.
    pub fn log_likelihood(&self, tags: &Tensor) -> Tensor {
        self.score(tags) - self.log_partition()
    }
}

/// A tagger: a word's scores do not depend on its place.
#[derive(Clone, Differentiable)]
pub struct Crf {
    words: Embedding,
    start: Tensor,
    transitions: Tensor,
}

impl Crf {
    /// All ways are equally good at first; the likelihood is concave, so nothing better is needed.
    pub fn new(words: usize, tags: usize) -> Self {
        let zeros = |shape: &[usize]| {
            Tensor::variable(TensorType::new(DType::F32, shape.iter().copied()), Initializer::Zeros)
        };
        let words = Embedding { weight: zeros(&[words, tags]) };
        Crf { words, start: zeros(&[tags]), transitions: zeros(&[tags, tags]) }
    }

    /// The scores of a sentence, `i32[T]`.
    pub fn chain(&self, words: &Tensor) -> Chain {
        let (start, transitions) = (self.start.clone(), self.transitions.clone());
        Chain { start, places: self.words.call(words), transitions }
    }
}

/// `train_step` on `B` sentences of `T` words, and `tag`: the best tags, their joint probability,
/// and the marginal probability of each tag.
pub fn program() -> Result<Program> {
    let mut program = Program::new();
    let model = Crf::new(WORDS.len(), TAGS.len());
    program.function("train_step", |f| {
        let words = f.input("words", i32("B,T"));
        let tags = f.input("tags", i32("B,T"));
        let model = f.state("model", model.clone());
        let (loss, gradient) = value_and_grad(&model, |m| {
            -vmap(&(words, tags), |(words, tags)| m.chain(words).log_likelihood(tags)).mean()
        });
        Adam::new(0.1).step(f, &model, &gradient);
        f.output("loss", loss);
    })?;
    program.function("tag", |f| {
        let words = f.input("words", i32("B,T"));
        let model = f.param("model", model.clone());
        let (tags, log_probability, marginals) = vmap(&words, |words| {
            let chain = model.chain(words);
            let (log_partition, expected) = value_and_grad(&chain, Chain::log_partition);
            let tags = chain.best();
            (tags.clone(), chain.score(&tags) - log_partition, expected.places)
        });
        f.output("tags", tags);
        f.output("probability", log_probability.exp());
        f.output("marginals", marginals);
    })?;
    Ok(program)
}

/// Everything there is to know about one chain of given scores, in f64.
pub fn inspection(length: usize, tags: usize) -> Result<Program> {
    let mut program = Program::new();
    program.function("inspect", |f| {
        let chain = Chain {
            start: f.input("start", f64([tags])),
            places: f.input("places", f64([length, tags])),
            transitions: f.input("transitions", f64([tags, tags])),
        };
        let (log_partition, expected) = value_and_grad(&chain, Chain::log_partition);
        f.output("log_partition", log_partition);
        f.output("marginals", expected.places);
        f.output("transitions", expected.transitions);
        let by_places =
            |places: &Tensor| Chain { places: places.clone(), ..chain.clone() }.log_partition();
        f.output("covariances", hessian(&chain.places, by_places));
        f.output("best_score", chain.join(Join::Max));
        f.output("best", chain.best());
    })?;
    Ok(program)
}

/// Determiner, adjective, noun, verb.
pub const TAGS: [&str; 4] = ["D", "A", "N", "V"];

/// Words, and the tags that they may have.
pub const WORDS: [(&str, &str); 18] = [
    ("the", "D"),
    ("a", "D"),
    ("old", "AN"),
    ("young", "AN"),
    ("green", "AN"),
    ("light", "ANV"),
    ("small", "A"),
    ("man", "NV"),
    ("book", "NV"),
    ("boat", "NV"),
    ("watch", "NV"),
    ("ship", "NV"),
    ("park", "NV"),
    ("dog", "N"),
    ("cat", "N"),
    ("sees", "V"),
    ("likes", "V"),
    ("finds", "V"),
];

/// How probable each tag is at the beginning, and after each tag.
pub const GRAMMAR: ([f64; 4], [[f64; 4]; 4]) = (
    [0.7, 0.1, 0.2, 0.0],
    [[0.0, 0.4, 0.6, 0.0], [0.0, 0.15, 0.85, 0.0], [0.1, 0.0, 0.1, 0.8], [0.65, 0.15, 0.2, 0.0]],
);

/// The number of a word.
pub fn word(word: &str) -> Option<usize> {
    WORDS.iter().position(|(w, _)| *w == word)
}

/// Random sentences of the grammar with their tags, both `i32[count, length]`. Each tag depends on
/// the previous one; each word is one of the tag's words.
pub fn sentences(count: usize, length: usize, seed: u64) -> Result<(Literal, Literal)> {
    let mut random = SplitMix64::new(seed);
    let (mut words, mut tags) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let mut next = GRAMMAR.0;
        for _ in 0..length {
            // The first tag whose probabilities up to it exceed a uniform number.
            let mut rest = random.unit_f64();
            let tag = next.iter().position(|p| {
                rest -= p;
                rest < 0.0
            });
            let tag = tag.unwrap_or(2);
            let possible: Vec<usize> =
                (0..WORDS.len()).filter(|w| WORDS[*w].1.contains(TAGS[tag])).collect();
            words.push(possible[random.below(possible.len() as u64) as usize] as i32);
            tags.push(tag as i32);
            next = GRAMMAR.1[tag];
        }
    }
    let shape = [count, length];
    Ok((Literal::from_vec(&shape, words)?, Literal::from_vec(&shape, tags)?))
}
