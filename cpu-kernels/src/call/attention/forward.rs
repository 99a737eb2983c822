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
//! Scores of bf16 are sums of products of pairs. Other halves are widened to f32 before they are
//! multiplied: queries once for a task, keys and values block by block, or in registers for few
//! queries. Powers are not rounded, and out is rounded once. So l and out of f16 have the bits that
//! they have for the same numbers in f32, rounded once.
//!
//! There are two divisions:
//!
//! - Many queries: a task has up to [`QUERIES`] positions of one head.
//! - Few queries, as in decoding: the queries of all heads that share a head of keys are
//!   multiplied together, so keys and values are read once, by the kernels of [`few`]. A task has
//!   some blocks of the keys of all heads of an example, whose rows are neighbours in memory; a
//!   second pass adds the partial results. Tasks by heads would each read a part of every line of
//!   rows, and the hardware prefetcher would fetch the rest for each of them.

use super::factors::Multiplied;
use super::few::{self, Decoded};
use super::task::{Partial, Queries};
use super::{Arguments, CompiledAttention, KEYS, QUERIES};
use crate::call::chained::Rows;
use crate::call::element::Element;
use crate::call::gemm;
use crate::call::{array, take};
use crate::memory::{Span, Workspace};
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

    pub(super) fn forward<E: Decoded + Multiplied>(
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
    unsafe fn whole<E: Decoded + Multiplied>(
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
}
