//! Checks of results before they are timed, recorded in the format of `bench/src/parity.rs`.

use crate::case::{Chain, Product};
use anyhow::{Result, ensure};
use serde::Serialize;

/// Steps whose losses are compared.
pub const STEPS: usize = 3;

/// Number of parameters from which only the first loss is computed in f64, as in `cases.py`.
pub const LARGE: usize = 1 << 20;

/// Greatest allowed deviation of a loss or of a network's result from its f64 reference.
pub const OF_NETWORKS: f64 = 1e-4;

/// Greatest allowed deviation of a chain, relative to the bound of its intermediate values.
const OF_CHAINS: f64 = 1e-6;

/// Greatest allowed deviation of an element of a product, relative to 1 + Σ|x·w|.
const OF_PRODUCTS: f64 = 16.0 * f32::EPSILON as f64;

/// Number of compared elements of a product.
const SAMPLED: usize = 256;

/// The result of a comparison that has passed; a failed one is an error.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Parity {
    compared: u64,
    worst: f64,
    bound: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    losses: Option<[f64; STEPS]>,
}

impl Parity {
    /// Compares triples of a found value, an expected value and a scale. A deviation is relative to
    /// the scale.
    ///
    /// Error: a deviation exceeds `bound`, or there are no triples.
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

    /// Compares the losses of the first steps with the expected ones, which may be fewer.
    ///
    /// Error: a loss deviates by more than [`OF_NETWORKS`].
    pub fn of_losses(found: [f64; STEPS], expected: &[f64]) -> Result<Parity> {
        let pairs =
            found.iter().zip(expected).map(|(found, expected)| (*found, *expected, expected.abs()));
        Ok(Parity { losses: Some(found), ..Parity::of(pairs, OF_NETWORKS)? })
    }

    /// Compares a network's result with the expected one, relative to the greatest expected
    /// element.
    ///
    /// Error: an element deviates by more than [`OF_NETWORKS`], or the lengths differ.
    pub fn of_result(found: &[f64], expected: &[f64]) -> Result<Parity> {
        ensure!(found.len() == expected.len(), "{} numbers, not {}", found.len(), expected.len());
        let greatest = expected.iter().fold(0.0f64, |a, v| a.max(v.abs()));
        let pairs =
            found.iter().zip(expected).map(|(found, expected)| (*found, *expected, greatest));
        Ok(Parity { losses: Some(digest(found)), ..Parity::of(pairs, OF_NETWORKS)? })
    }

    /// Compares a chain with its f64 value, element by element.
    ///
    /// Error: an element is wrong or missing.
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

    /// Compares some elements of a product with their f64 values.
    ///
    /// Error: an element is wrong or missing.
    pub fn of_product(product: &Product, found: &[f32], x: &[f32], w: &[f32]) -> Result<Parity> {
        let Product { rows, inner, columns, transposed } = *product;
        let count = rows * columns;
        ensure!(found.len() == count, "{} elements, not {count}", found.len());
        let pairs = (0..SAMPLED).map(|n| {
            // Evenly spaced elements from the first to the last, spread over the columns.
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

/// The value of a chain for one element of each operand. Operands are in the order x, w, b, r;
/// those that the chain does not read are left out.
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
    /// Names of the arrays that it reads. `copy` also reads a scalar one, which is stored on the
    /// device.
    pub fn operands(self) -> &'static [&'static str] {
        match self {
            Chain::Copy | Chain::CopyPlain => &["x"],
            Chain::Gelu => &["x", "b", "r"],
            Chain::MulAdd | Chain::Eight => &["x", "w", "b", "r"],
        }
    }
}

/// Three numbers, one for each third of a result.
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
