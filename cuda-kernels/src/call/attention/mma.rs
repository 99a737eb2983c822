//! The engine for f16 and bf16: tensor cores (`mma.sync` m16n8k16, sums in f32). On Hopper,
//! [`wgmma`](super::wgmma) has most of the larger calls.
//!
//! The rows of a block are divided among four warps. Each warp handles all columns of the block.
//! Tiles keep the halves in their memory layout. `cp.async` copies them, or loads through registers
//! where 16 bytes are not contiguous. Rows are padded by 16 bytes, so that the eight rows of a
//! matrix that `ldmatrix` reads lie in different banks. The scores of a lane, rounded to halves,
//! are exactly the lane's fragments of the second product's left operand, so weights stay in
//! registers. The right operand of the second product is read transposed. Column tiles are
//! double-buffered: the next tile is loaded during the computation with the current one
//! (`columns`).
//!
//! | width up to | kernel | block | registers | shared memory |
//! |---|---|---|---|---|
//! | 64 | forward | 128 × 64 | 222, with a bias 252 | 54 KiB |
//! | 64 | backward, of queries | 128 × 32 | 244, with a bias 205 | 54 KiB |
//! | 64 | backward, of keys | 128 × 32 | 246 | 55 KiB |
//! | 64 | the same, partial blocks or a bias | 64 × 64 | 221 | 56 KiB |
//! | 128 | forward | 128 × 32 | 230 | 68 KiB |
//! | 128 | backward, of queries | 64 × 32 | 219 | 68 KiB |
//! | 128 | backward, of keys | 64 × 32 | 247 | 69 KiB |
//!
//! Shared memory limits the kernels as much as tensor cores do. One `ldmatrix` of the columns reads
//! four matrices, 512 bytes, in four cycles. A warp with two fragments of rows uses them in four
//! multiplications, which take tensor cores eight cycles, a warp with one fragment in two. Where
//! registers suffice, the fragments of rows are loaded once, before the loop over the columns.
//! Powers of 2 are computed by `ex2.approx`, whose error is below the bounds of the call. So are
//! the errors of `lg2.approx` and `rcp.approx`, which a row needs once.

use super::super::draft::Draft;
use super::super::index::divide;
use super::super::number::{Number, Place};
use super::rows::{Division, Held, Rows, Share, Tile};
use super::{Added, Engine, Pending, Slots, Work};
use crate::ptx::{Binary, Code, Inst, Operand, Reg, Space, Ternary, Type};
use wengert_core::DType;
use wengert_core::call::Attention;

const WARPS: usize = 4;
/// Rows of a fragment.
const ROWS: usize = 16;
/// Terms of a sum in one instruction.
const DEPTH: usize = 16;
/// Maximum width.
pub(super) const WIDEST: usize = 128;

/// Division of the work of a block of threads.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    dtype: DType,
    /// Halves of a row of a tile: the width, rounded up to a multiple of 16.
    depth: usize,
    /// Fragments of rows of a warp.
    high: usize,
    /// Columns of a block.
    columns: usize,
    /// Whether a warp keeps its fragments of rows in registers, instead of loading them for each
    /// block of columns.
    holds: bool,
}

impl Shape {
    /// The shape of a kernel of a call, which iterates over `rows` rows in all.
    ///
    /// Each fragment of columns that a warp reads is multiplied with each of the warp's fragments
    /// of rows. The number of registers limits the fragments of rows, and whether they stay in
    /// registers. Biases, prefixes and partial blocks take registers too.
    pub fn new(call: &Attention, rows: usize, work: Work) -> Shape {
        let depth = call.width.next_multiple_of(DEPTH);
        let plain = call.bias.is_empty() && !call.prefix;
        let whole = call.queries.is_multiple_of(64) && call.keys.is_multiple_of(128);
        let (high, columns, holds) = match (work, depth > 64, plain) {
            (Work::Forward, false, _) => (2, 64, plain),
            (Work::Forward, true, _) => (2, 32, false),
            (Work::OfQueries, false, _) => (2, 32, plain),
            (Work::OfQueries, true, _) => (1, 32, plain),
            (Work::OfKeys, false, true) if whole => (2, 32, false),
            (Work::OfKeys, false, _) => (1, 64, false),
            (Work::OfKeys, true, _) => (1, 32, false),
        };
        let high = if rows > WARPS * ROWS { high } else { 1 };
        Shape { dtype: call.dtype, depth, high, columns, holds }
    }

