//! The processors on which workers wake up.
//!
//! Linux wakes a thread on the processor where it slept, unless it finds an idle processor
//! nearby. In a virtual machine it does not find one: an idle virtual processor has yielded to
//! the host, and so counts as occupied. If the submitting thread now runs where a worker slept,
//! the worker is queued behind the submitter, while the submitter waits for the worker. That
//! lasts until the kernel balances its queues: tens of milliseconds in which two threads are
//! slower than one (measured: a step of 3.4 ms took 8 ms for the first 40 ms after each pause).
//!
//! So before workers are woken, those that would wake where the submitter or another worker runs
//! are bound to another processor that they may use. They are released as soon as they are woken:
//! a running thread stays where it is. No other thread is bound; its processor is left to the
//! system.
//!
//! Where other processes occupy processors, Linux may wake a thread on the processor of the thread
//! that wakes it. The worker then interrupts the submitter until it sleeps again (measured: 0.24 ms
//! in one of three times together). So there, all workers are kept from that processor.
//!
//! A worker that another process has paused in the middle of a task is treated alike: when the
//! submitter has nothing to do but wait for it, it is bound to the submitter's processor, which is
//! free then. The system moves a thread that waits for a processor at once.
//!
//! Other systems have no such call; there, this module does nothing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[cfg(target_os = "linux")]
use linux::Place;
#[cfg(not(target_os = "linux"))]
use nowhere::Place;

/// Whether a worker sleeps, and where.
#[derive(Debug, Default)]
pub(super) struct Sleeper {
    /// Written under the lock that guards sleeping, as `place` is.
    asleep: AtomicBool,
    /// Whether it is inside a job.
    inside: AtomicBool,
    /// Whether it was moved to the submitter's processor and has not slept since.
    moved: AtomicBool,
    place: Place,
}

impl Sleeper {
    /// Records the calling thread as this worker.
    pub fn is_this_thread(&self) {
        self.place.is_this_thread();
    }

    /// The time for which the worker was ready to run while its processor ran others, since it
    /// started; `None` if the system does not tell.
    pub fn queued(&self) -> Option<Duration> {
        self.place.queued()
    }

    /// The calling worker enters a job, or leaves it.
    pub fn is_inside(&self, inside: bool) {
        self.inside.store(inside, Ordering::Relaxed);
    }

    /// Whether the calling worker is where the submitter will run. Then it sleeps rather than waits
    /// actively.
    pub fn was_moved(&self) -> bool {
        self.moved.load(Ordering::Relaxed)
    }

    /// The calling worker is about to sleep; it holds the lock that guards sleeping.
    pub fn falls_asleep(&self) {
        self.place.is_here();
        self.moved.store(false, Ordering::Relaxed);
        self.asleep.store(true, Ordering::Relaxed);
    }

    /// The calling worker is awake again; it holds the lock that guards sleeping.
    pub fn wakes_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}

/// Ensures that no worker wakes on a processor in use. `crowded`: other processes occupy some.
/// Returns the number of sleeping workers. The caller holds the lock that guards sleeping.
pub(super) fn settle(sleepers: &[Sleeper], crowded: bool) -> usize {
    let asleep = || sleepers.iter().filter(|s| s.asleep.load(Ordering::Relaxed));
    let count = asleep().count();
    if count > 0 {
        Place::settle(asleep().map(|s| &s.place), crowded);
    }
    count
}

/// Binds the only worker that is inside the job to the processor of the submitter, which is about
/// to sleep. More than one would be in each other's way there, so they stay where they are.
pub(super) fn gather(sleepers: &[Sleeper]) {
    let mut inside = sleepers.iter().filter(|s| s.inside.load(Ordering::Relaxed));
    if let (Some(sleeper), None) = (inside.next(), inside.next()) {
        sleeper.moved.store(true, Ordering::Relaxed);
        sleeper.place.bind_here();
    }
}

/// Unbinds the workers that [`settle`] and [`gather`] have bound. They are awake.
pub(super) fn release(sleepers: &[Sleeper]) {
    sleepers.iter().for_each(|s| s.place.release());
}

