//! Attention forward.
//!
//! The keys are divided into blocks of [`KEYS`], from position 0 on. Each block has a *partial
//! result* for a query: its greatest score m, the sum s of the powers of its scores, and the sum o
//! of the values weighted by these powers, both relative to m. Partial results are added in the
//! order of the blocks (Milakov and Gimelshein, *Online normalizer calculation for softmax*,
//! 2018):
//!
//! ```text
//! m = max(m₁, m₂)    s = s₁·exp(m₁ − m) + s₂·exp(m₂ − m)    o = o₁·exp(m₁ − m) + o₂·exp(m₂ − m)
//! ```
//!
//! Blocks without a key that the query sees are left out. So the bits of a row depend on its
//! query and on the keys that it sees. They do not depend on the queries that are computed with
//! it, on the number of keys behind those that it sees, or on the division among threads: a
//! prompt in one piece, in chunks, or token by token has the same bits.
//!
//! Halves are widened to f32 before they are multiplied: queries once for a task, keys and values
//! block by block, or in registers for few queries. Powers are not rounded. So l has the bits that
//! it has for the same numbers in f32, and out these bits rounded once.
//!
//! There are two divisions:
//!
//! - Many queries: a task has up to [`QUERIES`] positions of one head.
//! - Few queries, as in decoding: the queries of all heads that share a head of keys are
//!   multiplied together, so keys and values are read once, by the kernels of [`few`]. A task has
//!   some blocks of the keys of all heads of an example, whose rows are neighbours in memory; a
//!   second pass adds the partial results. Tasks by heads would each read a part of every line of
//!   rows, and the hardware prefetcher would fetch the rest for each of them.

use super::few::{self, Decoded, Few};
use super::rows::{self, Block, Float};
use super::{Arguments, CompiledAttention, KEYS, QUERIES, clear};
use crate::call::chained::{Products, Rows};
use crate::call::element::{Element, Number};
use crate::call::gemm;
use crate::call::panel::{View, widen};
use crate::call::{array, take};
use crate::memory::{Span, Workspace};
use crate::simd::Simd;
use std::time::Duration;
use wengert_core::Diagnostic;

/// Fewest blocks of keys that are worth a task.
const BLOCKS: usize = 2;
/// Most numbers of the partial results of all blocks, if the work is divided by keys.
const KEPT: usize = 1 << 20;
/// Most of them that one thread adds.
const ADDED: usize = 1 << 14;
/// Bytes of the keys and values of all heads that stay in L2 until each head has been computed.
const NEAR: usize = 256 << 10;

/// The queries of a task: some positions of neighbouring heads.
#[derive(Clone, Copy)]
struct Queries {
    /// The example and the first head.
    head: [usize; 2],
    /// Number of heads; if there are several, they share a head of keys.
    heads: usize,
    /// The first position, and the number of positions.
    first: usize,
    positions: usize,
}

impl Queries {
    /// Rows of the scores: the positions of the first head, then those of the next.
    fn rows(self) -> usize {
        self.heads * self.positions
    }
}

/// The partial results of the queries of a task.
#[derive(Clone, Copy)]
pub(super) struct Partial<T> {
    /// The greatest score of each row.
    pub greatest: *mut T,
    /// The sum of the powers of each row.
    pub powers: *mut T,
    /// The weighted sums of values, a row for each query.
    pub sums: *mut T,
}

impl<T> Partial<T> {
    /// Numbers of a partial result.
    fn numbers(rows: usize, width: usize) -> usize {
        rows.saturating_mul(width.saturating_add(2))
    }

    /// A partial result of so many rows at an address.
    fn at(start: *mut T, rows: usize) -> Self {
        let powers = start.wrapping_add(rows);
        Partial { greatest: start, powers, sums: powers.wrapping_add(rows) }
    }
}

