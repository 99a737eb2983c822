//! Sorting and top-k: indices in the order of keys.
//!
//! All kernels work on [words](key): unsigned 32-bit numbers with the order of an element's keys.
//! Several keys of few bits form one word. Longer keys form several words. Rows are then sorted
//! stably by each word, from the last word to the first.
//!
//! - **Rows of up to 4096 elements** ([`block`]): a row is sorted by a part of a thread block, in
//!   registers, shuffles and shared memory. One launch.
//! - **Longer rows** ([`long`]): all rows are sorted together, by the sort that scatters use: by
//!   each word, from the last to the first, then by the number of the row.
//! - **The greatest k of longer rows**: blocks sort pieces of 4096 and keep the k greatest of
//!   each; these form a shorter row, and so on until one piece is left. Where k is more than a
//!   quarter of a piece, rows are sorted as a whole.
//!
//! Equal keys are ordered by their positions. So the order is unique, and every run gives the same
//! result.

mod block;
mod key;
mod long;

use super::index::check_extent;
use super::{Kernels, Terms};
use crate::stage::{Access, Compiled, Memory, Slot};
use block::{BlockSort, Candidates};
use key::Words;
use wengert_core::Result;
use wengert_core::call::{Contract, Sort, TopK};

/// Most elements of a row that one thread block sorts in its own memory.
const BLOCK_SORT: usize = 4096;
/// Greatest k for which each piece of a row passes its k greatest elements to the next round. For
/// greater k the rows are sorted.
const BLOCK_TOP: usize = BLOCK_SORT / 4;

/// A sort of rows: for each row (o, i) the elements `key[o, ·, i]`, of which the first k in their
/// order are kept.
#[derive(Clone, Debug)]
struct Rows {
    outer: usize,
    length: usize,
    inner: usize,
    k: usize,
    words: Words,
}

impl Rows {
    /// Number of rows.
    fn count(&self) -> usize {
        self.outer * self.inner
    }

    /// Elements of all rows.
    fn elements(&self) -> usize {
        self.count() * self.length
    }

    /// The buffer of the result.
    fn result(&self) -> Slot {
        Slot::write(self.words.operands())
    }

    /// Part of the kernels' names.
    fn name(&self) -> String {
        let direction = if self.words.descending { "_descending" } else { "" };
        format!("{}{direction}", self.words.name())
    }
}

impl Kernels for Sort {
    fn compile(&self, _terms: &Terms<'_>) -> Result<Compiled> {
        let words = Words::new(&self.keys, self.descending);
        let Sort { outer, length, inner, .. } = *self;
        compile(&Rows { outer, length, inner, k: length, words })
    }

    fn workspace(&self) -> u64 {
        workspace(self.count(0), self.length)
    }
}

impl Kernels for TopK {
    fn compile(&self, _terms: &Terms<'_>) -> Result<Compiled> {
        let words = Words::new(&[self.dtype], true);
        compile(&Rows { outer: self.outer, length: self.length, inner: 1, k: self.k, words })
    }

    /// For long rows: two lists of the k greatest elements of each piece, with 4 bytes an element.
    fn workspace(&self) -> u64 {
        if self.k <= BLOCK_TOP && self.length > BLOCK_SORT {
            let pieces = self.length.div_ceil(BLOCK_SORT) as u64;
            let candidates =
                (self.outer as u64).saturating_mul(pieces).saturating_mul(self.k as u64);
            return candidates.saturating_mul(2 * 4).saturating_add(1 << 10);
        }
        workspace(self.count(0), self.length)
    }
}

/// Workspace to sort rows that are too long for one block. Each element takes 4 bytes for part of
/// its keys and 4 for its source index, both twice, since a pass of the sort moves elements from
/// one buffer to the other. Counts of digits take 1 KiB for each 2048 elements.
fn workspace(elements: u64, length: usize) -> u64 {
    match length {
        0..=BLOCK_SORT => 0,
        _ => elements.saturating_mul(17).saturating_add(4 << 10),
    }
}

fn compile(rows: &Rows) -> Result<Compiled> {
    if rows.count() * rows.k == 0 {
        return Ok(Compiled { stages: vec![], workspace: 0 });
    }
    check_extent("the number of elements of rows to sort", rows.elements())?;
    if rows.length > BLOCK_SORT && rows.k > BLOCK_TOP {
        return long::compile(rows);
    }
    // Pieces of the rows, then pieces of the kept elements, until there is one piece.
    let (mut stages, mut workspace) = (vec![], 0);
    let mut from: Option<Candidates> = None;
    loop {
        let sort = BlockSort { rows: rows.clone(), from };
        if sort.pieces() == 1 {
            stages.push(sort.stage(rows.result())?);
            return Ok(Compiled { stages, workspace });
        }
        // Two lists are in use at a time. Each list is shorter than the list before it.
        let bytes = 4 * (rows.count() * sort.kept()) as u64;
        let offset = match from {
            Some(Candidates {
                slot: Slot { memory: Memory::Workspace { offset: 0, bytes }, .. },
                ..
            }) => bytes.next_multiple_of(256),
            _ => 0,
        };
        workspace = workspace.max(offset + bytes);
        let slot = Slot { memory: Memory::Workspace { offset, bytes }, access: Access::Write };
        stages.push(sort.stage(slot)?);
        from =
            Some(Candidates { length: sort.kept(), slot: Slot { access: Access::Read, ..slot } });
    }
}
