//! Products, layers and losses in f64, for checks: plain loops, with large products split over
//! all threads.

use std::num::NonZero;
use std::thread;

/// Least number of multiplications of a product that is split over threads.
const SHARED: usize = 1 << 22;

/// Calls `rows(out, a)` on matching row blocks of `out`, `[m, n]`, and of `a`, `[m, k]`.
fn share(
    out: &mut [f64],
    a: &[f64],
    [m, k, n]: [usize; 3],
    rows: impl Fn(&mut [f64], &[f64]) + Send + Sync,
) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    if threads == 1 || m * k * n < SHARED {
        return rows(out, a);
    }
    let part = m.div_ceil(threads);
    thread::scope(|scope| {
        for (out, a) in out.chunks_mut(part * n).zip(a.chunks(part * k)) {
            let rows = &rows;
            scope.spawn(move || rows(out, a));
        }
    });
}

/// `out += a · b`, where a is `[m, k]`, b `[k, n]`.
pub(super) fn add_product(out: &mut [f64], a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) {
    share(out, a, [m, k, n], |out, a| {
        // Each row of b is read once for four rows of the result.
        for (out, a) in out.chunks_mut(4 * n).zip(a.chunks(4 * k)) {
            for (p, b) in b.chunks_exact(n).enumerate() {
                for (out, a) in out.chunks_exact_mut(n).zip(a.chunks_exact(k)) {
                    out.iter_mut().zip(b).for_each(|(out, b)| *out += a[p] * b);
                }
            }
        }
    });
}

/// `out += a · bᵀ`, where a is `[m, k]`, b `[n, k]`.
pub(super) fn add_product_transposed(out: &mut [f64], a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) {
    share(out, a, [m, k, n], |out, a| {
        for (out, a) in out.chunks_mut(4 * n).zip(a.chunks(4 * k)) {
            for (j, b) in b.chunks_exact(k).enumerate() {
                for (out, a) in out.chunks_exact_mut(n).zip(a.chunks_exact(k)) {
                    out[j] += dot(a, b);
                }
            }
        }
    });
}

/// Σ a·b in eight partial sums, for vectorisation.
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (a.chunks_exact(8), b.chunks_exact(8));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(|(a, b)| a * b).sum();
    let mut sums = [0.0; 8];
    for (a, b) in a.zip(b) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    rest + sums.iter().sum::<f64>()
}

/// a, `[m, n]`, as `[n, m]`.
pub(super) fn transposed(a: &[f64], [m, n]: [usize; 2]) -> Vec<f64> {
    (0..n).flat_map(|j| (0..m).map(move |i| a[i * n + j])).collect()
}

/// `rows` copies of the bias, one per row.
pub(super) fn repeated(bias: &[f64], rows: usize) -> Vec<f64> {
    bias.iter().copied().cycle().take(rows * bias.len()).collect()
}

/// `a += b`.
pub(super) fn add(a: &mut [f64], b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
}

/// Residuals of a norm of rows.
pub(super) struct Norm {
    normal: Vec<f64>,
    /// Inverse of the standard deviation of each row.
    scale: Vec<f64>,
}

/// Normalises each row by its mean and standard deviation, multiplies by gamma and adds beta.
pub(super) fn norm(x: &[f64], gamma: &[f64], beta: &[f64], epsilon: f64) -> (Vec<f64>, Norm) {
    let width = gamma.len();
    let (mut normal, mut scale) = (x.to_vec(), Vec::new());
    for row in normal.chunks_exact_mut(width) {
        let mean = row.iter().sum::<f64>() / width as f64;
        row.iter_mut().for_each(|v| *v -= mean);
        let factor =
            (row.iter().map(|v| v * v).sum::<f64>() / width as f64 + epsilon).sqrt().recip();
        row.iter_mut().for_each(|v| *v *= factor);
        scale.push(factor);
    }
    let y =
        normal.iter().enumerate().map(|(i, v)| v * gamma[i % width] + beta[i % width]).collect();
    (y, Norm { normal, scale })
}

