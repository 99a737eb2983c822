//! The direct product: each thread computes one element of out, and reads its operands from
//! memory.
//!
//! For products of one row or one column, and for groups of one or two channels (depthwise
//! convolution), where a tile would be mostly padding. Neighbouring threads compute neighbouring
//! elements of out in memory, so a warp's reads of the larger operand are contiguous too; the
//! other operand, and elements that windows share, come from the first-level cache.
//!
//! 256 threads, up to 64 registers. If the sums are long, the warps of a block share them: 32
//! elements to a block, eight ranges of the sum, added up in order through 1 or 2 KiB of shared
//! memory; beyond that, parts in the workspace. Short sums of gathered operands (3 × 3 taps) are
//! unrolled, so that the places where taps meet are constant distances; others go four terms at a
//! time, loads first.
//!
//! Bound: reading the larger operand once (matrix by vector), or two reads from the first-level
//! cache for each multiply-add (depthwise).

use super::super::draft::Draft;
use super::super::index::{digits, divide};
use super::super::number::{Number, Place};
use super::finish::{Destination, Run};
use super::gather::{Direction, Gather, Half};
use super::{Product, check_extent};
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Space, Ternary, Type};
use crate::stage::Stage;
use wengert_core::Result;

const THREADS: usize = 256;
/// Ranges of a long sum in a block.
const RANGES: usize = 8;
/// Sums of more terms are shared by the warps of a block.
const LONG: usize = 256;
/// Sums of gathered operands of at most this many terms are unrolled.
const UNROLLED: usize = 64;
/// Terms that are loaded at a time.
const AT_A_TIME: usize = 4;

/// The stage, and the number of parts of each sum.
pub(super) fn stage(product: &Product) -> Result<(Stage, usize)> {
    let ranges = if product.k > LONG { RANGES } else { 1 };
    let own = THREADS / ranges;
    let elements = product.batch * product.m * product.n;
    check_extent("the number of elements of a product", elements)?;
    let parts = product.parts(elements.div_ceil(own), LONG * RANGES);
    let range = product.k.div_ceil(parts * ranges);
    let mut draft = Draft::aligned(product.alignment);
    let (pointers, mut destination) = Destination::open(&mut draft, product, parts);
    let sums = product.sums();
    let shared =
        (ranges > 1).then(|| draft.shared("ranges", (THREADS as i64 * sums.size()) as u32));
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let (first, part) = divide(code, block, parts);
    let (number_of_range, lane) = divide(code, thread, own);
    let element = code.ternary(Ternary::Mad, Type::S32, first, own as i64, lane);
    let inside = code.compare(Compare::Lt, Type::S32, element, elements as i64);
    let (batch, row, column);
    if product.out.batch < product.out.row {
        // Groups are between the rows.
        let all = digits(code, element, &[product.m, product.batch, product.n]);
        (row, batch, column) = (all[0], all[1], all[2]);
    } else {
        let all = digits(code, element, &[product.batch, product.m, product.n]);
        (batch, row, column) = (all[0], all[1], all[2]);
    }
    let sum = code.mov(sums.wide(), sums.zero());
    let thread_of = Thread { product, sum, range, pointers, batch, outers: [row, column] };
    if product.k > 0 {
        code.when(inside, |code| {
            let at = code.ternary(Ternary::Mad, Type::S32, part, ranges as i64, number_of_range);
            thread_of.add_up(code, at, parts * ranges);
        });
    }
    let mut store = |code: &mut Code, sum: Reg| {
        let start = destination.start(code, part, batch);
        let at = destination.row(code, start, row);
        let offset = destination.column(code, at, column);
        let shared = destination.columns(code, column, 1, None);
        let run = Run { at: [batch, row, column], offset, valid: None };
        let functions = &mut draft.functions;
        destination.store(code, functions, run, &[sum], &shared)
    };
    match shared {
        None => code.when(inside, |code| store(code, sum))?,
        Some(shared) => {
            let place = code.ternary(Ternary::Mad, Type::S32, thread, sums.size(), shared);
            sums.store(code, Space::Shared, Place::at(place, 0), &[sum]);
            code.push(Inst::Barrier);
            let owner = code.compare(Compare::Eq, Type::S32, number_of_range, 0);
            let owner = code.binary(Binary::And, Type::Pred, owner, inside);
            code.when(owner, |code| {
                let mut total = sum;
                for n in 1..ranges {
                    let offset = (n * own) as i64 * sums.size();
                    let other = sums.load(code, Space::Shared, Place::at(place, offset), 1);
                    total = sums.add(code, total, other[0]);
                }
                store(code, total)
            })?;
        }
    }
    let remark = format!(
        "out[{}, {}] of sums over {}, batch {}: an element a thread, {ranges} ranges, \
         {parts} parts.",
        product.m, product.n, product.k, product.batch
    );
    let name = format!("{}_{}_direct", product.name, product.operand);
    let stage = draft.stage(name, remark, THREADS as u32, 0, elements.div_ceil(own) * parts)?;
    Ok((stage, parts))
}

