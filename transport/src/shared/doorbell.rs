//! Sleeping until another rank has done something.
//!
//! Each rank has a counter in the segment, its doorbell. Another rank that has written to it, or
//! has read what it wrote, increments the counter, and wakes the rank if a thread sleeps. A thread
//! notes the counter, looks for work, finds none, and sleeps while the counter is unchanged
//! (`futex`). So no change between the look and the sleep is missed.
//!
//! A sleeping thread first counts itself as a sleeper, and then the kernel compares the counter; a
//! ring first increments the counter, and then looks for sleepers. In the single order of these
//! accesses one comes first, so either the sleeper sees the new counter, or the ring the sleeper.

use super::segment::RankCell;
use rustix::thread::futex::{self, Flags, Timespec};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// The longest sleep, in case that a change of the rank's own process is not announced.
const LONGEST: Duration = Duration::from_millis(200);

/// Tells a rank that something has changed.
pub(super) fn ring(cell: &RankCell) {
    cell.doorbell.fetch_add(1, SeqCst);
    if cell.sleepers.load(SeqCst) > 0 {
        // It fails for unmapped memory only.
        let _ = futex::wake(&cell.doorbell, Flags::empty(), i32::MAX as u32);
    }
}

/// The counter, to be noted before looking for work.
pub(super) fn stamp(cell: &RankCell) -> u32 {
    cell.doorbell.load(SeqCst)
}

/// Waits until the counter is no longer `stamp`, or until a moment: first in a loop of `spins`,
/// then asleep. May return earlier.
pub(super) fn sleep(cell: &RankCell, stamp: u32, spins: u32, until: Instant) {
    for _ in 0..spins {
        if cell.doorbell.load(SeqCst) != stamp {
            return;
        }
        std::hint::spin_loop();
    }
    let left = until.saturating_duration_since(Instant::now()).min(LONGEST);
    let timeout =
        Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) as _ };
    cell.sleepers.fetch_add(1, SeqCst);
    // Any end of the sleep is a reason to look again.
    let _ = futex::wait(&cell.doorbell, Flags::empty(), stamp, Some(&timeout));
    cell.sleepers.fetch_sub(1, SeqCst);
}

#[cfg(test)]
mod tests {
    use super::super::segment::Segment;
    use super::*;
    use std::sync::atomic::AtomicU64;
    use std::thread;

    #[test]
    fn no_ring_is_missed() {
        // Two threads pass a number to each other; a missed ring would cost 200 ms each.
        let segment = Segment::create(2, [0, 0]).expect("memory");
        let turn = AtomicU64::new(0);
        let begin = Instant::now();
        let play = |own: u64| {
            let (cell, other) = (segment.rank(own as usize), segment.rank(1 - own as usize));
            let until = begin + Duration::from_secs(60);
            loop {
                let stamp = stamp(cell);
                let now = turn.load(SeqCst);
                if now >= 2000 {
                    return now;
                }
                if now % 2 == own {
                    turn.store(now + 1, SeqCst);
                    ring(other);
                    continue;
                }
                assert!(Instant::now() < until, "the other thread does not come");
                sleep(cell, stamp, 10, until);
            }
        };
        thread::scope(|scope| {
            let first = scope.spawn(|| play(0));
            assert_eq!((play(1), first.join().expect("no panic")), (2000, 2000));
        });
    }

    #[test]
    fn a_sleep_ends_by_itself() {
        let segment = Segment::create(1, [0, 0]).expect("memory");
        let cell = segment.rank(0);
        sleep(cell, stamp(cell), 3, Instant::now() + Duration::from_secs(3600));
        sleep(cell, stamp(cell).wrapping_sub(1), 0, Instant::now() + Duration::from_secs(3600));
        assert_eq!(cell.sleepers.load(SeqCst), 0);
    }
}
