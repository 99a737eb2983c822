//! GPT-2's loss and its gradient in f64, by plain loops: the reference for `step gpt …`.
//!
//! Parameters are those of [`Transformer::parameters`](super::Transformer::parameters), in that
//! order: tokens, positions, twelve per block, two of the last norm.

use super::Transformer;
use super::plain::{
    Norm, add, add_product, add_product_transposed, cross_entropy, linear, linear_back, norm,
    norm_back, transposed,
};

const EPSILON: f64 = 1e-5;

/// Parameters of a block.
const OF_BLOCK: usize = 12;

/// Residuals of a block.
struct Block {
    norm_1: Norm,
    attended: Vec<f64>,
    qkv: Vec<f64>,
    shares: Vec<f64>,
    mixed: Vec<f64>,
    norm_2: Norm,
    inner: Vec<f64>,
    wide: Vec<f64>,
    bent: Vec<f64>,
}

/// Residuals of the forward pass for the backward pass.
pub(super) struct Trace {
    blocks: Vec<Block>,
    norm: Norm,
    hidden: Vec<f64>,
    /// The loss's derivative by the logits.
    cotangent: Vec<f64>,
}

/// Offset of the query, key or value of a sequence's token and head in rows of three times the
/// width, and the extent of a head.
fn places(network: &Transformer) -> (impl Fn(usize, usize, usize, usize) -> usize, usize) {
    let Transformer { width, heads, steps, .. } = *network;
    let extent = width / heads;
    let at = move |which: usize, sequence: usize, head: usize, step: usize| {
        (sequence * steps + step) * 3 * width + which * width + head * extent
    };
    (at, extent)
}

/// Attention weights, `[batch, heads, steps, steps]`, which are 0 for later tokens, and the
/// weighted sums of values.
fn attend(network: &Transformer, qkv: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let Transformer { width, heads, batch, steps, .. } = *network;
    let (at, extent) = places(network);
    let mut shares = vec![0.0; batch * heads * steps * steps];
    let mut mixed = vec![0.0; batch * steps * width];
    for (row, shares) in shares.chunks_exact_mut(steps).enumerate() {
        let (sequence, head, step) = (row / steps / heads, row / steps % heads, row % steps);
        let query = &qkv[at(0, sequence, head, step)..][..extent];
        for (of, share) in shares[..=step].iter_mut().enumerate() {
            let key = &qkv[at(1, sequence, head, of)..][..extent];
            let score = query.iter().zip(key).map(|(q, k)| q * k).sum::<f64>();
            *share = (score / (extent as f64).sqrt()).exp();
        }
        let sum = shares.iter().sum::<f64>();
        let mixed = &mut mixed[(sequence * steps + step) * width + head * extent..][..extent];
        for (of, share) in shares[..=step].iter_mut().enumerate() {
            *share /= sum;
            let value = &qkv[at(2, sequence, head, of)..][..extent];
            mixed.iter_mut().zip(value).for_each(|(m, v)| *m += *share * v);
        }
    }
    (shares, mixed)
}

/// The cotangent of queries, keys and values.
fn attend_back(network: &Transformer, qkv: &[f64], shares: &[f64], cotangent: &[f64]) -> Vec<f64> {
    let Transformer { width, heads, steps, .. } = *network;
    let (at, extent) = places(network);
    let mut back = vec![0.0; qkv.len()];
    for (row, shares) in shares.chunks_exact(steps).enumerate() {
        let (sequence, head, step) = (row / steps / heads, row / steps % heads, row % steps);
        let cotangent = &cotangent[(sequence * steps + step) * width + head * extent..][..extent];
        let mut of_shares = vec![0.0; step + 1];
        for (of, of_share) in of_shares.iter_mut().enumerate() {
            let value = at(2, sequence, head, of);
            for d in 0..extent {
                *of_share += cotangent[d] * qkv[value + d];
                back[value + d] += shares[of] * cotangent[d];
            }
        }
        let mean: f64 = of_shares.iter().zip(shares).map(|(c, s)| c * s).sum();
        let query = at(0, sequence, head, step);
        for (of, of_share) in of_shares.iter().enumerate() {
            let of_score = shares[of] * (of_share - mean) / (extent as f64).sqrt();
            let key = at(1, sequence, head, of);
            for d in 0..extent {
                back[query + d] += of_score * qkv[key + d];
                back[key + d] += of_score * qkv[query + d];
            }
        }
    }
    back
}

/// √(2/π) and the coefficient of x³ in `gelu_tanh`.
const BEND: [f64; 2] = [0.797_884_560_802_865_4, 0.044715];

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + (BEND[0] * (x + BEND[1] * x * x * x)).tanh())
}

fn gelu_slope(x: f64) -> f64 {
    let bent = (BEND[0] * (x + BEND[1] * x * x * x)).tanh();
    0.5 * (1.0 + bent) + 0.5 * x * (1.0 - bent * bent) * BEND[0] * (1.0 + 3.0 * BEND[1] * x * x)
}

