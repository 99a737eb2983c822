//! Inference of networks by plain loops in f64: a reference for the libraries' results that depends
//! on none of the libraries.

use crate::case::{Bert, Gpt, Inference, Mlp};
use crate::drawing::{labels, uniform};
use crate::network::{self, Drawn};
use std::slice::Iter;
use std::thread::{available_parallelism, scope};

/// A row-major matrix.
#[derive(Clone)]
struct Rows {
    values: Vec<f64>,
    width: usize,
}

impl Rows {
    fn iter(&self) -> impl Iterator<Item = &[f64]> {
        self.values.chunks_exact(self.width)
    }

    fn row(&self, n: usize) -> &[f64] {
        &self.values[n * self.width..(n + 1) * self.width]
    }

    fn map(&mut self, function: impl Fn(f64) -> f64) {
        self.values.iter_mut().for_each(|v| *v = function(*v));
    }

    fn add(&mut self, other: &Rows) {
        self.values.iter_mut().zip(&other.values).for_each(|(v, w)| *v += w);
    }
}

/// The parameters of a network, in the order in which its layers take them.
struct Parameters<'a>(Iter<'a, Drawn>);

impl Parameters<'_> {
    fn next(&mut self) -> Vec<f64> {
        let drawn = self.0.next().expect("a network has all parameters that its layers ask for");
        drawn.values().into_iter().map(f64::from).collect()
    }

    fn affine(&mut self, x: &Rows) -> Rows {
        let (weight, bias) = (self.next(), self.next());
        let mut y = product(x, &turned(&weight, x.width));
        y.values
            .chunks_exact_mut(y.width)
            .for_each(|row| row.iter_mut().zip(&bias).for_each(|(v, b)| *v += b));
        y
    }

    fn norm(&mut self, x: &Rows, epsilon: f64) -> Rows {
        let (gamma, beta) = (self.next(), self.next());
        let mut y = x.clone();
        for row in y.values.chunks_exact_mut(x.width) {
            let mean = row.iter().sum::<f64>() / row.len() as f64;
            let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64;
            let factor = 1.0 / (variance + epsilon).sqrt();
            row.iter_mut()
                .zip(gamma.iter().zip(&beta))
                .for_each(|(v, (g, b))| *v = (*v - mean) * factor * g + b);
        }
        y
    }
}

/// The transpose of a matrix with this number of rows.
fn turned(matrix: &[f64], rows: usize) -> Rows {
    let columns = matrix.len() / rows;
    let values = (0..matrix.len()).map(|n| matrix[n % rows * columns + n / rows]).collect();
    Rows { values, width: rows }
}

/// The dot product, in eight partial sums.
fn dot(x: &[f64], y: &[f64]) -> f64 {
    let (x, y) = (x.chunks_exact(8), y.chunks_exact(8));
    let rest: f64 = x.remainder().iter().zip(y.remainder()).map(|(a, b)| a * b).sum();
    let mut sums = [0.0; 8];
    for (x, y) in x.zip(y) {
        sums.iter_mut().zip(x.iter().zip(y)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    rest + sums.iter().sum::<f64>()
}

/// x · wᵀ. The columns of the result are divided among all cores.
fn product(x: &Rows, w: &Rows) -> Rows {
    let (rows, columns) = (x.values.len() / x.width, w.values.len() / w.width);
    let share = columns.div_ceil(available_parallelism().map_or(1, usize::from));
    let mut y = Rows { values: vec![0.0; rows * columns], width: columns };
    let mut found = vec![0.0; rows * columns];
    scope(|scope| {
        for (found, w) in found.chunks_mut(share * rows).zip(w.values.chunks(share * w.width)) {
            scope.spawn(move || {
                for (found, w) in found.chunks_exact_mut(rows).zip(w.chunks_exact(x.width)) {
                    found.iter_mut().zip(x.iter()).for_each(|(v, x)| *v = dot(x, w));
                }
            });
        }
    });
    for (column, found) in found.chunks_exact(rows).enumerate() {
        found.iter().enumerate().for_each(|(row, v)| y.values[row * columns + column] = *v);
    }
    y
}

/// Attention within sequences of `steps` steps. `seen(sequence, step, other)` is true if `step`
/// attends to `other`.
fn attention(
    [q, k, v]: [&Rows; 3],
    steps: usize,
    heads: usize,
    seen: impl Fn(usize, usize, usize) -> bool,
) -> Rows {
    let extent = q.width / heads;
    let mut mixed = Rows { values: vec![0.0; q.values.len()], width: q.width };
    for n in 0..q.values.len() / q.width * heads {
        let (row, part) = (n / heads, n % heads * extent..(n % heads + 1) * extent);
        let (sequence, step) = (row / steps, row % steps);
        let looked = (0..steps)
            .filter(|other| seen(sequence, step, *other))
            .map(|other| sequence * steps + other);
        let score = |other: usize| {
            dot(&q.row(row)[part.clone()], &k.row(other)[part.clone()]) / (extent as f64).sqrt()
        };
        let scores: Vec<(usize, f64)> = looked.map(|other| (other, score(other))).collect();
        let greatest = scores.iter().fold(f64::NEG_INFINITY, |a, (_, s)| a.max(*s));
        let total: f64 = scores.iter().map(|(_, s)| (s - greatest).exp()).sum();
        let into = &mut mixed.values[row * q.width..][part.clone()];
        for (other, s) in scores {
            let share = (s - greatest).exp() / total;
            into.iter_mut().zip(&v.row(other)[part.clone()]).for_each(|(m, v)| *m += share * v);
        }
    }
    mixed
}

fn rows_of(table: &[f64], width: usize, places: impl Iterator<Item = usize>) -> Rows {
    let values =
        places.flat_map(|place| &table[place * width..(place + 1) * width]).copied().collect();
    Rows { values, width }
}

fn mlp(network: &Mlp, parameters: &mut Parameters<'_>) -> Rows {
    let (batch, width) = (network.batch, network.widths[0]);
    let x = uniform("x", batch * width, 0.0, 1.0).into_iter().map(f64::from).collect();
    let mut x = parameters.affine(&Rows { values: x, width });
    for _ in 2..network.widths.len() {
        x.map(|v| v.max(0.0));
        x = parameters.affine(&x);
    }
    x
}

fn gelu_tanh(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3))).tanh())
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2))
}

