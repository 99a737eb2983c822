//! The product on tensor cores (`mma.sync`).
//!
//! A block computes a tile of out. Its warps divide the tile, and each keeps the sums of its part
//! in registers, as fragments. `cp.async` copies strips of lhs and rhs to shared memory three or
//! four steps ahead of the multiplications, so that a block of few warps hides the memory
//! latency. A strip keeps the memory order of its elements. If the fragments need the transpose,
//! it is done between shared memory and registers: by `ldmatrix` for halves, by the lanes' read
//! addresses for wider elements. Rows of a strip are padded by a few elements, so that the rows
//! that a warp reads together lie in different banks. Where 16 bytes of an operand are not
//! contiguous (odd strides, few channels), its elements go through registers instead.
//!
//! | elements | instruction | tile | step | warps | a warp's | registers | shared memory |
//! |---|---|---|---|---|---|---|---|
//! | f16, bf16 | m16n8k16, sums in f32 | 128 × 128 | 32 | 2 × 4 | 64 × 32 | 128 | 3 or 4 × 20 KiB |
//! | f16, bf16 | m16n8k16, sums in f32 | 64 × 64 | 32 | 2 × 2 | 32 × 32 | 64 to 128 | 3 or 4 × 10 KiB |
//! | f32 as tf32 | m16n8k8 | 128 × 128 | 16 | 2 × 4 | 64 × 32 | 128 | 3 or 4 × 20 KiB |
//! | f32 as tf32 | m16n8k8 | 64 × 64 | 16 | 2 × 2 | 32 × 32 | 64 to 128 | 3 or 4 × 10 KiB |
//! | f64 | m8n8k4 | 64 × 64 | 16 | 2 × 2 | 32 × 32 | 96 to 200 | 3 or 4 × 20 KiB |
//!
//! Bound: a step of the large tile of halves reads 16 KiB and makes 512 Ki multiply-adds of them,
//! 32 a byte. An A100 (312 TFLOP/s by 1.6 TB/s) needs 100 for each byte of its memory. The cache
//! provides the difference: neighbouring tiles read the same strips. `mma.sync` reaches about two
//! thirds of the throughput of `wgmma` on Hopper.

use super::super::draft::Draft;
use super::super::index::{both, divide};
use super::super::number::Place;
use super::finish::{Destination, Run};
use super::gather::Direction;
use super::loader::{Loader, Prepared, Vector};
use super::{FULL, Position, Product};
use crate::architecture::Architecture;
use crate::ptx::{Binary, Code, Compare, Inst, Operand, Reg, Rounding, Space, Ternary, Type};
use crate::scalar::Functions;
use crate::stage::Stage;
use std::ops::Range;
use wengert_core::{DType, Result};

/// The instruction, and the layout of its operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Multiply {
    /// m, n, k.
    shape: [usize; 3],
    operand: Type,
    sum: Type,
    /// Terms of the sum in a step of the block.
    step: usize,
    /// Bytes of padding of a strip's rows: where they lie along the sum, and where they lie along
    /// the outer index.
    pads: [usize; 2],
}

impl Multiply {
    fn of(dtype: DType) -> Multiply {
        let half = |operand| Multiply {
            shape: [16, 8, 16],
            operand,
            sum: Type::F32,
            step: 32,
            pads: [16, 16],
        };
        match dtype {
            DType::F16 => half(Type::F16),
            DType::BF16 => half(Type::BF16),
            DType::F32 => Multiply {
                shape: [16, 8, 8],
                operand: Type::TF32,
                sum: Type::F32,
                step: 16,
                pads: [16, 32],
            },
            DType::F64 => Multiply {
                shape: [8, 8, 4],
                operand: Type::F64,
                sum: Type::F64,
                step: 16,
                pads: [32, 32],
            },
            other => unreachable!("tensor cores are not asked for {other}"),
        }
    }
}

/// Division of a tile among warps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Tile {
    /// Rows and columns of out.
    extent: usize,
    /// Warps along rows and along columns.
    warps: [usize; 2],
}

