//! Warm-up, repetition until a precision or a time, and turns.
//!
//! The seconds of a run come from the contender, and limits of time count these seconds, so this
//! file reads no clock.

use super::comparison::Comparison;
use super::summary::Summary;
use wengert_core::Result;

/// Something that can be run: takes a number of consecutive runs, returns their seconds in all.
///
/// Error: a run fails.
pub type Contender<'a> = Box<dyn FnMut(u64) -> Result<f64> + 'a>;

/// When a measurement ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    /// Half the width of the median's confidence interval relative to the median, such as 0.01. A
    /// measurement ends when it is reached.
    pub precision: f64,
    /// Seconds of all samples, after which a measurement ends.
    pub seconds: f64,
    /// Seconds of untimed runs before, at least one run.
    pub warm_up: f64,
    /// Least number of samples for the precision. If the time is over, fewer are enough.
    pub least: usize,
    /// Least seconds of a sample of a comparison, which has as many runs as that takes.
    pub sample: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { precision: 0.01, seconds: 5.0, warm_up: 0.5, least: 20, sample: 0.005 }
    }
}

/// Least number of samples of one contender.
const FEWEST: usize = 3;
/// Least number of rounds: fewer give no confidence interval.
const FEWEST_ROUNDS: usize = 6;
/// Most samples of a measurement.
const MOST: usize = 1_000_000;
/// Most runs in a sample: the queue of a device is finite.
const MOST_RUNS: f64 = 5000.0;

impl Limits {
    /// Whether samples of these seconds in all, with this precision, are enough. There are at
    /// least `fewest`.
    fn are_reached(
        &self,
        samples: usize,
        fewest: usize,
        seconds: f64,
        precision: Option<f64>,
    ) -> bool {
        let is_precise = precision.is_some_and(|precision| precision <= self.precision);
        (samples >= self.least && is_precise)
            || (samples >= fewest && seconds >= self.seconds)
            || samples >= MOST
    }
}

/// Seconds of each of many runs of a contender, after a warm-up, until a limit is reached.
///
/// Error: a run fails.
pub fn repeated(contender: &mut Contender<'_>, limits: &Limits) -> Result<Vec<f64>> {
    warm_up(contender, limits)?;
    let (mut samples, mut seconds) = (Vec::new(), 0.0);
    // Statistics sort all samples, so they are taken whenever there is an eighth more of them.
    let mut next = limits.least;
    loop {
        let sample = contender(1)?;
        samples.push(sample);
        seconds += sample;
        let precision = if samples.len() >= next {
            next = samples.len() + samples.len() / 8 + 1;
            Summary::of(&samples).and_then(|summary| summary.precision())
        } else {
            None
        };
        if limits.are_reached(samples.len(), FEWEST, seconds, precision) {
            return Ok(samples);
        }
    }
}

/// Runs for the warm-up, and returns the seconds of one run.
fn warm_up(contender: &mut Contender<'_>, limits: &Limits) -> Result<f64> {
    let (mut seconds, mut last) = (0.0, 0.0);
    let mut runs = 0;
    while runs == 0 || (seconds < limits.warm_up && runs < MOST) {
        last = contender(1)?;
        seconds += last;
        runs += 1;
    }
    Ok(last)
}

