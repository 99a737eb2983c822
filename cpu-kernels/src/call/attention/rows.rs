//! The element-wise work of attention on a block of scores between its products, row by row. It
//! is compiled for each set of vector instructions, with the same bits.
//!
//! Rows of scores are padded to whole chunks. Sums and maxima of a row are computed in [`CHUNK`]
//! lanes, which are combined in a fixed order.

use super::super::chained::Rows;
use super::super::element::{Element, Number};
use super::float::Float;
use super::task::Partial;
use crate::kernels::CHUNK;
use crate::simd::multiversioned;

/// A block of scores.
pub(super) struct Block<T> {
    /// Products of queries and keys; overwritten.
    pub scores: *mut T,
    /// Distance between rows: the number of keys, padded to whole chunks.
    pub row: usize,
    pub queries: usize,
    /// Queries of a head, at successive positions. Those of the next head follow.
    pub positions: usize,
    pub keys: usize,
    /// Keys that the query at the first position sees from the block's first key on, if not
    /// negative.
    pub seen: isize,
    /// Whether each further position sees one key more.
    pub causal: bool,
    /// Factor of the products.
    pub scale: T,
    /// The bias, if any: the row of the first query, at the first key.
    pub bias: Option<*const T>,
    /// Distance between rows of the bias: of successive positions, and of heads.
    pub bias_row: usize,
    pub bias_head: usize,
}

impl<T> Block<T> {
    /// Keys that a query of the block sees.
    #[inline(always)]
    fn seen(&self, query: usize) -> usize {
        let more = if self.causal { query % self.positions } else { 0 };
        self.keys.min((self.seen + more as isize).max(0) as usize)
    }

    /// The bias of a query's scores.
    #[inline(always)]
    fn bias(&self, query: usize) -> Option<*const T> {
        let (head, position) = (query / self.positions, query % self.positions);
        self.bias.map(|first| first.wrapping_add(head * self.bias_head + position * self.bias_row))
    }
}