    /// Rows of a warp.
    fn own(&self) -> usize {
        self.high * ROWS
    }

    /// Rows of a block.
    fn rows(&self) -> usize {
        WARPS * self.own()
    }

    /// Bytes from one row of a tile to the next.
    fn pitch(&self) -> usize {
        2 * self.depth + 16
    }

    fn packed(&self) -> Type {
        if self.dtype == DType::F16 { Type::F16x2 } else { Type::BF16x2 }
    }

    fn operand(&self) -> Type {
        if self.dtype == DType::F16 { Type::F16 } else { Type::BF16 }
    }
}

/// The engine.
pub(super) struct Mma {
    shape: Shape,
    thread: Reg,
    rows: Slots,
    columns: Slots,
    /// Bytes from a tile of columns to its second buffer.
    ahead: i64,
    /// The address that the lane gives to the first `ldmatrix` of a tile, in bytes from the tile's
    /// beginning: for the warp's rows as the left operand, for columns as the right operand, and
    /// for columns as the transposed right operand.
    lane: [Reg; 3],
}

impl Mma {
    /// The engine, tiles of rows, and tiles of columns.
    pub fn new(draft: &mut Draft, shape: Shape, [rows, columns]: [usize; 2]) -> (Mma, Vec<Tile>) {
        let extents: Vec<usize> =
            [vec![shape.rows(); rows], vec![shape.columns; 2 * columns]].concat();
        let bytes: usize = extents.iter().map(|rows| rows * shape.pitch()).sum();
        let shared = draft.dynamic_shared(bytes as u32);
        let thread = draft.thread();
        let code = &mut draft.code;
        let mut tiles = vec![];
        let mut at = 0;
        for rows in extents {
            let base = code.binary(Binary::Add, Type::U32, shared, at as i64);
            tiles.push(Tile { base, rows });
            at += rows * shape.pitch();
        }
        let (warp, lane) = divide(code, thread, 32);
        let (quad, within) = divide(code, lane, 4);
        let row = code.ternary(Ternary::Mad, Type::S32, warp, shape.own() as i64, quad);
        let column = code.binary(Binary::Shl, Type::B32, within, 1);
        let rows = Slots { first: row, far: (0..2 * shape.high as i64).map(|n| 8 * n).collect() };
        let far = (0..shape.columns / 8).flat_map(|n| [8 * n as i64, 8 * n as i64 + 1]).collect();
        // Lanes 8q to 8q + 7 address the rows of matrix q of four. In the left operand, matrix 1
        // is 8 rows below matrix 0, and matrix 2 is 8 terms further along the sum. In the right
        // operand it is the other way round. In the transposed right operand, the rows of a matrix
        // lie along the sum.
        let (q, line) = divide(code, lane, 8);
        let low = code.binary(Binary::And, Type::B32, q, 1);
        let high = code.binary(Binary::Shr, Type::U32, q, 1);
        let [low, high] = [low, high].map(|q| code.binary(Binary::Shl, Type::B32, q, 3));
        let mut place = |row: Reg, column: Reg| {
            let row = code.binary(Binary::Add, Type::S32, row, line);
            let row = code.binary(Binary::Mul, Type::S32, row, shape.pitch() as i64);
            code.ternary(Ternary::Mad, Type::S32, column, 2, row)
        };
        let (left, right, across) = (place(low, high), place(high, low), place(low, high));
        let left =
            code.ternary(Ternary::Mad, Type::S32, warp, (shape.own() * shape.pitch()) as i64, left);
        // The second buffers of all column tiles follow the first ones.
        let ahead = (columns * shape.columns * shape.pitch()) as i64;
        tiles.truncate(tiles.len() - columns);
        let columns = Slots { first: column, far };
        (Mma { shape, thread, rows, columns, ahead, lane: [left, right, across] }, tiles)
    }

    /// Loads four matrices from shared memory.
    fn matrices(&self, code: &mut Code, base: Reg, offset: usize, transpose: bool) -> Vec<Reg> {
        let results: Vec<Reg> = (0..4).map(|_| code.reg_of(Type::B32)).collect();
        let (base, offset) = (base.into(), offset as i64);
        code.push(Inst::LoadMatrix { transpose, results: results.clone(), base, offset });
        results
    }

