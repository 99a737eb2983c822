//! The thread pool: persistent workers that share the tasks of one loop at a time.
//!
//! A job is a number of independent tasks and a function to call for each. The submitting thread
//! works too. Workers that are awake help; the submitter does not wait for a worker that sleeps
//! through a short job. Threads take turns with other processes that are busy ([`crowd`]).
//!
//! Each thread has a share of neighbouring tasks; the first thread has the first ones. If two
//! jobs are divided alike, a thread finds the data of the first job in its own cache during the
//! second. A thread without tasks of its own takes tasks of the others' shares. So the thread of
//! a task is not deterministic, and the result of a task must not depend on it: the thread's
//! number is passed for scratch memory only.
//!
//! A job allocates nothing. A job submitted from inside a task runs inline, on that thread alone.
//! A panic in a task stops the job; it is returned as an error once every thread has left the
//! job.
//!
//! # The gate
//!
//! `gate` holds, in one word, the number of the current job, whether the gate is open, and how
//! many workers are inside. A worker enters by a compare-and-swap that increments the count, and
//! only if the gate is open. When no task is left, the submitter closes the gate, waits until the
//! count is 0, and only then ends the borrow of the function. So a worker reads the job's fields
//! only between entering and leaving, and the submitter neither changes nor drops them in that
//! time.

mod crowd;
mod patience;
mod place;
#[cfg(test)]
mod tests;

use crowd::{ALONE, Crowd, Together};
use patience::Patience;
use place::Sleeper;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wengert_core::Diagnostic;

/// A task of a job panicked.
#[derive(Debug, thiserror::Error)]
#[error("a task panicked: {0}")]
pub struct TaskPanicked(pub String);

impl From<TaskPanicked> for Diagnostic {
    fn from(panicked: TaskPanicked) -> Self {
        Diagnostic::new(panicked.to_string())
    }
}

/// The function called for every task, with the thread's number, below [`Pool::threads`], and the
/// task's.
type Body<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// A fixed number of threads that run tasks.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// The first cache line holds all fields that the threads of a small job read, so one fetch from
/// the submitting thread's cache brings them.
#[repr(C, align(64))]
struct Shared {
    /// Job number · 2³² + open · 2³¹ + workers inside.
    gate: AtomicU64,
    /// Written by the submitter while the gate is shut and no worker is inside.
    job: UnsafeCell<Job>,
    /// The next free task of each thread's share, for a pool of at most [`FEW`] threads.
    few: [AtomicUsize; FEW],
    /// The same for a pool of more threads.
    many: Vec<AtomicUsize>,
    /// The message of the first task to panic.
    panic: Mutex<Option<String>>,
    /// Held by the submitting thread from opening the gate until the last worker has left.
    submit: Mutex<()>,
    /// Guards sleeping: workers sleep on `wake`, the submitter on `left`; true asks workers to end.
    sleep: Mutex<bool>,
    wake: Condvar,
    left: Condvar,
    /// For each worker, whether it sleeps and where.
    sleepers: Vec<Sleeper>,
    /// Whether other processes occupy the processors; used under `submit`.
    crowd: Crowd,
}

/// The borrow of the body is erased: see [`Pool::run`].
struct Job {
    tasks: usize,
    body: Option<&'static Body<'static>>,
}

// SAFETY: all fields but `job` are `Sync`. `job` is written only by the thread that holds
// `submit`, while the gate is shut and the count inside is 0. It is read only by workers that the
// gate counted in, and by that submitter. Entering is an acquire of the release that opened the
// gate; leaving is a release that the submitter acquires. The contents of `job` are `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: no field belongs to a thread; the erased borrow is of a `Sync` function.
unsafe impl Send for Shared {}

/// Counters that fit beside the gate and the job in a line of 64 bytes.
const FEW: usize = 4;
const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;
const JOB: u64 = 1 << 32;

thread_local! {
    /// Address of the pool whose task this thread is running, and the thread's number there.
    static WITHIN: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
}

