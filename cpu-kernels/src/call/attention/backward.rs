//! Attention backward.
//!
//! A task has one head of keys. For each block of keys and each block of queries that sees some of
//! it, in each head of queries that shares the head of keys, five products compute the scores and
//! the cotangents of the two blocks. The probabilities are recomputed from the scores and the
//! logarithm of the denominator (Dao, *FlashAttention-2*, 2023).
//!
//! Each cotangent is a sum over blocks. Those of floats are added up in the results. Those of
//! halves are added up in f32 in scratch memory: of keys and values for the current block, of
//! queries for all positions, since each block of keys adds to them. They are rounded once, when
//! they are complete.
//!
//! | elements | products multiply | probabilities, and cotangents of scores |
//! |---|---|---|
//! | f32, f64 | them in place | are not rounded |
//! | f16 | blocks of them, widened | are not rounded |
//! | bf16 | them in place, in pairs | are rounded to bf16 |
//!
//! So a cotangent of f16 has the bits that it has for the same numbers in f32, rounded once.

use super::factors::Multiplied;
use super::rows;
use super::{Arguments, CompiledAttention, QUERIES, array, clear, padded, take};
use crate::call::chained::{Products, Rows};
use crate::call::element::Element;
use crate::call::finish::{Places, finish};
use crate::memory::Workspace;
use crate::simd::Simd;
use wengert_core::DType;
use wengert_core::call::Addends;

impl CompiledAttention {
    /// Numbers of the sums of a thread if the elements are halves: of the cotangents of the queries
    /// that share a head of keys, of a block of keys, and of a block of values.
    fn sums(&self) -> [usize; 3] {
        let keys = if self.call.dtype.is_half() { self.keys() } else { 0 };
        let all = self.call.group.saturating_mul(self.call.queries);
        let queries = if self.call.dtype.is_half() { all } else { 0 };
        [queries, keys, keys].map(|rows| rows.saturating_mul(self.call.width))
    }

    /// Numbers of the widened blocks of a thread, if there are any: of keys, of values, of queries,
    /// and of the cotangent of out.
    fn widened(&self) -> [usize; 4] {
        let widens = self.call.dtype == DType::F16;
        let [queries, keys] = [self.queries(), self.keys()].map(|n| if widens { n } else { 0 });
        [keys, keys, queries, queries].map(|rows| rows * self.call.width)
    }

    /// Elements of a block of scores.
    fn scores(&self) -> usize {
        self.queries() * padded(self.keys())
    }

    /// Bytes of scratch memory of a thread, but for those of the products: two blocks of scores,
    /// the same rounded to bf16, m of the queries if out is given, sums and widened blocks.
    pub(super) fn scratch_backward(&self) -> usize {
        let size = self.call.wide().size();
        let scores = array(&[self.scores(), size]).saturating_mul(2);
        let rounded = if self.call.dtype == DType::BF16 { self.scores() } else { 0 };
        let rounded = array(&[rounded, DType::BF16.size()]).saturating_mul(2);
        let means = if self.call.out_given { self.call.group } else { 0 };
        let means = array(&[means, self.call.queries, size]);
        let numbers = self.sums().into_iter().chain(self.widened());
        let numbers = numbers.map(|numbers| array(&[numbers, size]));
        [scores, rounded, means].into_iter().chain(numbers).fold(0, usize::saturating_add)
    }

    /// The cotangents of the keys and values of a head of keys, and of the queries that share it.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked; no other thread uses the results for this
    /// head.
    pub(super) unsafe fn cotangents<E: Multiplied>(
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
            let at = take::<E::Wide>(&mut free, self.scores()).as_mut_ptr();
            Rows { at, distance: row }
        });
        // p, and the cotangents of scores, as factors.
        let factors = [powers, slopes].map(|numbers| match E::PAIRED {
            false => numbers.cast(),
            true => {
                let at = take::<E::Factor>(&mut free, self.scores()).as_mut_ptr();
                Rows { at, distance: row }
            }
        });
        let mut numbers = |numbers| Rows {
            at: take::<E::Wide>(&mut free, numbers).as_mut_ptr(),
            distance: width,
        };
        let [sums_q, sums_k, sums_v] = self.sums().map(&mut numbers);
        let [wide_k, wide_v, wide_q, wide_c] = self.widened().map(&mut numbers);
        let simd = workspace.simd();
        let means = if call.out_given { call.group * call.queries } else { 0 };
        let means = take::<E::Wide>(&mut free, means).as_mut_ptr();
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
                let to = means.wrapping_add((n - heads.start) * call.queries);
                // SAFETY: the rows exist, and the scratch memory has a number for each query.
                unsafe { rows::dots(simd, [out, c], [call.queries, width], to) };
            }
        }
        for begin in (0..seen).step_by(self.keys()) {
            let keys = self.keys().min(seen - begin);
            let [_, k, v] = self.three::<E>(arguments, 0, [b, heads.start]);
            let ([_, dk, dv], _) = cotangents(heads.start);
            let [to_k, to_v] = [(dk, sums_k), (dv, sums_v)].map(|(of, s)| summed(of.at(begin), s));
            // SAFETY: the rows exist, and the scratch memory holds a block.
            let [k, v] = [(k, wide_k), (v, wide_v)].map(|(of, to)| unsafe {
                E::factors(&products, of.from(begin), [keys, width], to.at)
            });
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
                    true => means.wrapping_add((n - heads.start) * call.queries),
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
                        let q = E::factors(&products, q.from(first), size, wide_q.at);
                        let c = E::factors(&products, c.from(first), size, wide_c.at);
                        let size = [queries, keys, width];
                        products.multiply(size, powers, false, q, k.transposed());
                        products.multiply(size, slopes, false, c, v.transposed());
                        let (l, m) = (logarithms.add(first), means.add(first));
                        let results = factors.map(|rows| rows.at);
                        rows::slopes(simd, &block, slopes.at, l, m, results);
                        let [p, s] = factors;
                        let size = [keys, width, queries];
                        products.multiply(size, to_v, add, p.across(0), c);
                        products.multiply(size, to_k, add, s.across(0), q);
                        let size = [queries, width, keys];
                        products.multiply(size, to_q.at(first), begin > 0, s.from(0), k);
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

/// The rows in which the sums of a result are added up: its own, or the scratch memory if it is of
/// halves.
fn summed<E: Element>(result: Rows<E>, scratch: Rows<E::Wide>) -> Rows<E::Wide> {
    if E::HALF { scratch } else { result.cast() }
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
