//! The engine of every dtype: fused multiply-adds on the ordinary arithmetic units.
//!
//! The 256 threads form 16 rows of 16. Each has every 16th row and column of a block of scores,
//! so the 16 threads of a row share its rows. Tiles are widened to the dtype of sums when they
//! are stored to shared memory. Rows of tiles are padded by one vector, so that vectors of
//! neighbouring rows lie in different banks. Weights go through shared memory once more, since a
//! thread sums over all columns of a row.
//!
//! | sums | width up to | forward | backward | registers | shared memory |
//! |---|---|---|---|---|---|
//! | f32 | 64 | 64 × 64 | 64 × 64 | 128 | 68 KiB, 85 KiB |
//! | f32 | 128 | 32 × 32 (80: 64 × 64) | 32 × 32 | 128 | 54 KiB (80 KiB), 71 KiB |
//! | f32 | 256 | 16 × 16 | 16 × 16 | 128 | 50 KiB, 66 KiB |
//! | f64 | 32 | 64 × 64 | 16 × 16 | 240, 164 | 84 KiB, 19 KiB |
//! | f64 | 64 | 32 × 32 | 16 × 16 | 140, 148 | 58 KiB, 35 KiB |
//! | f64 | 128 | 16 × 16 | 16 × 16 | 134, 152 | 51 KiB, 67 KiB |
//!
//! Bound by the multiply-add units with the largest tile, where a thread does eight multiply-adds
//! for each vector of four numbers that it reads from shared memory; bound by shared memory with
//! the others. Halves use this engine only where heads are too wide for tensor cores' registers.

use super::super::draft::Draft;
use super::super::index::{advance, both, divide};
use super::super::number::{Number, Place};
use super::rows::{Division, Held, Rows, Share, Tile};
use super::{Added, Engine, Pending, Slots};
use crate::ptx::{Binary, Code, Compare, Inst, Operand, Reg, Space, Ternary, Type};

/// Rows, and columns, of threads.
const SIDE: usize = 16;
const THREADS: usize = SIDE * SIDE;
/// Maximum shared memory of a block of threads, in bytes: every architecture has it.
const SHARED: usize = 96 << 10;

/// Division of the work of a block of threads.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// The dtype of sums, and of tiles.
    sums: Number,
    /// Numbers of a row of a tile: the width, rounded up to a multiple of 16.
    depth: usize,
    /// Rows of a tile.
    tile: usize,
}

impl Shape {
    /// The largest tiles of which `tiles` fit, with a block of scores.
    pub fn new(sums: Number, width: usize, tiles: usize) -> Shape {
        let depth = width.next_multiple_of(SIDE);
        let fits = |tile: &usize| Shape { sums, depth, tile: *tile }.bytes(tiles) <= SHARED;
        // With two sums of f64 and more than one score, there are too few registers.
        let sizes: &[usize] = if sums.size() == 8 && tiles > 3 { &[16] } else { &[64, 32, 16] };
        let tile = *sizes.iter().find(|tile| fits(tile)).expect("what is claimed fits");
        Shape { sums, depth, tile }
    }

    /// Elements from one row of a tile to the next.
    fn pitch(&self) -> usize {
        self.depth + self.sums.vector()
    }

    /// Elements from one row of weights to the next.
    fn row(&self) -> usize {
        self.tile + self.sums.vector()
    }

    fn tile_bytes(&self) -> usize {
        self.tile * self.pitch() * self.sums.size() as usize
    }

    fn bytes(&self, tiles: usize) -> usize {
        tiles * self.tile_bytes() + self.tile * self.row() * self.sums.size() as usize
    }

    /// Rows of a thread.
    fn own(&self) -> usize {
        self.tile / SIDE
    }

    /// Contiguous numbers of a row that a thread sums.
    fn run(&self) -> usize {
        let mut run = self.sums.vector();
        while !self.depth.is_multiple_of(SIDE * run) {
            run /= 2;
        }
        run
    }

    /// Number of such runs of a thread.
    fn runs(&self) -> usize {
        self.depth / (SIDE * self.run())
    }
}

/// The engine.
pub(super) struct Fma {
    shape: Shape,
    thread: Reg,
    rows: Slots,
    columns: Slots,
    weights: Reg,
}

