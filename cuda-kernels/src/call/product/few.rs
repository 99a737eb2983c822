//! The product of a few rows with a matrix whose rows, across the sum, are contiguous: decoding of
//! one token, and small batches.
//!
//! A block of threads has all rows and some neighbouring columns. Its lanes along the columns load
//! vectors, side by side; its other lanes and its warps divide the sum. So the matrix is read once,
//! whatever the number of rows, with many loads in flight before a thread waits. The few rows of
//! lhs come from the first-level cache. Lanes of a warp exchange their sums (a butterfly), and the
//! warps add up through shared memory, in order.
//!
//! The order of a sum depends on the matrix alone. So the bits of a row do not depend on the number
//! of rows.
//!
//! 256 threads, up to 128 registers, up to 16 KiB of shared memory. Bound: reading the matrix once.

use super::super::draft::Draft;
use super::super::index::{digits, divide};
use super::super::number::{Number, Place};
use super::finish::{Destination, Run};
use super::gather::{Direction, Gather, Half, Moves};
use super::{FEW, FULL, Product, SUM, check_extent};
use crate::ptx::{Binary, Code, Compare, Inst, Lanes, Reg, Space, Ternary, Type};
use crate::stage::Stage;
use wengert_core::Result;

const THREADS: usize = 256;
const WARPS: usize = THREADS / 32;
/// Resident blocks of a multiprocessor: a quarter of the threads that fit, so that each has
/// registers for its loads in flight.
const RESIDENT: u32 = 2;
/// Bytes of a sector of the memory.
const SECTOR: usize = 32;
/// Most lanes along the columns.
const LANES: usize = 16;
/// Minimum number of terms of a part of a sum.
const LONG: usize = 4096;

/// Whether there are few rows and the columns of the matrix are neighbours.
pub(super) fn fits(product: &Product) -> bool {
    let plain = |g: &Gather| g.meetings.is_empty() && g.depth.len() == 1 && g.outer.len() == 1;
    product.m <= FEW
        && product.k >= SUM
        && product.m <= product.n
        && plain(&product.lhs)
        && plain(&product.rhs)
        && product.rhs.outer[0].moves == Moves::By(1)
}

/// Lanes along the columns, each with a vector: as many as leave enough blocks to fill a GPU, but a
/// block reads whole sectors. If that leaves most of a GPU idle, it reads halves of them.
fn lanes(product: &Product, vector: usize) -> usize {
    let blocks = |lanes: usize| product.batch * product.n.div_ceil(lanes * vector);
    let sector = SECTOR.div_ceil(vector * product.operand.size()).next_power_of_two().min(LANES);
    let mut lanes = LANES;
    while lanes > sector && blocks(lanes) < FULL / 2 {
        lanes /= 2;
    }
    if lanes > 1 && blocks(lanes) < FULL / 4 { lanes / 2 } else { lanes }
}

