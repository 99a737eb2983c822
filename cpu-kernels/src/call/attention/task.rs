//! A task of attention forward: the queries of it, and the partial results of blocks of keys.

use super::factors::Multiplied;
use super::few::{self, Decoded, Few};
use super::float::Float;
use super::rows::{self, Block};
use super::{Arguments, CompiledAttention, KEYS, clear};
use crate::call::chained::{Products, Rows};
use crate::call::element::{Element, Number};
use crate::call::panel::{View, widen};
use crate::call::take;
use crate::simd::Simd;

/// The queries of a task: some positions of neighbouring heads.
#[derive(Clone, Copy)]
pub(super) struct Queries {
    /// The example and the first head.
    pub head: [usize; 2],
    /// Number of heads; if there are several, they share a head of keys.
    pub heads: usize,
    /// The first position, and the number of positions.
    pub first: usize,
    pub positions: usize,
}

impl Queries {
    /// Rows of the scores: the positions of the first head, then those of the next.
    pub fn rows(self) -> usize {
        self.heads * self.positions
    }

    /// The queries, of which the first head's rows are given: a row for each row of the scores, in
    /// place if that is asked for and rows are equally far apart, otherwise copied.
    fn rows_of<E: Element, T: Element>(
        self,
        q: Rows<E>,
        width: usize,
        in_place: bool,
        free: &mut &mut [u8],
        copy: impl Fn(*const E, *mut T),
    ) -> View<T> {
        if in_place && self.heads == 1 {
            return q.cast().from(self.first);
        }
        if in_place && self.positions == 1 {
            // Heads are side by side.
            return Rows { distance: width, ..q.at(self.first) }.cast().from(0);
        }
        let copies = take::<T>(free, self.rows() * width);
        for (row, to) in copies.chunks_exact_mut(width).enumerate() {
            let (n, t) = (row / self.positions, row % self.positions);
            copy(q.row(self.first + t).wrapping_add(n * width), to.as_mut_ptr());
        }
        Rows { at: copies.as_mut_ptr(), distance: width }.from(0)
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
    pub fn numbers(rows: usize, width: usize) -> usize {
        rows.saturating_mul(width.saturating_add(2))
    }

    /// A partial result of so many rows at an address.
    pub fn at(start: *mut T, rows: usize) -> Self {
        let powers = start.wrapping_add(rows);
        Partial { greatest: start, powers, sums: powers.wrapping_add(rows) }
    }
}

impl CompiledAttention {
    /// Whether a task's queries are few, and its rows whole vectors.
    fn is_few(&self, queries: Queries) -> bool {
        queries.rows() <= few::FEW && self.call.width.is_multiple_of(few::WIDTH)
    }

    pub(super) fn task<'a, E: Decoded + Multiplied>(
        &'a self,
        simd: Simd,
        mut free: &'a mut [u8],
        arguments: &Arguments<'_>,
        queries: Queries,
    ) -> Task<'a, E> {
        let head = queries.head;
        let [q, k, v] = self.three::<E>(arguments, 0, head);
        let distance = super::padded(self.keys());
        let at = take::<E::Wide>(&mut free, queries.rows() * distance).as_mut_ptr();
        let scores = Rows { at, distance };
        let width = self.call.width;
        let few = E::few(simd).filter(|_| self.is_few(queries));
        let q = match few {
            Some(few) => Left::Few(few, {
                // SAFETY: the rows of the queries have this width.
                let copy = |from, to| unsafe { widen(simd, from, to, width) };
                queries.rows_of(q, width, !E::HALF, &mut free, copy)
            }),
            None => Left::Many({
                // SAFETY: the same.
                let copy = |from, to| unsafe { E::copy(simd, from, to, width) };
                queries.rows_of(q, width, E::IN_PLACE, &mut free, copy)
            }),
        };
        let wide = take::<E::Wide>(&mut free, if E::HALF { self.keys() * width } else { 0 });
        let wide = wide.as_mut_ptr();
        let bias = self.bias::<E::Wide>(arguments, head);
        let (prefix, products) = (self.prefix(arguments, head[0]), Products { simd, free });
        Task { attention: self, queries, prefix, q, k, v, wide, bias, scores, products }
    }
}

/// The queries of a task, a row for each row of the scores.
#[derive(Clone, Copy)]
enum Left<E: Multiplied + 'static> {
    /// Few queries, as numbers, and their kernels.
    Few(&'static few::Kernels<E>, View<E::Wide>),
    /// Many queries, as factors.
    Many(View<E::Factor>),
}

/// A task's operands, and its block of scores.
pub(super) struct Task<'a, E: Multiplied + 'static> {
    attention: &'a CompiledAttention,
    queries: Queries,
    /// The prefix of the example.
    prefix: i32,
    q: Left<E>,
    pub k: Rows<E>,
    v: Rows<E>,
    /// Scratch memory for a block of keys or values, if they are halves.
    wide: *mut E::Wide,
    bias: Option<(*const E::Wide, usize)>,
    scores: Rows<E::Wide>,
    products: Products<'a>,
}

impl<E: Decoded + Multiplied> Task<'_, E> {
    /// Keys that the last query sees; no query sees more.
    fn seen(&self) -> usize {
        self.attention.call.seen(self.prefix, self.queries.first + self.queries.positions - 1)
    }

    /// Blocks with a key that some of the queries see.
    pub(super) fn blocks_seen(&self) -> usize {
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
    pub(super) unsafe fn partial(
        &mut self,
        block: usize,
        into: Partial<E::Wide>,
        following: Rows<E>,
    ) {
        let (begin, scores) = (block * KEYS, self.block(block));
        let (rows, width) = (scores.queries, self.attention.call.width);
        let sums = Rows { at: into.sums, distance: width };
        let keys = scores.keys.min(self.seen() - begin);
        let scores = Block { keys, ..scores };
        let q = match self.q {
            Left::Many(q) => q,
            Left::Few(few, lhs) => {
                let (k, v) = (self.k.at(begin), self.v.at(begin));
                let out = self.scores;
                let of_keys = Few { size: [rows, keys, width], lhs, rows: k, next: v, out };
                let (lhs, next) = (self.scores.from(0), following);
                let of_values = Few { lhs, rows: v, next, out: sums, ..of_keys };
                // SAFETY: the rows of the blocks exist, and the scratch memory holds the scores:
                // its rows are whole chunks.
                unsafe {
                    (few.scores)(&of_keys);
                    rows::powers(self.products.simd, &scores, into);
                    (few.values)(&of_values);
                }
                return;
            }
        };
        // SAFETY: the rows of the blocks exist, and the scratch memory holds them.
        unsafe {
            let k = E::factors(&self.products, self.k.from(begin), [keys, width], self.wide);
            let size = [rows, keys, width];
            self.products.multiply(size, self.scores, false, q, k.transposed());
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
    pub(super) unsafe fn add(&self, block: usize, sum: Partial<E::Wide>, next: Partial<E::Wide>) {
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
    pub(super) unsafe fn finish(&self, arguments: &Arguments<'_>, sum: Partial<E::Wide>) {
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
