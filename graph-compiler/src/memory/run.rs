//! Kernels in the order in which they run.
//!
//! A repeated kernel is a kernel of its own with its own results, which later readers read. So
//! the passes that place buffers know nothing of repetitions. [`Run::origin`] and the plan record
//! that both results hold the same value.

use crate::kernels::{BufferId, Kernel, Kernels, Work};
use std::borrow::Cow;
use wengert_core::id::IdVec;

/// Kernels in the order in which they run.
pub struct Run<'k> {
    /// The kernels. Outputs refer to the results of the last repetitions.
    pub kernels: Cow<'k, Kernels>,
    /// Their order.
    pub order: Vec<usize>,
    /// For each kernel the function's kernel of which it is a copy or a part.
    pub from: Vec<usize>,
    /// For each buffer the first buffer that holds its value.
    pub origin: IdVec<BufferId, BufferId>,
    /// Which of the kernels are repetitions.
    pub repeats: Vec<bool>,
    /// For each kernel whether it is one end of a transfer. Empty if no collective is started.
    pub ends: Vec<Option<End>>,
}

/// An end of a transfer: a kernel that starts a collective, or waits for it. Both have the call.
/// The second reads operand and result, and writes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The start of the transfer of this number.
    Start(usize),
    /// The wait for it.
    Wait(usize),
}

/// A kernel, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The number of the kernel.
    pub kernel: usize,
    /// Which part of it.
    pub whole: Whole,
}

/// The part of a kernel that a piece is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Whole {
    /// The whole kernel.
    All,
    /// The call of a product with a follower.
    Call,
    /// The follower.
    Nest,
}

impl Piece {
    /// The piece as a kernel of its own.
    pub fn of(self, kernels: &Kernels) -> Kernel {
        let kernel = &kernels.kernels[self.kernel];
        let (Work::Followed(followed), true) = (&kernel.work, self.whole != Whole::All) else {
            return kernel.clone();
        };
        let parts = followed.split(kernel);
        let locations = kernel.locations.clone();
        if self.whole == Whole::Call {
            let (reads, writes) = (parts.operands.to_vec(), parts.result.to_vec());
            Kernel { work: Work::Call(followed.call.clone()), reads, writes, locations }
        } else {
            let work = Work::Nest(Box::new(followed.follower.clone()));
            Kernel { work, reads: parts.reads.clone(), writes: parts.writes.to_vec(), locations }
        }
    }
}

impl<'k> Run<'k> {
    /// The run without repetitions.
    pub fn given(kernels: &'k Kernels, order: Vec<usize>) -> Self {
        Run {
            kernels: Cow::Borrowed(kernels),
            order,
            from: (0..kernels.kernels.len()).collect(),
            origin: kernels.buffers.ids().collect(),
            repeats: vec![false; kernels.kernels.len()],
            ends: Vec::new(),
        }
    }

    /// Which end of a transfer a kernel is.
    pub fn end(&self, kernel: usize) -> Option<End> {
        self.ends.get(kernel).copied().flatten()
    }

    /// Whether a kernel is the wait of a transfer.
    pub fn is_wait(&self, kernel: usize) -> bool {
        matches!(self.end(kernel), Some(End::Wait(_)))
    }

    /// The workspace of each kernel, given those of the function's kernels.
    pub fn workspaces(&self, of: &[u64]) -> Vec<u64> {
        let nest = |k: usize| matches!(self.kernels.kernels[k].work, Work::Nest(_));
        let none = |k: usize| nest(k) || self.end(k).is_some();
        (0..self.from.len()).map(|k| if none(k) { 0 } else { of[self.from[k]] }).collect()
    }

    /// A run of pieces in order. A product before its follower becomes one kernel.
    pub fn of_pieces(kernels: &Kernels, pieces: impl Iterator<Item = Piece>) -> Run<'static> {
        let mut writing = Writing {
            made: Kernels { kernels: Vec::new(), ..kernels.clone() },
            current: kernels.buffers.ids().collect(),
            origin: kernels.buffers.ids().collect(),
            written: kernels.buffers.ids().map(|_| false).collect(),
        };
        let (mut from, mut repeats) = (Vec::new(), Vec::new());
        let mut pieces = pieces.peekable();
        while let Some(mut piece) = pieces.next() {
            let nest = Piece { whole: Whole::Nest, ..piece };
            if piece.whole == Whole::Call && pieces.next_if_eq(&nest).is_some() {
                piece.whole = Whole::All;
            }
            from.push(piece.kernel);
            repeats.push(writing.add(piece.of(kernels)));
        }
        let Writing { mut made, current, origin, .. } = writing;
        made.outputs.iter_mut().for_each(|(_, _, buffer)| *buffer = current[*buffer]);
        let order = (0..made.kernels.len()).collect();
        Run { kernels: Cow::Owned(made), order, from, origin, repeats, ends: Vec::new() }
    }
}

/// A run under construction.
struct Writing {
    made: Kernels,
    /// For each buffer of the function the buffer that holds its value now.
    current: IdVec<BufferId, BufferId>,
    origin: IdVec<BufferId, BufferId>,
    written: IdVec<BufferId, bool>,
}

impl Writing {
    /// Adds a kernel over buffers of the function; true if it is a repetition.
    fn add(&mut self, kernel: Kernel) -> bool {
        let reads = kernel.reads.iter().map(|b| self.current[*b]).collect();
        let mut repeats = false;
        let mut writes = Vec::with_capacity(kernel.writes.len());
        for buffer in &kernel.writes {
            if std::mem::replace(&mut self.written[*buffer], true) {
                repeats = true;
                let again = self.made.buffers[*buffer].clone();
                self.current[*buffer] = self.made.buffers.push(again);
                self.origin.push(*buffer);
            }
            writes.push(self.current[*buffer]);
        }
        self.made.kernels.push(Kernel { reads, writes, ..kernel });
        repeats
    }
}
