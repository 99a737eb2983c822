//! A step of a Llama's decoding in f64, by plain loops: the reference for `decode llama …`.
//!
//! Parameters are those of [`Decoder::parameters`](super::Decoder::parameters), in that order: the
//! embedding, nine per block, the last norm, the last layer.

use super::Decoder;
use super::plain::{add, add_product};
use wengert::models::LlamaSettings;

/// Parameters of a block.
const OF_BLOCK: usize = 9;
const EPSILON: f64 = LlamaSettings::LLAMA_2_7B.epsilon;
const BASE: f64 = LlamaSettings::LLAMA_2_7B.base;

/// x · weight for one row x.
fn product(x: &[f64], weight: &[f64]) -> Vec<f64> {
    let outputs = weight.len() / x.len();
    let mut y = vec![0.0; outputs];
    add_product(&mut y, x, weight, [1, x.len(), outputs]);
    y
}

/// One row, divided by the root of its mean square, times gamma.
fn norm(x: &[f64], gamma: &[f64]) -> Vec<f64> {
    let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
    let factor = (mean + EPSILON).sqrt().recip();
    x.iter().zip(gamma).map(|(x, gamma)| x * factor * gamma).collect()
}

/// Rotates the heads of one position. The angles are those of f32, in which every contender
/// computes them: at position 8191 they deviate by up to 10⁻⁴ from those of f64.
fn rotate(x: &mut [f64], extent: usize, position: usize) {
    let half = extent / 2;
    for head in x.chunks_exact_mut(extent) {
        for i in 0..half {
            let theta = BASE.powf(-2.0 * i as f64 / extent as f64) as f32;
            let (sine, cosine) = f64::from(position as f32 * theta).sin_cos();
            let (a, b) = (head[i], head[i + half]);
            head[i] = a * cosine - b * sine;
            head[i + half] = b * cosine + a * sine;
        }
    }
}

/// The result of each head of queries for the keys and values of all positions.
fn attend(network: &Decoder, q: &[f64], [keys, values]: &[Vec<f64>; 2]) -> Vec<f64> {
    let extent = network.width / network.heads;
    let shared = network.heads / network.key_value_heads;
    let row = network.key_width();
    let mut mixed = vec![0.0; q.len()];
    let heads = q.chunks_exact(extent).zip(mixed.chunks_exact_mut(extent));
    for (head, (query, mixed)) in heads.enumerate() {
        let from = head / shared * extent;
        let score = |key: &[f64]| {
            let key = &key[from..][..extent];
            query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>() / (extent as f64).sqrt()
        };
        let shares: Vec<f64> = keys.chunks_exact(row).map(|key| score(key).exp()).collect();
        let sum: f64 = shares.iter().sum();
        for (share, value) in shares.iter().zip(values.chunks_exact(row)) {
            let value = &value[from..][..extent];
            mixed.iter_mut().zip(value).for_each(|(m, v)| *m += share / sum * v);
        }
    }
    mixed
}

/// Logits of the token after `token`, which is at the last position of the caches, and the keys and
/// values of that position in each layer.
pub(super) fn decode(
    network: &Decoder,
    parameters: &[Vec<f64>],
    caches: Vec<[Vec<f64>; 2]>,
    token: usize,
) -> (Vec<f64>, Vec<[Vec<f64>; 2]>) {
    let Decoder { width, heads, positions, .. } = *network;
    let extent = width / heads;
    let [embedding, of_blocks @ .., last, head] = parameters else {
        unreachable!("the embedding, the last norm and the last layer")
    };
    let mut stream = embedding[token * width..][..width].to_vec();
    let mut rows = Vec::new();
    for (p, mut cache) in of_blocks.chunks_exact(OF_BLOCK).zip(caches) {
        let [q, k, v, o, gate, up, down, before, between] = p else {
            unreachable!("parameters of a block")
        };
        let normal = norm(&stream, before);
        let (mut q, mut k) = (product(&normal, q), product(&normal, k));
        rotate(&mut q, extent, positions - 1);
        rotate(&mut k, extent, positions - 1);
        let new = [k, product(&normal, v)];
        for (cache, new) in cache.iter_mut().zip(&new) {
            let at = cache.len() - new.len();
            cache[at..].copy_from_slice(new);
        }
        add(&mut stream, &product(&attend(network, &q, &cache), o));
        let normal = norm(&stream, between);
        let (gate, up) = (product(&normal, gate), product(&normal, up));
        let gated: Vec<f64> =
            gate.iter().zip(&up).map(|(gate, up)| gate / (1.0 + (-gate).exp()) * up).collect();
        add(&mut stream, &product(&gated, down));
        rows.push(new);
    }
    (product(&norm(&stream, last), head), rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A head's rotation by one radian per position, and one that keeps the length.
    #[test]
    fn pairs_are_rotated() {
        let mut x = vec![1.0, 0.0, 2.0, 0.0, 1.0, 0.0, 0.0, 3.0];
        rotate(&mut x, 4, 2);
        let (sine, cosine) = 2f64.sin_cos();
        let near = |a: f64, b: f64| (a - b).abs() < 1e-12;
        assert!(near(x[0], cosine - 2.0 * sine) && near(x[2], 2.0 * cosine + sine), "{x:?}");
        assert!(near(x[4], cosine) && near(x[6], sine), "{x:?}");
        assert!(near(x[5].hypot(x[7]), 3.0) && x[5] < 0.0, "{x:?}");
    }

    /// With equal keys, each head of queries gets the mean of the values of its group.
    #[test]
    fn heads_share_keys() {
        let network = Decoder {
            layers: 1,
            width: 8,
            heads: 4,
            key_value_heads: 2,
            intermediate: 1,
            vocabulary: 1,
            positions: 2,
        };
        let values = vec![1.0, 2.0, 3.0, 4.0, 3.0, 4.0, 5.0, 6.0];
        let mixed = attend(&network, &[0.5; 8], &[vec![0.25; 8], values]);
        let near = |(a, b): (&f64, f64)| (a - b).abs() < 1e-12;
        let wanted = [2.0, 3.0, 2.0, 3.0, 4.0, 5.0, 4.0, 5.0];
        assert!(mixed.iter().zip(wanted).all(near), "{mixed:?}");
    }
}
