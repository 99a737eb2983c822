//! The pool's guarantees, with one thread and with several.

use super::patience::PATIENCE;
use super::*;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

fn pools() -> impl Iterator<Item = Pool> {
    [1, 2, 3, 7].into_iter().map(|threads| Pool::new(threads).expect("threads start"))
}

#[test]
fn every_task_runs_exactly_once() {
    for pool in pools() {
        for tasks in [0, 1, 2, 3, 10, 1000] {
            let counts: Vec<AtomicU32> = (0..tasks).map(|_| AtomicU32::new(0)).collect();
            pool.parallel_for(tasks, |thread, task| {
                assert!(thread < pool.threads());
                counts[task].fetch_add(1, Ordering::Relaxed);
            })
            .expect("no task panics");
            assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
        }
    }
}

#[test]
fn what_tasks_wrote_is_seen_after_many_short_jobs() {
    for pool in pools() {
        let sum = AtomicUsize::new(0);
        for round in 0..20_000 {
            pool.parallel_for(3, |_, task| {
                sum.fetch_add(task + round % 2, Ordering::Relaxed);
            })
            .expect("no task panics");
        }
        assert_eq!(sum.into_inner(), 20_000 * 3 + 10_000 * 3);
    }
}

#[test]
fn tasks_run_on_several_threads_at_once() {
    let pool = Pool::new(3).expect("threads start");
    let barrier = std::sync::Barrier::new(3);
    // Hangs if one thread runs two of the tasks.
    pool.parallel_for(3, |thread, task| {
        // Each thread has one task in its share, and runs its own share first.
        assert_eq!(thread, task);
        barrier.wait();
    })
    .expect("no task panics");
}

#[test]
fn who_has_nothing_left_helps_out() {
    for _ in 0..50 {
        // A new pool has met no pause, so that it does not begin the job alone.
        let pool = Pool::new(2).expect("threads start");
        let done = AtomicUsize::new(0);
        // Hangs if the thread that owns the last two tasks must run both.
        pool.parallel_for(4, |_, task| {
            while task == 2 && done.load(Ordering::Relaxed) < 3 {
                std::hint::spin_loop();
            }
            done.fetch_add(1, Ordering::Relaxed);
        })
        .expect("no task panics");
        assert_eq!(done.into_inner(), 4);
    }
}

#[test]
fn a_panic_is_an_error_and_the_pool_goes_on() {
    for pool in pools() {
        for _ in 0..50 {
            let error = pool
                .parallel_for(100, |_, task| assert!(task != 57, "task {task} is broken"))
                .expect_err("a task panics");
            assert!(error.to_string().contains("task 57 is broken"), "{error}");
            pool.parallel_for(100, |_, _| ()).expect("the next job is whole");
        }
    }
}

#[test]
fn a_job_within_a_task_runs_on_that_thread() {
    for pool in pools() {
        let sum = AtomicUsize::new(0);
        pool.parallel_for(10, |outer, _| {
            pool.parallel_for(10, |inner, task| {
                assert_eq!(inner, outer);
                sum.fetch_add(task, Ordering::Relaxed);
            })
            .expect("no task panics");
        })
        .expect("no task panics");
        assert_eq!(sum.into_inner(), 450);
    }
}

#[test]
fn several_threads_may_submit_jobs() {
    let pool = Pool::new(3).expect("threads start");
    let sum = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    pool.parallel_for(5, |_, task| {
                        sum.fetch_add(task, Ordering::Relaxed);
                    })
                    .expect("no task panics");
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), 4 * 500 * 10);
}

/// The last two tasks end only on two threads.
fn needs_a_worker(pool: &Pool) {
    let barrier = std::sync::Barrier::new(2);
    pool.parallel_for(3, |_, task| match task {
        // Beside busy processes the submitter begins alone, for less time than this.
        0 => std::thread::sleep(4 * ALONE),
        _ => {
            barrier.wait();
        }
    })
    .expect("no task panics");
}

