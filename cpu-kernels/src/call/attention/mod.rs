//! Attention on the CPU, forward and backward, block by block: the matrix of scores is never
//! materialised; one block of it stays in the cache.
//!
//! [Forward](forward), the scores of some queries and a block of keys are a product. Their powers
//! weight a block of values (Dao and others, *FlashAttention*, 2022).
//!
//! [Backward](backward), five products for each pair of blocks compute the scores again and the
//! cotangents of the queries, keys and values of the two blocks.
//!
//! Queries, keys and values are read in place, with the heads side by side as the previous layer
//! wrote them, and results are written in the same layout. So nothing is permuted or packed
//! before or after. Blocks without a visible key are skipped; within a block, hidden keys have
//! the probability 0. Keys and values beyond a prefix are not read, so the cost of an example is
//! that of its prefix.
//!
//! Halves are [widened](factors) to f32 a block at a time, and in registers for few queries
//! ([`few`]), but for products of bf16 with bf16, which multiply pairs. All sums are in f32, and a
//! result of halves is rounded once, when its sum is complete.
//!
//! Blocks depend on the extents alone, so the bits do not depend on the number of threads.

mod backward;
mod factors;
mod few;
mod float;
mod forward;
mod rows;
mod task;

use super::chained::Rows;
use super::element::Element;
use super::product;
use super::{Arguments, Compile, Kernels, array, take};
use crate::kernels::CHUNK;
use crate::memory::Workspace;
use factors::Multiplied;
use few::Decoded;
use float::Float;
use rows::Block;
use std::ops::Range;
use wengert_core::call::{Attention, Heads};
use wengert_core::half::{bf16, f16};
use wengert_core::{DType, Diagnostic};

/// An attention, ready to run.
#[derive(Debug)]
struct CompiledAttention {
    call: Attention,
}

/// Queries of a block.
const QUERIES: usize = 64;
/// Keys of a block, forward: a block of scores fills L1.
const KEYS: usize = 128;
/// Keys of a block, backward, where two blocks of scores share L1.
const KEYS_BACKWARD: usize = 64;

/// Distance between the rows of a block of scores.
fn padded(keys: usize) -> usize {
    keys.next_multiple_of(CHUNK)
}

impl Compile for Attention {
    fn compile(&self) -> Result<Box<dyn Kernels>, Diagnostic> {
        Ok(Box::new(CompiledAttention { call: self.clone() }))
    }
}

impl Kernels for CompiledAttention {
    fn scratch(&self) -> usize {
        let queries = if self.call.backward { self.queries() } else { self.rows_together() };
        let most = queries.max(self.keys()).max(self.call.width);
        let products =
            [self.call.wide(), self.call.dtype].map(|dtype| product::scratch(dtype, [most; 3]));
        self.blocks().saturating_add(products[0].max(products[1]))
    }

    fn shared(&self, threads: usize) -> usize {
        match self.parts(threads) {
            None => 0,
            Some(_) => array(&[self.partial_results(), self.call.wide().size()]),
        }
    }

    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        match self.call.dtype {
            DType::F64 => self.run_with::<f64>(workspace, arguments),
            DType::F32 => self.run_with::<f32>(workspace, arguments),
            DType::F16 => self.run_with::<f16>(workspace, arguments),
            DType::BF16 => self.run_with::<bf16>(workspace, arguments),
            dtype => unreachable!("attention of {dtype}: the call was verified"),
        }
    }
}

impl CompiledAttention {
    /// Keys of a block.
    fn keys(&self) -> usize {
        let most = if self.call.backward { KEYS_BACKWARD } else { KEYS };
        most.min(self.call.keys)
    }

    fn queries(&self) -> usize {
        QUERIES.min(self.call.queries)
    }

    /// Bytes of the blocks of a thread.
    fn blocks(&self) -> usize {
        if self.call.backward { self.scratch_backward() } else { self.scratch_forward() }
    }

    fn run_with<E: Decoded + Multiplied>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
    ) -> Result<(), Diagnostic> {
        if !self.call.backward {
            return self.forward::<E>(workspace, arguments);
        }
        let heads = self.call.key_heads();
        let task = |thread: usize, task: usize| {
            let head = [task / heads, task % heads];
            // SAFETY: the arguments were checked; each task owns a head.
            unsafe { self.cotangents::<E>(workspace, thread, arguments, head) };
        };
        Ok(workspace.pool().parallel_for(self.call.batch * heads, task)?)
    }

    /// The rows of a head in the tensor at `at`.
    fn rows<T: Copy>(&self, at: *mut T, heads: Heads, [b, n]: [usize; 2]) -> Rows<T> {
        let first = heads.offset + b * heads.batch + n * self.call.width;
        Rows { at: at.wrapping_add(first), distance: heads.position }
    }

    /// Queries, keys and values of a head of queries; or, with `first` at the results, their
    /// cotangents.
    fn three<T: Copy>(
        &self,
        arguments: &Arguments<'_>,
        first: usize,
        head: [usize; 2],
    ) -> [Rows<T>; 3] {
        let of = |part: usize| {
            let argument = if self.call.packed { first } else { first + part };
            let head = [head[0], self.call.head(part, head[1])];
            self.rows(arguments.writable::<T>(argument), self.call.part(part), head)
        };
        [of(0), of(1), of(2)]
    }

    /// The bias of a head's scores, and the distance between its rows.
    fn bias<T: Copy>(
        &self,
        arguments: &Arguments<'_>,
        head: [usize; 2],
    ) -> Option<(*const T, usize)> {
        if self.call.bias.is_empty() {
            return None;
        }
        let (first, row) = self.call.bias_rows(head);
        let at: *const T = arguments.writable(self.call.packed_or_three());
        Some((at.wrapping_add(first), row))
    }

    /// Address of a head's row in a tensor `[batch, heads, queries]`.
    fn logarithms<T>(&self, at: *mut T, [b, n]: [usize; 2]) -> *mut T {
        at.wrapping_add((b * self.call.heads + n) * self.call.queries)
    }

    /// The prefix of an example; 0, which is not used, if the call has none.
    fn prefix(&self, arguments: &Arguments<'_>, example: usize) -> i32 {
        if !self.call.prefix {
            return 0;
        }
        let prefixes: *const i32 = arguments.operand(self.call.prefix_operand());
        // SAFETY: the argument was checked: it has an element for each example.
        unsafe { prefixes.add(example).read() }
    }

    /// The block of scores of these queries and keys; the first query and the first key are given
    /// by their positions.
    fn block<T: Float>(
        &self,
        scores: Rows<T>,
        [queries, keys]: [usize; 2],
        [query, key]: [usize; 2],
        prefix: i32,
        bias: Option<(*const T, usize)>,
    ) -> Block<T> {
        let causal = self.call.causal;
        let more = if causal { query as isize } else { 0 };
        Block {
            scores: scores.at,
            row: scores.distance,
            queries,
            positions: queries,
            keys,
            seen: self.call.first_seen(prefix) as isize + more - key as isize,
            causal,
            scale: T::constant(self.call.scale.to_f64()),
            bias: bias.map(|(rows, row)| rows.wrapping_add(query * row + key)),
            bias_row: bias.map_or(0, |(_, row)| row),
            bias_head: 0,
        }
    }
}

/// Sets rows of `width` numbers to 0.
///
/// # Safety
///
/// The rows are valid to write.
unsafe fn clear<T: Element>(rows: Rows<T>, positions: Range<usize>, width: usize) {
    for position in positions {
        // SAFETY: the caller guarantees it, and 0 is all bits 0.
        unsafe { rows.row(position).write_bytes(0, width) };
    }
}