static GLOBAL: OnceLock<Arc<Pool>> = OnceLock::new();

impl Pool {
    /// Most threads that a user may ask for.
    pub const MOST_THREADS: usize = 4096;

    /// A pool of `threads` threads; the submitting thread is the first.
    ///
    /// Error: 0 threads; or the system refuses to start one.
    pub fn new(threads: usize) -> Result<Self, Diagnostic> {
        if threads == 0 {
            return Err(Diagnostic::new("a thread pool needs at least one thread"));
        }
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            job: UnsafeCell::new(Job { tasks: 0, body: None }),
            few: Default::default(),
            many: (0..threads).filter(|_| threads > FEW).map(|_| AtomicUsize::new(0)).collect(),
            panic: Mutex::new(None),
            submit: Mutex::new(()),
            sleep: Mutex::new(false),
            wake: Condvar::new(),
            left: Condvar::new(),
            sleepers: (1..threads).map(|_| Sleeper::default()).collect(),
            crowd: Crowd::default(),
        });
        let mut pool = Pool { shared, workers: Vec::with_capacity(threads - 1) };
        for number in 1..threads {
            let shared = pool.shared.clone();
            let worker = std::thread::Builder::new()
                .name(format!("wengert-{number}"))
                .spawn(move || shared.work(number))
                .map_err(|e| {
                    Diagnostic::of_device(format!("cannot start thread {number} of {threads}: {e}"))
                        .help("use fewer threads: --threads, or WENGERT_THREADS")
                })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// The process' pool, made at the first call. The number of threads is that of the environment
    /// variable `WENGERT_THREADS`, else the machine's available parallelism.
    ///
    /// Error: `WENGERT_THREADS` is no positive number; or the system refuses to start a thread.
    pub fn global() -> Result<&'static Arc<Pool>, Diagnostic> {
        if let Some(pool) = GLOBAL.get() {
            return Ok(pool);
        }
        let threads = match std::env::var("WENGERT_THREADS") {
            Ok(text) => text
                .trim()
                .parse()
                .ok()
                .filter(|n| (1..=Pool::MOST_THREADS).contains(n))
                .ok_or_else(|| {
                Diagnostic::new(format!("WENGERT_THREADS is `{text}`"))
                    .help("set it to the number of threads, from 1 to 4096, or unset it")
            })?,
            Err(_) => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let pool = Arc::new(Pool::new(threads)?);
        Ok(GLOBAL.get_or_init(|| pool))
    }

    /// Number of threads, the submitting one included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// The number of threads for which a job should be divided that takes so long on one thread:
    /// 1 if it will run on the submitter alone, else [`Pool::threads`].
    pub fn threads_for(&self, time: Duration) -> usize {
        if time < ALONE && self.shared.crowd.is_dense() { 1 } else { self.threads() }
    }

    /// Calls `body(thread, task)` once for every task in `0..tasks`, in any order, on any of the
    /// threads; returns when all are done.
    ///
    /// Error: a task panicked; then some of the tasks may not have run.
    pub fn parallel_for(
        &self,
        tasks: usize,
        body: impl Fn(usize, usize) + Sync,
    ) -> Result<(), TaskPanicked> {
        self.run(tasks, &body)
    }

    fn run(&self, tasks: usize, body: &Body<'_>) -> Result<(), TaskPanicked> {
        let within = WITHIN
            .get()
            .filter(|(pool, _)| *pool == self.shared.address())
            .map(|(_, thread)| thread);
        let is_dense = self.shared.crowd.is_dense();
        if (tasks <= 1 && !is_dense) || self.workers.is_empty() || within.is_some() {
            let thread = within.unwrap_or(0);
            return catch_unwind(AssertUnwindSafe(|| {
                (0..tasks).for_each(|task| body(thread, task))
            }))
            .map_err(|payload| TaskPanicked(message(payload.as_ref())));
        }
        let shared = &*self.shared;
        let submitting = lock(&shared.submit);
        let first = if is_dense { shared.alone(tasks, body)? } else { 0 };
        if first == tasks {
            return Ok(());
        }
        let begun = Instant::now();
        let (tasks, rest) = (tasks - first, |thread, task| body(thread, first + task));
        let body: &Body<'_> = if first == 0 { body } else { &rest };
        // SAFETY: the two types differ in the lifetime only. The reference is stored in `job`,
        // which other threads read only while they are counted inside the gate. This function
        // does not return before the gate is shut and the count is 0. It cannot unwind in
        // between: `help` catches panics, and the code after it does not panic.
        let body: &'static Body<'static> =
            unsafe { std::mem::transmute::<&Body<'_>, &'static Body<'static>>(body) };
        // SAFETY: this thread holds `submit`, and the last job ended with the gate shut and no
        // worker inside, so no other thread reads `job` now.
        unsafe { *shared.job.get() = Job { tasks, body: Some(body) } };
        for (thread, next) in shared.next().iter().enumerate() {
            next.store(shared.share(thread, tasks).start, Ordering::Relaxed);
        }
        let number = (shared.gate.load(Ordering::Relaxed) & !(JOB - 1)).wrapping_add(JOB);
        let asleep = {
            // Under the lock, so that no worker decides to sleep between reading the gate and
            // waiting.
            let _sleep = lock(&shared.sleep);
            shared.gate.store(number | OPEN, Ordering::Release);
            place::settle(&shared.sleepers, shared.crowd.is_near())
        };
        if asleep > 0 {
            if tasks > self.workers.len() {
                shared.wake.notify_all();
            } else {
                (1..tasks).for_each(|_| shared.wake.notify_one());
            }
            place::release(&shared.sleepers);
        }
        let own = shared.help(0, tasks, body);
        let end = Instant::now();
        let worked = end - begun;
        shared.gate.fetch_and(!OPEN, Ordering::Relaxed);
        let moved = shared.wait_until_all_left(worked);
        let job = Together { worked, waited: end.elapsed(), helped: own < tasks, moved };
        shared.crowd.ran_together(job, || shared.sleepers.iter().map(Sleeper::queued).sum());
        let panic = lock(&shared.panic).take();
        drop(submitting);
        panic.map_or(Ok(()), |text| Err(TaskPanicked(text)))
    }
}

impl Shared {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The next free task of each thread's share.
    fn next(&self) -> &[AtomicUsize] {
        let threads = self.sleepers.len() + 1;
        self.few.get(..threads).unwrap_or(&self.many)
    }

    /// The share of a thread.
    fn share(&self, thread: usize, tasks: usize) -> Range<usize> {
        let threads = self.sleepers.len() + 1;
        let (each, more) = (tasks / threads, tasks % threads);
        let first = |thread: usize| thread * each + thread.min(more);
        first(thread)..first(thread + 1)
    }

    /// Runs the first tasks on the submitting thread, until none is left or the job turns out to be
    /// long. Returns their number.
    fn alone(&self, tasks: usize, body: &Body<'_>) -> Result<usize, TaskPanicked> {
        let outer = WITHIN.replace(Some((self.address(), 0)));
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut next = 0;
            while next < tasks && (next == 0 || begun.elapsed() < ALONE) {
                body(0, next);
                next += 1;
            }
            next
        }));
        WITHIN.set(outer);
        self.crowd.ran_alone(begun.elapsed());
        outcome.map_err(|payload| {
            let panicked = TaskPanicked(message(payload.as_ref()));
            // As in `help`.
            std::mem::forget(payload);
            panicked
        })
    }

    /// Runs tasks until none is left: the thread's own, then those of the threads after it,
    /// cyclically. Returns the number of tasks that it ended.
    fn help(&self, thread: usize, tasks: usize, body: &Body<'_>) -> usize {
        let _span = tracing::trace_span!("tasks").entered();
        let mut ended = 0;
        let outer = WITHIN.replace(Some((self.address(), thread)));
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let all = self.next();
            for of in (thread..all.len()).chain(0..thread) {
                let (next, end) = (&all[of], self.share(of, tasks).end);
                while next.load(Ordering::Relaxed) < end {
                    let task = next.fetch_add(1, Ordering::Relaxed);
                    if task >= end {
                        break;
                    }
                    body(thread, task);
                    ended += 1;
                }
            }
        }));
        WITHIN.set(outer);
        if let Err(payload) = outcome {
            // No thread starts another task. The increment cannot overflow: every thread adds at
            // most one more.
            self.next().iter().for_each(|next| next.store(tasks, Ordering::Relaxed));
            lock(&self.panic).get_or_insert_with(|| message(payload.as_ref()));
            // The payload is leaked. Dropping it runs the caller's code, which may panic again;
            // this function must not.
            std::mem::forget(payload);
        }
        ended
    }

    /// The main loop of a worker.
    fn work(&self, thread: usize) {
        let mut last = 0;
        let sleeper = &self.sleepers[thread - 1];
        sleeper.is_this_thread();
        while let Some(entered) = self.enter(last, sleeper) {
            last = entered;
            // SAFETY: this worker is counted inside, so the submitter does not touch `job` until
            // it leaves, and the acquire on entering makes the submitter's writes visible.
            let job = unsafe { &*self.job.get() };
            if let Some(body) = job.body {
                sleeper.is_inside(true);
                self.help(thread, job.tasks, body);
                sleeper.is_inside(false);
            }
            // Release: the writes of this worker's tasks are visible to the submitter that reads
            // the count.
            let before = self.gate.fetch_sub(1, Ordering::Release);
            if before & (OPEN | INSIDE) == 1 {
                // Under the lock, so that the submitter does not miss it between reading the gate
                // and waiting.
                let _sleep = lock(&self.sleep);
                self.left.notify_all();
            }
        }
    }

    /// Waits for an open job other than `last` and counts this worker in; `None` when the pool
    /// ends.
    fn enter(&self, last: u64, sleeper: &Sleeper) -> Option<u64> {
        let mut waiting = Patience::new();
        loop {
            let gate = self.gate.load(Ordering::Relaxed);
            let number = gate & !(JOB - 1);
            if gate & OPEN != 0 && number != last {
                if self
                    .gate
                    .compare_exchange_weak(gate, gate + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    return Some(number);
                }
                continue;
            }
            if !sleeper.was_moved() && waiting.goes_on() {
                continue;
            }
            let mut ending = lock(&self.sleep);
            loop {
                if *ending {
                    return None;
                }
                let gate = self.gate.load(Ordering::Relaxed);
                if gate & OPEN != 0 && gate & !(JOB - 1) != last {
                    break;
                }
                sleeper.falls_asleep();
                ending = self.wake.wait(ending).unwrap_or_else(PoisonError::into_inner);
                sleeper.wakes_up();
            }
            drop(ending);
            waiting = Patience::new();
        }
    }

    /// Waits at the end of a job for which this thread worked so long. Returns whether a worker may
    /// have been moved to this thread's processor.
    fn wait_until_all_left(&self, worked: Duration) -> bool {
        let gathers = self.crowd.is_near();
        let mut waiting = if gathers { Patience::after(worked) } else { Patience::new() };
        loop {
            // Acquire: pairs with the release of the last worker that leaves.
            if self.gate.load(Ordering::Acquire) & INSIDE == 0 {
                return false;
            }
            if !waiting.goes_on() {
                break;
            }
        }
        if gathers {
            place::gather(&self.sleepers);
        }
        let mut sleep = lock(&self.sleep);
        while self.gate.load(Ordering::Acquire) & INSIDE != 0 {
            sleep = self.left.wait(sleep).unwrap_or_else(PoisonError::into_inner);
        }
        drop(sleep);
        if gathers {
            place::release(&self.sleepers);
        }
        gathers
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        *lock(&self.shared.sleep) = true;
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // The result is ignored: a worker catches the panics of tasks and returns nothing.
            let _ = worker.join();
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish()
    }
}

/// The guarded counters and texts are valid even after a panic under the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| s.to_string());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".into())
}