#[cfg(target_os = "linux")]
mod linux {
    use crate::pool::lock;
    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Mutex, OnceLock};
    use std::time::Duration;

    /// A worker, and the processor that it was last seen on.
    #[derive(Debug, Default)]
    pub(super) struct Place {
        thread: OnceLock<Pid>,
        /// The system's statistics about the thread, if it has them.
        statistics: OnceLock<File>,
        processor: AtomicUsize,
        /// The processors it may use when unbound; `None` if it is not bound.
        bound: Mutex<Option<CpuSet>>,
    }

    impl Place {
        pub fn is_this_thread(&self) {
            self.thread.get_or_init(gettid);
            if let Ok(file) = File::open("/proc/thread-self/schedstat") {
                self.statistics.get_or_init(|| file);
            }
        }

        /// The second number of the file, in nanoseconds (Linux, *Scheduler Statistics*).
        pub fn queued(&self) -> Option<Duration> {
            let mut text = [0; 96];
            let count = self.statistics.get()?.read_at(&mut text, 0).ok()?;
            let text = std::str::from_utf8(text.get(..count)?).ok()?;
            Some(Duration::from_nanos(text.split_whitespace().nth(1)?.parse().ok()?))
        }

        pub fn is_here(&self) {
            self.processor.store(sched_getcpu(), Ordering::Relaxed);
        }

        /// Binds the workers that sleep on a taken processor, or all. If the system refuses, they
        /// stay where they are, which is slow but correct.
        pub fn settle<'a>(sleeping: impl Iterator<Item = &'a Place>, all: bool) {
            let (here, mut taken) = (sched_getcpu(), CpuSet::new());
            taken.set(here);
            for place in sleeping {
                let mut processor = place.processor.load(Ordering::Relaxed);
                if taken.is_set(processor) {
                    let free = |p: &usize| !taken.is_set(*p);
                    let bound = place.bind(|usual| only(processors(usual).find(free)));
                    processor = bound.unwrap_or(processor);
                } else if all {
                    place.bind(|usual| {
                        let mut others = *usual;
                        others.unset(here);
                        others
                    });
                }
                taken.set(processor);
            }
        }

        /// Binds the worker to the processor of the calling thread, if it may use it.
        pub fn bind_here(&self) {
            self.bind(|usual| only(Some(sched_getcpu()).filter(|p| usual.is_set(*p))));
        }

        /// Binds the worker to some of its usual processors, unless none is left. Returns the first
        /// of them.
        fn bind(&self, choose: impl FnOnce(&CpuSet) -> CpuSet) -> Option<usize> {
            let thread = *self.thread.get()?;
            let usual = sched_getaffinity(Some(thread)).ok()?;
            let allowed = choose(&usual);
            let first = processors(&allowed).next()?;
            sched_setaffinity(Some(thread), &allowed).ok()?;
            *lock(&self.bound) = Some(usual);
            Some(first)
        }

        pub fn release(&self) {
            if let (Some(usual), Some(thread)) = (lock(&self.bound).take(), self.thread.get()) {
                // The thread lives as long as the pool. If the process has lost these processors
                // meanwhile, the system has already moved the thread.
                let _ = sched_setaffinity(Some(*thread), &usual);
            }
        }
    }

    fn processors(set: &CpuSet) -> impl Iterator<Item = usize> {
        (0..CpuSet::MAX_CPU).filter(|p| set.is_set(*p))
    }

    fn only(processor: Option<usize>) -> CpuSet {
        let mut set = CpuSet::new();
        processor.into_iter().for_each(|p| set.set(p));
        set
    }
}

#[cfg(not(target_os = "linux"))]
mod nowhere {
    /// A worker without a known processor.
    #[derive(Debug, Default)]
    pub(super) struct Place;

