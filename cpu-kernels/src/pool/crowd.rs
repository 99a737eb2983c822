//! Whether other processes leave the workers no processors.
//!
//! If another process runs on a worker's processor, the worker is paused for milliseconds, and may
//! hold a task of a job that takes microseconds. The submitter waits for it. Jobs of a small
//! network then take longer on two threads than on one.
//!
//! So if a job waited long for a worker that had to queue for its processor, the jobs after it
//! begin alone for 4 ms: the submitter opens only those that take longer than such a wait. In that
//! time the other process has its turn. Then the threads are tried again, and a worker that is
//! paused is moved to the submitter's processor ([`place`](super::place)), so the submitter waits
//! for a fraction of a millisecond. The threads take turns with the other process.
//!
//! If the time together was no longer than a few waits, it did not pay, and the next time alone is
//! four times as long, up to a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A wait that may show that a worker is paused, and the time that it then was queued.
const PAUSED: Duration = Duration::from_micros(500);
/// Work after which a job that began alone is opened to the workers: the turn that Linux gives
/// another process, so the time for which the job may then wait.
pub(super) const ALONE: Duration = Duration::from_millis(3);
/// The time alone after the first wait, and the longest.
const FIRST: Duration = Duration::from_millis(4);
const LONGEST: Duration = Duration::from_millis(1000);
/// The time in the queue of a worker that was moved since it was paused.
const MOVED: Duration = Duration::from_micros(100);
/// A time together that is so many times as long as the wait at its end pays.
const PAYS: u64 = 4;
/// Time together without a wait after which the processors count as free again. A process that
/// shares a processor takes its turn sooner.
const FREE: Duration = Duration::from_millis(50);

/// When jobs begin alone. Used by one submitter at a time. Only the time of jobs counts: between
/// them nothing is learnt. Times are in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Crowd {
    /// The rest of the time alone.
    left: AtomicU64,
    /// The last time alone; 0: the processors were free.
    period: AtomicU64,
    /// The time together since then.
    together: AtomicU64,
    /// The time that the workers had been queued at the last long wait.
    queued: AtomicU64,
}

impl Crowd {
    /// Whether a job that is submitted now begins alone.
    pub fn is_dense(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Whether workers were paused in the last time together.
    pub fn is_near(&self) -> bool {
        self.period.load(Ordering::Relaxed) > 0
    }

    /// Records the part of a job that the submitter ran alone.
    pub fn ran_alone(&self, time: Duration) {
        let left = self.left.load(Ordering::Relaxed).saturating_sub(nanoseconds(time));
        self.left.store(left, Ordering::Relaxed);
    }

    /// Records a job on all threads: the times that the submitter worked and waited, and whether it
    /// waited for a worker that was moved to its processor. `queued` is the time that the workers
    /// have been ready to run while others ran, if known.
    pub fn ran_together(
        &self,
        [worked, waited]: [Duration; 2],
        moved: bool,
        queued: impl FnOnce() -> Option<Duration>,
    ) {
        let together = self.together.load(Ordering::Relaxed).saturating_add(nanoseconds(worked));
        self.together.store(together, Ordering::Relaxed);
        if Duration::from_nanos(together) > FREE {
            self.period.store(0, Ordering::Relaxed);
        }
        // In a shorter wait, the workers saved more than was lost.
        if !moved && waited <= PAUSED.max(worked / 2) {
            return;
        }
        // The tasks may be unequal; so a wait alone shows nothing.
        let queued = queued().map_or(0, nanoseconds);
        let before = self.queued.swap(queued, Ordering::Relaxed);
        let least = if moved { MOVED } else { PAUSED };
        if Duration::from_nanos(queued.saturating_sub(before)) <= least {
            if moved {
                // It was moved for nothing.
                self.period.store(0, Ordering::Relaxed);
            }
            return;
        }
        let period = self.period.load(Ordering::Relaxed);
        let pays = together > PAYS * nanoseconds(waited);
        let next = if pays { 0 } else { period.saturating_mul(4) };
        let next = Duration::from_nanos(next).clamp(FIRST, LONGEST);
        self.period.store(nanoseconds(next), Ordering::Relaxed);
        self.left.store(nanoseconds(next), Ordering::Relaxed);
        self.together.store(0, Ordering::Relaxed);
    }
}

/// 584 years fit.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Duration = Duration::from_micros(100);
    const PAUSE: Duration = Duration::from_millis(3);