/// A thread's sum.
struct Thread<'a> {
    product: &'a Product,
    sum: Reg,
    /// Terms of a range.
    range: usize,
    pointers: [Reg; 2],
    batch: Reg,
    /// Row and column.
    outers: [Reg; 2],
}

impl Thread<'_> {
    /// Adds the terms of range number `at`.
    fn add_up(&self, code: &mut Code, at: Reg, ranges: usize) {
        let gathers = [&self.product.lhs, &self.product.rhs];
        let mut fixed = vec![];
        for (side, gather) in gathers.into_iter().enumerate() {
            let operand = gather.operand(code, self.pointers[side], self.batch);
            fixed.push(gather.half(code, Direction::Outer, self.outers[side], Some(operand), 1));
        }
        let k = self.product.k;
        let gathered = gathers.iter().any(|g| g.depth.len() > 1 || !g.meetings.is_empty());
        if gathered && k <= UNROLLED && ranges == 1 {
            for chunk in (0..k).collect::<Vec<_>>().chunks(AT_A_TIME) {
                let depths = |gather: &Gather, _: &mut Code| {
                    chunk.iter().map(|k| gather.depth_half(*k)).collect()
                };
                self.terms(code, &fixed, &depths);
            }
            return;
        }
        let from = code.binary(Binary::Mul, Type::S32, at, self.range as i64);
        let to = code.binary(Binary::Add, Type::S32, from, self.range as i64);
        let to = code.binary(Binary::Min, Type::S32, to, k as i64);
        let count = code.binary(Binary::Sub, Type::S32, to, from);
        let count = code.binary(Binary::Max, Type::S32, count, 0);
        let whole = code.binary(Binary::And, Type::B32, count, -(AT_A_TIME as i64));
        let middle = code.binary(Binary::Add, Type::S32, from, whole);
        for (from, to, many) in [(from, middle, AT_A_TIME), (middle, to, 1)] {
            code.count(from, to, many as i64, |code, index| {
                let depths = |gather: &Gather, code: &mut Code| {
                    gather.halves(code, Direction::Depth, index, [many, 1], None, 1)
                };
                self.terms(code, &fixed, &depths);
            });
        }
    }

    /// Adds the terms of some depths: loads first.
    fn terms(
        &self,
        code: &mut Code,
        fixed: &[Half],
        depths: &dyn Fn(&Gather, &mut Code) -> Vec<Half>,
    ) {
        let number = Number(self.product.operand);
        let mut sides = vec![];
        for (gather, outer) in [&self.product.lhs, &self.product.rhs].into_iter().zip(fixed) {
            let depths = depths(gather, code);
            let places: Vec<Place> = depths.iter().map(|d| gather.place(code, outer, d)).collect();
            let raw: Vec<Reg> =
                places.into_iter().map(|p| number.load(code, Space::Global, p, 1)[0]).collect();
            sides.push(raw);
        }
        for (x, y) in sides[0].iter().zip(&sides[1]) {
            let (x, y) = (number.widen(code, *x), number.widen(code, *y));
            number.accumulate(code, self.sum, x, y);
        }
    }
}
