//! The tiled product: every dtype, on the ordinary arithmetic units.
//!
//! A block computes a tile of out. It goes along the sum in steps of a few elements. A strip of
//! lhs and one of rhs are loaded to shared memory, widened to the dtype of sums, with the outer
//! index running fastest. Then each thread, which owns a few rows and columns of the tile, reads
//! its part of both strips and adds up their products in registers. There are two buffers: during
//! the computation with one, the next strips are loaded from memory to registers, and are then
//! stored to the other, so that one barrier a step is enough. Each element of out has one sum, to
//! which terms are added in increasing order of k by fused multiply-adds: the bits are those of
//! the plain loop (except for a split sum).
//!
//! | elements | tile | step | a thread's | threads | registers | shared memory |
//! |---|---|---|---|---|---|---|
//! | 4 bytes | 128 × 128 | 8 | 8 × 8 | 256 | 128 | 16.5 KiB |
//! | 4 bytes | 64 × 64 | 16 | 4 × 4 | 256 | about 60 to 100 | 17 KiB |
//! | 4 bytes | 32 × 32 | 16 | 4 × 4 | 64 | about 60 to 160 | 9 KiB |
//! | 8 bytes | 64 × 64 | 8 | 4 × 4 | 256 | about 80 to 100 | 16.5 KiB |
//! | 8 bytes | 32 × 32 | 8 | 4 × 4 | 64 | about 50 to 105 | 8.5 KiB |
//!
//! Bound: a step of the large tile reads 8 KiB and makes 131072 multiply-adds of them, 16 a byte.
//! That is above the ratio that any GPU's memory needs for full rate (H100: 67 TFLOP/s by 3.35
//! TB/s, 10 multiply-adds a byte). Each element read from shared memory is used in 4
//! multiply-adds. So it is bound by the multiply-add units. Vectors of 16 bytes are loaded where
//! strides and extents allow it, else shorter ones.

use super::super::draft::Draft;
use super::super::index::{both, divide};
use super::super::number::{Number, Place};
use super::finish::{Destination, Run};
use super::gather::{Direction, Gather};
use super::loader::{Loader, Prepared};
use super::{FULL, Position, Product};
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Space, Ternary, Type};
use crate::scalar::Functions;
use crate::stage::Stage;
use wengert_core::Result;

/// Division of a block's work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tile {
    /// Rows and columns of out.
    extent: usize,
    /// Terms of the sum in a step.
    step: usize,
    /// Rows and columns of a thread.
    own: usize,
    /// Minimum number of resident blocks.
    resident: u32,
}

const SMALL_WORDS: [Tile; 3] = [
    Tile { extent: 128, step: 8, own: 8, resident: 2 },
    Tile { extent: 64, step: 16, own: 4, resident: 1 },
    Tile { extent: 32, step: 16, own: 4, resident: 1 },
];
const LARGE_WORDS: [Tile; 2] = [
    Tile { extent: 64, step: 8, own: 4, resident: 1 },
    Tile { extent: 32, step: 8, own: 4, resident: 1 },
];

impl Tile {
    fn threads(&self) -> usize {
        (self.extent / self.own).pow(2)
    }

    fn count(&self, product: &Product) -> usize {
        product.batch * product.m.div_ceil(self.extent) * product.n.div_ceil(self.extent)
    }

    /// The largest tile of which there are enough and which is not mostly padding.
    fn choose(product: &Product) -> Tile {
        let tiles: &[Tile] = if product.sums().size() == 8 { &LARGE_WORDS } else { &SMALL_WORDS };
        let (last, larger) = tiles.split_last().expect("there are several");
        let fits =
            |t: &&Tile| product.m.min(product.n) > t.extent / 2 && t.count(product) * 2 >= FULL;
        *larger.iter().find(fits).unwrap_or(last)
    }

    /// Elements from one row of a strip in shared memory to the next: padded, so that a column
    /// does not lie in one bank.
    fn pitch(&self, number: Number) -> usize {
        self.extent + number.vector()
    }

    /// Bytes of one strip.
    fn strip(&self, number: Number) -> i64 {
        (self.step * self.pitch(number)) as i64 * number.size()
    }
}

