//! What a piece of work takes of the processor and of memory.
#![allow(unsafe_code)] // An allocator that counts.

use rustix::time::{ClockId, clock_gettime};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::time::Duration;

/// What a piece of work has taken of this thread.
pub(super) struct Spent {
    /// Processor time: other processes do not affect it.
    pub(super) time: Duration,
    /// The largest number of bytes at a time, beside those before.
    pub(super) memory: usize,
}

/// Does a piece of work, and measures it.
pub(super) fn measured<T>(work: impl FnOnce() -> T) -> (T, Spent) {
    let (before, begin) = (LIVE.get(), processor_time());
    PEAK.set(before);
    let result = work();
    let memory = usize::try_from(PEAK.get() - before).unwrap();
    (result, Spent { time: processor_time() - begin, memory })
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

thread_local! {
    /// Bytes that this thread has allocated, less those that it has freed.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The most that is given to a thread, so that the machine's memory lasts.
const MOST: isize = 4 << 30;

/// Counts bytes. Whether they are too many.
fn grow(bytes: usize) -> bool {
    let live = LIVE.get().saturating_add_unsigned(bytes);
    PEAK.set(PEAK.get().max(live));
    if live > MOST {
        eprintln!("mutants: {bytes} bytes are asked for, and the process ends");
        return true;
    }
    LIVE.set(live);
    false
}

fn shrink(bytes: usize) {
    LIVE.set(LIVE.get().saturating_sub_unsigned(bytes));
}

/// Counts the allocated bytes of each thread.
struct Counting;

// SAFETY: every method returns null, or passes its arguments unchanged to the system's allocator
// and returns its result. The counters access no other memory: they need no initialization and no
// destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if grow(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises about `layout` are the ones that `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if grow(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: `block` came from `System` by one of these methods, with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // While a block is moved, both are there.
        if grow(size) {
            return std::ptr::null_mut();
        }
        shrink(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn work_is_measured() {
    let (held, spent) = measured(|| {
        drop(std::hint::black_box(vec![1u8; 3 << 20]));
        std::hint::black_box(vec![1u8; 1 << 20])
    });
    assert!((3 << 20..4 << 20).contains(&spent.memory), "{} bytes", spent.memory);
    assert_eq!(held.len(), 1 << 20);
    let (sum, spent) = measured(|| {
        let begin = processor_time();
        (0u64..)
            .take_while(|n| n % 1024 != 0 || processor_time() - begin < Duration::from_millis(20))
            .fold(0, u64::wrapping_add)
    });
    assert!(sum > 0 && spent.time >= Duration::from_millis(20), "{:?}", spent.time);
    assert!(spent.memory < 1024, "{} bytes", spent.memory);
}
