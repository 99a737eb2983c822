//! Whether other processes leave the workers no processors.
//!
//! If another process runs on a worker's processor, the worker is paused for milliseconds, and may
//! hold a task of a job that takes microseconds. The submitter waits for it. Jobs of a small
//! network then take longer on two threads than on one.
//!
//! So if a job waited long for a worker that had to queue for its processor, the jobs after it
//! begin alone for a time: the submitter opens only those that take longer than such a wait. Then
//! the threads are tried again. If they are paused again soon, the next time alone is four times as
//! long. A wait that was an accident costs a few milliseconds; a process that stays costs one wait
//! a second.

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

    /// Records the part of a job that the submitter ran alone.
    pub fn ran_alone(&self, time: Duration) {
        let left = self.left.load(Ordering::Relaxed).saturating_sub(nanoseconds(time));
        self.left.store(left, Ordering::Relaxed);
    }

    /// Records a job on all threads: the times that the submitter worked and waited. `queued` is
    /// the time that the workers have been ready to run while others ran, if known.
    pub fn ran_together(
        &self,
        [worked, waited]: [Duration; 2],
        queued: impl FnOnce() -> Option<Duration>,
    ) {
        let together = self.together.load(Ordering::Relaxed).saturating_add(nanoseconds(worked));
        self.together.store(together, Ordering::Relaxed);
        // In a shorter wait, the workers saved more than was lost.
        if waited <= PAUSED.max(worked / 2) {
            return;
        }
        // The tasks may be unequal; so a wait alone shows nothing.
        let Some(queued) = queued().map(nanoseconds) else { return };
        let before = self.queued.swap(queued, Ordering::Relaxed);
        if Duration::from_nanos(queued.saturating_sub(before)) <= PAUSED {
            return;
        }
        let free = Duration::from_nanos(together) > FREE;
        let period = if free { 0 } else { self.period.load(Ordering::Relaxed) };
        let next = Duration::from_nanos(period.saturating_mul(4)).clamp(FIRST, LONGEST);
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

    fn ran(crowd: &Crowd, worked: Duration, waited: Duration, queued: Duration) {
        crowd.ran_together([worked, waited], || Some(queued));
    }

    /// Jobs for a second, whose workers are paused by each turn of another process of this length
    /// after as long together: the time alone, and the number of pauses.
    fn second(crowd: &Crowd, turn: Option<Duration>) -> (Duration, u32) {
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
            let waited = if paused { PAUSE } else { Duration::ZERO };
            time += JOB + waited;
            ran(crowd, JOB, waited, pauses * PAUSE);
        }
        (alone, pauses)
    }

    #[test]
    fn a_process_that_stays_is_met_rarely() {
        let crowd = Crowd::default();
        let (alone, pauses) = second(&crowd, Some(Duration::from_millis(5)));
        assert!((4..=6).contains(&pauses), "{pauses}");
        assert!(alone > Duration::from_millis(900), "{alone:?}");
    }

    #[test]
    fn an_accident_costs_milliseconds_each_time() {
        let crowd = Crowd::default();
        let (alone, pauses) = second(&crowd, Some(2 * FREE));
        assert!((8..=10).contains(&pauses), "{pauses}");
        assert!(alone <= pauses * (FIRST + 2 * JOB), "{alone:?}");
        assert_eq!(second(&Crowd::default(), None), (Duration::ZERO, 0));
    }

    #[test]
    fn long_jobs_and_unequal_tasks_may_wait() {
        let crowd = Crowd::default();
        ran(&crowd, 2 * PAUSE, PAUSE, PAUSE);
        assert!(!crowd.is_dense());
        ran(&crowd, JOB, PAUSE, PAUSED);
        crowd.ran_together([JOB, PAUSE], || None);
        assert!(!crowd.is_dense());
        ran(&crowd, JOB, PAUSE, PAUSED + PAUSE);
        assert!(crowd.is_dense());
    }
}
