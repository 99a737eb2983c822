//! Functions of rows: softmax, layer norm, cross-entropy, forward and backward.
//!
//! The work is one read and one write of each row, as by a kernel that keeps the row on the chip.
//! Layer norm's backward pass includes its forward pass, as in training: y, dx, dγ and dβ from x,
//! γ, β and dy.

use super::{Case, Float, Kind, Made, copy_of_memory, first, program, read};
use crate::data::{labels, sampled, uniform};
use crate::parity::{Comparison, Parity};
use crate::record::Work;
use crate::resident::Resident;
use serde::{Deserialize, Serialize};
use wengert::nn::LayerNorm;
use wengert::prelude::{cross_entropy, value_and_grad, vjp};
use wengert::{DType, Literal, Result};

/// A function of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKernel {
    /// y = softmax(x).
    Softmax,
    /// y = (x − mean) / √(variance + 1e-5) · γ + β.
    LayerNorm,
    /// The same, and its pullback at dy: dx, dγ, dβ.
    LayerNormBackward,
    /// The mean cross-entropy of logits against labels, and its gradient.
    CrossEntropyBackward,
}

impl RowKernel {
    const ALL: [RowKernel; 4] = [
        RowKernel::Softmax,
        RowKernel::LayerNorm,
        RowKernel::LayerNormBackward,
        RowKernel::CrossEntropyBackward,
    ];

    fn name(self) -> &'static str {
        match self {
            RowKernel::Softmax => "softmax",
            RowKernel::LayerNorm => "layer norm",
            RowKernel::LayerNormBackward => "layer norm fwd+bwd",
            RowKernel::CrossEntropyBackward => "cross-entropy fwd+bwd",
        }
    }

    /// Bytes for floats of `size` bytes.
    fn bytes(self, size: u64, rows: u64, columns: u64) -> u64 {
        let matrices = match self {
            // In: x (logits). Out: y (the gradient).
            RowKernel::Softmax | RowKernel::LayerNorm | RowKernel::CrossEntropyBackward => 2,
            // In: x, dy. Out: y, dx.
            RowKernel::LayerNormBackward => 4,
        };
        let beside = match self {
            RowKernel::Softmax => 0,
            // γ, β.
            RowKernel::LayerNorm => 2 * columns * size,
            // γ, β; dγ, dβ.
            RowKernel::LayerNormBackward => 4 * columns * size,
            // Labels of 4 bytes, and the loss.
            RowKernel::CrossEntropyBackward => 4 * rows + size,
        };
        matrices * rows * columns * size + beside
    }
}

pub(super) fn cases(small: bool) -> Vec<Case> {
    let full = [(8192, 1024), (32768, 768), (4096, 50304)];
    let sizes = if small { [(32, 64), (33, 48), (16, 300)] } else { full };
    let mut cases = Vec::new();
    for dtype in Float::ALL {
        for kernel in RowKernel::ALL {
            for (rows, columns) in sizes {
                let (r, c) = (rows as u64, columns as u64);
                cases.push(Case {
                    id: format!("{} {} {rows}x{columns}", kernel.name(), dtype.name()),
                    group: "memory".into(),
                    kind: Kind::Rows { kernel, rows, columns },
                    dtype,
                    work: Work {
                        elements: r * c,
                        bytes: kernel.bytes(dtype.bytes(), r, c),
                        flops: 0,
                    },
                    reference: copy_of_memory(dtype, small),
                });
            }
        }
    }
    cases
}

