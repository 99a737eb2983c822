//! Whether results are right, before they are timed: records as `bench/src/parity.rs` has them.

use crate::case::{Chain, Product};
use anyhow::{Result, ensure};
use serde::Serialize;

/// Steps whose losses are compared.
pub const STEPS: usize = 3;

/// From so many parameters on, only the first loss is computed in f64, as in `steps.py`.
pub const LARGE: usize = 1 << 20;

/// Greatest deviation of a loss or of a network's result from one computed in f64.
pub const OF_NETWORKS: f64 = 1e-4;

/// Greatest deviation of a chain, relative to its values.
const OF_CHAINS: f64 = 1e-6;

/// Of a product, relative to the sum of its terms' sizes.
const OF_PRODUCTS: f64 = 16.0 * f32::EPSILON as f64;

/// Elements that are compared of a product.
const SAMPLED: usize = 256;

/// What a comparison found; it was good, or it would be an error.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Parity {
    compared: u64,
    worst: f64,
    bound: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    losses: Option<[f64; STEPS]>,
}

impl Parity {
    /// Compares pairs of what was found and what was expected, each relative to a third number.
    ///
    /// Error: one deviates by more than `bound`, or there are none.
    pub fn of(pairs: impl IntoIterator<Item = (f64, f64, f64)>, bound: f64) -> Result<Parity> {
        let (mut compared, mut worst) = (0, 0.0f64);
        for (found, expected, scale) in pairs {
            let deviation = (found - expected).abs() / scale;
            compared += 1;
            worst = worst.max(if deviation.is_nan() { f64::INFINITY } else { deviation });
        }
        ensure!(compared > 0, "the result was compared with nothing");
        ensure!(
            worst <= bound,
            "the result is wrong: it deviates by {worst:.3e} from a computation in f64, \
             {bound:.3e} is allowed"
        );
        Ok(Parity { compared, worst, bound, losses: None })
    }

    /// Compares the losses of the first steps with as many as are expected.
    ///
    /// Error: one deviates by more than [`OF_NETWORKS`].
    pub fn of_losses(found: [f64; STEPS], expected: &[f64]) -> Result<Parity> {
        let pairs =
            found.iter().zip(expected).map(|(found, expected)| (*found, *expected, expected.abs()));
        Ok(Parity { losses: Some(found), ..Parity::of(pairs, OF_NETWORKS)? })
    }

    /// Compares a network's result with what is expected, relative to the greatest element.
    ///
    /// Error: it deviates by more than [`OF_NETWORKS`], or has another length.
    pub fn of_result(found: &[f64], expected: &[f64]) -> Result<Parity> {
        ensure!(found.len() == expected.len(), "{} numbers, not {}", found.len(), expected.len());
        let greatest = expected.iter().fold(0.0f64, |a, v| a.max(v.abs()));
        let pairs =
            found.iter().zip(expected).map(|(found, expected)| (*found, *expected, greatest));
        Ok(Parity { losses: Some(digest(found)), ..Parity::of(pairs, OF_NETWORKS)? })
    }

    /// Compares a chain with plain f64.
    ///
    /// Error: an element is wrong, or one is missing.
    pub fn of_chain(chain: Chain, found: &[f32], operands: &[Vec<f32>]) -> Result<Parity> {
        ensure!(
            found.len() == operands[0].len(),
            "{} elements, not {}",
            found.len(),
            operands[0].len()
        );
        let pairs = found.iter().enumerate().map(|(i, found)| {
            let values: Vec<f64> = operands.iter().map(|values| f64::from(values[i])).collect();
            // Intermediate values are within 12 for operands within 2.
            (f64::from(*found), element(chain, &values), 12.0)
        });
        Parity::of(pairs, OF_CHAINS)
    }