const LARGE: Tile = Tile { extent: 128, warps: [2, 4] };
const SMALL: Tile = Tile { extent: 64, warps: [2, 2] };

impl Tile {
    fn threads(&self) -> usize {
        32 * self.warps[0] * self.warps[1]
    }

    fn count(&self, product: &Product) -> usize {
        product.batch * product.m.div_ceil(self.extent) * product.n.div_ceil(self.extent)
    }

    fn choose(product: &Product) -> Tile {
        let enough = LARGE.count(product) * 2 >= FULL && product.m.min(product.n) > SMALL.extent;
        if enough && product.operand != DType::F64 { LARGE } else { SMALL }
    }

    /// Rows and columns of a warp.
    fn own(&self) -> [usize; 2] {
        self.warps.map(|w| self.extent / w)
    }
}

/// The stage, and the number of parts of each sum.
pub(super) fn stage(product: &Product, architecture: Architecture) -> Result<(Stage, usize)> {
    stage_of(product, architecture, Tile::choose(product))
}

fn stage_of(product: &Product, architecture: Architecture, tile: Tile) -> Result<(Stage, usize)> {
    let multiply = Multiply::of(product.operand);
    let step = multiply.step;
    let steps = product.k.div_ceil(step);
    let parts = product.parts(tile.count(product), 256).min(steps);
    let steps_of_part = steps.div_ceil(parts);
    let parts = steps.div_ceil(steps_of_part);
    // Four steps in flight need more shared memory than small multiprocessors have for two
    // blocks.
    let ahead = if architecture.shared_per_block >= 160 << 10 { 4 } else { 3 };

    let mut draft = Draft::aligned(product.alignment);
    draft.spread();
    let (pointers, mut destination) = Destination::open(&mut draft, product, parts);
    let loaders = [&product.lhs, &product.rhs].map(|gather| {
        let most = 16 / product.operand.size();
        Loader::new(gather, [tile.extent, step], tile.threads(), most)
    });
    let strips = loaders.clone().map(|loader| Strip::new(loader, &multiply));
    let buffer = strips[0].bytes() + strips[1].bytes();
    let shared = draft.dynamic_shared((ahead * buffer) as u32);
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let position = product.position(code, block, [tile.extent; 2], parts);
    let mut sides = vec![];
    for (n, strip) in strips.into_iter().enumerate() {
        let operand = strip.loader.gather.operand(code, pointers[n], position.batch);
        let outer = [position.row, position.column][n];
        let prepared = strip.loader.prepare(code, thread, outer, operand);
        let base = match n {
            0 => shared,
            _ => code.binary(Binary::Add, Type::U32, shared, (buffer - strip.bytes()) as i64),
        };
        let write = strip.write(code, &prepared, base);
        sides.push(Side { strip, prepared, write, base });
    }
    let warp = Warp::new(code, thread, tile, multiply, &sides);

    let depth = |n: usize| (n * step) as i64;
    let first = code.binary(Binary::Mul, Type::S32, position.part, depth(steps_of_part));
    let end = code.binary(Binary::Add, Type::S32, first, depth(steps_of_part));
    let end = code.binary(Binary::Min, Type::S32, end, depth(steps));
    for n in 0..ahead - 1 {
        let from = code.binary(Binary::Add, Type::S32, first, depth(n));
        let more = code.compare(Compare::Lt, Type::S32, from, end);
        let place = code.mov(Type::U32, (n * buffer) as i64);
        code.when(more, |code| sides.iter().for_each(|side| side.load(code, from, place)));
        code.push(Inst::CopyCommit);
    }
    let read = code.mov(Type::U32, 0);
    let write = code.mov(Type::U32, ((ahead - 1) * buffer) as i64);
    code.count(first, end, depth(1), |code, from| {
        // This step's strips have arrived, and all threads are done with those of the last one.
        code.push(Inst::CopyWait(ahead as u32 - 2));
        code.push(Inst::Barrier);
        let next = code.binary(Binary::Add, Type::S32, from, depth(ahead - 1));
        let more = code.compare(Compare::Lt, Type::S32, next, end);
        code.when(more, |code| sides.iter().for_each(|side| side.load(code, next, write)));
        code.push(Inst::CopyCommit);
        warp.step(code, read);
        for place in [read, write] {
            code.binary_into(place, Binary::Add, Type::U32, place, buffer as i64);
            let around = code.compare(Compare::Ge, Type::U32, place, (ahead * buffer) as i64);
            let inside = code.select(Type::U32, 0, place, around);
            code.assign(Type::U32, place, inside);
        }
    });
    warp.store(code, &mut draft.functions, product, &position, &mut destination)?;
    let remark = format!(
        "out[{}, {}] of sums over {}, batch {}: tiles of {e} by {e} by {step} on tensor \
         cores, {parts} parts.",
        product.m,
        product.n,
        product.k,
        product.batch,
        e = tile.extent
    );
    let name = format!("{}_{}_mma_{}", product.name, product.operand, tile.extent);
    // 128 registers a thread, and for f64 as many as there are: under a lower bound, ptxas hoists
    // so many loads that it spills.
    let resident = if tile == LARGE || product.operand == DType::F64 { 2 } else { 4 };
    let stage =
        draft.stage(name, remark, tile.threads() as u32, resident, tile.count(product) * parts)?;
    Ok((stage, parts))
}