    impl Place {
        pub fn is_this_thread(&self) {}
        pub fn queued(&self) -> Option<std::time::Duration> {
            None
        }
        pub fn is_here(&self) {}
        pub fn settle<'a>(_: impl Iterator<Item = &'a Place>, _: bool) {}
        pub fn bind_here(&self) {}
        pub fn release(&self) {}
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};
    use std::sync::mpsc;

    /// The processors that this process may use, at most four of them.
    fn processors(usual: &CpuSet) -> Vec<usize> {
        (0..CpuSet::MAX_CPU).filter(|p| usual.is_set(*p)).take(4).collect()
    }

    fn only(processor: usize) -> CpuSet {
        let mut set = CpuSet::new();
        set.set(processor);
        set
    }

    /// Runs `during` while a thread that slept on `processor`, and may run on any of `usual`, is
    /// waiting.
    fn with_sleeper(processor: usize, usual: &CpuSet, during: impl FnOnce(&[Sleeper], Pid)) {
        let sleepers = [Sleeper::default()];
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let sleeper = &sleepers[0];
            scope.spawn(move || {
                sleeper.is_this_thread();
                sched_setaffinity(None, &only(processor))
                    .expect("it is one of the processors that there are");
                sleeper.falls_asleep();
                sched_setaffinity(None, usual).expect("it was so before");
                tell.send(gettid()).expect("the test waits for it");
                // Until the test drops the other end, whether it passes or fails.
                let _ = ended.recv();
            });
            let thread = told.recv().expect("the thread says which it is");
            during(&sleepers, thread);
            drop(end);
        });
    }

    /// The test checks where the worker may wake. Where it then runs is up to the system, which
    /// may move it as soon as it is free.
    #[test]
    fn a_worker_that_slept_where_the_submitter_is_wakes_elsewhere_and_is_free_again() {
        let usual = sched_getaffinity(None).expect("the system tells");
        let processors = processors(&usual);
        if processors.len() < 2 {
            return;
        }
        for mine in processors {
            with_sleeper(mine, &usual, |sleepers, worker| {
                sched_setaffinity(None, &only(mine))
                    .expect("it is one of the processors that there are");
                assert_eq!(settle(sleepers, false), 1);
                let bound = sched_getaffinity(Some(worker)).expect("the system tells");
                assert_eq!(bound.count(), 1);
                assert!(
                    !bound.is_set(mine)
                        && (0..CpuSet::MAX_CPU).all(|p| !bound.is_set(p) || usual.is_set(p))
                );
                release(sleepers);
                assert_eq!(sched_getaffinity(Some(worker)).expect("the system tells"), usual);
                sched_setaffinity(None, &usual).expect("it was so before");
            });
        }
    }

    #[test]
    fn a_worker_that_slept_elsewhere_is_kept_away_only_beside_other_processes() {
        let usual = sched_getaffinity(None).expect("the system tells");
        let processors = processors(&usual);
        let [mine, other, ..] = processors[..] else {
            return;
        };
        let mut others = usual;
        others.unset(mine);
        for (crowded, allowed) in [(false, usual), (true, others)] {
            with_sleeper(other, &usual, |sleepers, worker| {
                sched_setaffinity(None, &only(mine))
                    .expect("it is one of the processors that there are");
                assert_eq!(settle(sleepers, crowded), 1);
                let bound = || sched_getaffinity(Some(worker)).expect("the system tells");
                assert_eq!(bound(), allowed);
                release(sleepers);
                assert_eq!(bound(), usual);
                sched_setaffinity(None, &usual).expect("it was so before");
            });
        }
    }

    #[test]
    fn one_worker_inside_a_job_is_gathered_and_free_again() {
        let usual = sched_getaffinity(None).expect("the system tells");
        for mine in processors(&usual) {
            with_sleeper(mine, &usual, |sleepers, worker| {
                let bound = || sched_getaffinity(Some(worker)).expect("the system tells");
                sched_setaffinity(None, &only(mine))
                    .expect("it is one of the processors that there are");
                gather(sleepers);
                assert_eq!(bound(), usual, "it is in no job");
                sleepers[0].is_inside(true);
                gather(sleepers);
                assert_eq!(bound(), only(mine));
                assert!(sleepers[0].was_moved());
                release(sleepers);
                assert_eq!(bound(), usual);
                sleepers[0].falls_asleep();
                assert!(!sleepers[0].was_moved());
                sched_setaffinity(None, &usual).expect("it was so before");
            });
        }
    }

    #[test]
    fn several_workers_inside_a_job_stay_where_they_are() {
        let sleepers = [Sleeper::default(), Sleeper::default()];
        sleepers.iter().for_each(|sleeper| sleeper.is_inside(true));
        gather(&sleepers);
        assert!(sleepers.iter().all(|sleeper| !sleeper.was_moved()));
        sleepers[0].is_inside(false);
        gather(&sleepers);
        assert!(sleepers[1].was_moved());
    }

    /// Two threads on one processor take turns. Some systems do not tell.
    #[test]
    fn a_thread_that_shares_a_processor_is_queued() {
        if !std::path::Path::new("/proc/thread-self/schedstat").exists() {
            return;
        }
        let usual = sched_getaffinity(None).expect("the system tells");
        let shared = only(processors(&usual)[0]);
        let queue = || {
            let sleeper = Sleeper::default();
            sleeper.is_this_thread();
            sched_setaffinity(None, &shared).expect("it is one of the processors");
            let begun = std::time::Instant::now();
            while begun.elapsed() < Duration::from_millis(200) {
                std::hint::spin_loop();
            }
            sleeper.queued().expect("the system tells")
        };
        let queued: Duration = std::thread::scope(|scope| {
            let threads = [(); 2].map(|()| scope.spawn(queue));
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).sum()
        });
        assert!(queued > Duration::from_millis(20), "{queued:?}");
    }

    #[test]
    fn who_is_awake_is_left_alone() {
        let sleepers = [Sleeper::default(), Sleeper::default()];
        assert_eq!(settle(&sleepers, false), 0);
        sleepers.iter().for_each(Sleeper::falls_asleep);
        // These sleepers have no threads, so they cannot be bound; they are counted nevertheless.
        assert_eq!(settle(&sleepers, false), 2);
        sleepers[0].wakes_up();
        assert_eq!(settle(&sleepers, false), 1);
        release(&sleepers);
    }
}