    /// Compares some elements of a product with plain f64.
    ///
    /// Error: an element is wrong, or one is missing.
    pub fn of_product(product: &Product, found: &[f32], x: &[f32], w: &[f32]) -> Result<Parity> {
        let Product { rows, inner, columns, transposed } = *product;
        let count = rows * columns;
        ensure!(found.len() == count, "{} elements, not {count}", found.len());
        let pairs = (0..SAMPLED).map(|n| {
            // The first, the last, and others between, in all columns.
            let i = n * (count - 1) / (SAMPLED - 1);
            let (row, column) = (i / columns, i % columns);
            let (mut sum, mut size) = (0.0, 1.0);
            for k in 0..inner {
                let at = if transposed { column * inner + k } else { k * columns + column };
                let term = f64::from(x[row * inner + k]) * f64::from(w[at]);
                sum += term;
                size += term.abs();
            }
            (f64::from(found[i]), sum, size)
        });
        Parity::of(pairs, OF_PRODUCTS)
    }
}

/// A chain of one element of each operand, in the order x, w, b, r of those that it has.
fn element(chain: Chain, v: &[f64]) -> f64 {
    let gelu = |x: f64| 0.5 * x * (1.0 + libm::erf(x * std::f64::consts::FRAC_1_SQRT_2));
    match (chain, v) {
        (Chain::MulAdd, [x, w, b, r]) => (x * w + b) * x + r,
        (Chain::Gelu, [x, b, r]) => gelu(x + b) + r,
        (Chain::Eight, [x, w, b, r]) => (((x * w + b).max(*r) * x - w).abs() + 1.0).sqrt(),
        _ => v[0],
    }
}

impl Chain {
    /// Its arrays; `copy` has a single one besides, which lies on the device.
    pub fn operands(self) -> &'static [&'static str] {
        match self {
            Chain::Copy | Chain::CopyPlain => &["x"],
            Chain::Gelu => &["x", "b", "r"],
            Chain::MulAdd | Chain::Eight => &["x", "w", "b", "r"],
        }
    }
}

/// Three numbers of a result, one of each third of it.
fn digest(values: &[f64]) -> [f64; STEPS] {
    let mut found = [0.0; STEPS];
    for (third, found) in found.iter_mut().enumerate() {
        let part = &values[third * values.len() / STEPS..(third + 1) * values.len() / STEPS];
        let sum: f64 = part.iter().enumerate().map(|(n, v)| (n + 1) as f64 * v * v).sum();
        *found = sum / (part.len().max(1) as f64).powi(2);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_results_are_found() {
        let product = Product { rows: 2, inner: 2, columns: 2, transposed: true };
        let (x, w) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
        assert!(Parity::of_product(&product, &[17.0, 23.0, 39.0, 53.0], &x, &w).is_ok());
        let plain = Product { transposed: false, ..product };
        assert!(Parity::of_product(&plain, &[19.0, 22.0, 43.0, 50.0], &x, &w).is_ok());
        assert!(Parity::of_product(&plain, &[19.0, 22.0, 43.0, 50.1], &x, &w).is_err());
        assert!(Parity::of_product(&plain, &[19.0, 22.0, 43.0, f32::NAN], &x, &w).is_err());
        let operands = [vec![1.0], vec![0.0], vec![2.0]];
        assert!(Parity::of_chain(Chain::Gelu, &[2.841_344_8], &operands).is_ok());
        assert!(Parity::of_chain(Chain::Gelu, &[2.842], &operands).is_err());
        assert!(
            Parity::of_losses([2.0, 1.9, f64::NAN], &[2.0]).is_ok(),
            "what is expected is compared"
        );
        assert!(Parity::of_losses([2.0, 1.9, 1.8], &[2.0, 1.9, 1.81]).is_err());
        assert!(Parity::of([], 1.0).is_err());
    }

    #[test]
    fn digests_are_everybodys() {
        assert_eq!(digest(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), [9.0 / 4.0, 41.0 / 4.0, 97.0 / 4.0]);
    }
}
