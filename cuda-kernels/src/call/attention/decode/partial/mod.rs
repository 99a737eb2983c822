//! The first kernel: the partial results of one range of keys.
//!
//! A block of [`THREADS`] threads copies the range's keys and values to shared memory, all of them
//! before it waits (`cp.async`, or loads through registers where 16 bytes are not contiguous).
//! Then:
//!
//! - **Scores.** [`LANES`] lanes share the keys of a team, one to four neighbours. Each lane
//!   multiplies 16 of every 64 bytes of these keys by the same numbers of all rows, so a vector of
//!   a query is read once for all keys of the team. Then the lanes exchange sums, in such a way
//!   that each ends with all rows of one key: threads and keys are in the same order.
//! - **Powers.** The maxima of rows go through shared memory once, and the powers too, since the
//!   next step divides the work among threads differently.
//! - **Weighted sums.** A thread has a vector of columns, and every n-th key. It adds for all rows,
//!   and sums the powers along with them. The sums of a warp's lanes are added as a tree, those of
//!   warps in order, through the shared memory that keys and values no longer need.
//!
//! Rows of the tile of keys are padded, so that the vectors that eight lanes read lie in different
//! banks. Queries are widened when they are stored to shared memory.
//!
//! | width of halves, f32, f64 up to | keys of a range | shared memory, 1 to 16 rows, at most |
//! |---|---|---|
//! | 32, 16, 8 | 128 | 20 to 38 KiB |
//! | 64, 32, 16 | 128 | 36 to 55 KiB |
//! | 128, 64, 32 | 64 | 36 to 48 KiB |
//! | 256, 128, 64 | 32 | 36 to 53 KiB |
//! | –, 256, 128 | 32 | 68 to 87 KiB |
//!
//! Up to four rows, a thread takes at most 80 registers; up to 16 rows, at most 200.

mod loads;
mod sums;
mod weights;

use super::super::super::index::{digits, divide};
use super::super::super::number::Place;
use super::super::rows::Rows;
use super::super::{Draft, Problem};
use super::{LANES, Shape, THREADS};
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Space, Ternary, Type};
use crate::stage::{Access, Stage};
use wengert_core::Result;

const WARPS: usize = THREADS / 32;
/// Most multiply-adds of a thread that are emitted without a loop around them.
const UNROLLED: usize = 256;

/// The stage.
pub(super) fn stage(problem: &Problem<'_>, shape: &Shape) -> Result<Stage> {
    let call = problem.call;
    let shared = Shared::new(shape);
    let mut draft = Draft::aligned(problem.alignment);
    let three = problem.three(&mut draft);
    let bias = problem.bias(&mut draft);
    let prefix = problem.prefix(&mut draft);
    let results = shape.pointers(&mut draft, Access::Write);
    let base = draft.dynamic_shared(shared.bytes as u32);
    let (thread, block) = (draft.thread(), draft.block());
    let (code, functions) = (&mut draft.code, &mut draft.functions);
    let all = digits(code, block, &[call.batch, call.key_heads(), shape.ranges]);
    let (key_head, range) = ([all[0], all[1]], all[2]);
    let head = problem.of_queries(code, key_head);
    let first = code.binary(Binary::Mul, Type::S32, range, shape.keys as i64);
    let prefix = problem.prefix_of(code, prefix, head[0]);
    let zero = code.mov(Type::S32, 0);
    let end = problem.seen(code, prefix, zero, call.queries);
    let some = code.compare(Compare::Lt, Type::S32, first, end);
    let [q, k, v] = [0, 1, 2].map(|part| {
        let (count, head) = if part == 0 { (call.queries, head) } else { (call.keys, key_head) };
        let rows = Rows::new(code, problem, three[part], call.part(part), count, head);
        let ends_before = part > 0 && (call.causal || call.prefix);
        Rows { end: ends_before.then_some(end), ..rows }
    });
    let bias = problem.bias_of(code, bias, head);
    let (team, lane) = divide(code, thread, LANES);
    let block =
        Block { problem, shape, shared, base, thread, lane, team, first, end, prefix, head };
    code.when(some, |code| {
        block.fill(code, &k, block.shared.keys, shared.pitch);
        block.fill(code, &v, block.shared.values, block.value_pitch());
        block.load_queries(code, &q);
        let biases = bias.map(|bias| block.biases(code, bias));
        code.push(Inst::CopyWait(1));
        code.push(Inst::Barrier);
        let sums = block.products(code);
        let scores = block.scores(code, &sums, biases.as_deref());
        block.weights(code, functions, &scores);
        code.push(Inst::CopyWait(0));
        code.push(Inst::Barrier);
        block.weighted_sums(code);
        code.push(Inst::Barrier);
        block.store(code, results);
    });
    let remark = format!(
        "Attention of {} rows to {} keys, width {}, {} heads of keys, batch {}: ranges of {} keys.",
        shape.rows,
        call.keys,
        call.width,
        call.key_heads(),
        call.batch,
        shape.keys
    );
    let name = format!("attention_decode_{}", call.dtype);
    let blocks = (call.batch * call.key_heads()).saturating_mul(shape.ranges);
    draft.stage(name, remark, THREADS as u32, 0, blocks)
}