/// The stage, and the number of parts of each sum.
pub(super) fn stage(product: &Product) -> Result<(Stage, usize)> {
    let tile = Tile::choose(product);
    let steps = product.k.div_ceil(tile.step);
    let parts = product.parts(tile.count(product), 256).min(steps.max(1));
    // Parts are whole steps; some of the last parts may be empty.
    let steps_of_part = steps.div_ceil(parts);
    let parts = steps.div_ceil(steps_of_part.max(1)).max(1);
    let sums = product.sums();

    let mut draft = Draft::aligned(product.alignment);
    draft.spread();
    let ([lhs, rhs], mut destination) = Destination::open(&mut draft, product, parts);
    let buffer = 2 * tile.strip(sums);
    let shared = draft.shared("strips", 2 * buffer as u32);
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let position = product.position(code, block, [tile.extent; 2], parts);

    let own = Own::new(code, thread, tile, sums, shared);
    if product.k > 0 {
        let pointers = [(&product.lhs, lhs, position.row), (&product.rhs, rhs, position.column)];
        let mut sides = vec![];
        for (gather, pointer, first) in pointers {
            let place = shared_part(code, shared, sides.len() as i64 * tile.strip(sums));
            let operand = gather.operand(code, pointer, position.batch);
            sides.push(Side::new(code, product, gather, tile, [thread, first, operand, place]));
        }
        let first =
            code.binary(Binary::Mul, Type::S32, position.part, (steps_of_part * tile.step) as i64);
        let end = code.binary(Binary::Add, Type::S32, first, (steps_of_part * tile.step) as i64);
        let end = code.binary(Binary::Min, Type::S32, end, (steps * tile.step) as i64);
        let zero = code.mov(Type::U32, 0);
        for side in &sides {
            let loaded = side.load(code, first);
            side.keep(code, loaded, zero);
        }
        code.push(Inst::Barrier);
        let current = code.mov(Type::U32, 0);
        code.count(first, end, tile.step as i64, |code, from| {
            let next = code.binary(Binary::Add, Type::S32, from, tile.step as i64);
            let more = code.compare(Compare::Lt, Type::S32, next, end);
            let loaded = code
                .when(more, |code| sides.iter().map(|s| s.load(code, next)).collect::<Vec<_>>());
            own.multiply(code, current);
            let other = code.binary(Binary::Sub, Type::U32, buffer, current);
            code.when(more, |code| {
                for (side, loaded) in sides.iter().zip(loaded) {
                    side.keep(code, loaded, other);
                }
            });
            code.push(Inst::Barrier);
            code.assign(Type::U32, current, other);
        });
    }
    own.store(code, &mut draft.functions, product, &position, &mut destination)?;
    let e = tile.extent;
    let remark = format!(
        "out[{m}, {n}] of sums over {k}, batch {b}: tiles of {e} by {e} by {step}, {parts} parts.",
        m = product.m,
        n = product.n,
        k = product.k,
        b = product.batch,
        step = tile.step
    );
    let name = format!("{}_{}_{}", product.name, product.operand, tile.extent);
    let stage = draft.stage(
        name,
        remark,
        tile.threads() as u32,
        tile.resident,
        tile.count(product) * parts,
    )?;
    Ok((stage, parts))
}

/// The address `bytes` after another in shared memory.
fn shared_part(code: &mut Code, shared: Reg, bytes: i64) -> Reg {
    if bytes == 0 { shared } else { code.binary(Binary::Add, Type::U32, shared, bytes) }
}

/// Lhs or rhs, as one thread loads it.
struct Side<'a> {
    loader: Loader<'a>,
    prepared: Prepared,
    /// Address in the first buffer to which the thread's first element is stored.
    write: Reg,
    sums: Number,
    tile: Tile,
}

/// A vector in flight to shared memory, and its distances from the thread's first one.
type Loaded = Vec<(Vec<Reg>, usize, usize)>;

impl<'a> Side<'a> {
    /// From the number of the thread, the tile's first outer index, and the addresses of the
    /// operand and of its strip in the first buffer.
    fn new(
        code: &mut Code,
        product: &Product,
        gather: &'a Gather,
        tile: Tile,
        [thread, first, operand, strip]: [Reg; 4],
    ) -> Side<'a> {
        let sums = product.sums();
        let extents = [tile.extent, tile.step];
        let loader = Loader::new(gather, extents, tile.threads(), gather.number.vector());
        let prepared = loader.prepare(code, thread, first, operand);
        let row = code.binary(Binary::Mul, Type::S32, prepared.depth, tile.pitch(sums) as i64);
        let at = code.binary(Binary::Add, Type::S32, row, prepared.outer);
        let write = code.ternary(Ternary::Mad, Type::S32, at, sums.size(), strip);
        Side { loader, prepared, write, sums, tile }
    }

    fn load(&self, code: &mut Code, from: Reg) -> Loaded {
        let vectors = self.loader.vectors(code, &self.prepared, from);
        let number = self.loader.gather.number;
        let load = |v: super::loader::Vector| {
            (number.load(code, Space::Global, v.place, self.loader.vector), v.outer, v.depth)
        };
        vectors.into_iter().map(load).collect()
    }

    fn keep(&self, code: &mut Code, loaded: Loaded, buffer: Reg) {
        let base = code.binary(Binary::Add, Type::U32, self.write, buffer);
        let (pitch, size) = (self.tile.pitch(self.sums), self.sums.size());
        for (raw, outer, depth) in loaded {
            let values: Vec<Reg> =
                raw.into_iter().map(|r| self.loader.gather.number.widen(code, r)).collect();
            let at =
                |outer: usize, depth: usize| Place::at(base, (depth * pitch + outer) as i64 * size);
            match self.loader.direction {
                Direction::Outer => {
                    for (n, part) in values.chunks(self.sums.vector()).enumerate() {
                        let place = at(outer + n * self.sums.vector(), depth);
                        self.sums.store(code, Space::Shared, place, part);
                    }
                }
                Direction::Depth => {
                    for (n, value) in values.into_iter().enumerate() {
                        self.sums.store(code, Space::Shared, at(outer, depth + n), &[value]);
                    }
                }
            }
        }
    }
}