    /// The warp's fragments of rows at a depth, as the left operand.
    fn left(&self, code: &mut Code, base: Reg, depth: usize) -> Vec<Vec<Reg>> {
        let offset = |m: usize| m * ROWS * self.shape.pitch() + 2 * depth;
        (0..self.shape.high).map(|m| self.matrices(code, base, offset(m), false)).collect()
    }

    /// `d = a · b + c`, for fragments.
    fn multiply(&self, code: &mut Code, d: [Reg; 4], a: &[Reg], b: &[Reg], c: [Reg; 4]) {
        code.push(Inst::MatrixMultiply {
            shape: [16, 8, 16],
            accumulator: Type::F32,
            operands: [self.shape.operand(); 2],
            d: d.to_vec(),
            a: a.to_vec(),
            b: b.to_vec(),
            c: c.to_vec(),
        });
    }

    /// The sums of the m-th fragment of rows and the n-th of columns: two rows and two columns of
    /// the lane.
    fn fragment(&self, sums: &[Reg], m: usize, n: usize) -> [Reg; 4] {
        let row = sums.len() / (2 * self.shape.high);
        let first = 2 * m * row + 2 * n;
        [sums[first], sums[first + 1], sums[first + row], sums[first + row + 1]]
    }

    fn pair(&self, code: &mut Code, low: Reg, high: Reg) -> Reg {
        let pair = code.reg_of(Type::B32);
        code.push(Inst::ConvertPair(self.shape.packed(), pair, high.into(), low.into()));
        pair
    }

    /// The thread's share of the copies between rows of memory and a tile, and the address of its
    /// first piece in the tile.
    fn share(&self, code: &mut Code, rows: &Rows, first: Reg, tile: &Tile) -> (Share, Reg) {
        let (vector, depth, pitch) = (rows.vector, self.shape.depth, self.shape.pitch() as i64);
        let division = Division { threads: WARPS * 32, vector, depth, tile: tile.rows };
        let share = Share::new(code, self.thread, division, rows, first);
        let row = code.ternary(Ternary::Mad, Type::S32, share.row, pitch, tile.base);
        let piece = code.ternary(Ternary::Mad, Type::S32, share.column, 2, row);
        (share, piece)
    }

    fn zeros_of(code: &mut Code, count: usize) -> Vec<Reg> {
        (0..count).map(|_| code.mov(Type::F32, 0f32)).collect()
    }
}

impl Engine for Mma {
    fn extents(&self) -> [usize; 2] {
        [self.shape.rows(), self.shape.columns]
    }

    fn threads(&self) -> usize {
        WARPS * 32
    }

    fn resident(&self) -> u32 {
        2
    }

    fn sums(&self) -> Number {
        Number(DType::F32)
    }

    fn approximates(&self) -> bool {
        true
    }

    fn rows(&self) -> &Slots {
        &self.rows
    }

    fn columns(&self) -> &Slots {
        &self.columns
    }

    fn lanes(&self) -> &[i64] {
        &[1, 2]
    }

    fn fill(&self, code: &mut Code, rows: &Rows, first: Reg, tile: &Tile) {
        let (share, to) = self.share(code, rows, first, tile);
        share.copy(code, rows, to, self.shape.pitch());
    }

    fn ahead(&self) -> i64 {
        self.ahead
    }

    fn send(&self, code: &mut Code) {
        code.push(Inst::CopyCommit);
    }

    fn arrive(&self, code: &mut Code) {
        code.push(Inst::CopyWait(0));
    }

    fn hold(&self, code: &mut Code, tile: &Tile) -> Held {
        let left = code.binary(Binary::Add, Type::U32, tile.base, self.lane[0]);
        let depths = (0..self.shape.depth).step_by(DEPTH).filter(|_| self.shape.holds);
        let registers = depths.flat_map(|depth| self.left(code, left, depth)).flatten().collect();
        Held { tile: *tile, registers }
    }

