//! The comparison of two contenders that were timed in turns, with a null contender.

use super::summary::{Interval, Summary};

/// Times of a second contender relative to a first one.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Comparison {
    /// The median of the ratios of a round: the second's time divided by the first's.
    pub ratio: f64,
    /// The 95 % confidence interval of the median ratio ([`Interval::of_median`]).
    pub interval: Interval,
    /// The median ratio of the null contender, the first one again. It would be 1 without noise.
    pub null: f64,
    /// The confidence interval of the null contender's median ratio.
    pub null_interval: Interval,
    /// Number of rounds.
    pub rounds: usize,
}

/// A conclusion from a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The second contender takes less time.
    Faster,
    /// The second contender takes more time.
    Slower,
    /// The ratio and the null contender's differ from 1 by no more than the limit.
    Same,
    /// The ratio is within the noise, and the noise is above the limit.
    TooNoisy,
}

impl Comparison {
    /// The comparison of seconds by round: of the first contender, the second one, and the first
    /// one again. None with fewer than six rounds, without as many samples of each, or if a time is
    /// not above 0.
    pub fn of(first: &[f64], second: &[f64], again: &[f64]) -> Option<Comparison> {
        let ratios = |above: &[f64]| {
            let ratios: Vec<f64> = above.iter().zip(first).map(|(above, b)| above / b).collect();
            let positive = ratios.iter().all(|ratio| *ratio > 0.0);
            Summary::of(&ratios).filter(|_| positive && above.len() == first.len())
        };
        let (found, null) = (ratios(second)?, ratios(again)?);
        Some(Comparison {
            ratio: found.median,
            interval: found.interval?,
            null: null.median,
            null_interval: null.interval?,
            rounds: found.samples,
        })
    }

    /// The largest deviation from 1 within the null contender's interval, as a factor of at least
    /// 1, minus 1. A deviation of this size needs no difference between contenders.
    pub fn noise(&self) -> f64 {
        deviation(self.null_interval.low).max(deviation(self.null_interval.high))
    }

    /// The largest deviation from 1 within the interval.
    fn reach(&self) -> f64 {
        deviation(self.interval.low).max(deviation(self.interval.high))
    }

    /// Half the width of the wider interval of the two, relative to its median.
    pub fn precision(&self) -> f64 {
        let half = |i: Interval, median: f64| (i.high - i.low) / 2.0 / median;
        half(self.interval, self.ratio).max(half(self.null_interval, self.null))
    }

    /// The conclusion. A difference is established if the whole interval is further from 1 than
    /// the noise. Otherwise, two contenders that differ by at most `limit`, such as 0.02, are the
    /// same.
    pub fn verdict(&self, limit: f64) -> Verdict {
        let noise = 1.0 + self.noise();
        if self.interval.high < 1.0 / noise {
            Verdict::Faster
        } else if self.interval.low > noise {
            Verdict::Slower
        } else if self.reach().max(self.noise()) <= limit {
            Verdict::Same
        } else {
            Verdict::TooNoisy
        }
    }
}

/// How far a ratio is from 1 in either direction: 0.25 for 1.25 and for 0.8.
fn deviation(ratio: f64) -> f64 {
    ratio.max(1.0 / ratio) - 1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::SplitMix64;

    /// Seconds by round of a first contender, a second one that takes `ratio` of its time, and the
    /// first one again, on a machine that drifts, with delays in one of 20 samples.
    fn measured(random: &mut SplitMix64, rounds: usize, ratio: f64, noise: f64) -> [Vec<f64>; 3] {
        let mut uniform = || (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let mut samples = [vec![], vec![], vec![]];
        for round in 0..rounds {
            let speed = 1.0 + round as f64 / rounds as f64;
            for (times, base) in samples.iter_mut().zip([1.0, ratio, 1.0]) {
                let delay = if uniform() < 0.05 { 10.0 } else { 1.0 };
                times.push(speed * base * delay * (1.0 + noise * uniform()));
            }
        }
        samples
    }

    fn compared(random: &mut SplitMix64, rounds: usize, ratio: f64, noise: f64) -> Comparison {
        let [first, second, again] = measured(random, rounds, ratio, noise);
        Comparison::of(&first, &second, &again).unwrap()
    }

    #[test]
    fn a_known_ratio_is_found_though_the_machine_drifts() {
        let mut random = SplitMix64::new(1);
        for (ratio, wanted) in
            [(0.5, Verdict::Faster), (0.95, Verdict::Faster), (1.1, Verdict::Slower)]
        {
            let found = compared(&mut random, 51, ratio, 0.02);
            assert!((found.ratio / ratio - 1.0).abs() < 0.02, "{found:?}");
            assert_eq!(found.verdict(0.02), wanted, "{found:?}");
            assert_eq!(found.rounds, 51);
        }
        assert_eq!(compared(&mut random, 51, 1.0, 0.01).verdict(0.02), Verdict::Same);
    }

    #[test]
    fn a_noisy_machine_is_called_so() {
        let mut random = SplitMix64::new(2);
        let found = compared(&mut random, 15, 1.05, 0.8);
        assert_eq!(found.verdict(0.02), Verdict::TooNoisy, "{found:?}");
        assert!(found.noise() > 0.05 && found.precision() > 0.05, "{found:?}");
    }

    /// Contenders that are the same are called different in at most 2 % of the measurements, since
    /// the null contender's noise is added to the interval.
    #[test]
    fn equal_contenders_are_not_told_apart() {
        let mut random = SplitMix64::new(3);
        let different = (0..500)
            .map(|_| compared(&mut random, 21, 1.0, 0.3).verdict(0.02))
            .filter(|verdict| matches!(verdict, Verdict::Faster | Verdict::Slower))
            .count();
        assert!(different <= 10, "{different}");
    }

    /// A bias of the place in a round, which the null contender has as well, is no difference.
    #[test]
    fn a_bias_of_the_null_contender_is_noise() {
        let [first, second, again] = [1.0, 1.1, 1.12].map(|seconds| vec![seconds; 21]);
        let found = Comparison::of(&first, &second, &again).unwrap();
        assert_eq!(found.verdict(0.02), Verdict::TooNoisy, "{found:?}");
        let found = Comparison::of(&first, &second, &first).unwrap();
        assert_eq!(found.verdict(0.02), Verdict::Slower, "{found:?}");
    }

    #[test]
    fn nonsense_is_not_compared() {
        let ones = [1.0; 8];
        assert!(Comparison::of(&ones, &ones, &ones).is_some());
        assert_eq!(Comparison::of(&ones[..5], &ones[..5], &ones[..5]), None);
        assert_eq!(Comparison::of(&ones, &ones[..7], &ones), None);
        assert_eq!(Comparison::of(&[0.0; 8], &ones, &ones), None);
        assert_eq!(Comparison::of(&ones, &[0.0; 8], &ones), None);
    }
}