/// Combines lanes: the lower half with the upper half, until one lane is left.
#[inline(always)]
fn folded<T: Copy>(mut lanes: [T; CHUNK], f: impl Fn(T, T) -> T) -> T {
    let mut half = CHUNK / 2;
    while half > 0 {
        for k in 0..half {
            lanes[k] = f(lanes[k], lanes[k + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Loads the chunk at a position.
///
/// # Safety
///
/// It is valid to read.
#[inline(always)]
unsafe fn load<T: Copy>(at: *const T) -> [T; CHUNK] {
    // SAFETY: the caller guarantees it.
    unsafe { at.cast::<[T; CHUNK]>().read_unaligned() }
}

/// # Safety
///
/// The chunk is valid to write.
#[inline(always)]
unsafe fn store<T: Copy>(at: *mut T, chunk: [T; CHUNK]) {
    // SAFETY: the caller guarantees it.
    unsafe { at.cast::<[T; CHUNK]>().write_unaligned(chunk) };
}

/// Loads a chunk of a bias of which `keys` numbers are left, padded with 0.
///
/// # Safety
///
/// The `keys` numbers, at most a chunk of them, are valid to read.
#[inline(always)]
unsafe fn load_bias<T: Float>(at: *const T, keys: usize) -> [T; CHUNK] {
    if keys >= CHUNK {
        // SAFETY: the caller guarantees it.
        return unsafe { load(at) };
    }
    let mut chunk = [T::ZERO; CHUNK];
    // SAFETY: the caller guarantees `keys` numbers, and they are fewer than a chunk has.
    unsafe { std::ptr::copy_nonoverlapping(at, chunk.as_mut_ptr(), keys) };
    chunk
}

/// Computes the scores of a chunk from its products.
///
/// # Safety
///
/// The bias is valid to read for the keys from `begin` to the block's last.
#[inline(always)]
unsafe fn scores_of<T: Float>(
    mut chunk: [T; CHUNK],
    scale: T,
    bias: Option<*const T>,
    begin: usize,
    keys: usize,
) -> [T; CHUNK] {
    chunk.iter_mut().for_each(|score| *score = score.mul(scale));
    if let Some(bias) = bias
        && begin < keys
    {
        // SAFETY: the caller guarantees it.
        let bias = unsafe { load_bias(bias.add(begin), keys - begin) };
        for k in 0..CHUNK {
            chunk[k] = chunk[k].add(bias[k]);
        }
    }
    chunk
}

/// Computes the scores of a query's row from the products, with −∞ for hidden keys, in the chunks
/// with a key that the query sees. Returns the greatest score.
///
/// # Safety
///
/// The block's rows are valid to read and write, and its bias to read.
#[inline(always)]
unsafe fn scored<T: Float>(block: &Block<T>, query: usize, scores: *mut T) -> T {
    let (seen, bias) = (block.seen(query), block.bias(query));
    let mut greatest = [T::NEG_INFINITY; CHUNK];
    for begin in (0..seen).step_by(CHUNK) {
        // SAFETY: rows are whole chunks.
        unsafe {
            let mut chunk =
                scores_of(load(scores.add(begin)), block.scale, bias, begin, block.keys);
            for (k, score) in chunk.iter_mut().enumerate() {
                *score = if begin + k < seen { *score } else { T::NEG_INFINITY };
            }
            for k in 0..CHUNK {
                greatest[k] = if chunk[k] > greatest[k] { chunk[k] } else { greatest[k] };
            }
            store(scores.add(begin), chunk);
        }
    }
    folded(greatest, |x, y| if y > x { y } else { x })
}

/// The body of [`powers`].
///
/// # Safety
///
/// As for [`powers`].
#[inline(always)]
unsafe fn powers_of<T: Float>(block: &Block<T>, into: Partial<T>) {
    for query in 0..block.queries {
        // SAFETY: the row is the block's, and the partial result has numbers for each query.
        unsafe {
            let (scores, seen) = (block.scores.add(query * block.row), block.seen(query));
            let greatest = scored(block, query, scores);
            let shift = T::shift(greatest);
            let mut lanes = [T::ZERO; CHUNK];
            for begin in (0..block.keys).step_by(CHUNK) {
                if begin >= seen {
                    store(scores.add(begin), [T::ZERO; CHUNK]);
                    continue;
                }
                let chunk = T::powers(load(scores.add(begin)).map(|score| score.sub(shift)));
                for k in 0..CHUNK {
                    lanes[k] = lanes[k].add(chunk[k]);
                }
                store(scores.add(begin), chunk);
            }
            into.greatest.add(query).write(greatest);
            into.powers.add(query).write(folded(lanes, T::add));
        }
    }
}

/// The body of [`add`].
///
/// # Safety
///
/// As for [`add`].
#[inline(always)]
unsafe fn added<T: Float>(block: &Block<T>, sum: Partial<T>, next: Partial<T>, width: usize) {
    for query in 0..block.queries {
        if block.seen(query) == 0 {
            continue;
        }
        // SAFETY: both have numbers for each query.
        unsafe {
            let [first, second] = [sum, next].map(|of| of.greatest.add(query).read());
            let greatest = if second > first { second } else { first };
            let shift = T::shift(greatest);
            // 0 if all scores are −∞.
            let factor = |of: T| {
                let of = if of > T::NEG_INFINITY { T::shift(of) } else { of };
                of.sub(shift).exp()
            };
            let [x, y] = [first, second].map(factor);
            let both = |a: *mut T, b: *mut T| a.write(a.read().mul(x).add(b.read().mul(y)));
            sum.greatest.add(query).write(greatest);
            both(sum.powers.add(query), next.powers.add(query));
            for k in query * width..(query + 1) * width {
                both(sum.sums.add(k), next.sums.add(k));
            }
        }
    }
}

/// The body of [`normalize`].
///
/// # Safety
///
/// As for [`normalize`].
#[inline(always)]
unsafe fn normalized<E: Element<Wide: Float>>(
    [count, width]: [usize; 2],
    sums: *const E::Wide,
    powers: &[E::Wide],
    out: *mut E,
    row: usize,
) {
    for (query, power) in powers[..count].iter().enumerate() {
        for k in 0..width {
            // SAFETY: the rows have `width` elements.
            unsafe {
                let quotient = sums.add(query * width + k).read().div(*power);
                out.add(query * row + k).write(E::round(quotient));
            }
        }
    }
}

/// The body of [`slopes`].
///
/// # Safety
///
/// As for [`slopes`].
#[inline(always)]
unsafe fn slopes_of<F: Element<Wide: Float>>(
    block: &Block<F::Wide>,
    slopes: *const F::Wide,
    logarithms: *const F::Wide,
    means: *const F::Wide,
    results: [*mut F; 2],
) {
    for query in 0..block.queries {
        // SAFETY: the rows are the blocks' own, and there is a logarithm and a mean for each
        // query.
        unsafe {
            let at = query * block.row;
            let (scores, slopes) = (block.scores.add(at), slopes.add(at));
            let results = results.map(|result| result.add(at));
            let (logarithm, mean) = (logarithms.add(query).read(), means.add(query).read());
            let (seen, bias) = (block.seen(query), block.bias(query));
            for begin in (0..block.row).step_by(CHUNK) {
                if begin >= seen {
                    for result in results {
                        store(result.add(begin), [F::round(F::Wide::ZERO); CHUNK]);
                    }
                    continue;
                }
                let (p, mut slope) = (load(scores.add(begin)), load(slopes.add(begin)));
                let scores = scores_of(p, block.scale, bias, begin, block.keys);
                let mut p = F::Wide::powers(scores.map(|score| score.sub(logarithm)));
                for k in 0..CHUNK {
                    slope[k] = p[k].mul(slope[k].sub(mean)).mul(block.scale);
                }
                for k in 0..CHUNK {
                    let hidden = begin + k >= seen;
                    p[k] = if hidden { F::Wide::ZERO } else { p[k] };
                    slope[k] = if hidden { F::Wide::ZERO } else { slope[k] };
                }
                for (result, chunk) in results.into_iter().zip([p, slope]) {
                    store(result.add(begin), chunk.map(F::round));
                }
            }
        }
    }
}

/// The body of [`dots`].
///
/// # Safety
///
/// As for [`dots`].
#[inline(always)]
unsafe fn dots_of<E: Element<Wide: Float>>(
    [x, y]: [Rows<E>; 2],
    [rows, width]: [usize; 2],
    to: *mut E::Wide,
) {
    let whole = width / CHUNK * CHUNK;
    for row in 0..rows {
        let [x, y] = [x, y].map(|rows| rows.row(row));
        let mut lanes = [E::Wide::ZERO; CHUNK];
        for begin in (0..whole).step_by(CHUNK) {
            // SAFETY: the rows have whole chunks up to here.
            let [x, y] = [x, y].map(|row| unsafe { load(row.add(begin)) });
            for k in 0..CHUNK {
                lanes[k] = lanes[k].add(x[k].wide().mul(y[k].wide()));
            }
        }
        for column in whole..width {
            // SAFETY: the column is below the width.
            let [x, y] = [x, y].map(|row| unsafe { row.add(column).read().wide() });
            lanes[column - whole] = lanes[column - whole].add(x.mul(y));
        }
        // SAFETY: the caller guarantees it.
        unsafe { to.add(row).write(folded(lanes, E::Wide::add)) };
    }
}

multiversioned! {
    /// Computes scores from products, their greatest, and the powers of the scores relative to
    /// that; adds up the powers.
    ///
    /// # Safety
    ///
    /// The block has `queries` rows, valid to read and write, and its bias as many of `keys`,
    /// valid to read; the partial result is valid to write for as many queries. The machine has
    /// the vector instructions.
    unsafe fn powers<T: Float> = powers_of(block: &Block<T>, into: Partial<T>);

    /// Adds the partial result of a block to the sum of those before it, for the queries that see
    /// a key of the block.
    ///
    /// # Safety
    ///
    /// Both have numbers for the block's queries, of this width. The machine has the vector
    /// instructions.
    unsafe fn add<T: Float> = added(
        block: &Block<T>, sum: Partial<T>, next: Partial<T>, width: usize
    );

    /// Divides the weighted sums by the sums of the powers, and rounds the quotients to elements of
    /// out; rows of out are `row` elements apart.
    ///
    /// # Safety
    ///
    /// There are `count` rows of `width` in both, and a sum for each. The machine has the vector
    /// instructions.
    unsafe fn normalize<E: Element<Wide: Float>> = normalized(
        size: [usize; 2], sums: *const E::Wide, powers: &[E::Wide], out: *mut E, row: usize
    );

    /// Computes probabilities from `block`'s products, and the cotangents of these products from
    /// the cotangents of the probabilities in `slopes`; 0 for hidden keys. The results may be in
    /// the places of the operands.
    ///
    /// # Safety
    ///
    /// Both blocks have `queries` rows, valid to read, and so have both results, valid to write;
    /// the bias has as many of `keys`, valid to read; there is a logarithm and a mean for each
    /// query. The machine has the vector instructions.
    unsafe fn slopes<F: Element<Wide: Float>> = slopes_of(
        block: &Block<F::Wide>, slopes: *const F::Wide, logarithms: *const F::Wide,
        means: *const F::Wide, results: [*mut F; 2]
    );

    /// Computes the sum of the products of two tensors' numbers for each of some rows of `width`.
    ///
    /// # Safety
    ///
    /// The rows are valid to read, and as many numbers at `to` to write. The machine has the
    /// vector instructions.
    unsafe fn dots<E: Element<Wide: Float>> = dots_of(
        rows: [Rows<E>; 2], size: [usize; 2], to: *mut E::Wide
    );
}
