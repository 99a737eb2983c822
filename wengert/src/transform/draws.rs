//! The random numbers of transforms.

use crate::random::{SplitMix64, hash_name};

/// The random numbers of an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Draws {
    seed: u64,
    epoch: u64,
}

impl Draws {
    /// Those of a recipe's key seed and an epoch.
    pub fn new(seed: u64, epoch: u64) -> Draws {
        Draws { seed, epoch }
    }

    /// The stream of a transform of a row: by the kind of the transform and its axis.
    pub(super) fn of(self, kind: &str, axis: usize, row: usize) -> SplitMix64 {
        SplitMix64::of(self.seed, &[hash_name(kind), axis as u64, self.epoch, row as u64])
    }
}

/// A number from Beta(α, α): `x / (x + y)` of two numbers from Gamma(α).
pub(super) fn beta(stream: &mut SplitMix64, alpha: f64) -> f64 {
    let (x, y) = (gamma(stream, alpha), gamma(stream, alpha));
    // Both are 0 where α is tiny: then either end is as likely.
    if x + y > 0.0 { x / (x + y) } else { (stream.next_u64() & 1) as f64 }
}

/// A number from Gamma(α), by the method of Marsaglia and Tsang (2000). `libm` gives the same bits
/// on every machine.
fn gamma(stream: &mut SplitMix64, alpha: f64) -> f64 {
    if alpha < 1.0 {
        let power = libm::pow(1.0 - stream.unit_f64(), 1.0 / alpha);
        return gamma(stream, alpha + 1.0) * power;
    }
    let d = alpha - 1.0 / 3.0;
    let c = 1.0 / libm::sqrt(9.0 * d);
    loop {
        let x = normal(stream);
        let v = 1.0 + c * x;
        if v <= 0.0 {
            continue;
        }
        let v = v * v * v;
        let u = 1.0 - stream.unit_f64();
        if libm::log(u) < 0.5 * x * x + d - d * v + d * libm::log(v) {
            return d * v;
        }
    }
}

/// A number from the standard normal distribution (Box and Muller 1958).
fn normal(stream: &mut SplitMix64) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(1.0 - stream.unit_f64()));
    radius * libm::cos(2.0 * std::f64::consts::PI * stream.unit_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Moments of Beta(α, α): mean 1/2, variance 1/(4(2α + 1)).
    #[test]
    fn beta_has_its_mean_and_variance() {
        for alpha in [0.05, 0.2, 0.5, 1.0, 2.0, 10.0] {
            let mut stream = SplitMix64::new(9);
            let count = 40_000;
            let values: Vec<f64> = (0..count).map(|_| beta(&mut stream, alpha)).collect();
            assert!(values.iter().all(|v| (0.0..=1.0).contains(v)));
            let mean = values.iter().sum::<f64>() / count as f64;
            let variance = values.iter().map(|v| (v - 0.5).powi(2)).sum::<f64>() / count as f64;
            let wanted = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            assert!((mean - 0.5).abs() < 0.012, "α {alpha}: mean {mean}");
            assert!((variance / wanted - 1.0).abs() < 0.03, "α {alpha}: {variance}, not {wanted}");
        }
    }

    #[test]
    fn streams_depend_on_everything_that_names_them() {
        let first =
            |seed, epoch, kind, axis, row| Draws::new(seed, epoch).of(kind, axis, row).next_u64();
        let all = [
            first(1, 2, "crop", 3, 4),
            first(2, 2, "crop", 3, 4),
            first(1, 3, "crop", 3, 4),
            first(1, 2, "flip", 3, 4),
            first(1, 2, "crop", 2, 4),
            first(1, 2, "crop", 3, 5),
        ];
        for (i, a) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|b| a != b));
        }
    }
}