fn gpt(network: &Gpt, parameters: &mut Parameters<'_>) -> Rows {
    let Gpt { layers, width: c, heads, vocabulary, batch, steps } = *network;
    let (wte, wpe) = (parameters.next(), parameters.next());
    let tokens = labels("x", batch * steps, vocabulary);
    let mut h = rows_of(&wte, c, tokens.iter().map(|token| *token as usize));
    h.add(&rows_of(&wpe, c, (0..batch * steps).map(|n| n % steps)));
    for _ in 0..layers {
        let normed = parameters.norm(&h, 1e-5);
        let parts = parameters.affine(&normed);
        let part = |n: usize| -> Rows {
            let values = parts.iter().flat_map(|row| &row[n * c..(n + 1) * c]).copied().collect();
            Rows { values, width: c }
        };
        let (q, k, v) = (part(0), part(1), part(2));
        let mixed = attention([&q, &k, &v], steps, heads, |_, step, other| other <= step);
        h.add(&parameters.affine(&mixed));
        let normed = parameters.norm(&h, 1e-5);
        let mut wide = parameters.affine(&normed);
        wide.map(gelu_tanh);
        h.add(&parameters.affine(&wide));
    }
    product(&parameters.norm(&h, 1e-5), &Rows { values: wte, width: c })
}

fn bert(network: &Bert, parameters: &mut Parameters<'_>) -> Rows {
    let Bert { layers, width: c, heads, vocabulary, batch, steps, .. } = *network;
    let (words, positions, types) = (parameters.next(), parameters.next(), parameters.next());
    let there = network.mask();
    let tokens = labels("x", batch * steps, vocabulary);
    let mut h = rows_of(&words, c, tokens.iter().map(|token| *token as usize));
    h.add(&rows_of(&positions, c, (0..batch * steps).map(|n| n % steps)));
    h.add(&rows_of(&types, c, (0..batch * steps).map(|_| 0)));
    h = parameters.norm(&h, 1e-12);
    for _ in 0..layers {
        let [q, k, v] = [0, 1, 2].map(|_| parameters.affine(&h));
        let mixed = attention([&q, &k, &v], steps, heads, |sequence, _, other| {
            there[sequence * steps + other]
        });
        h.add(&parameters.affine(&mixed));
        h = parameters.norm(&h, 1e-12);
        let mut wide = parameters.affine(&h);
        wide.map(gelu);
        h.add(&parameters.affine(&wide));
        h = parameters.norm(&h, 1e-12);
    }
    let mut total = Rows { values: vec![0.0; batch * c], width: c };
    for (n, row) in h.iter().enumerate().filter(|(n, _)| there[*n]) {
        let into = &mut total.values[n / steps * c..][..c];
        into.iter_mut().zip(row).for_each(|(sum, v)| *sum += v);
    }
    for row in total.values.chunks_exact_mut(c) {
        let length = dot(row, row).sqrt();
        row.iter_mut().for_each(|v| *v /= length);
    }
    total
}

/// The inference result of a network.
pub fn infer(network: &Inference) -> Vec<f64> {
    let drawn = network::inference(network);
    let mut parameters = Parameters(drawn.iter());
    let found = match network {
        Inference::Mlp(network) => mlp(network, &mut parameters),
        Inference::Gpt { network } => gpt(network, &mut parameters),
        Inference::Bert { network } => bert(network, &mut parameters),
    };
    assert!(parameters.0.next().is_none(), "a network's layers ask for all of its parameters");
    found.values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_a_definition() {
        let x = Rows { values: (0..27).map(f64::from).collect(), width: 9 };
        let w: Vec<f64> = (0..45).map(|n| f64::from(n % 7)).collect();
        let found = product(&x, &turned(&w, 9));
        for (n, found) in found.values.iter().enumerate() {
            let expected: f64 = (0..9).map(|k| x.row(n / 5)[k] * w[k * 5 + n % 5]).sum();
            assert_eq!(*found, expected);
        }
    }

    #[test]
    fn attention_looks_where_it_may() {
        let rows = |values: &[f64]| Rows { values: values.into(), width: 1 };
        let (q, k, v) = (rows(&[1.0, 2.0]), rows(&[0.0, 3.0_f64.ln() / 2.0]), rows(&[8.0, 4.0]));
        let mixed = attention([&q, &k, &v], 2, 1, |_, step, other| other <= step);
        assert_eq!(mixed.values[0], 8.0);
        assert!((mixed.values[1] - 5.0).abs() < 1e-12);
    }
}
