//! Prefetching: threads that read and transform batches before training needs them.
//!
//! [`Prefetch`] computes items by number on several threads and delivers them in order. The
//! consumer therefore sees the same items in the same order with any number of threads. At most
//! `depth` items are computed and not yet delivered, which bounds their memory.
//!
//! An error is an item too. It arrives in the place of the item that failed, so a run trains on
//! the items before it. Dropping the [`Prefetch`] ends its threads after their current items.
//!
//! [`Order`] gives the rows of an epoch; [`Windows`] reads them from a file block by block.

mod order;
mod windows;

pub use order::{Blocks, Order};
pub(crate) use windows::{HELD, Place, Windows};

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Scope;
use wengert_core::Result;

/// Items by number, computed on threads ahead of their use.
///
/// ```
/// use wengert::data::loader::Prefetch;
/// # fn main() -> wengert::Result<()> {
/// let squares = std::thread::scope(|scope| {
///     let mut items = Prefetch::start(scope, 3..6, 2, 4, |n| Ok(n * n));
///     [items.next(), items.next(), items.next(), items.next()].map(Option::transpose)
/// });
/// assert_eq!(squares, [Ok(Some(9)), Ok(Some(16)), Ok(Some(25)), Ok(None)]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Prefetch<T> {
    shared: Arc<Shared<T>>,
    end: u64,
    /// Threads are woken when so few items are ahead: half of `depth`. A thread that is woken for
    /// each item takes the processor of the consumer, which then waits for it.
    refill: u64,
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct State<T> {
    /// Number of the next item that a thread takes.
    next: u64,
    /// Number of the next item that the consumer receives.
    wanted: u64,
    ready: BTreeMap<u64, Result<T>>,
    /// The consumer is gone.
    closed: bool,
    /// A thread has panicked.
    broken: bool,
}

impl<T> Shared<T> {
    /// Items are moved in and out as a whole, so a panic leaves no half-changed state.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Prefetch<T> {
    /// Starts `threads` threads in a scope. They compute the items of `numbers` by `produce`, at
    /// most `depth` of them ahead of the consumer. Both numbers are at least 1.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        numbers: Range<u64>,
        threads: usize,
        depth: u64,
        produce: impl Fn(u64) -> Result<T> + Send + Sync + 'scope,
    ) -> Prefetch<T>
    where
        T: 'scope,
    {
        let state = State {
            next: numbers.start,
            wanted: numbers.start,
            ready: BTreeMap::new(),
            closed: false,
            broken: false,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let produce = Arc::new(produce);
        for _ in 0..threads.max(1) {
            let (shared, produce) = (Arc::clone(&shared), Arc::clone(&produce));
            let end = numbers.end;
            scope.spawn(move || {
                let thread = Thread(&shared);
                while let Some(number) = thread.take(end, depth.max(1)) {
                    let item = produce(number);
                    shared.lock().ready.insert(number, item);
                    shared.changed.notify_all();
                }
            });
        }
        Prefetch { shared, end: numbers.end, refill: depth / 2 }
    }

    /// The next item; `None` after the last one. Waits until it is computed.
    #[expect(clippy::should_implement_trait, reason = "an iterator would go on after an error")]
    pub fn next(&mut self) -> Option<Result<T>> {
        let mut state = self.shared.lock();
        let wanted = state.wanted;
        if wanted >= self.end {
            return None;
        }
        loop {
            if let Some(item) = state.ready.remove(&wanted) {
                state.wanted += 1;
                let ahead = state.next - state.wanted;
                drop(state);
                if ahead <= self.refill {
                    self.shared.changed.notify_all();
                }
                return Some(item);
            }
            assert!(!state.broken, "a thread that reads data has panicked");
            state = self.shared.wait(state);
        }
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
    }
}

/// A thread of a [`Prefetch`]. It tells the consumer if it panics.
struct Thread<'a, T>(&'a Shared<T>);

impl<T> Thread<'_, T> {
    /// The number of the next item to compute, as soon as there is room for it.
    fn take(&self, end: u64, depth: u64) -> Option<u64> {
        let mut state = self.0.lock();
        loop {
            if state.closed || state.next >= end {
                return None;
            }
            if state.next - state.wanted < depth {
                state.next += 1;
                return Some(state.next - 1);
            }
            state = self.0.wait(state);
        }
    }
}

impl<T> Drop for Thread<'_, T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.lock().broken = true;
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use wengert_core::diagnostic;

    #[test]
    fn items_arrive_in_order_with_any_number_of_threads() {
        for (threads, depth) in [(1, 1), (1, 5), (3, 1), (3, 4), (8, 100)] {
            let most = AtomicU64::new(0);
            let begun = AtomicU64::new(0);
            let items = thread::scope(|scope| {
                let mut items = Prefetch::start(scope, 10..60, threads, depth, |n| {
                    begun.fetch_add(1, Ordering::SeqCst);
                    // Odd items take longer.
                    for _ in 0..(n % 2) * 50 {
                        thread::yield_now();
                    }
                    Ok(n)
                });
                let mut found = Vec::new();
                while let Some(item) = items.next() {
                    // Those that are not delivered, and the one that is.
                    let ahead = begun.load(Ordering::SeqCst) - found.len() as u64;
                    most.fetch_max(ahead, Ordering::SeqCst);
                    found.push(item.unwrap());
                }
                found
            });
            assert!(items.into_iter().eq(10..60));
            assert!(most.into_inner() <= depth + 1, "{threads} threads, depth {depth}");
        }
    }

    #[test]
    fn an_error_arrives_in_its_place() {
        thread::scope(|scope| {
            let mut items = Prefetch::start(scope, 0..9, 3, 5, |n| match n {
                4 => Err(diagnostic!("row {n}")),
                _ => Ok(n),
            });
            for n in 0..4 {
                assert_eq!(items.next(), Some(Ok(n)));
            }
            assert_eq!(items.next().unwrap().unwrap_err().message, "row 4");
        });
    }

    #[test]
    fn threads_end_when_the_consumer_does() {
        let made = AtomicU64::new(0);
        thread::scope(|scope| {
            let mut items = Prefetch::start(scope, 0..u64::MAX, 4, 3, |n| {
                made.fetch_add(1, Ordering::SeqCst);
                Ok(n)
            });
            items.next();
        });
        // The scope has joined the threads.
        assert!((1..=4).contains(&made.into_inner()));
    }

    #[test]
    fn a_panic_of_a_thread_reaches_the_consumer() {
        let caught = std::panic::catch_unwind(|| {
            thread::scope(|scope| {
                let mut items = Prefetch::start(scope, 0..3, 1, 3, |n| {
                    assert!(n < 1, "planted");
                    Ok(n)
                });
                assert_eq!(items.next(), Some(Ok(0)));
                items.next()
            })
        });
        assert!(caught.is_err());
    }
}
