//! BERT's sentence embeddings in f64, by plain loops: the reference for `infer bert …`.
//!
//! Parameters are those of [`Encoder::parameters`](super::Encoder::parameters), in that order:
//! five of the embeddings, sixteen per block, two of the pooler, which are unused here.

use super::Encoder;
use super::chain::gelu;
use super::plain::{add, linear, norm};

const OF_EMBEDDINGS: usize = 5;
const OF_BLOCK: usize = 16;
const OF_POOLER: usize = 2;
const EPSILON: f64 = 1e-12;

/// The result of each head for its part of queries, keys and values, `[batch, steps, width]`
/// each; masked tokens are ignored.
fn attend(network: &Encoder, [q, k, v]: [&[f64]; 3], mask: &[bool]) -> Vec<f64> {
    let Encoder { width, heads, batch, steps, .. } = *network;
    let extent = width / heads;
    let mut mixed = vec![0.0; batch * steps * width];
    for (row, mixed) in mixed.chunks_exact_mut(extent).enumerate() {
        let (head, sequence) = (row % heads, row / heads / steps);
        let query = &q[row * extent..][..extent];
        let there = (0..steps).filter(|step| mask[sequence * steps + step]);
        let place = |step: usize| (sequence * steps + step) * width + head * extent;
        let share = |step: usize| {
            let key = &k[place(step)..][..extent];
            (query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() / (extent as f64).sqrt()).exp()
        };
        let shares: Vec<(usize, f64)> = there.map(|step| (step, share(step))).collect();
        let sum: f64 = shares.iter().map(|(_, share)| share).sum();
        for (step, share) in shares {
            let value = &v[place(step)..][..extent];
            mixed.iter_mut().zip(value).for_each(|(m, v)| *m += share / sum * v);
        }
    }
    mixed
}

/// A vector of length 1 for each sequence of the tokens `x`: the normalised mean over valid
/// tokens.
pub(super) fn embed(
    network: &Encoder,
    parameters: &[Vec<f64>],
    x: &[usize],
    mask: &[bool],
) -> Vec<f64> {
    let Encoder { width, steps, .. } = *network;
    let [words, positions, types, gamma, beta] = &parameters[..OF_EMBEDDINGS] else {
        unreachable!("five of the embeddings")
    };
    let embedded = |(i, token): (usize, &usize)| {
        let (word, position) = (&words[token * width..][..width], &positions[i % steps * width..]);
        word.iter().zip(position).zip(types).map(|((w, p), t)| w + p + t).collect::<Vec<_>>()
    };
    let sum: Vec<f64> = x.iter().enumerate().flat_map(embedded).collect();
    let (mut stream, _) = norm(&sum, gamma, beta, EPSILON);
    let of_blocks = &parameters[OF_EMBEDDINGS..parameters.len() - OF_POOLER];
    for p in of_blocks.chunks_exact(OF_BLOCK) {
        let [q, k, v] = [0, 2, 4].map(|n| linear(&stream, &p[n], &p[n + 1]));
        let mixed = attend(network, [&q, &k, &v], mask);
        add(&mut stream, &linear(&mixed, &p[6], &p[7]));
        (stream, _) = norm(&stream, &p[8], &p[9], EPSILON);
        let wide: Vec<f64> = linear(&stream, &p[10], &p[11]).into_iter().map(gelu).collect();
        add(&mut stream, &linear(&wide, &p[12], &p[13]));
        (stream, _) = norm(&stream, &p[14], &p[15], EPSILON);
    }
    let mut vectors = Vec::new();
    for (stream, mask) in stream.chunks_exact(steps * width).zip(mask.chunks_exact(steps)) {
        let mut sum = vec![0.0; width];
        let there = stream.chunks_exact(width).zip(mask).filter(|(_, there)| **there);
        there.for_each(|(row, _)| add(&mut sum, row));
        let length = sum.iter().map(|v| v * v).sum::<f64>().sqrt();
        vectors.extend(sum.iter().map(|v| v / length));
    }
    vectors
}
