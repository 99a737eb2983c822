//! The processors of a rank.
//!
//! Each rank is bound to its share of the processors, as `mpirun` does. Left alone, Linux often
//! wakes a rank on the processor of the one that has sent it something, and moves it only when it
//! balances its queues: tens of milliseconds in which two ranks share a processor and another is
//! idle. In virtual machines it does not see that a processor is idle. (Measured: two ranks of one
//! thread each waited for each other for a tenth of their time.)
//!
//! A thread that the rank starts after it has joined inherits the binding, and a pool takes the
//! number of its threads from it.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::ops::Range;

/// Binds the calling thread to a rank's share of its processors, if there is one for each rank.
/// Returns whether there is.
pub(super) fn bind(rank: usize, ranks: usize) -> bool {
    let Ok(usual) = sched_getaffinity(None) else { return false };
    let list: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|at| usual.is_set(*at)).collect();
    if list.len() < ranks {
        return false;
    }
    let mut own = CpuSet::new();
    list[share(list.len(), rank, ranks)].iter().for_each(|at| own.set(*at));
    // If the system refuses, the rank runs where it may, which is slower.
    let _ = sched_setaffinity(None, &own);
    true
}

/// Which of `count` processors a rank has: neighbours, as many as the others or one more.
fn share(count: usize, rank: usize, ranks: usize) -> Range<usize> {
    count * rank / ranks..count * (rank + 1) / ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_processor_belongs_to_one_rank() {
        for count in 1..20 {
            for ranks in 1..=count {
                let shares: Vec<_> = (0..ranks).map(|rank| share(count, rank, ranks)).collect();
                assert!(shares.iter().flat_map(Range::clone).eq(0..count));
                let (least, most) = (count / ranks, count.div_ceil(ranks));
                assert!(shares.iter().all(|share| (least..=most).contains(&share.len())));
            }
        }
    }

    /// A rank has its share, and so have threads that it starts.
    #[test]
    fn a_rank_is_bound_to_its_share() {
        let bound = |rank, ranks| {
            let thread = std::thread::spawn(move || {
                let before = sched_getaffinity(None).expect("the system tells").count();
                let has_own = bind(rank, ranks);
                let inherited = std::thread::spawn(|| sched_getaffinity(None)).join();
                let after = inherited.expect("no panic").expect("the system tells").count();
                (before as usize, has_own, after as usize)
            });
            thread.join().expect("no panic")
        };
        let (all, has_own, own) = bound(0, 1);
        assert_eq!((has_own, own), (true, all));
        let (all, has_own, own) = bound(1, 2);
        assert_eq!((has_own, own), if all > 1 { (true, all.div_ceil(2)) } else { (false, all) });
        let (all, has_own, own) = bound(0, 100_000);
        assert_eq!((has_own, own), (false, all));
    }
}