/// Iterations of a loop that are emitted at a time: a power of two that divides their number, with
/// at most [`UNROLLED`] multiply-adds.
fn unrolled(iterations: usize, multiply_adds: usize) -> usize {
    let mut count = 1;
    while iterations.is_multiple_of(2 * count) && 2 * count * multiply_adds <= UNROLLED {
        count *= 2;
    }
    count
}

/// The bits in which the numbers of a warp's lanes differ, from this one up.
fn lanes_from(least: usize) -> Vec<i64> {
    [16, 8, 4, 2, 1].into_iter().filter(|bit| *bit >= least as i64).collect()
}

/// Offsets in shared memory, in bytes.
#[derive(Clone, Copy)]
struct Shared {
    /// The tiles, and bytes from one key to the next.
    keys: usize,
    pitch: usize,
    values: usize,
    /// Sums of warps `[sets, rows, columns]`, and of their powers `[sets, rows]`. They overlap the
    /// tiles.
    sums: usize,
    powers: usize,
    /// Queries `[rows, depth]`.
    queries: usize,
    /// Powers of scores `[keys, weights_pitch]`.
    weights: usize,
    /// Maxima of warps `[rows, WARPS]`.
    maxima: usize,
    bytes: usize,
}

impl Shared {
    fn new(shape: &Shape) -> Shared {
        let (wide, row) = (shape.sums.size() as usize, shape.depth * shape.number.size() as usize);
        let slots = shape.slots();
        // Neighbouring teams read rows that are 64 bytes apart, modulo 128.
        let bank = 16 * LANES;
        let pitch = if (slots * row) % (2 * bank) == bank { row } else { row + bank / slots };
        let values = shape.keys * pitch;
        let powers = shape.sets() * shape.rows * shape.columns * wide;
        let overlapping = powers + (shape.sets() * shape.rows * wide).next_multiple_of(16);
        let queries = (values + shape.keys * row).max(overlapping);
        let weights = queries + shape.rows * shape.depth * wide;
        let maxima = weights + shape.keys * shape.weights_pitch() * wide;
        let bytes = maxima + shape.rows * WARPS * wide;
        Shared { keys: 0, pitch, values, sums: 0, powers, queries, weights, maxima, bytes }
    }
}

impl Shape {
    /// Keys of a team.
    fn slots(&self) -> usize {
        self.keys * LANES / THREADS
    }

    /// Neighbouring threads that end with the same key.
    fn threads_per_key(&self) -> usize {
        THREADS / self.keys
    }

    /// Lanes side by side that have columns of one value.
    fn lanes_per_value(&self) -> usize {
        (self.columns / self.sums.vector()).next_power_of_two()
    }

    /// Sets of weighted sums of a block: those of warps, or of neighbouring warps that have
    /// different columns.
    fn sets(&self) -> usize {
        THREADS / self.lanes_per_value().max(32)
    }

    /// Powers from one key to the next: an odd number of vectors, so that those of neighbouring
    /// keys lie in different banks.
    fn weights_pitch(&self) -> usize {
        let vector = self.sums.vector();
        (self.rows.div_ceil(vector) | 1) * vector
    }
}

/// A block of threads.
struct Block<'a> {
    problem: &'a Problem<'a>,
    shape: &'a Shape,
    shared: Shared,
    /// Address of shared memory.
    base: Reg,
    thread: Reg,
    /// The thread's lane in its team.
    lane: Reg,
    team: Reg,
    /// The first key of the range.
    first: Reg,
    /// The end of the keys that the last row sees.
    end: Reg,
    prefix: Option<Reg>,
    /// Example and first head of the rows.
    head: [Reg; 2],
}

impl Block<'_> {
    fn ty(&self) -> Type {
        self.shape.sums.wide()
    }

    fn wide(&self) -> i64 {
        self.shape.sums.size()
    }

    /// Bytes from one value to the next.
    fn value_pitch(&self) -> usize {
        self.shape.depth * self.shape.number.size() as usize
    }

    /// An address in shared memory: that of an offset, plus `index · bytes`.
    fn at(&self, code: &mut Code, offset: usize, index: Reg, bytes: i64) -> Reg {
        let base = code.binary(Binary::Add, Type::U32, self.base, offset as i64);
        code.ternary(Ternary::Mad, Type::S32, index, bytes, base)
    }

    /// Position and head of a row among those of its head of keys.
    fn position_of(&self, row: usize) -> [usize; 2] {
        let group = self.problem.call.group;
        [row / group, row % group]
    }

    /// The thread's key, as a number in its range.
    fn key(&self, code: &mut Code) -> Reg {
        divide(code, self.thread, self.shape.threads_per_key()).0
    }

    /// Neighbouring numbers of the dtype of sums, in shared memory.
    fn run(&self, code: &mut Code, address: Reg, offset: i64, count: usize) -> Vec<Reg> {
        let sums = self.shape.sums;
        let mut numbers = vec![];
        while numbers.len() < count {
            let place = Place::at(address, offset + numbers.len() as i64 * self.wide());
            numbers.extend(sums.load(code, Space::Shared, place, sums.vector()));
        }
        numbers
    }

    /// The greatest of the maxima of warps.
    fn greatest(&self, code: &mut Code, maxima: Reg, offset: i64) -> Reg {
        let all = self.run(code, maxima, offset, WARPS);
        let rest = all[1..].iter();
        rest.fold(all[0], |most, next| code.binary(Binary::Max, self.ty(), most, *next))
    }
}