impl CompiledAttention {
    /// Heads of a task. If there are several, there is one task for all positions.
    fn heads_together(&self) -> usize {
        let rows = self.call.queries.saturating_mul(self.call.group);
        if rows <= QUERIES { self.call.group } else { 1 }
    }

    /// Most rows of the scores of a task.
    pub(super) fn rows_together(&self) -> usize {
        self.heads_together() * QUERIES.min(self.call.queries)
    }

    /// Tasks of a run that is not divided by keys.
    fn groups(&self) -> usize {
        let call = &self.call;
        call.batch * (call.heads / self.heads_together()) * call.queries.div_ceil(QUERIES)
    }

    fn key_blocks(&self) -> usize {
        self.call.keys.div_ceil(KEYS)
    }

    /// Numbers of the partial results of all blocks.
    pub(super) fn partial_results(&self) -> usize {
        let one = Partial::<f32>::numbers(self.rows_together(), self.call.width);
        self.groups().saturating_mul(self.key_blocks()).saturating_mul(one)
    }

    /// The number of tasks into which the keys of an example are divided, if they are.
    pub(super) fn parts(&self, threads: usize) -> Option<usize> {
        let (groups, most) = (self.groups(), self.key_blocks() / BLOCKS);
        if self.call.backward || most == 0 || self.partial_results() > KEPT {
            return None;
        }
        let few = self.rows_together() <= few::FEW && self.call.key_heads() > 1;
        let parts = threads.div_ceil(self.call.batch.max(1)).min(most);
        (few || (groups < threads && parts > 1)).then_some(parts)
    }

    /// Estimate of the time that one thread takes.
    fn time(&self) -> Duration {
        let call = &self.call;
        let [queries, keys] = [call.queries.saturating_mul(call.group), call.keys];
        let product = [call.batch.saturating_mul(call.key_heads()), queries, keys, call.width];
        gemm::time(product).saturating_mul(2)
    }

    /// Blocks of keys that stay in L2, with their values.
    fn blocks_near(&self) -> usize {
        let distances = [1, 2].map(|part| self.call.part(part).position);
        let bytes = KEYS * distances.iter().sum::<usize>() * self.call.dtype.size();
        (NEAR / bytes.max(1)).max(1)
    }

    /// Bytes of scratch memory of a thread, but for those of the products: the scores, a copy of
    /// the queries, two partial results, and for halves a widened block of keys or values.
    pub(super) fn scratch_forward(&self) -> usize {
        let (rows, width) = (self.rows_together(), self.call.width);
        let size = self.call.wide().size();
        let partial = array(&[Partial::<f32>::numbers(rows, width), size]);
        let scores = array(&[rows, super::padded(self.keys()), size]);
        let wide = if self.call.dtype.is_half() { self.keys() } else { 0 };
        let wide = array(&[wide, width, size]);
        let sizes = [scores, array(&[rows, width, size]), wide, partial, partial];
        sizes.into_iter().fold(0, usize::saturating_add)
    }