/// A thread's part of a tile: rows and columns in groups of one vector. The distance of groups is
/// the length of all threads' vectors, so that the threads of a warp read neighbouring vectors.
struct Own {
    tile: Tile,
    sums: Number,
    /// First row and first column in the tile.
    first: [Reg; 2],
    /// Their addresses in the strips of the first buffer.
    read: [Reg; 2],
    /// `own × own` sums, row by row.
    registers: Vec<Reg>,
}

impl Own {
    fn new(code: &mut Code, thread: Reg, tile: Tile, sums: Number, shared: Reg) -> Own {
        let (row, column) = divide(code, thread, tile.extent / tile.own);
        let vector = sums.vector() as i64;
        let first = [row, column].map(|n| code.binary(Binary::Mul, Type::S32, n, vector));
        let mut side = 0;
        let read = first.map(|n| {
            let at = code.ternary(Ternary::Mad, Type::S32, n, sums.size(), shared);
            side += 1;
            code.binary(Binary::Add, Type::U32, at, (side - 1) * tile.strip(sums))
        });
        let registers =
            (0..tile.own * tile.own).map(|_| code.mov(sums.wide(), sums.zero())).collect();
        Own { tile, sums, first, read, registers }
    }

    /// Distance of the groups of vectors.
    fn distance(&self) -> usize {
        self.tile.extent / self.tile.own * self.sums.vector()
    }

    fn groups(&self) -> usize {
        self.tile.own / self.sums.vector()
    }

    /// One step: adds the products of two strips.
    fn multiply(&self, code: &mut Code, buffer: Reg) {
        let read = self.read.map(|r| code.binary(Binary::Add, Type::U32, r, buffer));
        for depth in 0..self.tile.step {
            let parts = read.map(|base| {
                let mut part = vec![];
                for group in 0..self.groups() {
                    let at = depth * self.tile.pitch(self.sums) + group * self.distance();
                    let place = Place::at(base, at as i64 * self.sums.size());
                    part.extend(self.sums.load(code, Space::Shared, place, self.sums.vector()));
                }
                part
            });
            for (i, x) in parts[0].iter().enumerate() {
                for (j, y) in parts[1].iter().enumerate() {
                    self.sums.accumulate(code, self.registers[i * self.tile.own + j], *x, *y);
                }
            }
        }
    }

    fn store(
        &self,
        code: &mut Code,
        functions: &mut Functions,
        product: &Product,
        position: &Position,
        destination: &mut Destination<'_>,
    ) -> Result<()> {
        let start = destination.start(code, position.part, position.batch);
        let run = self.sums.vector();
        let vector = destination.vector.min(run);
        let edge = |code: &mut Code, index: Reg, extent: usize| {
            (!extent.is_multiple_of(self.tile.extent))
                .then(|| code.compare(Compare::Lt, Type::S32, index, extent as i64))
        };
        let first_column = code.binary(Binary::Add, Type::S32, position.column, self.first[1]);
        let first_row = code.binary(Binary::Add, Type::S32, position.row, self.first[0]);
        let far = |at: usize| (at / run * self.distance() + at % run) as i64;
        // Column by column, so that the bias of one is held at a time.
        for j in (0..self.tile.own).step_by(vector) {
            let column = code.binary(Binary::Add, Type::S32, first_column, far(j));
            let below = edge(code, column, product.n);
            let shared = destination.columns(code, column, vector, below);
            for i in 0..self.tile.own {
                let row = code.binary(Binary::Add, Type::S32, first_row, far(i));
                let inside = edge(code, row, product.m);
                let valid = both(code, inside, below);
                let line = destination.row(code, start, row);
                let offset = destination.column(code, line, column);
                let run = Run { at: [position.batch, row, column], offset, valid };
                let sums = &self.registers[i * self.tile.own + j..][..vector];
                destination.store(code, functions, run, sums, &shared)?;
            }
        }
        Ok(())
    }
}
