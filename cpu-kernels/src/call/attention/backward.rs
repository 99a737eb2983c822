//! Attention backward.
//!
//! A task has one head of keys. For each block of keys and each block of queries that sees some of
//! it, in each head of queries that shares the head of keys, five products compute the scores and
//! the cotangents of the two blocks. The probabilities are recomputed from the scores and the
//! logarithm of the denominator (Dao, *FlashAttention-2*, 2023).
//!
//! Each cotangent is a sum over blocks. Those of floats are added up in the results. Those of
//! halves are added up in f32 in scratch memory: of keys and values for the current block, of
//! queries for all positions, since each block of keys adds to them. The operands are widened a
//! block at a time, and nothing else is rounded: a cotangent has the bits that it has for the same
//! numbers in f32, rounded once.

use super::rows::{self, Float};
use super::{Arguments, CompiledAttention, QUERIES, array, clear, padded, take};
use crate::call::chained::{Products, Rows};
use crate::call::element::{Element, Number};
use crate::call::finish::{Places, finish};
use crate::memory::Workspace;
use crate::simd::Simd;
use wengert_core::call::Addends;

impl CompiledAttention {
    /// Numbers of the scratch memory of a thread if the elements are halves: the sums of the
    /// cotangents of the queries that share a head of keys, of a block of keys, and of a block of
    /// values; then widened blocks of keys, of values, of queries, and of the cotangent of out.
    fn wide_numbers(&self) -> [usize; 7] {
        let (queries, keys) = (self.queries(), self.keys());
        let all = self.call.group.saturating_mul(self.call.queries);
        let rows = [all, keys, keys, keys, keys, queries, queries];
        rows.map(|rows| rows.saturating_mul(self.call.width))
    }

    /// Bytes of scratch memory of a thread, but for those of the products: two blocks of scores,
    /// m of the queries if out is given, and those of [`wide_numbers`](Self::wide_numbers).
    pub(super) fn scratch_backward(&self) -> usize {
        let size = self.call.wide().size();
        let scores = array(&[self.queries(), padded(self.keys()), size]).saturating_mul(2);
        let sums = if self.call.out_given { self.call.group } else { 0 };
        let scores = scores.saturating_add(array(&[sums, self.call.queries, size]));
        if !self.call.dtype.is_half() {
            return scores;
        }
        let wide = self.wide_numbers().map(|numbers| array(&[numbers, size]));
        wide.into_iter().fold(scores, usize::saturating_add)
    }