    pub(super) fn forward<E: Decoded<Wide: Float>>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
    ) -> Result<(), Diagnostic> {
        let (pool, groups) = (workspace.pool(), self.groups());
        let Some(parts) = self.parts(pool.threads_for(self.time())) else {
            return Ok(pool.parallel_for(groups, |thread, group| {
                // SAFETY: the arguments were checked; each task has queries of its own.
                unsafe { self.whole::<E>(workspace, thread, arguments, self.queries_of(group)) }
            })?);
        };
        let shared = workspace.shared();
        let shared = Span::new(shared.pointer(), shared.len(), true);
        let (blocks, width) = (self.key_blocks(), self.call.width);
        let one = Partial::<E::Wide>::numbers(self.rows_together(), width);
        let partial = |group: usize, block: usize| {
            let first = shared.pointer().cast::<E::Wide>();
            let start = first.wrapping_add((group * blocks + block) * one);
            Partial::at(start, self.queries_of(group).rows())
        };
        let (of_example, near) = (groups / self.call.batch.max(1), self.blocks_near());
        pool.parallel_for(self.call.batch * parts, |thread, task| {
            let (example, part) = (task / parts, task % parts);
            let mut scratch = workspace.scratch(thread);
            let all = example * of_example..(example + 1) * of_example;
            for done in (0..blocks.div_ceil(parts)).step_by(near) {
                for group in all.clone() {
                    let queries = self.queries_of(group);
                    let mut task =
                        self.task::<E>(workspace.simd(), &mut scratch, arguments, queries);
                    let seen = task.blocks_seen();
                    let [first, end] = [part, part + 1].map(|part| seen * part / parts);
                    let end = end.min(first + done + near);
                    for block in first + done..end {
                        let next = match () {
                            () if block + 1 < end => (group, block + 1),
                            () if group + 1 < all.end => (group + 1, first + done),
                            () => (all.start, end),
                        };
                        let next = self.keys_of::<E>(arguments, next);
                        // SAFETY: the arguments were checked; a block of a group belongs to one
                        // task, and its partial result is within the shared memory.
                        unsafe { task.partial(block, partial(group, block), next) };
                    }
                }
            }
        })?;
        let finish = |thread: usize, group: usize| {
            let queries = self.queries_of(group);
            let mut scratch = workspace.scratch(thread);
            let task = self.task::<E>(workspace.simd(), &mut scratch, arguments, queries);
            let sum = partial(group, 0);
            // SAFETY: the partial results of the group are complete, and belong to this task; so
            // do the results of its queries.
            unsafe {
                for block in 1..task.blocks_seen() {
                    task.add(block, sum, partial(group, block));
                }
                task.finish(arguments, sum);
            }
        };
        if self.partial_results() > ADDED {
            return Ok(pool.parallel_for(groups, finish)?);
        }
        (0..groups).for_each(|group| finish(0, group));
        Ok(())
    }

    /// The results for some queries.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked; no other thread uses the results for these
    /// queries.
    unsafe fn whole<E: Decoded<Wide: Float>>(
        &self,
        workspace: &Workspace,
        thread: usize,
        arguments: &Arguments<'_>,
        queries: Queries,
    ) {
        let mut scratch = workspace.scratch(thread);
        let mut free = &mut scratch[..];
        let [sum, next] = [(); 2].map(|()| {
            let numbers = Partial::<E::Wide>::numbers(queries.rows(), self.call.width);
            Partial::at(take::<E::Wide>(&mut free, numbers).as_mut_ptr(), queries.rows())
        });
        let mut task = self.task::<E>(workspace.simd(), free, arguments, queries);
        // SAFETY: the caller's promise is the same; the partial results belong to this task.
        unsafe {
            for block in 0..task.blocks_seen() {
                let keys = task.k.at((block + 1) * KEYS);
                if block == 0 {
                    task.partial(block, sum, keys);
                } else {
                    task.partial(block, next, keys);
                    task.add(block, sum, next);
                }
            }
            task.finish(arguments, sum);
        }
    }

    /// The keys of a block, for the queries of a task; they need not exist.
    fn keys_of<E: Element>(
        &self,
        arguments: &Arguments<'_>,
        (group, block): (usize, usize),
    ) -> Rows<E> {
        let [_, k, _] = self.three::<E>(arguments, 0, self.queries_of(group).head);
        k.at(block * KEYS)
    }

    /// The queries of a task.
    fn queries_of(&self, group: usize) -> Queries {
        let heads = self.heads_together();
        let (columns, blocks) = (self.call.heads / heads, self.call.queries.div_ceil(QUERIES));
        let (column, first) = (group / blocks, group % blocks * QUERIES);
        Queries {
            head: [column / columns, column % columns * heads],
            heads,
            first,
            positions: QUERIES.min(self.call.queries - first),
        }
    }

    /// Whether a task's queries are few, and its rows whole vectors.
    fn is_few(&self, queries: Queries) -> bool {
        queries.rows() <= few::FEW && self.call.width.is_multiple_of(few::WIDTH)
    }

    fn task<'a, E: Decoded<Wide: Float>>(
        &'a self,
        simd: Simd,
        mut free: &'a mut [u8],
        arguments: &Arguments<'_>,
        queries: Queries,
    ) -> Task<'a, E> {
        let Queries { head, heads, first, positions } = queries;
        let [q, k, v] = self.three::<E>(arguments, 0, head);
        let distance = super::padded(self.keys());
        let at = take::<E::Wide>(&mut free, queries.rows() * distance).as_mut_ptr();
        let scores = Rows { at, distance };
        let width = self.call.width;
        let q = if !E::HALF && heads == 1 {
            q.from(first).plain()
        } else if !E::HALF && positions == 1 {
            // Heads are side by side.
            Rows { distance: width, ..q.at(first) }.from(0).plain()
        } else {
            let copy = take::<E::Wide>(&mut free, queries.rows() * width);
            for (row, to) in copy.chunks_exact_mut(width).enumerate() {
                let (n, t) = (row / positions, row % positions);
                let from = q.row(first + t).wrapping_add(n * width);
                // SAFETY: the arguments were checked: the row has this width.
                unsafe { widen(simd, from, to.as_mut_ptr(), width) };
            }
            Rows { at: copy.as_mut_ptr(), distance: width }.from(0)
        };
        let wide = take::<E::Wide>(&mut free, if E::HALF { self.keys() * width } else { 0 });
        let wide = wide.as_mut_ptr();
        let bias = self.bias::<E::Wide>(arguments, head);
        let (prefix, products) = (self.prefix(arguments, head[0]), Products { simd, free });
        let few = E::few(simd).filter(|_| self.is_few(queries));
        Task { attention: self, queries, prefix, q, k, v, few, wide, bias, scores, products }
    }
}