#[test]
fn workers_that_fell_asleep_wake_up() {
    let pool = Pool::new(2).expect("threads start");
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(20));
        needs_a_worker(&pool);
    }
}

/// A pool whose worker has been paused.
fn beside_busy_processes() -> Pool {
    let pool = Pool::new(2).expect("threads start");
    let pause = Duration::from_secs(1);
    let job = Together { worked: Duration::ZERO, waited: pause, helped: true, moved: false };
    pool.shared.crowd.ran_together(job, || Some(pause));
    assert!(pool.shared.crowd.is_dense());
    pool
}

#[test]
fn workers_join_a_long_job_beside_busy_processes() {
    needs_a_worker(&beside_busy_processes());
}

/// A paused worker is moved to the submitter's processor for the rest of the job. (The number of
/// processors that a thread may use is known on Linux only; elsewhere nothing is moved.)
#[test]
fn a_worker_that_was_moved_gets_its_processors_back() {
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let usual = processors();
    for _ in 0..20 {
        let pool = beside_busy_processes();
        while pool.shared.crowd.is_dense() {
            pool.parallel_for(1, |_, _| std::thread::sleep(ALONE)).expect("no task panics");
        }
        assert!(pool.shared.crowd.is_near());
        let sleeper = &pool.shared.sleepers[0];
        let worker_runs_a_task = |moves: bool| {
            let moved = || sleeper.was_moved();
            let expected = if moves && cfg!(target_os = "linux") { 1 } else { usual };
            let begun = std::sync::Barrier::new(2);
            pool.parallel_for(2, |_, task| {
                begun.wait();
                if task == 1 {
                    // The submitter loses its patience, sooner or later.
                    let waiting = Instant::now();
                    while moved() != moves
                        || processors() != expected
                        || waiting.elapsed() < 10 * PATIENCE
                    {
                        assert!(waiting.elapsed() < Duration::from_secs(60), "{}", processors());
                        std::thread::sleep(PATIENCE);
                    }
                }
            })
            .expect("no task panics");
        };
        worker_runs_a_task(true);
        let waiting = Instant::now();
        while sleeper.was_moved() {
            assert!(waiting.elapsed() < Duration::from_secs(60), "it does not sleep");
            std::thread::sleep(PATIENCE);
        }
        // It was not queued, so it is not moved again.
        assert!(!pool.shared.crowd.is_near());
        worker_runs_a_task(false);
    }
}

#[test]
fn short_jobs_are_not_divided_beside_busy_processes() {
    let free = Pool::new(2).expect("threads start");
    assert_eq!([ALONE / 2, ALONE].map(|time| free.threads_for(time)), [2, 2]);
    let pool = beside_busy_processes();
    assert_eq!([ALONE / 2, ALONE].map(|time| pool.threads_for(time)), [1, 2]);
    // Undivided jobs count as time alone; otherwise it would not end.
    while pool.shared.crowd.is_dense() {
        pool.parallel_for(1, |_, _| std::thread::sleep(ALONE)).expect("no task panics");
    }
    assert_eq!(pool.threads_for(ALONE / 2), 2);
}

#[test]
fn a_pool_of_no_thread_is_refused() {
    assert!(Pool::new(0).is_err());
}

/// Panics again when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn what_a_task_panics_with_is_not_dropped() {
    let pool = Pool::new(2).expect("threads start");
    for round in 0..20 {
        // If the payload were dropped, the call would unwind while the other thread still runs
        // the borrowed function.
        let text = String::from("borrowed");
        let error = pool
            .parallel_for(2, |_, task| {
                if task == round % 2 {
                    std::panic::panic_any(Bomb);
                }
                std::thread::sleep(Duration::from_millis(2));
                assert_eq!(text, "borrowed");
            })
            .expect_err("a task panicked");
        assert_eq!(error.0, "no message");
    }
    pool.parallel_for(10, |_, _| ()).expect("the pool works on");
}
