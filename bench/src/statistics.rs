//! Medians and their spread.
//!
//! Times of a quiet machine are a floor plus rare, large delays. One interrupt changes their mean
//! but not their median. The minimum is close to the floor, and the percentiles show how reliable
//! both are.

use serde::{Deserialize, Serialize};

/// Order statistics of some samples, in the samples' unit (here always seconds).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Number of samples.
    pub samples: usize,
    /// The minimum.
    pub min: f64,
    /// A tenth of the samples are below.
    pub p10: f64,
    /// Half of the samples are below.
    pub median: f64,
    /// Nine tenths of the samples are below.
    pub p90: f64,
}

impl Spread {
    /// The statistics of samples in any order. None without samples, or if one is not finite.
    pub fn of(samples: &[f64]) -> Option<Spread> {
        if samples.is_empty() || samples.iter().any(|s| !s.is_finite()) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share| quantile(&sorted, share);
        Some(Spread {
            samples: sorted.len(),
            min: sorted[0],
            p10: at(0.1),
            median: at(0.5),
            p90: at(0.9),
        })
    }

    /// Half the distance from the tenth to the ninetieth percentile, as a share of the median.
    pub fn relative(&self) -> f64 {
        if self.median > 0.0 { (self.p90 - self.p10) / 2.0 / self.median } else { 0.0 }
    }
}

/// The statistics of pairwise ratios of samples that were taken in turns: a slowdown of both in a
/// pair cancels. None if the samples do not pair up.
pub fn paired(above: &[f64], below: &[f64]) -> Option<Spread> {
    let ratios: Vec<f64> = above.iter().zip(below).map(|(above, below)| above / below).collect();
    if above.len() == below.len() { Spread::of(&ratios) } else { None }
}

/// The quantile of sorted samples, linear between samples: share 0 is the first, 1 the last.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// The geometric mean. It suits ratios, since the mean of the inverse ratios is its inverse. None
/// without values, or if one is not positive.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let positive = ratios.iter().all(|r| *r > 0.0 && r.is_finite());
    (positive && !ratios.is_empty())
        .then(|| (ratios.iter().map(|r| r.ln()).sum::<f64>() / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_samples() {
        let spread = Spread::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!(spread, Spread { samples: 5, min: 1.0, p10: 1.4, median: 3.0, p90: 4.6 });
        let even = Spread::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((even.median, even.min), (2.5, 1.0));
        let one = Spread::of(&[7.0]).unwrap();
        assert_eq!((one.min, one.p10, one.median, one.p90), (7.0, 7.0, 7.0, 7.0));
        assert_eq!((one.relative(), even.relative()), (0.0, (3.7 - 1.3) / 2.0 / 2.5));
    }

    /// A slowdown that affects both of a pair does not change their ratio.
    #[test]
    fn ratios_are_of_pairs() {
        let ratio = paired(&[2.0, 4.0, 2.0], &[1.0, 2.0, 1.0]).unwrap();
        assert_eq!((ratio.min, ratio.median, ratio.p90, ratio.samples), (2.0, 2.0, 2.0, 3));
        assert_eq!(paired(&[1.0, 2.0], &[1.0]), None);
        assert_eq!(paired(&[], &[]), None);
        assert_eq!(paired(&[1.0], &[0.0]), None);
    }

    /// One delay in eleven changes neither the median nor the tenth percentile.
    #[test]
    fn a_delay_does_not_move_the_median() {
        let mut samples = vec![1.0; 10];
        samples.push(1000.0);
        let spread = Spread::of(&samples).unwrap();
        assert_eq!((spread.min, spread.p10, spread.median, spread.p90), (1.0, 1.0, 1.0, 1.0));
    }

    #[test]
    fn nothing_and_nonsense_have_no_spread() {
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
        assert_eq!(Spread::of(&[f64::INFINITY]), None);
    }

    #[test]
    fn geometric_means() {
        assert!((geometric_mean(&[0.5, 2.0, 8.0]).unwrap() - 2.0).abs() < 1e-12);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
    }
}