impl Fma {
    /// The engine, and tiles.
    pub fn new(draft: &mut Draft, shape: Shape, tiles: usize) -> (Fma, Vec<Tile>) {
        let shared = draft.dynamic_shared(shape.bytes(tiles) as u32);
        let thread = draft.thread();
        let code = &mut draft.code;
        let (row, column) = divide(code, thread, SIDE);
        let far: Vec<i64> = (0..shape.own()).map(|n| (n * SIDE) as i64).collect();
        let mut at =
            |n: usize| code.binary(Binary::Add, Type::U32, shared, (n * shape.tile_bytes()) as i64);
        let made = (0..tiles).map(|n| Tile { base: at(n), rows: shape.tile }).collect();
        let weights = at(tiles);
        let rows = Slots { first: row, far: far.clone() };
        (Fma { shape, thread, rows, columns: Slots { first: column, far }, weights }, made)
    }

    fn size(&self) -> i64 {
        self.shape.sums.size()
    }

    /// Loads a vector of shared memory, `elements` elements after an address.
    fn load(&self, code: &mut Code, from: Reg, elements: usize, count: usize) -> Vec<Reg> {
        self.shape.sums.load(
            code,
            Space::Shared,
            Place::at(from, elements as i64 * self.size()),
            count,
        )
    }

    /// The address `index · elements` elements after another.
    fn at(&self, code: &mut Code, base: Reg, index: Reg, elements: usize) -> Reg {
        code.ternary(Ternary::Mad, Type::S32, index, elements as i64 * self.size(), base)
    }
}

impl Engine for Fma {
    fn extents(&self) -> [usize; 2] {
        [self.shape.tile; 2]
    }

    fn threads(&self) -> usize {
        THREADS
    }

    fn resident(&self) -> u32 {
        if self.size() == 8 { 1 } else { 2 }
    }

    fn sums(&self) -> Number {
        self.shape.sums
    }

    fn approximates(&self) -> bool {
        false
    }

    fn rows(&self) -> &Slots {
        &self.rows
    }

    fn columns(&self) -> &Slots {
        &self.columns
    }

    fn lanes(&self) -> &[i64] {
        &[1, 2, 4, 8]
    }

    fn fill(&self, code: &mut Code, rows: &Rows, first: Reg, tile: &Tile) {
        let (shape, sums) = (&self.shape, self.shape.sums);
        let vector = rows.vector.min(rows.number.vector());
        let division = Division { threads: THREADS, vector, depth: shape.depth, tile: shape.tile };
        let share = Share::new(code, self.thread, division, rows, first);
        let to = self.at(code, tile.base, share.row, shape.pitch());
        let to = self.at(code, to, share.column, 1);
        share.when(code, |code| {
            let mut loaded = vec![];
            for far in share.distances() {
                let place = share.place(code, rows, far);
                loaded.push(rows.number.load(code, Space::Global, place, vector));
            }
            for (far, raw) in share.distances().zip(loaded) {
                let values: Vec<Reg> =
                    raw.into_iter().map(|r| rows.number.widen(code, r)).collect();
                for (n, part) in values.chunks(sums.vector()).enumerate() {
                    let elements = far * shape.pitch() + n * sums.vector();
                    sums.store(
                        code,
                        Space::Shared,
                        Place::at(to, elements as i64 * sums.size()),
                        part,
                    );
                }
            }
        });
    }

    fn ahead(&self) -> i64 {
        0
    }

    fn send(&self, _: &mut Code) {}

    fn arrive(&self, _: &mut Code) {}

    fn hold(&self, _: &mut Code, tile: &Tile) -> Held {
        Held { tile: *tile, registers: vec![] }
    }

    fn product(
        &self,
        code: &mut Code,
        Pending { rows, columns, .. }: Pending<'_>,
        added: Option<Added<'_>>,
    ) -> Vec<Reg> {
        let (shape, own, vector) = (&self.shape, self.shape.own(), self.shape.sums.vector());
        let sums: Vec<Reg> =
            (0..own * own).map(|_| code.mov(shape.sums.wide(), shape.sums.zero())).collect();
        let sides = [(&rows.tile, &self.rows), (&columns, &self.columns)]
            .map(|(tile, slots)| self.at(code, tile.base, slots.first, shape.pitch()));
        code.count(0, shape.depth as i64, SIDE as i64, |code, depth| {
            let sides = sides.map(|base| self.at(code, base, depth, 1));
            for at in (0..SIDE).step_by(vector) {
                let [x, y] = sides.map(|base| -> Vec<Vec<Reg>> {
                    (0..own)
                        .map(|n| self.load(code, base, n * SIDE * shape.pitch() + at, vector))
                        .collect()
                });
                for e in 0..vector {
                    for i in 0..own {
                        for j in 0..own {
                            shape.sums.accumulate(code, sums[i * own + j], x[i][e], y[j][e]);
                        }
                    }
                }
            }
        });
        let added = added.map(|added| added(code)).unwrap_or_default();
        for (sum, added) in sums.iter().zip(added) {
            code.binary_into(*sum, Binary::Add, shape.sums.wide(), *sum, added);
        }
        sums
    }

