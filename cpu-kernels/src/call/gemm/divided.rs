//! Products of few rows whose sums are divided among the threads: each computes some
//! [blocks](crate::call::product::blocks) of k. The thread that ends last adds them up.
//!
//! Such a product takes the time of reading rhs, and a block is contiguous memory. Where the rows
//! of rhs are long, each thread reads long runs of its columns as well, and the blocks are not
//! divided.

use super::{CompiledGemm, PANELS, Tile, WORTH};
use crate::call::Arguments;
use crate::call::element::Element;
use crate::call::product::blocks::{self, SUMS};
use crate::call::product::{FEW, Order, Product, multiply};
use crate::memory::{Span, Workspace};
use crate::nest::Follower;
use std::sync::atomic::{AtomicUsize, Ordering};
use wengert_core::Diagnostic;
use wengert_core::call::Gemm;

/// Bytes of a run of rhs that is read with the bandwidth of contiguous memory.
const RUN: usize = 4096;
/// Most bytes of all blocks.
const MOST: usize = 8 << 20;
/// Most parts of the columns.
const PARTS: usize = 64;

/// The division of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Divided {
    /// Blocks of each sum.
    pub blocks: usize,
    /// Terms of a block.
    terms: usize,
    /// Columns of a task.
    columns: usize,
}

impl CompiledGemm {
    /// How so many threads divide the sums, if they do.
    pub(super) fn divided(&self, threads: usize) -> Option<Divided> {
        let Gemm { batch, m, n, k, operand, accumulate, ref rhs, .. } = self.call;
        let Order::Blocks(terms) = self.order else { return None };
        let blocks = k.div_ceil(terms);
        let bytes = blocks.saturating_mul(m).saturating_mul(n).saturating_mul(accumulate.size());
        let few = batch == 1 && m <= FEW && rhs.column == 1 && n > 0;
        let short = n.div_ceil(threads).saturating_mul(operand.size()) < RUN;
        if threads == 1 || !few || !short || n.saturating_mul(k) < WORTH || bytes > MOST {
            return None;
        }
        let parts = threads.div_ceil(blocks).max((m * n).div_ceil(SUMS)).min(PARTS);
        Some(Divided { blocks, terms, columns: n.div_ceil(parts).next_multiple_of(PANELS) })
    }

    /// Computes the product; its threads divide the sums.
    pub(super) fn run_divided<T: Element, R: Element<Wide = T::Wide>>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
        follower: Option<&Follower<'_>>,
        Divided { blocks, terms, columns }: Divided,
    ) -> Result<(), Diagnostic> {
        let Gemm { m, n, k, .. } = self.call;
        let parts = n.div_ceil(columns);
        let done = [const { AtomicUsize::new(0) }; PARTS];
        let shared = workspace.shared();
        let shared = Span::new(shared.pointer(), shared.len(), true);
        let sums = |block: usize, column: usize| {
            shared.pointer().cast::<T::Wide>().wrapping_add(block * m * n + column)
        };
        let task = |thread: usize, task: usize| {
            let (block, part) = (task / parts, task % parts);
            let first = part * columns;
            let width = columns.min(n - first);
            let mut scratch = workspace.scratch(thread);
            let (free, behind) = self.scratch_and_behind(&mut scratch);
            let tile = Tile { batch: 0, first: [0, first], size: [m, width] };
            let [lhs, rhs] = self.operands::<T>(arguments, tile);
            let start = block * terms;
            let size = [m, width, terms.min(k - start)];
            let operands = [lhs.from(0, start), rhs.from(start, 0)];
            let product = Product::chains(size, operands, (sums(block, first), n), false);
            // SAFETY: the arguments were checked. A block of these columns belongs to one task,
            // and the shared memory has room for all blocks.
            unsafe { multiply(workspace.simd(), free, &product, |_| ()) };
            // The tasks that ended before have written their blocks.
            if done[part].fetch_add(1, Ordering::AcqRel) + 1 < blocks {
                return;
            }
            // SAFETY: all blocks of these columns are complete, and no other task uses them or
            // this part of out.
            unsafe {
                let sum = sums(0, first);
                for block in 1..blocks {
                    for i in 0..m {
                        let terms = sums(block, first).wrapping_add(i * n);
                        blocks::add(sum.wrapping_add(i * n), terms, width);
                    }
                }
                let (simd, sum) = (workspace.simd(), Some((sum.cast_const(), n)));
                self.finish::<R>(simd, behind, arguments, follower, tile, sum);
            }
        };
        Ok(workspace.pool().parallel_for(blocks * parts, task)?)
    }
}