    /// The wait for a worker that can be moved.
    const MOVE: Duration = Duration::from_micros(250);

    fn ran(crowd: &Crowd, worked: Duration, waited: Duration, queued: Duration) {
        crowd.ran_together([worked, waited], false, || Some(queued));
    }

    /// Jobs for a second, whose workers are paused after each time together of this length: the
    /// time alone, and the number of pauses. `moves`: whether workers can be moved.
    fn second(crowd: &Crowd, turn: Option<Duration>, moves: bool) -> (Duration, u32) {
        let (mut time, mut left, mut pauses) = (Duration::ZERO, turn, 0);
        let mut alone = Duration::ZERO;
        while time < Duration::from_secs(1) {
            if crowd.is_dense() {
                crowd.ran_alone(2 * JOB);
                (time, alone, left) = (time + 2 * JOB, alone + 2 * JOB, turn);
                continue;
            }
            left = left.map(|left| left.saturating_sub(JOB));
            let paused = left == Some(Duration::ZERO);
            if paused {
                (left, pauses) = (turn, pauses + 1);
            }
            let moved = paused && moves && crowd.is_near();
            let waited = match paused {
                true if moved => MOVE,
                true => PAUSE,
                false => Duration::ZERO,
            };
            time += JOB + waited;
            crowd.ran_together([JOB, waited], moved, || Some(pauses * PAUSE));
        }
        (alone, pauses)
    }

    #[test]
    fn a_process_that_stays_is_met_rarely_if_workers_cannot_be_moved() {
        let crowd = Crowd::default();
        let (alone, pauses) = second(&crowd, Some(Duration::from_millis(5)), false);
        assert!((4..=6).contains(&pauses), "{pauses}");
        assert!(alone > Duration::from_millis(900), "{alone:?}");
    }

    #[test]
    fn threads_take_turns_with_a_process_that_stays() {
        let crowd = Crowd::default();
        let (alone, pauses) = second(&crowd, Some(Duration::from_millis(4)), true);
        // 4 ms together, 0.25 ms for the move, 4 ms alone.
        assert!((115..=125).contains(&pauses), "{pauses}");
        assert!(alone <= pauses * (FIRST + 2 * JOB), "{alone:?}");
    }

    #[test]
    fn short_times_together_do_not_pay() {
        let crowd = Crowd::default();
        let (alone, pauses) = second(&crowd, Some(2 * MOVE), true);
        assert!(pauses <= 6, "{pauses}");
        assert!(alone > Duration::from_millis(900), "{alone:?}");
    }

    #[test]
    fn workers_are_moved_only_after_pauses() {
        let crowd = Crowd::default();
        assert!(!crowd.is_near());
        ran(&crowd, JOB, PAUSE, PAUSE);
        assert!(crowd.is_near());
        // One that was moved had worked.
        crowd.ran_together([JOB, MOVE], true, || Some(PAUSE));
        assert!(!crowd.is_near());
        ran(&crowd, JOB, PAUSE, 2 * PAUSE);
        assert!(crowd.is_near());
        ran(&crowd, 2 * FREE, Duration::ZERO, 2 * PAUSE);
        assert!(!crowd.is_near());
    }

    #[test]
    fn an_accident_costs_milliseconds_each_time() {
        let crowd = Crowd::default();
        let (alone, pauses) = second(&crowd, Some(2 * FREE), true);
        assert!((8..=10).contains(&pauses), "{pauses}");
        assert!(alone <= pauses * (FIRST + 2 * JOB), "{alone:?}");
        assert_eq!(second(&Crowd::default(), None, true), (Duration::ZERO, 0));
    }

    #[test]
    fn long_jobs_and_unequal_tasks_may_wait() {
        let crowd = Crowd::default();
        ran(&crowd, 2 * PAUSE, PAUSE, PAUSE);
        assert!(!crowd.is_dense());
        ran(&crowd, JOB, PAUSE, PAUSED);
        crowd.ran_together([JOB, PAUSE], false, || None);
        assert!(!crowd.is_dense());
        ran(&crowd, JOB, PAUSE, PAUSED + PAUSE);
        assert!(crowd.is_dense());
    }
}