    /// The cotangents of the keys and values of a head of keys, and of the queries that share it.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked; no other thread uses the results for this
    /// head.
    pub(super) unsafe fn cotangents<E: Element<Wide: Float>>(
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
            let at = take::<E::Wide>(&mut free, self.queries() * row).as_mut_ptr();
            Rows { at, distance: row }
        });
        let [sums_q, sums_k, sums_v, wide_k, wide_v, wide_q, wide_c] =
            self.wide_numbers().map(|numbers| {
                let numbers = if E::HALF { numbers } else { 0 };
                Rows { at: take::<E::Wide>(&mut free, numbers).as_mut_ptr(), distance: width }
            });
        let simd = workspace.simd();
        let sums = if call.out_given { call.group * call.queries } else { 0 };
        let sums = take::<E::Wide>(&mut free, sums).as_mut_ptr();
        let mut products = Products { simd, free };
        let prefix = self.prefix(arguments, b);
        let heads = key_head * call.group..(key_head + 1) * call.group;
        // Keys that the last query sees; no query sees more.
        let seen = call.seen(prefix, call.queries - 1);
        // The first query that sees a key, rounded down to a block of queries.
        let first_query = |key: usize| {
            let query = key as i64 + 1 - call.first_seen(prefix);
            if call.causal { query.max(0) as usize / QUERIES * QUERIES } else { 0 }
        };
        // The cotangents of a head, and the sums of those of queries.
        let cotangents = |n: usize| {
            let of = self.three::<E>(arguments, primals + 3, [b, n]);
            (of, summed(of[0], sums_q.at((n - heads.start) * call.queries)))
        };
        if call.out_given {
            for n in heads.clone() {
                let [out, c] = [2, 1].map(|argument| {
                    self.rows(arguments.writable::<E>(primals + argument), call.out(), [b, n])
                });
                let to = sums.wrapping_add((n - heads.start) * call.queries);
                // SAFETY: the rows exist, and the scratch memory has a number for each query.
                unsafe { dots([out, c], [call.queries, width], to) };
            }
        }
        for begin in (0..seen).step_by(self.keys()) {
            let keys = self.keys().min(seen - begin);
            let [_, k, v] = self.three::<E>(arguments, 0, [b, heads.start]);
            let ([_, dk, dv], _) = cotangents(heads.start);
            let [to_k, to_v] = [(dk, sums_k), (dv, sums_v)].map(|(of, s)| summed(of.at(begin), s));
            // SAFETY: the rows exist, and the scratch memory holds a block.
            let [k, v] = [(k, wide_k), (v, wide_v)]
                .map(|(of, to)| unsafe { products.wide(of.from(begin), [keys, width], to.at) });
            let mut add = false;
            for n in heads.clone() {
                let head = [b, n];
                let bias = self.bias::<E::Wide>(arguments, head);
                let [q, ..] = self.three::<E>(arguments, 0, head);
                let (_, to_q) = cotangents(n);
                let logarithms = self.logarithms(arguments.writable::<E::Wide>(primals), head);
                let c = self.rows(arguments.writable::<E>(primals + 1), call.out(), head);
                let means = match call.out_given {
                    false => self.logarithms(arguments.writable::<E::Wide>(primals + 2), head),
                    true => sums.wrapping_add((n - heads.start) * call.queries),
                };
                for first in (first_query(begin)..call.queries).step_by(QUERIES) {
                    let queries = QUERIES.min(call.queries - first);
                    let block = self.block(powers, [queries, keys], [first, begin], prefix, bias);
                    // SAFETY: the rows of the blocks exist, and the scratch memory holds them. The
                    // results of this head belong to this thread. The first product that reaches
                    // a row overwrites it: a block of queries that sees a key sees the first block
                    // of keys.
                    unsafe {
                        let size = [queries, width];
                        let q = products.wide(q.from(first), size, wide_q.at);
                        let c = products.wide(c.from(first), size, wide_c.at);
                        let size = [queries, keys, width];
                        products.multiply(size, powers, false, q, k.transposed());
                        products.multiply(size, slopes, false, c, v.transposed());
                        let (l, m) = (logarithms.add(first), means.add(first));
                        rows::slopes(simd, &block, slopes.at, l, m);
                        let size = [keys, width, queries];
                        products.multiply(size, to_v, add, powers.across(0), c);
                        products.multiply(size, to_k, add, slopes.across(0), q);
                        let size = [queries, width, keys];
                        products.multiply(size, to_q.at(first), begin > 0, slopes.from(0), k);
                    }
                    add = true;
                }
            }
            // SAFETY: the rows exist and belong to this thread; their sums are complete.
            unsafe {
                round(simd, [keys, width], to_k, dk.at(begin));
                round(simd, [keys, width], to_v, dv.at(begin));
            }
        }
        // The queries that see no block of keys.
        let none = if seen > 0 { first_query(0) } else { call.queries };
        for n in heads.clone() {
            let ([dq, dk, dv], sums) = cotangents(n);
            // SAFETY: the rows exist and belong to this thread; their sums are complete.
            unsafe {
                round(simd, [call.queries - none, width], sums.at(none), dq.at(none));
                clear(dq, 0..none, width);
                clear(dk, seen..call.keys, width);
                clear(dv, seen..call.keys, width);
            }
        }
    }
}

/// For each of some rows, the sum of the products of two tensors' numbers.
///
/// # Safety
///
/// The rows are valid to read, and as many numbers at `to` to write.
unsafe fn dots<E: Element>([x, y]: [Rows<E>; 2], [rows, width]: [usize; 2], to: *mut E::Wide) {
    for row in 0..rows {
        let mut sum = E::Wide::ZERO;
        for column in 0..width {
            // SAFETY: the indices are below the extents.
            let [x, y] = [x, y].map(|rows| unsafe { rows.row(row).add(column).read().wide() });
            sum = sum.add(x.mul(y));
        }
        // SAFETY: the caller guarantees it.
        unsafe { to.add(row).write(sum) };
    }
}

/// The rows in which the sums of a result are added up: its own, or the scratch memory if it is of
/// halves.
fn summed<E: Element>(result: Rows<E>, scratch: Rows<E::Wide>) -> Rows<E::Wide> {
    if E::HALF { scratch } else { Rows { at: result.at.cast(), distance: result.distance } }
}

/// Rounds sums to a result of halves. Other results hold their sums.
///
/// # Safety
///
/// The rows exist; the result's are valid to write, and no other code uses them. The machine has
/// the vector instructions.
unsafe fn round<E: Element>(simd: Simd, size: [usize; 2], sums: Rows<E::Wide>, result: Rows<E>) {
    if !E::HALF {
        return;
    }
    let places = Places {
        sums: sums.at,
        sums_row: sums.distance,
        out: result.at,
        out_row: result.distance,
        bias: std::ptr::null(),
        residual: std::ptr::null(),
    };
    // SAFETY: the caller's promise is the same; there are no addends.
    unsafe { finish(simd, Addends::default(), size, &places) }
}