pub(super) fn make(kernel: RowKernel, dtype: DType, rows: usize, columns: usize) -> Result<Made> {
    let shape = [rows, columns];
    let norm = || wengert::nn::with_dtype(&LayerNorm::new(columns), dtype);
    let mut variables = vec![("x".to_owned(), uniform("x", dtype, &shape, -2.0, 2.0)?)];
    if matches!(kernel, RowKernel::LayerNorm | RowKernel::LayerNormBackward) {
        variables.push(("norm.weight".into(), uniform("gamma", dtype, &[columns], 0.5, 1.5)?));
        variables.push(("norm.bias".into(), uniform("beta", dtype, &[columns], -0.5, 0.5)?));
    }
    match kernel {
        RowKernel::LayerNormBackward => {
            variables.push(("dy".into(), uniform("dy", dtype, &shape, -1.0, 1.0)?));
        }
        RowKernel::CrossEntropyBackward => {
            variables.push(("labels".into(), labels("labels", rows, columns)?))
        }
        _ => {}
    }
    let program = program(|f| {
        let x = read(f, "x", dtype, &shape);
        match kernel {
            RowKernel::Softmax => f.create("y", &x.softmax(1)),
            RowKernel::LayerNorm => {
                let norm = f.param("norm", norm());
                f.create("y", &norm.call(&x));
            }
            RowKernel::LayerNormBackward => {
                let norm = f.param("norm", norm());
                let dy = read(f, "dy", dtype, &shape);
                let (y, pullback) = vjp(&(x, norm), |(x, norm)| norm.call(x));
                let (dx, gradient) = pullback(&dy);
                f.create("y", &y);
                f.create("dx", &dx);
                f.create("dgamma", &gradient.weight);
                f.create("dbeta", &gradient.bias);
            }
            RowKernel::CrossEntropyBackward => {
                let labels = read(f, "labels", DType::I32, &[rows]);
                let (loss, gradient) = value_and_grad(&x, |x| cross_entropy(x, &labels));
                f.create("loss", &loss);
                f.create("dx", &gradient);
            }
        }
    })?;
    Ok(Made { program, variables, init: None, check })
}

/// Compares up to 64 rows, and every result that is a sum over rows.
fn check(resident: &mut Resident, case: &Case, variables: &[(String, Literal)]) -> Result<Parity> {
    resident.run()?;
    resident.finish()?;
    let Kind::Rows { kernel, rows, columns } = case.kind else {
        unreachable!("this is the check of rows")
    };
    let x = first(variables, "x");
    let row = |literal: &Literal, r: usize| -> Vec<f64> {
        (r * columns..(r + 1) * columns).map(|i| literal.get(i).to_f64()).collect()
    };
    let chosen = sampled(rows, 64);
    let mut comparison = Comparison::default();
    let mut compare = |found: &Literal, r: usize, expected: &[f64], scale: f64| {
        for (c, expected) in expected.iter().enumerate() {
            comparison.add(found.get(r * columns + c).to_f64(), *expected, scale);
        }
    };
    match kernel {
        RowKernel::Softmax => {
            let y = resident.variable("y")?;
            for r in chosen {
                let expected = softmax(&row(x, r));
                let scale = expected.iter().copied().fold(0.0, f64::max);
                compare(&y, r, &expected, scale);
            }
        }
        RowKernel::LayerNorm => {
            let y = resident.variable("y")?;
            let (gamma, beta) =
                (row(first(variables, "norm.weight"), 0), row(first(variables, "norm.bias"), 0));
            for r in chosen {
                let (normal, _) = normalised(&row(x, r));
                let expected: Vec<f64> =
                    (0..columns).map(|c| normal[c] * gamma[c] + beta[c]).collect();
                compare(&y, r, &expected, 4.0);
            }
        }
        RowKernel::LayerNormBackward => {
            let (gamma, beta) =
                (row(first(variables, "norm.weight"), 0), row(first(variables, "norm.bias"), 0));
            let (y, dx, dy) =
                (resident.variable("y")?, resident.variable("dx")?, first(variables, "dy"));
            let (mut dgamma, mut dbeta, mut sizes) =
                (vec![0.0; columns], vec![0.0; columns], vec![0.0; columns]);
            let mut chosen = chosen.into_iter().peekable();
            for r in 0..rows {
                let (normal, deviation) = normalised(&row(x, r));
                let dy = row(dy, r);
                for c in 0..columns {
                    dgamma[c] += dy[c] * normal[c];
                    dbeta[c] += dy[c];
                    sizes[c] += dy[c].abs();
                }
                if chosen.next_if_eq(&r).is_none() {
                    continue;
                }
                let expected: Vec<f64> =
                    (0..columns).map(|c| normal[c] * gamma[c] + beta[c]).collect();
                compare(&y, r, &expected, 4.0);
                let n = columns as f64;
                let dn: Vec<f64> = (0..columns).map(|c| dy[c] * gamma[c]).collect();
                let mean = dn.iter().sum::<f64>() / n;
                let along = dn.iter().zip(&normal).map(|(d, n)| d * n).sum::<f64>() / n;
                let expected: Vec<f64> =
                    (0..columns).map(|c| (dn[c] - mean - normal[c] * along) / deviation).collect();
                compare(&dx, r, &expected, 4.0 / deviation);
            }
            let (found_gamma, found_beta) =
                (resident.variable("dgamma")?, resident.variable("dbeta")?);
            for c in 0..columns {
                comparison.add(found_gamma.get(c).to_f64(), dgamma[c], sizes[c]);
                comparison.add(found_beta.get(c).to_f64(), dbeta[c], sizes[c]);
            }
        }
        RowKernel::CrossEntropyBackward => {
            let (dx, labels) = (resident.variable("dx")?, first(variables, "labels"));
            let mut loss = 0.0;
            let mut chosen = chosen.into_iter().peekable();
            for r in 0..rows {
                let logits = row(x, r);
                let label = labels.get(r).to_f64() as usize;
                let greatest = logits.iter().copied().fold(f64::MIN, f64::max);
                let sum: f64 = logits.iter().map(|v| (v - greatest).exp()).sum();
                loss += sum.ln() + greatest - logits[label];
                if chosen.next_if_eq(&r).is_none() {
                    continue;
                }
                let mut expected: Vec<f64> =
                    softmax(&logits).iter().map(|p| p / rows as f64).collect();
                expected[label] -= 1.0 / rows as f64;
                for (c, expected) in expected.iter().enumerate() {
                    // At the label, 1 is subtracted; elsewhere probabilities are about 1 /
                    // columns.
                    let scale = if c == label { 1.0 } else { 4.0 / columns as f64 };
                    comparison.add(
                        dx.get(r * columns + c).to_f64(),
                        *expected,
                        scale / rows as f64,
                    );
                }
            }
            let loss = loss / rows as f64;
            comparison.add(resident.variable("loss")?.get(0).to_f64(), loss, loss);
        }
    }
    // Allows a few roundings of results and intermediate values; exponentials of f32 deviate by
    // some units, and errors of sums over rows grow slowly.
    comparison.finish(16.0 * case.dtype.dtype().unit_roundoff())
}