/// A tile of an operand in shared memory.
#[derive(Clone)]
struct Strip<'a> {
    loader: Loader<'a>,
    /// Bytes from one row to the next; a row lies along the direction of the loader.
    pitch: usize,
}

impl<'a> Strip<'a> {
    fn new(loader: Loader<'a>, multiply: &Multiply) -> Strip<'a> {
        let size = loader.gather.number.size() as usize;
        let pitch = match loader.direction {
            Direction::Depth => loader.depths * size + multiply.pads[0],
            Direction::Outer => loader.outers * size + multiply.pads[1],
        };
        Strip { loader, pitch }
    }

    fn bytes(&self) -> usize {
        self.pitch
            * match self.loader.direction {
                Direction::Depth => self.loader.outers,
                Direction::Outer => self.loader.depths,
            }
    }

    /// Bytes from the beginning to an element.
    fn at(&self, outer: usize, depth: usize) -> i64 {
        let size = self.loader.gather.number.size();
        match self.loader.direction {
            Direction::Depth => (outer * self.pitch) as i64 + depth as i64 * size,
            Direction::Outer => (depth * self.pitch) as i64 + outer as i64 * size,
        }
    }

    /// [`at`](Self::at) of indices in registers, from an address.
    fn address(&self, code: &mut Code, base: Reg, outer: Reg, depth: Reg) -> Reg {
        let size = self.loader.gather.number.size();
        let (row, column) = match self.loader.direction {
            Direction::Depth => (outer, depth),
            Direction::Outer => (depth, outer),
        };
        let row = code.ternary(Ternary::Mad, Type::S32, row, self.pitch as i64, base);
        code.ternary(Ternary::Mad, Type::S32, column, size, row)
    }

    /// Address that a thread's first vector is written to.
    fn write(&self, code: &mut Code, prepared: &Prepared, base: Reg) -> Reg {
        self.address(code, base, prepared.outer, prepared.depth)
    }
}

/// Lhs or rhs, as one thread loads it.
struct Side<'a> {
    strip: Strip<'a>,
    prepared: Prepared,
    write: Reg,
    /// Address of the strip in the first buffer.
    base: Reg,
}

impl Side<'_> {
    /// Loads the strip that begins at a depth into a buffer.
    fn load(&self, code: &mut Code, from: Reg, buffer: Reg) {
        let loader = &self.strip.loader;
        let number = loader.gather.number;
        let vectors = loader.vectors(code, &self.prepared, from);
        let base = code.binary(Binary::Add, Type::U32, self.write, buffer);
        let to = |v: &Vector| self.strip.at(v.outer, v.depth);
        if loader.vector as i64 * number.size() == 16 {
            for v in &vectors {
                // Out of range, nothing is read and zeros are written.
                let size = match v.place.valid {
                    None => Operand::from(16),
                    Some(valid) => code.select(Type::U32, 16, 0, valid).into(),
                };
                code.push(Inst::CopyAsync {
                    to: base.into(),
                    to_offset: to(v),
                    from: v.place.address.into(),
                    from_offset: v.place.offset,
                    size,
                });
            }
            return;
        }
        let loaded: Vec<Vec<Reg>> = vectors
            .iter()
            .map(|v| number.load(code, Space::Global, v.place, loader.vector))
            .collect();
        for (v, raw) in vectors.iter().zip(loaded) {
            number.store(code, Space::Shared, Place::at(base, to(v)), &raw);
        }
    }
}

