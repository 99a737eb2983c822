//! Attention of few queries to many keys, as in decoding: two kernels, of which the first divides
//! the keys among blocks of threads (*Flash-Decoding*: Dao and others, 2023).
//!
//! [`super::forward`] gives a block of threads 64 or 128 queries of one head, and all keys. With
//! one query, most of its products are of rows that do not exist, keys are read once for each head
//! of queries, and there are fewer blocks than multiprocessors. Here
//!
//! 1. [`partial`] has a block of threads for each example, head of keys and *range* of keys. It
//!    reads keys and values once, for all *rows*: all positions of all heads of queries that share
//!    the head of keys. The result for a row is its greatest score m, the sum s of the powers of
//!    its scores, and the sum o of the values weighted by these powers. s and o are relative to m.
//! 2. [`combine`] adds the partial results of each row:
//!    `m = max mᵢ`, `s = Σ sᵢ·exp(mᵢ − m)`, `out = Σ oᵢ·exp(mᵢ − m) / s`, `l = m + log s`.
//!
//! **Bound.** Reading keys and values once. A block has 16 to 64 KiB of them in flight. Products
//! are computed on the ordinary multiply-add units: for each row, one multiply-add for each number
//! that is read. A multiprocessor of Hopper does about six of them in the time of a byte of its
//! share of memory, so arithmetic takes as long as memory at 12 rows of halves, or 25 of f32.
//! Hence the bound of [`ROWS`].
//!
//! **Selection.** A forward call takes this plan if a head of keys has at most [`ROWS`] rows, and
//! keys fill more than one range ([`Shape::of`]). One range is not worth the second launch. The
//! batch and the number of heads are not part of the rule. With a large batch there are blocks
//! enough in both plans, but this one reads keys once for a group of heads, and computes no rows
//! that do not exist. Packed calls have as many keys as queries, so they never take this plan.
//!
//! **Bits.** Ranges begin at multiples of [`Shape::keys`], a constant of the dtype and the width.
//! Ranges that a row does not see are not added, and those that it sees are added in an order that
//! depends on their numbers alone. There are no atomics. So among the calls that take this plan,
//! the bits of a row depend on its query, and on the keys, values and biases that it sees. They do
//! not depend on the number of keys behind them, on the batch, or on the queries beside it. The
//! other plan adds in another order, so a prompt and its tokens one by one may differ in bits.
//!
//! Keys and values from the end of what the last row sees are not read.

mod combine;
mod partial;

use super::super::draft::Draft;
use super::super::index::check_extent;
use super::super::number::Number;
use super::Problem;
use super::scores::Powers;
use crate::ptx::Reg;
use crate::stage::{Access, Compiled, Memory, Slot};
use wengert_core::Result;
use wengert_core::call::Attention;

/// Most rows of a head of keys.
const ROWS: usize = 16;
/// Threads of a block of the first kernel.
const THREADS: usize = 128;
/// Lanes that share a key of the first kernel: each has 16 bytes of every 64 of its row.
const LANES: usize = 4;
/// Bytes of the keys of a range.
const RANGE_BYTES: usize = 16 << 10;
/// Fewest and most keys of a range: at least one for each [`LANES`] threads, at most one for each
/// thread.
const RANGE_KEYS: [usize; 2] = [THREADS / LANES, THREADS];

/// Division of a call.
#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Dtype of keys and values.
    number: Number,
    /// Dtype of sums.
    sums: Number,
    /// Rows of a head of keys.
    rows: usize,
    /// Numbers of a row of a tile: the width, rounded up to a multiple of 64 bytes.
    depth: usize,
    /// Columns of a partial result: the width, rounded up to a multiple of a vector of sums.
    columns: usize,
    /// Keys of a range: a power of two.
    keys: usize,
    /// Number of ranges.
    ranges: usize,
    /// Partial results for each range: rows of all heads of all examples.
    results: usize,
}

impl Shape {
    /// The division of a call, if it takes this plan.
    fn of(call: &Attention) -> Option<Shape> {
        let (number, sums) = (Number(call.dtype), Number(call.wide()));
        let size = number.size() as usize;
        let depth = call.width.checked_next_multiple_of(LANES * 16 / size)?;
        let [fewest, most] = RANGE_KEYS;
        let keys = (RANGE_BYTES / (depth * size)).clamp(fewest, most);
        let keys = if keys.is_power_of_two() { keys } else { keys.next_power_of_two() / 2 };
        let rows = call.queries.checked_mul(call.group)?;
        let shape = Shape {
            number,
            sums,
            rows,
            depth,
            columns: call.width.next_multiple_of(sums.vector()),
            keys,
            ranges: call.keys.div_ceil(keys),
            results: call.batch.checked_mul(call.heads)?.checked_mul(call.queries)?,
        };
        (!call.backward && rows <= ROWS && shape.ranges > 1).then_some(shape)
    }

    /// Powers of scores.
    fn powers(&self) -> Powers {
        Powers { sums: self.sums, approximate: self.number.0.is_half() }
    }

    /// Bytes of the weighted sums in the workspace, `[results, ranges, columns]`, and of the pairs
    /// of m and s behind them, `[results, ranges, 2]`. Saturates.
    fn bytes(&self) -> [u64; 2] {
        let numbers = (self.results as u64)
            .saturating_mul(self.ranges as u64)
            .saturating_mul(self.sums.size() as u64);
        [self.columns, 2].map(|count| {
            numbers.saturating_mul(count as u64).checked_next_multiple_of(256).unwrap_or(u64::MAX)
        })
    }

    fn workspace(&self) -> u64 {
        let [sums, pairs] = self.bytes();
        sums.saturating_add(pairs)
    }

    /// Pointers of the weighted sums, and of the pairs.
    fn pointers(&self, draft: &mut Draft, access: Access) -> [Reg; 2] {
        let bytes = self.bytes();
        [("sums", 0, bytes[0]), ("pairs", bytes[0], bytes[1])].map(|(name, offset, bytes)| {
            draft.pointer(name, Slot { memory: Memory::Workspace { offset, bytes }, access })
        })
    }
}

/// Bytes of workspace of a call: 0 if it does not take this plan. Saturates.
pub(super) fn workspace(call: &Attention) -> u64 {
    Shape::of(call).map_or(0, |shape| shape.workspace())
}

/// The stages of a call that takes this plan.
///
/// # Errors
///
/// There are more partial results than indices.
pub(super) fn compile(problem: &Problem<'_>) -> Option<Result<Compiled>> {
    let shape = Shape::of(problem.call)?;
    let stages = || {
        check_extent("partial results of rows", shape.results.saturating_mul(shape.ranges))?;
        let stages = vec![partial::stage(problem, &shape)?, combine::stage(problem, &shape)?];
        Ok(Compiled { stages, workspace: shape.workspace() })
    };
    Some(stages())
}
