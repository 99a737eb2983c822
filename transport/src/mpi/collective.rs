//! Collectives of MPI: which one an operation is, and its call.

use super::abi::Abi;
use super::process::{Part, Work, readable, writable};
use super::world::Mpi;
use crate::error::Result;
use crate::operation::Operation;
use std::ffi::c_int;

/// Which collective of MPI an operation is, with its numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Native {
    /// Bytes for and from each rank.
    Exchange(Vec<c_int>),
    /// Bytes of each rank.
    Gather(Vec<c_int>),
    Broadcast {
        root: c_int,
        len: c_int,
    },
    Barrier,
    /// Messages: not a collective, or too large for an `int`.
    None,
}

impl Native {
    /// All ranks have to choose the same, so the choice depends only on what all ranks know. The
    /// counts of an exchange of different sizes are known to pairs of ranks only. It is sent as
    /// messages, as libraries do themselves.
    pub fn of(operation: &Operation, size: usize, chunk: usize) -> Native {
        let int = |n: usize| n as c_int;
        match operation {
            Operation::AllToAll { bytes } if bytes.len() <= chunk => {
                Native::Exchange(vec![int(bytes.len() / size); size])
            }
            Operation::AllGather { counts, .. } if counts.iter().sum::<usize>() <= chunk => {
                Native::Gather(counts.iter().map(|count| int(*count)).collect())
            }
            Operation::Broadcast { root, len, .. } if *len <= chunk => {
                Native::Broadcast { root: int(*root), len: int(*len) }
            }
            Operation::Barrier => Native::Barrier,
            _ => Native::None,
        }
    }
}

impl<A: Abi> Mpi<A> {
    /// Starts a collective of MPI. All numbers fit an `int` (`Native::of`).
    pub(super) fn collective(&self, native: Native, work: &mut Work<A>) -> Result<()> {
        let (calls, byte) = (&self.process.functions, self.process.handles.byte);
        let communicator = self.communicator;
        let (input, result) = (readable(&work.input), writable(&mut work.result));
        // For all calls: counts and places are within the input and the result, which stay
        // where they are, as do the lists, until the request has ended.
        match native {
            Native::Exchange(counts) => {
                let (list, places) = work.keep(counts);
                // SAFETY: as said above.
                self.started(work, Part::Collective, "MPI_Ialltoallv", |request| unsafe {
                    (calls.ialltoallv)(
                        input,
                        list,
                        places,
                        byte,
                        result,
                        list,
                        places,
                        byte,
                        communicator,
                        request,
                    )
                })
            }
            Native::Gather(counts) => {
                let own = counts[self.rank];
                let (list, places) = work.keep(counts);
                // SAFETY: as said above.
                self.started(work, Part::Collective, "MPI_Iallgatherv", |request| unsafe {
                    (calls.iallgatherv)(
                        input,
                        own,
                        byte,
                        result,
                        list,
                        places,
                        byte,
                        communicator,
                        request,
                    )
                })
            }
            Native::Broadcast { root, len } => {
                // MPI reads the root's input, and writes the others' result.
                let is_root = root as usize == self.rank;
                let buffer = if is_root { writable(&mut work.input) } else { result };
                // SAFETY: as said above.
                self.started(work, Part::Collective, "MPI_Ibcast", |request| unsafe {
                    (calls.ibcast)(buffer, len, byte, root, communicator, request)
                })
            }
            Native::Barrier => {
                // SAFETY: as said above.
                self.started(work, Part::Collective, "MPI_Ibarrier", |request| unsafe {
                    (calls.ibarrier)(communicator, request)
                })
            }
            Native::None => unreachable!("messages are sent one by one"),
        }
    }
}

impl<A: Abi> Work<A> {
    /// Keeps the bytes for each rank, and where each rank's begin, for as long as MPI reads them.
    fn keep(&mut self, counts: Vec<c_int>) -> (*const c_int, *const c_int) {
        let starts = counts.iter().scan(0, |at, count| {
            *at += count;
            Some(*at - count)
        });
        let starts = starts.collect::<Vec<c_int>>();
        // A list does not move in memory when its vector does.
        let places = (counts.as_ptr(), starts.as_ptr());
        self.lists.extend([counts, starts]);
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_choose_the_same_collective_by_what_all_know() {
        let gather = |counts: &[usize]| Operation::AllGather {
            bytes: vec![0; counts[0]],
            counts: counts.to_vec(),
        };
        let cases = [
            (Operation::AllToAll { bytes: vec![0; 8] }, Native::Exchange(vec![4, 4])),
            (Operation::AllToAll { bytes: vec![0; 10] }, Native::None),
            (gather(&[3, 5]), Native::Gather(vec![3, 5])),
            (gather(&[3, 6]), Native::None),
            (
                Operation::Broadcast { root: 1, bytes: vec![], len: 8 },
                Native::Broadcast { root: 1, len: 8 },
            ),
            (Operation::Broadcast { root: 1, bytes: vec![], len: 9 }, Native::None),
            (Operation::Barrier, Native::Barrier),
            (
                Operation::AllToAllCounts { bytes: vec![], send: vec![0; 2], receive: vec![0; 2] },
                Native::None,
            ),
            (Operation::Receive { from: 0, tag: 0, len: 1 }, Native::None),
        ];
        for (operation, native) in cases {
            assert_eq!(Native::of(&operation, 2, 8), native, "{operation}");
        }
    }
}
