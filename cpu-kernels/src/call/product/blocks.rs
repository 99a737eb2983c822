//! Sums in blocks of k, the order of long products of halves.
//!
//! Such a sum is `((B0 + B1) + B2) + …`. Each block Bi is a chain that begins with 0. The blocks
//! are equal, of at most [`MOST`] terms, and even in number, so two threads can divide them.
//!
//! A product of few rows takes the time of reading rhs. With a chain over all of k, threads divide
//! the columns, and each reads a part of every row. The hardware prefetcher reads beyond the end of
//! a part, so a thread that reads 768 bytes of each row has two thirds of the bandwidth (AMD Zen
//! 3). Threads that divide the blocks read whole rows: contiguous memory.
//!
//! A product of many rows has one tile for each block anyway. It adds the block to out when the
//! tile is stored, instead of beginning with out.

use super::epilogue::Epilogue;
use super::{FEW, LARGEST, Made, Part, SIDE, SLACK, take};
use crate::call::element::{Element, Number};
use wengert_core::DType;

/// Most terms of a block: those of a tile whose numbers are pairs.
pub(super) const MOST: usize = 512;
/// Most sums of a block of few rows: they stay in the cache while rhs is read.
pub(in crate::call) const SUMS: usize = 8192;

/// Terms of a block of a sum of `k` terms.
pub(in crate::call) fn terms(k: usize) -> usize {
    let count = k.div_ceil(MOST);
    let count = if count > 1 { count.next_multiple_of(2) } else { 1 };
    k.div_ceil(count).next_multiple_of(SIDE).max(1)
}

/// Numbers of scratch memory for the block of a product of halves.
pub(super) fn room(operand: DType, m: usize, n: usize, k: usize) -> usize {
    let blocks = operand.is_half() && k > MOST;
    if blocks { m.saturating_mul(n).min(SUMS + FEW * LARGEST[1]) + SLACK } else { 0 }
}

/// `sums[i] += terms[i]` for `count` numbers.
///
/// # Safety
///
/// The numbers are valid to read, and the sums to write, without overlap.
pub(in crate::call) unsafe fn add<N: Number>(sums: *mut N, terms: *const N, count: usize) {
    // SAFETY: the caller guarantees the memory.
    let (sums, terms) = unsafe {
        (std::slice::from_raw_parts_mut(sums, count), std::slice::from_raw_parts(terms, count))
    };
    sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum = sum.add(*term));
}

impl<T: Element> Part<'_, T> {
    /// Computes a product of few rows, block by block.
    ///
    /// # Safety
    ///
    /// As for [`multiply`](super::multiply).
    pub(super) unsafe fn run_blocks(
        &self,
        block: usize,
        free: &mut &mut [u8],
        mut done: impl FnMut(Made),
    ) {
        let [m, n, k] = self.size;
        let wide = (SUMS / m).next_multiple_of(LARGEST[1]).min(n);
        let terms = take::<T::Wide>(free, m * wide).as_mut_ptr();
        for j in (0..n).step_by(wide) {
            let columns = wide.min(n - j);
            let out = self.out.wrapping_add(j);
            for start in (0..k).step_by(block) {
                let first = start == 0;
                let part = Part {
                    size: [m, columns, block.min(k - start)],
                    lhs: self.lhs.from(0, start),
                    rhs: self.rhs.from(start, j),
                    out: if first { out } else { terms },
                    row: if first { self.row } else { columns },
                    block: None,
                    epilogue: Epilogue::NONE,
                    ..*self
                };
                // SAFETY: the part is within the product. The terms have room for m rows.
                unsafe {
                    part.run_tiles(&mut &mut **free, |_| ());
                    for i in (0..m).filter(|_| !first) {
                        add(out.add(i * self.row), terms.add(i * columns), columns);
                    }
                }
            }
            done(Made { rows: 0..m, columns: j..j + columns, finished: false });
        }
    }
}
