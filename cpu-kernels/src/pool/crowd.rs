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
//! A worker may also be paused between jobs. Then nothing waits for it, but the submitter runs the
//! parts of all threads, which takes longer than an undivided job. If no worker helps with some
//! jobs in turn, the next time alone begins. After it, workers have four times as long to help, so
//! that they do where waking takes long.
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
/// Work without help after which a worker counts as paused at first: more than waking one takes.
const ABSENT: Duration = Duration::from_micros(150);
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
    /// The work of the last jobs together, if no worker helped.
    absent: AtomicU64,
    /// The work without help after which the next time alone begins; 0: [`ABSENT`].
    awaited: AtomicU64,
    /// The time that the workers had been queued at the last long wait.
    queued: AtomicU64,
}

/// A job that all threads could run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Together {
    /// The time that the submitter worked.
    pub worked: Duration,
    /// The time that it waited for workers then.
    pub waited: Duration,
    /// Whether a worker ran a task.
    pub helped: bool,
    /// Whether the submitter waited for a worker that was moved to its processor.
    pub moved: bool,
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

    /// Records a job on all threads. `queued` is the time that the workers have been ready to run
    /// while others ran, if known.
    pub fn ran_together(&self, job: Together, queued: impl FnOnce() -> Option<Duration>) {
        let Together { worked, waited, helped, moved } = job;
        let counted = if helped { &self.together } else { &self.absent };
        let time = counted.load(Ordering::Relaxed).saturating_add(nanoseconds(worked));
        counted.store(time, Ordering::Relaxed);
        if helped {
            self.absent.store(0, Ordering::Relaxed);
            self.awaited.store(0, Ordering::Relaxed);
        }
        if helped && Duration::from_nanos(time) > FREE {
            self.period.store(0, Ordering::Relaxed);
        }
        // In a shorter wait, the workers saved more than was lost.
        if !moved && waited <= PAUSED.max(worked / 2) {
            let awaited = self.awaited.load(Ordering::Relaxed).max(nanoseconds(ABSENT));
            if !helped && self.is_near() && time > awaited {
                self.awaited.store(awaited.saturating_mul(4), Ordering::Relaxed);
                self.begin_alone(self.period.load(Ordering::Relaxed));
            }
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
        let pays = self.together.load(Ordering::Relaxed) > PAYS * nanoseconds(waited);
        let period = self.period.load(Ordering::Relaxed);
        self.begin_alone(if pays { 0 } else { period.saturating_mul(4) });
    }

    fn begin_alone(&self, time: u64) {
        let time = nanoseconds(Duration::from_nanos(time).clamp(FIRST, LONGEST));
        self.period.store(time, Ordering::Relaxed);
        self.left.store(time, Ordering::Relaxed);
        self.together.store(0, Ordering::Relaxed);
        self.absent.store(0, Ordering::Relaxed);
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
        let job = Together { worked, waited, helped: true, moved: false };
        crowd.ran_together(job, || Some(queued));
    }

    fn moved(crowd: &Crowd, waited: Duration, queued: Duration) {
        let job = Together { worked: JOB, waited, helped: true, moved: true };
        crowd.ran_together(job, || Some(queued));
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
            let moves = paused && moves && crowd.is_near();
            let waited = match paused {
                true if moves => MOVE,
                true => PAUSE,
                false => Duration::ZERO,
            };
            time += JOB + waited;
            let job = Together { worked: JOB, waited, helped: true, moved: moves };
            crowd.ran_together(job, || Some(pauses * PAUSE));
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
        moved(&crowd, MOVE, PAUSE);
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
        let unknown = Together { worked: JOB, waited: PAUSE, helped: true, moved: false };
        crowd.ran_together(unknown, || None);
        assert!(!crowd.is_dense());
        ran(&crowd, JOB, PAUSE, PAUSED + PAUSE);
        assert!(crowd.is_dense());
    }

    #[test]
    fn without_help_the_time_alone_begins() {
        let crowd = Crowd::default();
        let missed =
            Together { worked: ABSENT / 2, waited: Duration::ZERO, helped: false, moved: false };
        let misses = |count| (0..count).for_each(|_| crowd.ran_together(missed, || None));
        // Workers that are late to short jobs are no sign of other processes.
        misses(10);
        assert!(!crowd.is_dense());
        ran(&crowd, JOB, PAUSE, PAUSE);
        crowd.ran_alone(LONGEST);
        misses(2);
        ran(&crowd, JOB, Duration::ZERO, PAUSE);
        misses(2);
        assert!(!crowd.is_dense());
        misses(1);
        assert!(crowd.is_dense());
        crowd.ran_alone(LONGEST);
        misses(8);
        assert!(!crowd.is_dense());
        misses(1);
        assert!(crowd.is_dense());
    }
}
