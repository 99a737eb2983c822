//! Order statistics of samples, and the confidence interval of their median.

/// Order statistics of samples, in the samples' unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// Number of samples.
    pub samples: usize,
    /// The minimum.
    pub min: f64,
    /// The arithmetic mean.
    pub mean: f64,
    /// Half of the samples are below.
    pub median: f64,
    /// Nine tenths of the samples are below.
    pub p90: f64,
    /// All but a hundredth of the samples are below.
    pub p99: f64,
    /// The 95 % confidence interval of the median; none with fewer than six samples.
    pub interval: Option<Interval>,
}

impl Summary {
    /// The statistics of samples in any order. None without samples, or if one is not finite.
    pub fn of(samples: &[f64]) -> Option<Summary> {
        if samples.is_empty() || samples.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        Some(Summary {
            samples: sorted.len(),
            min: sorted[0],
            mean: sorted.iter().sum::<f64>() / sorted.len() as f64,
            median: quantile(&sorted, 0.5),
            p90: quantile(&sorted, 0.9),
            p99: quantile(&sorted, 0.99),
            interval: Interval::of_median(&sorted),
        })
    }

    /// Half the width of the median's interval relative to the median. None without an interval.
    pub fn precision(&self) -> Option<f64> {
        let interval = self.interval?;
        (self.median > 0.0).then(|| (interval.high - interval.low) / 2.0 / self.median)
    }
}

/// The quantile of sorted samples, linear between samples: share 0 is the first, 1 the last.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let position = share * (sorted.len() - 1) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (position - below as f64)
}

/// A confidence interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The probability that an interval misses the true value.
const MISS: f64 = 0.05;

impl Interval {
    /// The 95 % interval of the median of sorted samples, by order statistics (the inverted sign
    /// test): the k-th smallest to the k-th greatest sample, with the greatest k for which a
    /// binomial of n fair coins is below k with a probability of at most 2.5 %. None with fewer
    /// than six samples, for which there is no such k.
    pub fn of_median(sorted: &[f64]) -> Option<Interval> {
        let rank = rank(sorted.len())?;
        Some(Interval { low: sorted[rank - 1], high: sorted[sorted.len() - rank] })
    }

    /// Whether the value is within.
    pub fn contains(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// The greatest k from 1 on with P(X < k) ≤ `MISS` / 2, for a binomial X of `n` fair coins.
fn rank(n: usize) -> Option<usize> {
    // Logarithms, since 2^-n is below the least f64 from n = 1075 on. A term that underflows is
    // negligible.
    let mut log = -(n as f64) * std::f64::consts::LN_2;
    let mut below = log.exp();
    let mut rank = 0;
    while below <= MISS / 2.0 {
        log += ((n - rank) as f64 / (rank + 1) as f64).ln();
        below += log.exp();
        rank += 1;
    }
    (rank > 0).then_some(rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    #[test]
    fn quantiles_are_those_of_the_sorted_samples() {
        let summary = Summary::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((summary.samples, summary.min, summary.mean), (5, 1.0, 3.0));
        assert_eq!((summary.median, summary.p90), (3.0, 4.6));
        assert!((summary.p99 - 4.96).abs() < 1e-12);
        assert_eq!((summary.interval, summary.precision()), (None, None));
        let delayed: Vec<f64> = (0..101).map(|i| if i == 7 { 1e3 } else { 1.0 }).collect();
        let summary = Summary::of(&delayed).unwrap();
        assert_eq!((summary.median, summary.p99, summary.precision()), (1.0, 1.0, Some(0.0)));
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    /// Ranks of printed tables of the sign test (5 %, two-sided).
    #[test]
    fn ranks_are_those_of_the_tables() {
        for (n, wanted) in
            [(5, None), (6, Some(1)), (8, Some(1)), (9, Some(2)), (20, Some(6)), (25, Some(8))]
        {
            assert_eq!(rank(n), wanted, "{n}");
        }
        assert_eq!(rank(100), Some(40));
        // The normal approximation for many samples.
        let normal = (100_000.0 - 1.959_964 * 100_000f64.sqrt()) / 2.0;
        assert!((rank(100_000).unwrap() as f64 - normal).abs() < 2.0);
    }

    /// Intervals of samples of a skewed distribution with median 1 miss it in 5 % of the cases or
    /// less.
    #[test]
    fn intervals_cover_the_median() {
        let mut random = SplitMix64::new(7);
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let covered = (0..2000)
            .filter(|_| {
                // Exponential: the median of -ln(u) / ln 2 is 1.
                let mut samples: Vec<f64> =
                    (0..25).map(|_| -uniform().ln() / std::f64::consts::LN_2).collect();
                samples.sort_by(f64::total_cmp);
                Interval::of_median(&samples).unwrap().contains(1.0)
            })
            .count();
        // The exact coverage for 25 samples is 95.67 %.
        assert!((1880..=1945).contains(&covered), "{covered}");
    }
}