    fn product(
        &self,
        code: &mut Code,
        Pending { rows, columns, .. }: Pending<'_>,
        added: Option<Added<'_>>,
    ) -> Vec<Reg> {
        let shape = &self.shape;
        let added = added.map(|added| added(code));
        let sums: Vec<Reg> = match &added {
            None => Mma::zeros_of(code, shape.high * shape.columns / 2),
            Some(added) => added.iter().map(|_| code.reg_of(Type::F32)).collect(),
        };
        let left = code.binary(Binary::Add, Type::U32, rows.tile.base, self.lane[0]);
        let right = code.binary(Binary::Add, Type::U32, columns.base, self.lane[1]);
        for depth in (0..shape.depth).step_by(DEPTH) {
            let a: Vec<Vec<Reg>> = match rows.registers.is_empty() {
                true => self.left(code, left, depth),
                false => {
                    let held = rows.registers.chunks(4).map(<[Reg]>::to_vec);
                    held.skip(depth / DEPTH * shape.high).take(shape.high).collect()
                }
            };
            for column in (0..shape.columns).step_by(16) {
                let b = self.matrices(code, right, column * shape.pitch() + 2 * depth, false);
                for (n, b) in b.chunks(2).enumerate() {
                    for (m, a) in a.iter().enumerate() {
                        // The first instruction adds to the given numbers, the others to sums.
                        let before =
                            if depth == 0 { added.as_ref().unwrap_or(&sums) } else { &sums };
                        let [d, c] = [&sums, before].map(|of| self.fragment(of, m, column / 8 + n));
                        self.multiply(code, d, a, b, c);
                    }
                }
            }
        }
        sums
    }

    fn zeros(&self, code: &mut Code) -> Vec<Reg> {
        Mma::zeros_of(code, self.shape.high * self.shape.depth / 2)
    }

    fn accumulate(&self, code: &mut Code, sums: &[Reg], weights: &[Reg], columns: &Tile) {
        let shape = &self.shape;
        let right = code.binary(Binary::Add, Type::U32, columns.base, self.lane[2]);
        for column in (0..shape.columns).step_by(DEPTH) {
            let mut a: Vec<Vec<Reg>> = vec![];
            for m in 0..shape.high {
                let halves = [0, 1].map(|n| self.fragment(weights, m, column / 8 + n));
                let pairs = halves.iter().flat_map(|f| [[f[0], f[1]], [f[2], f[3]]]);
                a.push(pairs.map(|[low, high]| self.pair(code, low, high)).collect());
            }
            for depth in (0..shape.depth).step_by(16) {
                let b = self.matrices(code, right, column * shape.pitch() + 2 * depth, true);
                for (n, b) in b.chunks(2).enumerate() {
                    for (m, a) in a.iter().enumerate() {
                        let sums = self.fragment(sums, m, depth / 8 + n);
                        self.multiply(code, sums, a, b, sums);
                    }
                }
            }
        }
    }

    /// The sums of a lane are pairs of halves in many rows. They go through shared memory, so that
    /// lanes store up to 16 contiguous bytes. A warp overwrites only rows that it alone reads, so
    /// its own lanes are all that it waits for.
    fn store(&self, code: &mut Code, sums: &[Reg], rows: &Rows, first: Reg, tile: &Tile) {
        let (shape, pitch) = (&self.shape, self.shape.pitch() as i64);
        code.push(Inst::WarpBarrier(Operand::Int(0xffff_ffff)));
        let to = code.ternary(Ternary::Mad, Type::S32, self.rows.first, pitch, tile.base);
        let to = code.ternary(Ternary::Mad, Type::S32, self.columns.first, 2, to);
        for (row, far) in sums.chunks(sums.len() / self.rows.far.len()).zip(&self.rows.far) {
            for (n, values) in row.chunks(2).enumerate() {
                let pair = self.pair(code, values[0], values[1]);
                code.store(Space::Shared, Type::B32, to, far * pitch + 16 * n as i64, pair);
            }
        }
        code.push(Inst::Barrier);
        let (number, count) = match rows.vector {
            1 => (rows.number, 1),
            vector => (Number(DType::U32), vector / 2),
        };
        let (share, from) = self.share(code, rows, first, tile);
        share.when(code, |code| {
            for far in share.distances() {
                let raw = number.load(
                    code,
                    Space::Shared,
                    Place::at(from, (far * shape.pitch()) as i64),
                    count,
                );
                let place = share.place(code, rows, far);
                number.store(code, Space::Global, place, &raw);
            }
        });
    }
}