/// Seconds of a run of three contenders by round: of the first, the second, and the first again as
/// the null contender.
///
/// In a round, each contender gives one sample, after a run that is not timed: its threads have
/// slept, and the caches hold the data of another. The order of every other round is reversed, and
/// each pair of rounds begins with another contender. So none always follows the same neighbour.
/// The measurement ends when the [precision](Comparison::precision) of the ratios is reached, or
/// after the limit of seconds.
///
/// Error: a run fails.
pub fn in_turns(mut contenders: [Contender<'_>; 3], limits: &Limits) -> Result<[Vec<f64>; 3]> {
    let mut runs = [1; 3];
    for (contender, runs) in contenders.iter_mut().zip(&mut runs) {
        let seconds = warm_up(contender, limits)?.max(1e-9);
        *runs = (limits.sample / seconds).ceil().clamp(1.0, MOST_RUNS) as u64;
    }
    let mut samples = [vec![], vec![], vec![]];
    let mut seconds = 0.0;
    for round in 0.. {
        let mut order = [0, 1, 2];
        order.rotate_left(round / 2 % 3);
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            seconds += contenders[at](1)?;
            let sample = contenders[at](runs[at])?;
            seconds += sample;
            samples[at].push(sample / runs[at] as f64);
        }
        let [first, second, again] = &samples;
        let precision = Comparison::of(first, second, again).map(|found| found.precision());
        if limits.are_reached(round + 1, FEWEST_ROUNDS, seconds, precision) {
            break;
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use wengert_core::Diagnostic;

    const LIMITS: Limits =
        Limits { precision: 0.01, seconds: 100.0, warm_up: 3.0, least: 8, sample: 4.0 };

    #[test]
    fn samples_end_with_the_precision_or_the_time() {
        let mut calls = 0;
        let mut steady: Contender<'_> = Box::new(|runs| {
            calls += 1;
            Ok(runs as f64)
        });
        assert_eq!(repeated(&mut steady, &LIMITS).unwrap(), [1.0; 8]);
        drop(steady);
        assert_eq!(calls, 3 + 8, "three seconds of warm-up");
        let mut n = 0;
        let mut noisy: Contender<'_> = Box::new(|_| {
            n += 1;
            Ok(if n % 2 == 0 { 1.0 } else { 3.0 })
        });
        let samples = repeated(&mut noisy, &LIMITS).unwrap();
        assert_eq!(samples.len(), 50, "100 seconds");
        let mut slow: Contender<'_> = Box::new(|_| Ok(1000.0));
        assert_eq!(repeated(&mut slow, &LIMITS).unwrap().len(), FEWEST);
        let mut broken: Contender<'_> = Box::new(|_| Err(Diagnostic::new("broken")));
        assert_eq!(repeated(&mut broken, &LIMITS).unwrap_err().message, "broken");
    }

    #[test]
    fn contenders_take_turns() {
        let calls = RefCell::new(Vec::new());
        let contender = |name: char, seconds: f64| -> Contender<'_> {
            let calls = &calls;
            Box::new(move |runs| {
                calls.borrow_mut().push((name, runs));
                Ok(seconds * runs as f64)
            })
        };
        let contenders = [contender('a', 1.0), contender('b', 0.5), contender('n', 1.0)];
        let limits = Limits { seconds: 1000.0, ..LIMITS };
        let samples = in_turns(contenders, &limits).unwrap();
        assert_eq!(samples, [vec![1.0; 8], vec![0.5; 8], vec![1.0; 8]]);
        let calls = calls.borrow();
        // Samples of four seconds; each after an untimed run.
        let timed = calls.iter().filter(|(_, runs)| *runs > 1);
        let order: String = timed.clone().map(|(name, _)| *name).collect();
        assert_eq!(order, "abnnbabnaanbnabbanabnnba");
        assert!(timed.clone().all(|(name, runs)| *runs == if *name == 'b' { 8 } else { 4 }));
        let before = calls.windows(2).filter(|pair| pair[1].1 > 1 && pair[0] == (pair[1].0, 1));
        assert_eq!(before.count(), 24);
    }

    #[test]
    fn slow_contenders_get_few_rounds() {
        let slow = || -> Contender<'_> { Box::new(|runs| Ok(1000.0 * runs as f64)) };
        let samples = in_turns([slow(), slow(), slow()], &LIMITS).unwrap();
        assert_eq!(samples.map(|samples| samples.len()), [FEWEST_ROUNDS; 3]);
    }

    #[test]
    fn noisy_turns_end_with_the_time() {
        let mut state = 1u64;
        let mut noise = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            1.0 + (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let mut again = noise;
        let contenders: [Contender<'_>; 3] = [
            Box::new(move |runs| Ok(noise() * runs as f64)),
            Box::new(|runs| Ok(runs as f64)),
            Box::new(move |runs| {
                again();
                Ok(again() * runs as f64)
            }),
        ];
        let limits = Limits { precision: 1e-4, sample: 0.0, ..LIMITS };
        let samples = in_turns(contenders, &limits).unwrap();
        let seconds: f64 = samples.iter().flatten().sum();
        assert!(samples[0].len() > 8 && (40.0..60.0).contains(&seconds), "{seconds}");
    }
}
