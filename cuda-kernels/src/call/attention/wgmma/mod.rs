//! The engine for f16 and bf16 on Hopper: products of warpgroups (`wgmma`), sums in f32.
//!
//! A block has two warpgroups, with 64 rows each. Both read the same tiles of columns. All threads
//! copy tiles by `cp.async`, and permute groups of 16 bytes as the swizzle wants them ([`tile`]): a
//! launch passes addresses only, and no descriptions of tensors. Both factors of the products for
//! scores are in shared memory. The scores of a lane, rounded to halves, are exactly the lane's
//! fragments of the second product's left operand, as for `mma.sync`. Its right operand, in shared
//! memory, is read transposed.
//!
//! A step of the loop over the columns:
//!
//! 1. Wait for the step's tiles and for the sums of the step before; make the tiles visible to the
//!    proxy of `wgmma`; meet at the block's barrier. All threads are then done with the other
//!    buffer.
//! 2. Ask for the tiles of the next step.
//! 3. Begin the products for scores. Backward, those for the cotangents of probabilities go on
//!    while powers are computed.
//! 4. Begin to add weighted rows to the sums. They go on until the next step waits.
//!
//! Tensor cores work for one warpgroup while others compute powers: four warpgroups are on a
//! multiprocessor where registers and shared memory suffice, else two. The forward kernel of heads
//! of 65 to 128 without a bias has two, and its own order of a step
//! ([`overlap`](super::overlap)): rows are added during the softmax of the next block. Its block
//! has 128 columns, since a product of 64 rows and 64 columns reads 4 KiB of shared memory in the
//! 32 clocks that it takes, which is all that shared memory gives; with 128 columns it reads 6 KiB
//! in 64 clocks.
//!
//! | width up to | kernel | block | blocks | registers | shared memory |
//! |---|---|---|---|---|---|
//! | 64 | forward | 128 × 128, else 128 × 64 | 2 | 128, with a prefix 102 | 81 KiB, 49 KiB |
//! | 64 | backward, of queries | 128 × 64 | 2 | 122 | 65 KiB |
//! | 64 | backward, of keys | 128 × 64 | 1 | 192, with a bias 223 | 67 KiB |
//! | 128 | forward | 128 × 128, with a bias 128 × 64 | 1 | 195, with a bias 194 | 161 KiB, 97 KiB |
//! | 128 | backward, of queries | 128 × 64 | 1 | 158, with a bias 215 | 129 KiB |
//! | 128 | backward, of keys | 128 × 64 | 1 | 240, with a bias 255 | 131 KiB |
//! | 256 | forward | 128 × 64 | 1 | 204, with a bias 246 | 193 KiB |
//! | 256 | backward, of queries | 128 × 32 | 1 | 190, with a bias 218 | 193 KiB |
//!
//! With a bias, one block is resident where the table has two: the forward kernels then take up to
//! 194 registers, and that of queries 182.
//!
//! Sums have the arithmetic of `wgmma`: 16 products of halves and a sum are added with two extra
//! bits, and truncated. Powers, logarithms and reciprocals are those of `mma.sync`'s engine.

mod shape;
mod tile;

#[cfg(test)]
pub(super) use shape::can;
pub(super) use shape::{Shape, fits};

use super::super::draft::Draft;
use super::super::index::{divide, quotient};
use super::super::number::{Number, Place};
use super::overlap::Overlapped;
use super::rows::{Held, Rows, Tile};
use super::{Added, Engine, Pending, Slots};
use crate::ptx::hopper::{Hopper, Left, PRODUCT_ROWS, Product};
use crate::ptx::{Binary, Code, Compare, Inst, Lanes, Reg, Space, Type};
use shape::{DEPTH, ROWS};
use std::cell::Cell;
use tile::{PATTERN, ROW};
use wengert_core::DType;

/// Threads of a warpgroup.
const GROUP: usize = 128;
/// Warpgroups of a block.
const GROUPS: usize = 2;
const THREADS: usize = GROUP * GROUPS;

/// The engine.
pub(super) struct Wgmma {
    shape: Shape,
    thread: Reg,
    rows: Slots,
    columns: Slots,
    /// Bytes from a tile of columns to its second buffer.
    ahead: i64,
    /// Bytes from a tile of rows to the warpgroup's rows of a panel.
    own: Reg,
    /// A predicate that holds, and one that does not.
    always: Reg,
    never: Reg,
    /// The number of groups of products that have been committed in the code so far.
    committed: Cell<u32>,
}

