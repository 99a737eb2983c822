//! Attention on the CPU, forward and backward, block by block: the matrix of scores is never
//! materialised; one block of it stays in the cache.
//!
//! [Forward](forward), the scores of some queries and a block of keys are a product. Their powers
//! weight a block of values (Dao and others, *FlashAttention*, 2022).
//!
//! Backward, a task has one head of keys. For each block of keys and each block of queries that
//! sees some of it, in each head of queries that shares the head of keys, five products compute the
//! scores and the cotangents of the two blocks. The probabilities are recomputed from the scores
//! and the logarithm of the denominator (Dao, *FlashAttention-2*, 2023).
//!
//! Queries, keys and values are read in place, with the heads side by side as the previous layer
//! wrote them, and results are written in the same layout. So nothing is permuted or packed
//! before or after. Blocks without a visible key are skipped; within a block, hidden keys have
//! the probability 0. Keys and values beyond a prefix are not read, so the cost of an example is
//! that of its prefix.
//!
//! Blocks depend on the extents alone, so the bits do not depend on the number of threads.

mod forward;
mod rows;

use super::chained::{Products, Rows};
use super::product;
use super::{Arguments, Compile, Kernels, array, take};
use crate::kernels::CHUNK;
use crate::memory::Workspace;
use rows::{Block, Float};
use std::ops::Range;
use wengert_core::call::{Attention, Heads};
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
        if self.dtype.is_half() {
            return Err(Diagnostic::new("there is no attention of halves")
                .help("compile for a target that decomposes it"));
        }
        Ok(Box::new(CompiledAttention { call: self.clone() }))
    }
}

impl Kernels for CompiledAttention {
    fn scratch(&self) -> usize {
        let size = self.call.dtype.size();
        let queries = if self.call.backward { self.queries() } else { self.rows_together() };
        let most = queries.max(self.keys()).max(self.call.width);
        self.blocks(size).saturating_add(product::scratch(self.call.dtype, [most; 3]))
    }

    fn shared(&self, threads: usize) -> usize {
        match self.parts(threads) {
            1 => 0,
            _ => array(&[self.partial_results(), self.call.dtype.size()]),
        }
    }

    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        match self.call.dtype {
            DType::F64 => self.run_with::<f64>(workspace, arguments),
            _ => self.run_with::<f32>(workspace, arguments),
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
    fn blocks(&self, size: usize) -> usize {
        if !self.call.backward {
            return self.scratch_forward(size);
        }
        array(&[self.queries(), padded(self.keys()), size]).saturating_mul(2)
    }

    fn run_with<T: Float>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
    ) -> Result<(), Diagnostic> {
        if !self.call.backward {
            return self.forward::<T>(workspace, arguments);
        }
        let heads = self.call.key_heads();
        let task = |thread: usize, task: usize| {
            let head = [task / heads, task % heads];
            // SAFETY: the arguments were checked; each task owns a head.
            unsafe { self.cotangents::<T>(workspace, thread, arguments, head) };
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

    /// The cotangents of the keys and values of a head of keys, and of the queries that share it.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked; no other thread uses the results for this
    /// head.
    unsafe fn cotangents<T: Float>(
        &self,
        workspace: &Workspace,
        thread: usize,
        arguments: &Arguments<'_>,
        [b, key_head]: [usize; 2],
    ) {
        let call = &self.call;
        let primals = call.primals();
        let (width, row) = (call.width, padded(self.keys()));
        let mut scratch = workspace.scratch(thread);
        let mut free = &mut scratch[..];
        let [powers, slopes] = [(); 2].map(|()| {
            let at = take::<T>(&mut free, self.queries() * row).as_mut_ptr();
            Rows { at, distance: row }
        });
        let mut products = Products { simd: workspace.simd(), free };
        let prefix = self.prefix(arguments, b);
        let heads = key_head * call.group..(key_head + 1) * call.group;
        // Keys that the last query sees; no query sees more.
        let seen = call.seen(prefix, call.queries - 1);
        // The first query that sees a key, rounded down to a block of queries.
        let first_query = |key: usize| {
            let query = key as i64 + 1 - call.first_seen(prefix);
            if call.causal { query.max(0) as usize / QUERIES * QUERIES } else { 0 }
        };
        for begin in (0..seen).step_by(self.keys()) {
            let keys = self.keys().min(seen - begin);
            let mut add = false;
            for n in heads.clone() {
                let head = [b, n];
                let bias = self.bias::<T>(arguments, head);
                let [q, k, v] = self.three::<T>(arguments, 0, head);
                let [dq, dk, dv] = self.three::<T>(arguments, primals + 3, head);
                let logarithms = self.logarithms(arguments.writable::<T>(primals), head);
                let c = self.rows(arguments.writable::<T>(primals + 1), call.out(), head);
                let means = self.logarithms(arguments.writable::<T>(primals + 2), head);
                for first in (first_query(begin)..call.queries).step_by(QUERIES) {
                    let queries = QUERIES.min(call.queries - first);
                    let block = self.block(powers, [queries, keys], [first, begin], prefix, bias);
                    // SAFETY: the rows of the blocks exist, and the scratch memory holds them. The
                    // results of this head belong to this thread. The first product that reaches
                    // a row overwrites it: a block of queries that sees a key sees the first block
                    // of keys.
                    unsafe {
                        let size = [queries, keys, width];
                        products.multiply(size, powers, false, q.from(first), k.across(begin));
                        products.multiply(size, slopes, false, c.from(first), v.across(begin));
                        let (l, m) = (logarithms.add(first), means.add(first));
                        rows::slopes(products.simd, &block, slopes.at, l, m);
                        let size = [keys, width, queries];
                        products.multiply(size, dv.at(begin), add, powers.across(0), c.from(first));
                        products.multiply(size, dk.at(begin), add, slopes.across(0), q.from(first));
                        let size = [queries, width, keys];
                        let (rows, keys) = (slopes.from(0), k.from(begin));
                        products.multiply(size, dq.at(first), begin > 0, rows, keys);
                    }
                    add = true;
                }
            }
        }
        // The queries that see no block of keys.
        let none = if seen > 0 { first_query(0) } else { call.queries };
        for n in heads {
            let [dq, dk, dv] = self.three::<T>(arguments, primals + 3, [b, n]);
            // SAFETY: the rows exist and belong to this thread.
            unsafe {
                clear(dq, 0..none, width);
                clear(dk, seen..call.keys, width);
                clear(dv, seen..call.keys, width);
            }
        }
    }
}

/// Sets rows of `width` numbers to 0.
///
/// # Safety
///
/// The rows are valid to write.
unsafe fn clear<T: Float>(rows: Rows<T>, positions: Range<usize>, width: usize) {
    for position in positions {
        // SAFETY: the caller guarantees it, and 0 is all bits 0.
        unsafe { rows.row(position).write_bytes(0, width) };
    }
}