/// A task's operands, and its block of scores.
struct Task<'a, E: Element + 'static> {
    attention: &'a CompiledAttention,
    queries: Queries,
    /// The prefix of the example.
    prefix: i32,
    /// A row for each row of the scores.
    q: View<E::Wide>,
    k: Rows<E>,
    v: Rows<E>,
    /// The kernels of few queries.
    few: Option<&'static few::Kernels<E>>,
    /// Scratch memory for a block of keys or values, if they are halves.
    wide: *mut E::Wide,
    bias: Option<(*const E::Wide, usize)>,
    scores: Rows<E::Wide>,
    products: Products<'a>,
}

impl<E: Decoded<Wide: Float>> Task<'_, E> {
    /// Keys that the last query sees; no query sees more.
    fn seen(&self) -> usize {
        self.attention.call.seen(self.prefix, self.queries.first + self.queries.positions - 1)
    }

    /// Blocks with a key that some of the queries see.
    fn blocks_seen(&self) -> usize {
        self.seen().div_ceil(KEYS)
    }

    /// The scores of a block of keys.
    fn block(&self, block: usize) -> Block<E::Wide> {
        let call = &self.attention.call;
        let Queries { head: [b, n], heads, first, positions } = self.queries;
        let begin = block * KEYS;
        let keys = KEYS.min(call.keys - begin);
        let of_next_head = match self.bias {
            Some(_) if heads > 1 => call.bias_rows([b, n + 1]).0 - call.bias_rows([b, n]).0,
            _ => 0,
        };
        let (size, at) = ([positions, keys], [first, begin]);
        let block = self.attention.block(self.scores, size, at, self.prefix, self.bias);
        Block { queries: self.queries.rows(), bias_head: of_next_head, ..block }
    }

    /// Computes the partial result of a block of keys. `following` are the keys that are read
    /// next.
    ///
    /// # Safety
    ///
    /// The operands are valid to read. The block has a key that some of the queries see. The
    /// partial result is valid to write, and no other thread uses it.
    unsafe fn partial(&mut self, block: usize, into: Partial<E::Wide>, following: Rows<E>) {
        let (begin, scores) = (block * KEYS, self.block(block));
        let (rows, width) = (scores.queries, self.attention.call.width);
        let sums = Rows { at: into.sums, distance: width };
        let keys = scores.keys.min(self.seen() - begin);
        let scores = Block { keys, ..scores };
        if let Some(few) = self.few {
            let (k, v) = (self.k.at(begin), self.v.at(begin));
            let (lhs, out) = (self.q, self.scores);
            let of_keys = Few { size: [rows, keys, width], lhs, rows: k, next: v, out };
            let (lhs, next) = (self.scores.from(0), following);
            let of_values = Few { lhs, rows: v, next, out: sums, ..of_keys };
            // SAFETY: the rows of the blocks exist, and the scratch memory holds the scores: its
            // rows are whole chunks.
            unsafe {
                (few.scores)(&of_keys);
                rows::powers(self.products.simd, &scores, into);
                (few.values)(&of_values);
            }
            return;
        }
        // SAFETY: the rows of the blocks exist, and the scratch memory holds them.
        unsafe {
            let k = self.products.wide(self.k.from(begin), [keys, width], self.wide);
            let size = [rows, keys, width];
            self.products.multiply(size, self.scores, false, self.q, k.transposed());
            rows::powers(self.products.simd, &scores, into);
            let v = self.products.wide(self.v.from(begin), [keys, width], self.wide);
            let size = [rows, width, keys];
            self.products.multiply(size, sums, false, self.scores.from(0), v);
        }
    }

    /// Adds the partial result of a block.
    ///
    /// # Safety
    ///
    /// Both are complete, and no other thread uses them.
    unsafe fn add(&self, block: usize, sum: Partial<E::Wide>, next: Partial<E::Wide>) {
        let width = self.attention.call.width;
        // SAFETY: the caller's promise is the same.
        unsafe { rows::add(self.products.simd, &self.block(block), sum, next, width) };
    }

    /// Writes the results from the sum of the partial results, if there is a block.
    ///
    /// # Safety
    ///
    /// The sum is complete. The arguments are those of the call, checked; no other thread uses
    /// the results for these queries.
    unsafe fn finish(&self, arguments: &Arguments<'_>, sum: Partial<E::Wide>) {
        let Queries { head: [b, n], heads, first, positions } = self.queries;
        let (attention, call) = (self.attention, &self.attention.call);
        let seen = |t: &usize| call.seen(self.prefix, first + t) > 0;
        // Positions without keys come first.
        let none = (0..positions).find(seen).unwrap_or(positions);
        for h in 0..heads {
            let head = [b, n + h];
            let out = attention.rows(arguments.writable::<E>(call.primals()), call.out(), head);
            let logarithms =
                attention.logarithms(arguments.writable::<E::Wide>(call.primals() + 1), head);
            // SAFETY: the rows exist, and the caller guarantees that no other thread uses them.
            unsafe {
                clear(out, first..first + none, call.width);
                (first..first + none).for_each(|t| logarithms.add(t).write(E::Wide::NEG_INFINITY));
                let row = h * positions + none;
                let powers = std::slice::from_raw_parts(sum.powers.add(row), positions - none);
                let sums = sum.sums.add(row * call.width);
                let (size, out_row) = ([positions - none, call.width], out.row(first + none));
                let simd = self.products.simd;
                rows::normalize::<E>(simd, size, sums, powers, out_row, out.distance);
                for (t, power) in powers.iter().enumerate() {
                    let greatest = sum.greatest.add(row + t).read();
                    logarithms
                        .add(first + none + t)
                        .write(E::Wide::shift(greatest).add(power.log()));
                }
            }
        }
    }
}