impl Wgmma {
    /// The engine, tiles of rows, and tiles of columns.
    pub fn new(draft: &mut Draft, shape: Shape, [rows, columns]: [usize; 2]) -> (Wgmma, Vec<Tile>) {
        let extents = [vec![ROWS; rows], vec![shape.columns; 2 * columns]].concat();
        let bytes: usize = extents.iter().map(|rows| shape.bytes(*rows)).sum();
        let shared = draft.dynamic_shared((bytes + PATTERN) as u32);
        let thread = draft.thread();
        let code = &mut draft.code;
        // The pattern of the swizzle begins at its multiples.
        let shared = code.binary(Binary::Add, Type::U32, shared, PATTERN as i64 - 1);
        let shared = code.binary(Binary::And, Type::B32, shared, -(PATTERN as i64));
        let mut tiles = vec![];
        let mut at = 0;
        for rows in extents {
            let base = code.binary(Binary::Add, Type::U32, shared, at as i64);
            tiles.push(Tile { base, rows });
            at += shape.bytes(rows);
        }
        // The second buffers of all column tiles follow the first ones.
        let ahead = (columns * shape.bytes(shape.columns)) as i64;
        tiles.truncate(tiles.len() - columns);
        // Warp w has rows 16·w to 16·w + 15 of the block.
        let (warp, lane) = divide(code, thread, 32);
        let (quad, within) = divide(code, lane, 4);
        let row = code.binary(Binary::Shl, Type::B32, warp, 4);
        let row = code.binary(Binary::Add, Type::S32, row, quad);
        let column = code.binary(Binary::Shl, Type::B32, within, 1);
        let rows = Slots { first: row, far: vec![0, 8] };
        let far = (0..shape.columns / 8).flat_map(|n| [8 * n as i64, 8 * n as i64 + 1]).collect();
        let columns = Slots { first: column, far };
        let group = quotient(code, thread, GROUP);
        // The same in all lanes, as `ptxas` sees.
        let group = code.shuffle(&Lanes::of(0), group);
        let own = code.binary(Binary::Mul, Type::S32, group, i64::from(PRODUCT_ROWS) * ROW as i64);
        let zero = code.mov(Type::S32, 0);
        let always = code.compare(Compare::Eq, Type::S32, zero, 0);
        let never = code.compare(Compare::Ne, Type::S32, zero, 0);
        let committed = Cell::new(0);
        let engine = Wgmma { shape, thread, rows, columns, ahead, own, always, never, committed };
        (engine, tiles)
    }

    fn pair(&self, code: &mut Code, low: Reg, high: Reg) -> Reg {
        let pair = code.reg_of(Type::B32);
        self.pair_into(code, pair, low, high);
        pair
    }

    fn pair_into(&self, code: &mut Code, pair: Reg, low: Reg, high: Reg) {
        code.push(Inst::ConvertPair(self.shape.packed(), pair, high.into(), low.into()));
    }

    /// The n-th fragment of eight columns: two rows and two columns of the lane.
    fn fragment(&self, sums: &[Reg], n: usize) -> [Reg; 4] {
        let row = sums.len() / 2;
        [sums[2 * n], sums[2 * n + 1], sums[row + 2 * n], sums[row + 2 * n + 1]]
    }

    /// Sums, which are listed row by row, in the order of a product's registers.
    fn in_fragments(&self, sums: &[Reg]) -> Vec<Reg> {
        (0..sums.len() / 4).flat_map(|n| self.fragment(sums, n)).collect()
    }

    /// `d += a·b`, or `d = a·b`.
    fn multiply(
        &self,
        code: &mut Code,
        d: &[Reg],
        a: Left,
        [b, adds]: [Reg; 2],
        transposed: [bool; 2],
    ) {
        let operands = [self.shape.operand(); 2];
        let product = Product::new(operands, d.to_vec(), a, b, adds, transposed);
        code.push(Inst::Hopper(Hopper::Product(product)));
    }

    fn commit(&self, code: &mut Code) -> u32 {
        code.push(Inst::Hopper(Hopper::ProductCommit));
        self.committed.set(self.committed.get() + 1);
        self.committed.get()
    }
}

impl Engine for Wgmma {
    fn extents(&self) -> [usize; 2] {
        [ROWS, self.shape.columns]
    }

    fn threads(&self) -> usize {
        THREADS
    }

    fn resident(&self) -> u32 {
        self.shape.resident
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
        let (share, to) = tile::share(code, &self.shape, self.thread, rows, first, tile);
        share.copy(code, rows, to, ROW);
    }

    fn ahead(&self) -> i64 {
        self.ahead
    }

    fn send(&self, code: &mut Code) {
        code.push(Inst::CopyCommit);
    }

    fn arrive(&self, code: &mut Code) {
        self.settle(code);
        code.push(Inst::CopyWait(0));
        code.push(Inst::Hopper(Hopper::ProxyFence));
    }