    fn zeros(&self, code: &mut Code) -> Vec<Reg> {
        let count = self.shape.own() * self.shape.runs() * self.shape.run();
        (0..count).map(|_| code.mov(self.shape.sums.wide(), self.shape.sums.zero())).collect()
    }

    fn accumulate(&self, code: &mut Code, sums: &[Reg], weights: &[Reg], columns: &Tile) {
        let (shape, own, vector) = (&self.shape, self.shape.own(), self.shape.sums.vector());
        let (run, runs) = (shape.run(), shape.runs());
        let row = self.at(code, self.weights, self.rows.first, shape.row());
        let write = self.at(code, row, self.columns.first, 1);
        code.push(Inst::Barrier);
        for i in 0..own {
            for j in 0..own {
                let elements = (i * shape.row() + j) * SIDE;
                let place = Place::at(write, elements as i64 * self.size());
                shape.sums.store(code, Space::Shared, place, &[weights[i * own + j]]);
            }
        }
        code.push(Inst::Barrier);
        let of_columns = self.at(code, columns.base, self.columns.first, run);
        /// Columns of one loop iteration.
        const STEP: usize = 8;
        code.count(0, shape.tile as i64, STEP as i64, |code, k| {
            let row = self.at(code, row, k, 1);
            let of_columns = self.at(code, of_columns, k, shape.pitch());
            for at in (0..STEP).step_by(vector) {
                let x: Vec<Vec<Reg>> = (0..own)
                    .map(|i| self.load(code, row, i * SIDE * shape.row() + at, vector))
                    .collect();
                for e in 0..vector {
                    for n in 0..runs {
                        let y = self.load(
                            code,
                            of_columns,
                            (at + e) * shape.pitch() + n * SIDE * run,
                            run,
                        );
                        for (i, x) in x.iter().enumerate() {
                            for (m, y) in y.iter().enumerate() {
                                let sum = sums[(i * runs + n) * run + m];
                                shape.sums.accumulate(code, sum, x[e], *y);
                            }
                        }
                    }
                }
            }
        });
    }

    fn store(&self, code: &mut Code, sums: &[Reg], rows: &Rows, first: Reg, _: &Tile) {
        let (run, runs) = (self.shape.run(), self.shape.runs());
        let vector = run.min(rows.vector).min(rows.number.vector());
        let first = code.binary(Binary::Add, Type::S32, first, self.rows.first);
        let column = code.binary(Binary::Mul, Type::S32, self.columns.first, run as i64);
        let at_column = advance(code, rows.address, column, rows.number.size());
        for (i, sums) in sums.chunks(run * runs).enumerate() {
            let row = code.binary(Binary::Add, Type::S32, first, self.rows.far[i]);
            let inside = (!rows.count.is_multiple_of(self.shape.tile))
                .then(|| code.compare(Compare::Lt, Type::S32, row, rows.count as i64));
            let address = advance(code, at_column, row, rows.position);
            for (n, sums) in sums.chunks(vector).enumerate() {
                let far = n * vector / run * run * SIDE + n * vector % run;
                let below = (self.shape.depth != rows.width).then(|| {
                    let at: Operand =
                        code.binary(Binary::Add, Type::S32, column, far as i64).into();
                    code.compare(Compare::Lt, Type::S32, at, rows.width as i64)
                });
                let valid = both(code, inside, below);
                let raw: Vec<Reg> = sums.iter().map(|sum| rows.number.narrow(code, *sum)).collect();
                let offset = far as i64 * rows.number.size();
                rows.number.store(code, Space::Global, Place { address, offset, valid }, &raw);
            }
        }
    }
}
