//! Checks that a contender computes the right result, before it is timed.
//!
//! Deviations are relative to a *scale* that the case defines for each element: the greatest
//! value whose rounding can affect it, such as Σ|a·b| for an element of a product. So one bound
//! fits all elements, including those close to zero by cancellation.

use serde::{Deserialize, Serialize};
use wengert::{Diagnostic, Result};

/// The result of a comparison with a plain loop that has passed; a failed one is an error.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parity {
    /// Number of elements compared.
    pub compared: u64,
    /// Greatest deviation, relative to the elements' scales.
    pub worst: f64,
    /// Greatest allowed deviation.
    pub bound: f64,
    /// Losses of the first steps, for cases whose contenders have the same initial values; for
    /// inference, the result's [`digest`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub losses: Option<[f64; STEPS]>,
}

/// Steps whose losses are compared between contenders.
pub const STEPS: usize = 3;

impl Parity {
    /// Compares losses with another contender's, if both have some.
    ///
    /// Error: one deviates by more than `bound`, relative to the other contender's.
    pub fn agree(&self, other: &Parity, bound: f64) -> Result<()> {
        let (Some(found), Some(expected)) = (self.losses, other.losses) else { return Ok(()) };
        for (step, (found, expected)) in found.iter().zip(expected).enumerate() {
            let deviation = (found - expected).abs() / expected.abs();
            // A loss that is NaN never agrees.
            if *found != expected && (deviation.is_nan() || deviation > bound) {
                let step = step + 1;
                return Err(Diagnostic::new(format!(
                    "the result is wrong: loss (or digest) {step} is {found}, another \
                     contender's {expected}"
                )));
            }
        }
        Ok(())
    }
}

/// Three numbers for the three thirds of a result: means of squares with increasing weights.
/// Other numbers, or the same in another order, have another digest.
pub fn digest(values: &[f64]) -> [f64; STEPS] {
    let mut found = [0.0; STEPS];
    for (third, found) in found.iter_mut().enumerate() {
        let part = &values[third * values.len() / STEPS..(third + 1) * values.len() / STEPS];
        let sum: f64 = part.iter().enumerate().map(|(n, v)| (n + 1) as f64 * v * v).sum();
        *found = sum / (part.len().max(1) as f64).powi(2);
    }
    found
}

/// A comparison in progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Comparison {
    compared: u64,
    worst: f64,
}

impl Comparison {
    /// Compares one element; its deviation is relative to `scale`. A NaN deviates infinitely.
    pub fn add(&mut self, found: f64, expected: f64, scale: f64) {
        let deviation = (found - expected).abs() / scale;
        self.compared += 1;
        self.worst = self.worst.max(if deviation.is_nan() { f64::INFINITY } else { deviation });
    }

    /// The result of the comparison.
    ///
    /// Error: a deviation above `bound`, or nothing compared.
    pub fn finish(self, bound: f64) -> Result<Parity> {
        let Comparison { compared, worst } = self;
        if compared == 0 {
            return Err(Diagnostic::new("the result was compared with nothing"));
        }
        if worst > bound {
            return Err(Diagnostic::new(format!(
                "the result is wrong: it deviates by {worst:.3e} from a plain loop, \
                 {bound:.3e} is allowed"
            ))
            .help("a wrong result is not timed; run `graphrun check` on the program"));
        }
        Ok(Parity { compared, worst, bound, losses: None })
    }
}

/// Compares a plain gradient with differences of its loss, one parameter at a time.
///
/// # Panics
///
/// If a slope deviates by more than `bound`.
#[cfg(test)]
pub(crate) fn assert_gradient(
    mut parameters: Vec<Vec<f64>>,
    bound: f64,
    loss_and_gradient: impl Fn(&[Vec<f64>]) -> (f64, Vec<Vec<f64>>),
) {
    const STEP: f64 = 1e-5;
    let (_, gradients) = loss_and_gradient(&parameters);
    assert_eq!(gradients.len(), parameters.len());
    for (p, gradient) in gradients.iter().enumerate() {
        assert_eq!(gradient.len(), parameters[p].len());
        for (i, found) in gradient.iter().enumerate() {
            let value = parameters[p][i];
            let mut at = |v: f64| {
                parameters[p][i] = v;
                loss_and_gradient(&parameters).0
            };
            let slope = (at(value + STEP) - at(value - STEP)) / (2.0 * STEP);
            parameters[p][i] = value;
            assert!((slope - found).abs() < bound, "{p} {i}: {slope}, {found}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_element_decides() {
        let mut comparison = Comparison::default();
        comparison.add(1.0, 1.0, 1.0);
        comparison.add(103.0, 100.0, 100.0);
        let parity = comparison.finish(0.031).unwrap();
        assert_eq!((parity.compared, parity.bound), (2, 0.031));
        assert!((parity.worst - 0.03).abs() < 1e-12);
        let error = comparison.finish(0.029).unwrap_err().message;
        assert!(error.contains("deviates by 3.000e-2"), "{error}");
    }

    #[test]
    fn not_a_number_is_wrong_and_nothing_is_no_proof() {
        let mut comparison = Comparison::default();
        comparison.add(f64::NAN, 1.0, 1.0);
        assert!(comparison.finish(1e300).is_err());
        assert!(Comparison::default().finish(1.0).is_err());
    }

    #[test]
    fn losses_agree_but_for_rounding() {
        let of = |losses| Parity { compared: 1, worst: 0.0, bound: 1.0, losses };
        let ours = of(Some([8.0, 7.5, 7.0]));
        assert!(ours.agree(&of(None), 1e-4).is_ok() && of(None).agree(&ours, 1e-4).is_ok());
        assert!(of(Some([8.0, 7.5001, 7.0])).agree(&ours, 1e-4).is_ok());
        let error = of(Some([8.0, 7.5, 7.01])).agree(&ours, 1e-4).unwrap_err().message;
        assert!(error.contains("loss (or digest) 3 is 7.01, another contender's 7"), "{error}");
        assert!(of(Some([f64::NAN, 7.5, 7.0])).agree(&ours, 1e-4).is_err());
    }

    #[test]
    fn digests_tell_results_apart() {
        assert_eq!(digest(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), [9.0 / 4.0, 41.0 / 4.0, 97.0 / 4.0]);
        assert_ne!(digest(&[1.0, 2.0, 3.0, 4.0]), digest(&[1.0, 2.0, 4.0, 3.0]));
        assert_eq!(digest(&[]), [0.0; STEPS]);
    }

    /// For x²·y, and for a wrong gradient.
    #[test]
    fn gradients_are_compared_with_differences() {
        let parameters = || vec![vec![1.5, -2.0], vec![0.5]];
        let of = |factor: f64| {
            move |p: &[Vec<f64>]| {
                let (x, y) = (&p[0], p[1][0]);
                let loss: f64 = x.iter().map(|x| x * x * y).sum();
                let by_x = x.iter().map(|x| factor * x * y).collect();
                (loss, vec![by_x, vec![x.iter().map(|x| x * x).sum()]])
            }
        };
        assert_gradient(parameters(), 1e-9, of(2.0));
        let wrong = std::panic::catch_unwind(|| assert_gradient(parameters(), 1e-9, of(2.01)));
        assert!(wrong.is_err());
    }
}