/// A warp's part of the tile.
struct Warp<'a> {
    tile: Tile,
    multiply: Multiply,
    strips: [&'a Strip<'a>; 2],
    /// Read addresses of a lane for the first fragments of lhs and of rhs, in the first buffer.
    read: [Reg; 2],
    /// Row and column of the lane's first sum in the tile.
    first: [Reg; 2],
    /// For each row of fragments, for each column of them, the sums of the lane.
    sums: Vec<Vec<Vec<Reg>>>,
}

impl<'a> Warp<'a> {
    fn new(
        code: &mut Code,
        thread: Reg,
        tile: Tile,
        multiply: Multiply,
        sides: &'a [Side<'a>],
    ) -> Warp<'a> {
        let (warp, lane) = divide(code, thread, 32);
        let (row, column) = divide(code, warp, tile.warps[1]);
        let own = tile.own();
        let corner = [row, column];
        let corner = [0, 1].map(|n| code.binary(Binary::Mul, Type::S32, corner[n], own[n] as i64));
        let (quad, within) = divide(code, lane, 4);
        let halves = multiply.shape[2] == 16;
        let read = [0, 1].map(|n| {
            let side = &sides[n];
            let (outer, depth) = if halves {
                // Lanes 8q to 8q + 7 address the rows of the q-th of four 8 × 8 matrices. The
                // instruction fixes their order: for lhs the second is further down, the third
                // further along the sum; for rhs the other way round. A matrix's rows are rows of
                // shared memory.
                let (q, line) = divide(code, lane, 8);
                let low = code.binary(Binary::And, Type::B32, q, 1);
                let high = code.binary(Binary::Shr, Type::U32, q, 1);
                let (down, along) = if n == 0 { (low, high) } else { (high, low) };
                let (down, along) =
                    [down, along].map(|q| code.binary(Binary::Shl, Type::B32, q, 3)).into();
                match side.strip.loader.direction {
                    Direction::Depth => (code.binary(Binary::Add, Type::S32, down, line), along),
                    Direction::Outer => (down, code.binary(Binary::Add, Type::S32, along, line)),
                }
            } else {
                (quad, within)
            };
            let outer = code.binary(Binary::Add, Type::S32, outer, corner[n]);
            side.strip.address(code, side.base, outer, depth)
        });
        let row = code.binary(Binary::Add, Type::S32, corner[0], quad);
        let twice = code.binary(Binary::Shl, Type::B32, within, 1);
        let column = code.binary(Binary::Add, Type::S32, corner[1], twice);
        let fragments = [own[0] / multiply.shape[0], own[1] / multiply.shape[1]];
        let count = multiply.shape[0] * multiply.shape[1] / 32;
        let zero: Operand = if multiply.sum == Type::F64 { 0f64.into() } else { 0f32.into() };
        let sums = (0..fragments[0])
            .map(|_| {
                (0..fragments[1])
                    .map(|_| (0..count).map(|_| code.mov(multiply.sum, zero.clone())).collect())
                    .collect()
            })
            .collect();
        let strips = [&sides[0].strip, &sides[1].strip];
        Warp { tile, multiply, strips, read, first: [row, column], sums }
    }

    /// Multiplies the strips of a buffer.
    fn step(&self, code: &mut Code, buffer: Reg) {
        let base = self.read.map(|r| code.binary(Binary::Add, Type::U32, r, buffer));
        for depth in (0..self.multiply.step).step_by(self.multiply.shape[2]) {
            let rows = self.fragments(code, 0, base[0], depth, 0..self.tile.own()[0]);
            // Two columns of fragments at a time, so that few registers hold them.
            for first in (0..self.tile.own()[1]).step_by(16) {
                let columns = self.fragments(code, 1, base[1], depth, first..first + 16);
                let at = first / self.multiply.shape[1];
                for (a, sums) in rows.iter().zip(&self.sums) {
                    for (b, sum) in columns.iter().zip(&sums[at..]) {
                        code.push(Inst::MatrixMultiply {
                            shape: self.multiply.shape.map(|n| n as u32),
                            accumulator: self.multiply.sum,
                            operand: self.multiply.operand,
                            d: sum.clone(),
                            a: a.clone(),
                            b: b.clone(),
                            c: sum.clone(),
                        });
                    }
                }
            }
        }
    }

    /// The fragments of a range of lhs or rhs at a depth.
    fn fragments(
        &self,
        code: &mut Code,
        side: usize,
        base: Reg,
        depth: usize,
        range: Range<usize>,
    ) -> Vec<Vec<Reg>> {
        let strip = self.strips[side];
        let extent = self.multiply.shape[side];
        let mut found = vec![];
        if self.multiply.shape[2] == 16 {
            // Four matrices are one fragment of lhs, or two of rhs.
            for outer in range.step_by(16) {
                let results: Vec<Reg> = (0..4).map(|_| code.reg_of(Type::B32)).collect();
                code.push(Inst::LoadMatrix {
                    transpose: strip.loader.direction == Direction::Outer,
                    results: results.clone(),
                    base: base.into(),
                    offset: strip.at(outer, depth),
                });
                found.extend(results.chunks(if side == 0 { 4 } else { 2 }).map(<[Reg]>::to_vec));
            }
            return found;
        }
        for outer in range.step_by(extent) {
            let mut fragment = vec![];
            for along in (0..self.multiply.shape[2]).step_by(4) {
                for down in (0..extent).step_by(8) {
                    let offset = strip.at(outer + down, depth + along);
                    let raw = code.load(Space::Shared, self.multiply.sum, base, offset);
                    fragment.push(match self.multiply.operand {
                        Type::TF32 => {
                            code.convert(Rounding::NearestAway, Type::TF32, Type::F32, raw)
                        }
                        _ => raw,
                    });
                }
            }
            found.push(fragment);
        }
        found
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
        let vector = destination.vector.min(2);
        let edge = |code: &mut Code, index: Reg, extent: usize| {
            (!extent.is_multiple_of(self.tile.extent))
                .then(|| code.compare(Compare::Lt, Type::S32, index, extent as i64))
        };
        let first_row = code.binary(Binary::Add, Type::S32, position.row, self.first[0]);
        let first_column = code.binary(Binary::Add, Type::S32, position.column, self.first[1]);
        // A lane has two neighbouring sums in every eighth row of a fragment.
        let mut columns = vec![];
        for fragment in 0..self.sums[0].len() {
            for at in (0..2).step_by(vector) {
                let far = (fragment * self.multiply.shape[1] + at) as i64;
                let j = code.binary(Binary::Add, Type::S32, first_column, far);
                let below = edge(code, j, product.n);
                let bias = destination.bias(code, j, vector, below);
                columns.push((fragment, at, j, below, bias));
            }
        }
        for (row, sums) in self.sums.iter().enumerate() {
            for eighth in 0..self.multiply.shape[0] / 8 {
                let far = (row * self.multiply.shape[0] + 8 * eighth) as i64;
                let i = code.binary(Binary::Add, Type::S32, first_row, far);
                let inside = edge(code, i, product.m);
                let line = destination.row(code, start, i);
                for (fragment, at, j, below, bias) in &columns {
                    let valid = both(code, inside, *below);
                    let offset = destination.column(code, line, *j);
                    let run = Run { at: [position.batch, i, *j], offset, valid };
                    let first = 2 * eighth + at;
                    let values = &sums[*fragment][first..first + vector];
                    destination.store(code, functions, run, values, bias)?;
                }
            }
        }
        Ok(())
    }
}
