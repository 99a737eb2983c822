//! The product on Hopper's tensor cores (`wgmma`).
//!
//! A block of two warpgroups computes a tile of out, 64 rows each, and keeps the sums in registers.
//! Both factors of `wgmma` come from shared memory, so fragments take no registers and no
//! instructions. All threads copy strips of lhs and rhs there, 128 bytes along the sum at a time,
//! by `cp.async`: a launch passes addresses only, and no descriptions of tensors, of which bulk
//! copies make tiles. The threads permute the groups of 16 bytes as the swizzle wants them
//! ([`strip`]).
//!
//! A step of the loop:
//!
//! 1. Wait for this step's strips, which earlier steps asked for; make them visible to the proxy of
//!    `wgmma`; meet at the block's barrier.
//! 2. Begin this step's products, as a group.
//! 3. Ask for the strips of a later step. Their buffer is the one of two steps ago, whose products
//!    every thread has waited for before the barrier.
//! 4. Wait for the last step's products. This step's go on, so tensor cores work while threads wait
//!    and meet.
//!
//! | elements | tile | step | buffers | blocks | registers | shared memory |
//! |---|---|---|---|---|---|---|
//! | f16, bf16 | 128 × 256 | 64 | 4 | 1 | 160 to 240 | 193 KiB |
//! | f16, bf16 | 128 × 128 | 64 | 3 | 2 | 94 to 128 | 97 KiB |
//! | 8-bit floats | 128 × 128 | 128 | 4 | 1 | 220 | 129 KiB |
//!
//! Bound: a step of the wide tile reads 48 KiB and makes 2 Mi multiply-adds of them, for which an
//! H100 takes 1024 cycles: 48 bytes a cycle from the second-level cache. The narrow tile needs 64;
//! of two blocks, one multiplies while the other stores.
//!
//! Sums have the arithmetic of `wgmma`: 16 products of halves and a sum are added with two extra
//! bits, and truncated. Sums of 8-bit floats have 13 bits. So each 64 terms are added from 0, and
//! then in f32; the products of the other chain of a step go on meanwhile, and the step ends with
//! its products. f32 is not multiplied here: its elements would be truncated to tf32, and must lie
//! along the sum.

mod strip;
mod sums;

use super::finish::Destination;
use super::loader::Prepared;
use super::{FULL, Product};
use crate::architecture::Architecture;
use crate::call::draft::Draft;
use crate::call::index::quotient;
use crate::ptx::hopper::{Hopper, PRODUCT_ROWS};
use crate::ptx::{Binary, Code, Compare, Inst, Lanes, Reg, Type};
use crate::stage::Stage;
use strip::{PATTERN, Strip};
use sums::Sums;
use wengert_core::Result;

/// A block's tile of out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tile {
    columns: usize,
    /// Buffers of strips in shared memory.
    buffers: usize,
    /// Blocks on a multiprocessor.
    resident: usize,
}

pub(super) const WIDE: Tile = Tile { columns: 256, buffers: 4, resident: 1 };
pub(super) const NARROW: Tile = Tile { columns: 128, buffers: 3, resident: 2 };
/// Of 8-bit floats: chains take as many registers as sums, each.
const OF_FLOAT8: Tile = Tile { columns: 128, buffers: 4, resident: 1 };

/// Threads of a warpgroup.
const GROUP: usize = 128;
/// Warpgroups of a block.
const GROUPS: usize = 2;
const THREADS: usize = GROUP * GROUPS;
/// Rows of a tile.
const ROWS: usize = PRODUCT_ROWS as usize * GROUPS;
/// Multiprocessors of an H100.
const MULTIPROCESSORS: usize = 132;

impl Tile {
    fn count(&self, product: &Product) -> usize {
        product.batch * product.m.div_ceil(ROWS) * product.n.div_ceil(self.columns)
    }

    /// The time of a multiprocessor, in columns of out for each row of it.
    fn time(&self, product: &Product) -> usize {
        let waves = self.count(product).div_ceil(self.resident * MULTIPROCESSORS);
        waves * self.resident * self.columns
    }

    /// The tile that takes less time, where narrow ones take an eighth more for the same work.
    fn choose(product: &Product) -> Tile {
        if product.operand.is_float8() {
            return OF_FLOAT8;
        }
        let filled = WIDE.count(product) * 2 >= FULL;
        if filled && WIDE.time(product) * 8 <= NARROW.time(product) * 9 { WIDE } else { NARROW }
    }
}

/// Whether warpgroups can compute it: the factors are matrices of halves of which 16 bytes are
/// contiguous, or of 8-bit floats that lie along the sum.
pub(super) fn can(product: &Product, architecture: Architecture) -> bool {
    let factors = [&product.lhs, &product.rhs];
    architecture.multiplies_by_warpgroups()
        && (product.operand.is_half() || product.operand.is_float8())
        && product.tensor_cores()
        && factors.into_iter().all(|factor| Strip::new(factor, ROWS, THREADS).is_some())
}

/// Whether warpgroups compute it faster than warps: they can, and there are enough tiles.
pub(super) fn fits(product: &Product, architecture: Architecture) -> bool {
    can(product, architecture)
        && NARROW.count(product) * 2 >= FULL
        && product.m.min(product.n) > ROWS / 2
}