/// The last norm's output, and the residuals of the blocks and of that norm.
fn through(
    network: &Transformer,
    parameters: &[Vec<f64>],
    x: &[usize],
) -> (Vec<f64>, Vec<Block>, Norm) {
    let Transformer { width, steps, .. } = *network;
    let embedded = |(i, token): (usize, &usize)| {
        let (token, position) =
            (&parameters[0][token * width..], &parameters[1][i % steps * width..]);
        token[..width].iter().zip(position).map(|(t, p)| t + p).collect::<Vec<_>>()
    };
    let mut stream: Vec<f64> = x.iter().enumerate().flat_map(embedded).collect();
    let (last, of_blocks) =
        parameters[2..].split_last_chunk::<2>().map(|(b, l)| (l, b)).expect("two of the norm");
    let mut blocks = Vec::new();
    for p in of_blocks.chunks_exact(OF_BLOCK) {
        let (attended, norm_1) = norm(&stream, &p[0], &p[1], EPSILON);
        let qkv = linear(&attended, &p[2], &p[3]);
        let (shares, mixed) = attend(network, &qkv);
        add(&mut stream, &linear(&mixed, &p[4], &p[5]));
        let (inner, norm_2) = norm(&stream, &p[6], &p[7], EPSILON);
        let wide = linear(&inner, &p[8], &p[9]);
        let bent: Vec<f64> = wide.iter().map(|v| gelu(*v)).collect();
        add(&mut stream, &linear(&bent, &p[10], &p[11]));
        blocks.push(Block { norm_1, attended, qkv, shares, mixed, norm_2, inner, wide, bent });
    }
    let (hidden, norm) = norm(&stream, &last[0], &last[1], EPSILON);
    (hidden, blocks, norm)
}

/// Logits; the table of tokens is also the last layer's matrix.
fn head(network: &Transformer, parameters: &[Vec<f64>], hidden: &[f64]) -> Vec<f64> {
    let Transformer { width, vocabulary, .. } = *network;
    let rows = hidden.len() / width;
    let mut logits = vec![0.0; rows * vocabulary];
    add_product_transposed(&mut logits, hidden, &parameters[0], [rows, width, vocabulary]);
    logits
}

/// Logits of the token after each of the tokens `x`.
pub(super) fn logits(network: &Transformer, parameters: &[Vec<f64>], x: &[usize]) -> Vec<f64> {
    head(network, parameters, &through(network, parameters, x).0)
}

/// The mean cross-entropy of the tokens `y` after the tokens `x`, and the residuals for
/// [`backward`].
pub(super) fn forward(
    network: &Transformer,
    parameters: &[Vec<f64>],
    x: &[usize],
    y: &[usize],
) -> (f64, Trace) {
    let (hidden, blocks, norm) = through(network, parameters, x);
    let mut cotangent = head(network, parameters, &hidden);
    let loss = cross_entropy(&mut cotangent, y);
    (loss, Trace { blocks, norm, hidden, cotangent })
}

/// The loss' gradient by all parameters.
pub(super) fn backward(
    network: &Transformer,
    parameters: &[Vec<f64>],
    x: &[usize],
    trace: &Trace,
) -> Vec<Vec<f64>> {
    let Transformer { width, vocabulary, steps, .. } = *network;
    let rows = x.len();
    let mut gradients: Vec<Vec<f64>> = parameters.iter().map(|p| vec![0.0; p.len()]).collect();
    let cotangent_t = transposed(&trace.cotangent, [rows, vocabulary]);
    add_product(&mut gradients[0], &cotangent_t, &trace.hidden, [vocabulary, rows, width]);
    let mut of_hidden = vec![0.0; rows * width];
    add_product(&mut of_hidden, &trace.cotangent, &parameters[0], [rows, vocabulary, width]);
    let last = parameters.len() - 2;
    let mut stream = norm_back(&trace.norm, &parameters[last], &of_hidden, &mut gradients[last..]);
    for (n, block) in trace.blocks.iter().enumerate().rev() {
        let range = 2 + n * OF_BLOCK..2 + (n + 1) * OF_BLOCK;
        let (p, g) = (&parameters[range.clone()], &mut gradients[range]);
        let mut of_wide = linear_back(&block.bent, &p[10], &stream, &mut g[10..12]);
        of_wide.iter_mut().zip(&block.wide).for_each(|(c, v)| *c *= gelu_slope(*v));
        let of_inner = linear_back(&block.inner, &p[8], &of_wide, &mut g[8..10]);
        add(&mut stream, &norm_back(&block.norm_2, &p[6], &of_inner, &mut g[6..8]));
        let of_mixed = linear_back(&block.mixed, &p[4], &stream, &mut g[4..6]);
        let of_qkv = attend_back(network, &block.qkv, &block.shares, &of_mixed);
        let of_attended = linear_back(&block.attended, &p[2], &of_qkv, &mut g[2..4]);
        add(&mut stream, &norm_back(&block.norm_1, &p[0], &of_attended, &mut g[0..2]));
    }
    for (i, (token, cotangent)) in x.iter().zip(stream.chunks_exact(width)).enumerate() {
        add(&mut gradients[0][token * width..][..width], cotangent);
        add(&mut gradients[1][i % steps * width..][..width], cotangent);
    }
    gradients
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::uniform;
    use crate::parity::assert_gradient;
    use wengert::DType;

    /// The plain gradient against differences of the plain loss.
    #[test]
    fn the_plain_gradient_is_right() {
        let network =
            Transformer { layers: 2, width: 4, heads: 2, vocabulary: 5, batch: 2, steps: 3 };
        let drawn = |(name, shape, _): (String, Vec<usize>, _)| -> Vec<f64> {
            let drawn = uniform(&name, DType::F32, &shape, -1.0, 1.0).unwrap();
            drawn.scalars().map(|s| s.to_f64()).collect()
        };
        let parameters = network.parameters().into_iter().map(drawn).collect();
        let (x, y) = ([0, 3, 3, 1, 4, 0], [3, 3, 1, 4, 0, 2]);
        assert_gradient(parameters, 1e-8, |parameters| {
            let (loss, trace) = forward(&network, parameters, &x, &y);
            (loss, backward(&network, parameters, &x, &trace))
        });
    }
}