fn softmax(x: &[f64]) -> Vec<f64> {
    let greatest = x.iter().copied().fold(f64::MIN, f64::max);
    let exponentials: Vec<f64> = x.iter().map(|v| (v - greatest).exp()).collect();
    let sum: f64 = exponentials.iter().sum();
    exponentials.iter().map(|e| e / sum).collect()
}

/// (x − mean) / deviation, and the deviation √(variance + 1e-5).
fn normalised(x: &[f64]) -> (Vec<f64>, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n;
    let deviation = (variance + 1e-5).sqrt();
    (x.iter().map(|v| (v - mean) / deviation).collect(), deviation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_by_hand() {
        assert_eq!(RowKernel::Softmax.bytes(4, 8192, 1024), 64 << 20);
        assert_eq!(RowKernel::LayerNorm.bytes(2, 8192, 1024), (32 << 20) + 4096);
        assert_eq!(RowKernel::LayerNormBackward.bytes(4, 8192, 1024), (128 << 20) + 16384);
        assert_eq!(RowKernel::CrossEntropyBackward.bytes(4, 8192, 1024), (64 << 20) + 32768 + 4);
    }

    #[test]
    fn the_plain_loops_are_right() {
        let p = softmax(&[0.0, 2f64.ln(), 5f64.ln()]);
        assert!(p.iter().zip([0.125, 0.25, 0.625]).all(|(a, b)| (a - b).abs() < 1e-15));
        let (normal, deviation) = normalised(&[1.0, 3.0]);
        assert!((deviation - 1.0).abs() < 1e-5 && (normal[0] + normal[1]).abs() < 1e-15);
    }
}