    /// The descriptor of the warpgroup's rows.
    fn hold(&self, code: &mut Code, tile: &Tile) -> Held {
        let own = code.binary(Binary::Add, Type::U32, tile.base, self.own);
        Held { tile: *tile, registers: vec![tile::along(code, own)] }
    }

    fn begin<'a>(&self, code: &mut Code, rows: &'a Held, columns: &Tile) -> Pending<'a> {
        let sums: Vec<Reg> = (0..self.shape.columns / 2).map(|_| code.reg_of(Type::F32)).collect();
        let d = self.in_fragments(&sums);
        let (left, right) = (rows.registers[0], tile::along(code, columns.base));
        code.push(Inst::Hopper(Hopper::ProductFence));
        for n in 0..self.shape.depth / DEPTH {
            let a = tile::further(code, left, tile::along_step(&rows.tile, n));
            let b = tile::further(code, right, tile::along_step(columns, n));
            let adds = if n == 0 { self.never } else { self.always };
            self.multiply(code, &d, Left::Shared(a), [b, adds], [false; 2]);
        }
        let group = self.commit(code);
        Pending { rows, columns: *columns, sums, group }
    }

    fn product(&self, code: &mut Code, pending: Pending<'_>, added: Option<Added<'_>>) -> Vec<Reg> {
        let later = self.committed.get() - pending.group;
        code.push(Inst::Hopper(Hopper::ProductWait(later)));
        let added = added.map(|added| added(code)).unwrap_or_default();
        for (sum, added) in pending.sums.iter().zip(added) {
            code.binary_into(*sum, Binary::Add, Type::F32, *sum, added);
        }
        pending.sums
    }

    fn asynchronous(&self) -> bool {
        true
    }

    fn suffix(&self) -> &'static str {
        "_wgmma"
    }

    fn settle(&self, code: &mut Code) {
        code.push(Inst::Hopper(Hopper::ProductWait(0)));
    }

    fn zeros(&self, code: &mut Code) -> Vec<Reg> {
        (0..self.shape.depth / 2).map(|_| code.mov(Type::F32, 0f32)).collect()
    }

    fn accumulate(&self, code: &mut Code, sums: &[Reg], weights: &[Reg], columns: &Tile) {
        let packed = self.packed(code);
        self.pack(code, weights, &packed);
        self.accumulate_packed(code, sums, &packed, columns);
    }

    fn overlapped(&self) -> Option<&dyn Overlapped> {
        self.shape.overlaps.then_some(self as &dyn Overlapped)
    }

    /// The sums of a lane are pairs of halves in two rows. They go through shared memory, so that
    /// lanes store 16 contiguous bytes.
    fn store(&self, code: &mut Code, sums: &[Reg], rows: &Rows, first: Reg, tile: &Tile) {
        // All products that read the tile have been waited for.
        code.push(Inst::Barrier);
        let to = tile::pair(code, tile, self.rows.first, self.columns.first);
        for n in 0..self.shape.depth / 8 {
            let (at, panel) = tile::eighth(code, tile, to, n);
            for (values, far) in self.fragment(sums, n).chunks(2).zip(&self.rows.far) {
                let pair = self.pair(code, values[0], values[1]);
                code.store(Space::Shared, Type::B32, at, panel + far * ROW as i64, pair);
            }
        }
        code.push(Inst::Barrier);
        let number = Number(DType::U32);
        let (share, from) = tile::share(code, &self.shape, self.thread, rows, first, tile);
        share.when(code, |code| {
            for far in share.distances() {
                let piece = Place::at(from, (far * ROW) as i64);
                let raw = number.load(code, Space::Shared, piece, rows.vector / 2);
                let place = share.place(code, rows, far);
                number.store(code, Space::Global, place, &raw);
            }
        });
    }
}

impl Overlapped for Wgmma {
    fn packed(&self, code: &mut Code) -> Vec<Reg> {
        (0..self.shape.columns / 4).map(|_| code.reg_of(Type::B32)).collect()
    }

    fn pack(&self, code: &mut Code, weights: &[Reg], packed: &[Reg]) {
        for (values, pair) in self.in_fragments(weights).chunks(2).zip(packed) {
            self.pair_into(code, *pair, values[0], values[1]);
        }
    }

    fn accumulate_packed(&self, code: &mut Code, sums: &[Reg], packed: &[Reg], columns: &Tile) {
        let d = self.in_fragments(sums);
        let right = tile::across(code, columns);
        code.push(Inst::Hopper(Hopper::ProductFence));
        for (n, a) in packed.chunks(4).enumerate() {
            let a = Left::Registers(a.try_into().expect("16 columns are four pairs of a lane"));
            let b = tile::further(code, right, tile::across_step(n));
            self.multiply(code, &d, a, [b, self.always], [false, true]);
        }
        self.commit(code);
    }
}