/// The cotangent of a norm's operand; those of its parameters are added to `gradients`.
pub(super) fn norm_back(
    norm: &Norm,
    gamma: &[f64],
    cotangent: &[f64],
    gradients: &mut [Vec<f64>],
) -> Vec<f64> {
    let width = gamma.len();
    let mut back = Vec::with_capacity(cotangent.len());
    let rows = norm.normal.chunks_exact(width).zip(cotangent.chunks_exact(width));
    for ((normal, cotangent), scale) in rows.zip(&norm.scale) {
        let (mut mean, mut slope) = (0.0, 0.0);
        for i in 0..width {
            gradients[0][i] += cotangent[i] * normal[i];
            gradients[1][i] += cotangent[i];
            let through = cotangent[i] * gamma[i];
            mean += through / width as f64;
            slope += through * normal[i] / width as f64;
        }
        back.extend(
            (0..width).map(|i| scale * (cotangent[i] * gamma[i] - mean - normal[i] * slope)),
        );
    }
    back
}

/// x · weight + bias, for each row of x.
pub(super) fn linear(x: &[f64], weight: &[f64], bias: &[f64]) -> Vec<f64> {
    let (inputs, outputs) = (weight.len() / bias.len(), bias.len());
    let rows = x.len() / inputs;
    let mut y = repeated(bias, rows);
    add_product(&mut y, x, weight, [rows, inputs, outputs]);
    y
}

/// The cotangent of an affine layer's operand; those of its parameters are added to `gradients`.
pub(super) fn linear_back(
    x: &[f64],
    weight: &[f64],
    cotangent: &[f64],
    gradients: &mut [Vec<f64>],
) -> Vec<f64> {
    let outputs = gradients[1].len();
    let (inputs, rows) = (weight.len() / outputs, cotangent.len() / outputs);
    add_product(
        &mut gradients[0],
        &transposed(x, [rows, inputs]),
        cotangent,
        [inputs, rows, outputs],
    );
    add_product(&mut gradients[1], &vec![1.0; rows], cotangent, [1, rows, outputs]);
    let mut back = vec![0.0; rows * inputs];
    add_product_transposed(&mut back, cotangent, weight, [rows, outputs, inputs]);
    back
}

/// The mean cross-entropy of the rows' labels; the logits are overwritten by their derivative.
pub(super) fn cross_entropy(logits: &mut [f64], labels: &[usize]) -> f64 {
    let (rows, classes) = (labels.len(), logits.len() / labels.len());
    let mut loss = 0.0;
    for (logits, label) in logits.chunks_exact_mut(classes).zip(labels) {
        let sum: f64 = logits.iter().map(|v| v.exp()).sum();
        loss += (sum.ln() - logits[*label]) / rows as f64;
        logits.iter_mut().for_each(|v| *v = v.exp() / sum / rows as f64);
        logits[*label] -= 1.0 / rows as f64;
    }
    loss
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small products against hand-computed values; large ones, which are split over threads,
    /// against single sums.
    #[test]
    fn products_are_products() {
        let mut out = vec![1.0, 0.0, 0.0, 0.0];
        add_product(&mut out, &[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0], [2, 2, 2]);
        assert_eq!(out, [20.0, 22.0, 43.0, 50.0]);
        let (m, k, n) = (131, 203, 170);
        let numbers = |count: usize, by: usize| -> Vec<f64> {
            (0..count).map(|i| ((i * by + 5) % 1013) as f64 / 7.0).collect()
        };
        assert!(m * k * n >= SHARED);
        let (a, b) = (numbers(m * k, 37), numbers(k * n, 53));
        let b_t = transposed(&b, [k, n]);
        let (mut found, mut found_t) = (vec![0.5; m * n], vec![0.5; m * n]);
        add_product(&mut found, &a, &b, [m, k, n]);
        add_product_transposed(&mut found_t, &a, &b_t, [m, k, n]);
        for i in [0, 1, 65, 66, 130] {
            for j in [0, 7, 169] {
                let wanted: f64 = 0.5 + (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum::<f64>();
                assert!((found[i * n + j] - wanted).abs() < 1e-9 * wanted, "{i} {j}");
                assert!((found_t[i * n + j] - wanted).abs() < 1e-9 * wanted, "{i} {j}");
            }
        }
    }
}
