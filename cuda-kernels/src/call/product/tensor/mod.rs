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
//! | 8-bit floats | m16n8k32, sums in f32 | 64 × 64 | 64 | 2 × 2 | 32 × 32 | 110 to 150 | 3 or 4 × 10 KiB |
//! | f32 as tf32 | m16n8k8 | 128 × 128 | 16 | 2 × 4 | 64 × 32 | 128 | 3 or 4 × 20 KiB |
//! | f32 as tf32 | m16n8k8 | 64 × 64 | 16 | 2 × 2 | 32 × 32 | 64 to 128 | 3 or 4 × 10 KiB |
//! | f64 | m8n8k4 | 64 × 64 | 16 | 2 × 2 | 32 × 32 | 96 to 200 | 3 or 4 × 20 KiB |
//!
//! Bound: a step of the large tile of halves reads 16 KiB and makes 512 Ki multiply-adds of them,
//! 32 a byte. An A100 (312 TFLOP/s by 1.6 TB/s) needs 100 for each byte of its memory. The cache
//! provides the difference: neighbouring tiles read the same strips. `mma.sync` reaches about two
//! thirds of the throughput of `wgmma` on Hopper.

mod multiply;
mod strip;
mod warp;

use super::finish::Destination;
use super::loader::Loader;
use super::{FULL, Product};
use crate::architecture::Architecture;
use crate::call::draft::Draft;
use crate::ptx::{Binary, Compare, Inst, Type};
use crate::stage::Stage;
use multiply::Multiply;
use strip::{Side, Strip};
use warp::Warp;
use wengert_core::{DType, Result};

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
        // A small tile of 8-bit floats has as many multiplications for a byte as a large one of
        // halves.
        let small = product.operand == DType::F64 || product.operand.is_float8();
        if enough && !small { LARGE } else { SMALL }
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
    let multiply = Multiply::of(product, architecture);
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
    let loaders = [&product.lhs, &product.rhs]
        .map(|gather| Loader::of_strip(gather, [tile.extent, step], tile.threads()));
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
        if multiply.chain > 1 {
            code.no_unroll();
        }
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
    let functions = &mut draft.functions;
    warp.fragments.store(code, functions, product, &position, &mut destination)?;
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
    // so many loads that it spills. Chains of 8-bit floats, or their conversions where tensor cores
    // have none of this kind, need up to 168.
    let resident = match product.operand {
        DType::F64 => 2,
        dtype if dtype.is_float8() => 3,
        _ if tile == LARGE => 2,
        _ => 4,
    };
    let stage =
        draft.stage(name, remark, tile.threads() as u32, resident, tile.count(product) * parts)?;
    Ok((stage, parts))
}