/// The stage, and the number of parts of each sum.
pub(super) fn stage(product: &Product) -> Result<(Stage, usize)> {
    let (rows, number, sums) = (product.m, Number(product.operand), product.sums());
    let vector = product.rhs.vector(Direction::Outer, number.vector());
    let lanes = lanes(product, vector);
    let (ranges, width) = (THREADS / lanes, lanes * vector);
    let tiles = product.n.div_ceil(width);
    // Loads of a lane before it waits, if it has as many terms.
    let many = [16, 16, 8, 8, 4][rows.min(5) - 1];
    let parts = product.parts(product.batch * tiles, LONG.max(many * ranges));
    let range = product.k.div_ceil(parts).next_multiple_of(ranges);
    let parts = product.k.div_ceil(range).max(1);
    let many = many.min(range / ranges);
    check_extent("the number of blocks of a product", product.batch * parts * tiles)?;

    let mut draft = Draft::aligned(product.alignment);
    let (pointers, mut destination) = Destination::open(&mut draft, product, parts);
    let shared = draft.shared("warps", (WARPS * rows * width * sums.size() as usize) as u32);
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let at = digits(code, block, &[product.batch, parts, tiles]);
    let (batch, part, tile) = (at[0], at[1], at[2]);
    let (own, lane) = divide(code, thread, lanes);
    let tile_column = code.binary(Binary::Mul, Type::S32, tile, width as i64);
    let lane_column = code.binary(Binary::Mul, Type::S32, lane, vector as i64);
    let column = code.binary(Binary::Add, Type::S32, tile_column, lane_column);
    let partial = Partial {
        product,
        outers: product.lhs.few(code, pointers[0], batch, rows),
        column: {
            let operand = product.rhs.operand(code, pointers[1], batch);
            product.rhs.half(code, Direction::Outer, column, Some(operand), 1)
        },
        vector,
        ranges,
        sums: (0..rows * vector).map(|_| code.mov(sums.wide(), sums.zero())).collect(),
    };
    let inside = code.compare(Compare::Lt, Type::S32, column, product.n as i64);
    code.when(inside, |code| {
        let begin = code.binary(Binary::Mul, Type::S32, part, range as i64);
        let end = code.binary(Binary::Add, Type::S32, begin, range as i64);
        let end = code.binary(Binary::Min, Type::S32, end, product.k as i64);
        let from = code.binary(Binary::Add, Type::S32, begin, own);
        partial.add_up(code, [from, end], many);
    });

    // The lanes of a warp that have the same columns.
    let mut bits = lanes as i64;
    while bits < 32 {
        for sum in &partial.sums {
            let other = code.shuffle(&Lanes::butterfly(bits), *sum);
            code.push(Inst::Binary(Binary::Add, sums.wide(), *sum, (*sum).into(), other.into()));
        }
        bits *= 2;
    }
    let (warp, in_warp) = divide(code, thread, 32);
    let first = code.compare(Compare::Lt, Type::S32, in_warp, lanes as i64);
    let slot = code.ternary(Ternary::Mad, Type::S32, warp, (rows * width) as i64, lane_column);
    let slot = code.ternary(Ternary::Mad, Type::S32, slot, sums.size(), shared);
    for (row, of_row) in partial.sums.chunks(vector).enumerate() {
        for (n, chunk) in of_row.chunks(sums.vector()).enumerate() {
            let offset = (row * width + n * sums.vector()) as i64 * sums.size();
            let place = Place { address: slot, offset, valid: Some(first) };
            sums.store(code, Space::Shared, place, chunk);
        }
    }
    code.push(Inst::Barrier);

    code.count(thread, (rows * width) as i64, THREADS as i64, |code, element| {
        let (row, near) = divide(code, element, width);
        let column = code.binary(Binary::Add, Type::S32, tile_column, near);
        let inside = code.compare(Compare::Lt, Type::S32, column, product.n as i64);
        code.when(inside, |code| {
            let place = code.ternary(Ternary::Mad, Type::S32, element, sums.size(), shared);
            let warp = (rows * width) as i64 * sums.size();
            let all: Vec<Reg> = (0..WARPS as i64)
                .map(|n| sums.load(code, Space::Shared, Place::at(place, n * warp), 1)[0])
                .collect();
            let total = all[1..].iter().fold(all[0], |total, next| sums.add(code, total, *next));
            let start = destination.start(code, part, batch);
            let offset = destination.row(code, start, row);
            let offset = destination.column(code, offset, column);
            let shared = destination.columns(code, column, 1, None);
            let run = Run { at: [batch, row, column], offset, valid: None };
            destination.store(code, &mut draft.functions, run, &[total], &shared)
        })
    })?;
    let remark = format!(
        "out[{rows}, {}] of sums over {}, batch {}: {width} columns a block, {ranges} ranges, \
         {parts} parts.",
        product.n, product.k, product.batch
    );
    let name = format!("{}_{}_few", product.name, product.operand);
    let stage =
        draft.stage(name, remark, THREADS as u32, RESIDENT, product.batch * parts * tiles)?;
    Ok((stage, parts))
}

/// A thread's sums: its vector of columns for each row, over its terms.
struct Partial<'a> {
    product: &'a Product,
    /// The rows of lhs.
    outers: Vec<Half>,
    /// The columns of rhs.
    column: Half,
    vector: usize,
    /// Distance from a term of a thread to its next.
    ranges: usize,
    sums: Vec<Reg>,
}

impl Partial<'_> {
    /// Adds the terms from `from` up to `end`, `many` at a time. A term beyond the end is 0.
    fn add_up(&self, code: &mut Code, [from, end]: [Reg; 2], many: usize) {
        let step = (many * self.ranges) as i64;
        let whole = code.binary(Binary::Sub, Type::S32, end, step - self.ranges as i64);
        code.count(from, end, step, |code, index| {
            let all = code.compare(Compare::Lt, Type::S32, index, whole);
            code.either(
                all,
                |code| self.add(code, index, many, None),
                |code| self.add(code, index, many, Some(end)),
            );
        });
    }

    /// Adds `count` terms, from `from` on, those before an end: loads first.
    fn add(&self, code: &mut Code, from: Reg, count: usize, end: Option<Reg>) {
        let (lhs, rhs) = (&self.product.lhs, &self.product.rhs);
        let steps = [count, self.ranges];
        let before = |code: &mut Code, n: usize| {
            let index = code.binary(Binary::Add, Type::S32, from, (n * self.ranges) as i64);
            end.map(|end| code.compare(Compare::Lt, Type::S32, index, end))
        };
        let exists: Vec<Option<Reg>> = (0..count).map(|n| before(code, n)).collect();
        let depths = rhs.halves(code, Direction::Depth, from, steps, None, 1);
        let mut columns = vec![];
        for (depth, valid) in depths.iter().zip(&exists) {
            let place = Place { valid: *valid, ..rhs.place(code, &self.column, depth) };
            columns.push(rhs.number.load(code, Space::Global, place, self.vector));
        }
        let depths = lhs.halves(code, Direction::Depth, from, steps, None, 1);
        let mut elements = vec![];
        for (depth, valid) in depths.iter().zip(&exists) {
            for outer in &self.outers {
                let place = Place { valid: *valid, ..lhs.place(code, outer, depth) };
                elements.push(lhs.number.load(code, Space::Global, place, 1)[0]);
            }
        }
        for (columns, elements) in columns.iter().zip(elements.chunks(self.outers.len())) {
            let columns: Vec<Reg> = columns.iter().map(|y| rhs.number.widen(code, *y)).collect();
            for (x, sums) in elements.iter().zip(self.sums.chunks(self.vector)) {
                let x = lhs.number.widen(code, *x);
                for (y, sum) in columns.iter().zip(sums) {
                    lhs.number.accumulate(code, *sum, x, *y);
                }
            }
        }
    }
}