/// The stage, and the number of parts of each sum.
pub(super) fn stage(product: &Product) -> Result<(Stage, usize)> {
    stage_of(product, Tile::choose(product))
}

pub(super) fn stage_of(product: &Product, tile: Tile) -> Result<(Stage, usize)> {
    let factors = [&product.lhs, &product.rhs];
    let extents = [ROWS, tile.columns];
    let strips = [0, 1].map(|n| {
        Strip::new(factors[n], extents[n], THREADS).expect("warpgroups can compute the product")
    });
    let step = strips[0].depth();
    let steps = product.k.div_ceil(step);
    let parts = product.parts(tile.count(product), 256).min(steps);
    let steps_of_part = steps.div_ceil(parts);
    let parts = steps.div_ceil(steps_of_part);

    let mut draft = Draft::aligned(product.alignment);
    draft.spread();
    let (pointers, mut destination) = Destination::open(&mut draft, product, parts);
    let buffer = strips[0].bytes() + strips[1].bytes();
    let shared = draft.dynamic_shared((tile.buffers * buffer + PATTERN) as u32);
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    // The pattern of the swizzle begins at its multiples.
    let shared = code.binary(Binary::Add, Type::U32, shared, PATTERN as i64 - 1);
    let shared = code.binary(Binary::And, Type::B32, shared, -(PATTERN as i64));
    let position = product.position(code, block, extents, parts);
    let group = quotient(code, thread, GROUP);
    // The same in all lanes, as `ptxas` sees.
    let group = code.shuffle(&Lanes::of(0), group);
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
        // A warpgroup has its own rows of lhs, and all columns of rhs.
        let own = match n {
            0 => {
                let far = code.binary(Binary::Mul, Type::S32, group, strip.group_bytes() as i64);
                code.binary(Binary::Add, Type::U32, base, far)
            }
            _ => base,
        };
        let descriptor = code.descriptor(own, strip.layout());
        sides.push(Side { strip, prepared, write, descriptor });
    }
    let sums = Sums::new(code, thread, tile, [&sides[0].strip, &sides[1].strip]);

    let depth = |n: usize| (n * step) as i64;
    let first = code.binary(Binary::Mul, Type::S32, position.part, depth(steps_of_part));
    let end = code.binary(Binary::Add, Type::S32, first, depth(steps_of_part));
    let end = code.binary(Binary::Min, Type::S32, end, depth(steps));
    // One buffer is read, and those of steps whose products go on.
    let ahead = tile.buffers - 1 - sums.going_on();
    for n in 0..ahead {
        let from = code.binary(Binary::Add, Type::S32, first, depth(n));
        let more = code.compare(Compare::Lt, Type::S32, from, end);
        let place = code.mov(Type::U32, (n * buffer) as i64);
        code.when(more, |code| sides.iter().for_each(|side| side.load(code, from, place)));
        code.push(Inst::CopyCommit);
    }
    let read = code.mov(Type::U32, 0);
    let write = code.mov(Type::U32, (ahead * buffer) as i64);
    code.count(first, end, depth(1), |code, from| {
        code.no_unroll();
        code.push(Inst::CopyWait(ahead as u32 - 1));
        code.push(Inst::Hopper(Hopper::ProxyFence));
        code.push(Inst::Barrier);
        sums.begin(code, &sides, read);
        let next = code.binary(Binary::Add, Type::S32, from, depth(ahead));
        let more = code.compare(Compare::Lt, Type::S32, next, end);
        code.when(more, |code| sides.iter().for_each(|side| side.load(code, next, write)));
        code.push(Inst::CopyCommit);
        sums.end(code);
        for place in [read, write] {
            code.binary_into(place, Binary::Add, Type::U32, place, buffer as i64);
            let around =
                code.compare(Compare::Ge, Type::U32, place, (tile.buffers * buffer) as i64);
            let inside = code.select(Type::U32, 0, place, around);
            code.assign(Type::U32, place, inside);
        }
    });
    code.push(Inst::Hopper(Hopper::ProductWait(0)));
    let functions = &mut draft.functions;
    sums.fragments.store(code, functions, product, &position, &mut destination)?;
    let remark = format!(
        "out[{}, {}] of sums over {}, batch {}: tiles of {ROWS} by {} by {step} on tensor cores, \
         by warpgroups, {parts} parts.",
        product.m, product.n, product.k, product.batch, tile.columns
    );
    let name = format!("{}_{}_wgmma_{}", product.name, product.operand, tile.columns);
    let blocks = tile.count(product) * parts;
    let stage = draft.stage(name, remark, THREADS as u32, tile.resident as u32, blocks)?;
    Ok((stage, parts))
}

/// Lhs or rhs, as one thread loads it and its warpgroup reads it.
struct Side<'a> {
    strip: Strip<'a>,
    prepared: Prepared,
    /// Address that the thread's first vector is written to, in the first buffer.
    write: Reg,
    /// What the warpgroup reads of the first buffer.
    descriptor: Reg,
}

impl Side<'_> {
    /// Copies the strip that begins at a depth into a buffer.
    fn load(&self, code: &mut Code, from: Reg, buffer: Reg) {
        let to = code.binary(Binary::Add, Type::U32, self.write, buffer);
        for vector in self.strip.loader.vectors(code, &self.prepared, from) {
            let far = self.strip.far(&vector);
            vector.copy(code, to, far);
        }
    }
}
