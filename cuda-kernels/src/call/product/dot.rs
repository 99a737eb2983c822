//! The product by dot products: a row of the larger operand meets the few rows of the smaller one
//! in a warp, or in a block if there are few of them. The lanes divide the sums.
//!
//! For a matrix by a few vectors where the rows of the matrix (along the sum) are contiguous: a
//! warp reads 512 bytes of a row at a time, 16 bytes a lane, several times before it waits. Each
//! lane has sums of its own. At the end lanes exchange theirs (a butterfly, in which both lanes of
//! a pair add the same two numbers), and then the warps of a block through shared memory, in order.
//! 256 threads, up to 128 registers, up to 512 bytes of shared memory.
//!
//! The order of a sum depends on the larger operand alone. So the bits of a row do not depend on
//! the number of rows.
//!
//! Bound: reading the matrix once.

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
/// Minimum number of terms of a part of a sum.
const LONG: usize = 2048;

/// Whether the smaller operand has few rows and the larger one is contiguous along the sum.
pub(super) fn fits(product: &Product) -> bool {
    let larger = if product.m >= product.n { &product.lhs } else { &product.rhs };
    let plain = |g: &Gather| g.meetings.is_empty() && g.depth.len() == 1;
    product.m.min(product.n) <= FEW
        && product.k >= SUM
        && plain(&product.lhs)
        && plain(&product.rhs)
        && larger.depth[0].moves == Moves::By(1)
}

/// The stage, and the number of parts of each sum.
pub(super) fn stage(product: &Product) -> Result<(Stage, usize)> {
    // The operand with the more rows.
    let larger = usize::from(product.n > product.m);
    let (count, few) = (product.m.max(product.n), product.m.min(product.n));
    let elements = product.batch * count;
    check_extent("the number of elements of a product", elements * few)?;
    // Few long sums get a block each.
    let lanes = if elements < 4 * FULL && product.k >= 2048 { THREADS } else { 32 };
    let own = THREADS / lanes;
    // Vectors of a lane that are loaded at a time.
    let many = if few > 2 { 2 } else { 4 };
    let number = Number(product.operand);
    let sides = [&product.lhs, &product.rhs];
    let vector = |g: &Gather| match g.depth[0].moves {
        Moves::By(1) => g.vector(Direction::Depth, number.vector()),
        _ => number.vector(),
    };
    let mut vector = vector(sides[0]).min(vector(sides[1]));
    while !product.k.is_multiple_of(vector) {
        vector /= 2;
    }
    let turn = lanes * vector;
    let parts = product.parts(elements.div_ceil(own), LONG.max(4 * turn));
    let range = product.k.div_ceil(parts).next_multiple_of(turn);
    let parts = product.k.div_ceil(range);

    let mut draft = Draft::aligned(product.alignment);
    let (pointers, mut destination) = Destination::open(&mut draft, product, parts);
    let sums = product.sums();
    let shared = (lanes > 32)
        .then(|| draft.shared("warps", (few * THREADS / 32) as u32 * sums.size() as u32));
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let (first, part) = divide(code, block, parts);
    let (which, lane) = divide(code, thread, lanes);
    let element = code.ternary(Ternary::Mad, Type::S32, first, own as i64, which);
    let inside = code.compare(Compare::Lt, Type::S32, element, elements as i64);
    let all = digits(code, element, &[product.batch, count]);
    let (batch, element) = (all[0], all[1]);
    let found: Vec<Reg> = (0..few).map(|_| code.mov(sums.wide(), sums.zero())).collect();
    code.when(inside, |code| {
        let operand = sides[larger].operand(code, pointers[larger], batch);
        let outers = vec![sides[larger].half(code, Direction::Outer, element, Some(operand), 1)];
        let other = 1 - larger;
        let others = sides[other].few(code, pointers[other], batch, few);
        let from = code.binary(Binary::Mul, Type::S32, part, range as i64);
        let to = code.binary(Binary::Add, Type::S32, from, range as i64);
        let to = code.binary(Binary::Min, Type::S32, to, product.k as i64);
        let at = code.ternary(Ternary::Mad, Type::S32, lane, vector as i64, from);
        // Whole turns of all lanes, several at a time; then single vectors, up to the lane's
        // last.
        let step = (many * turn) as i64;
        let whole = code.binary(Binary::Sub, Type::S32, to, step - 1);
        let own_whole = code.ternary(Ternary::Mad, Type::S32, lane, vector as i64, whole);
        let sides = [(sides[larger], outers), (sides[other], others)];
        let lane_sums = LaneSums { sides, vector, turn, sums: found.clone() };
        let next = code.mov(Type::S32, at);
        code.count(at, own_whole, step, |code, index| {
            lane_sums.add(code, index, many);
            code.binary_into(next, Binary::Add, Type::S32, index, step);
        });
        code.count(next, to, turn as i64, |code, index| lane_sums.add(code, index, 1));
    });
    let mut totals = found;
    for bits in [16, 8, 4, 2, 1] {
        for total in &mut totals {
            let other = code.shuffle(&Lanes::butterfly(bits), *total);
            *total = sums.add(code, *total, other);
        }
    }
    let owner = code.compare(Compare::Eq, Type::S32, lane, 0);
    if let Some(shared) = shared {
        let (warp, in_warp) = divide(code, thread, 32);
        let place = code.ternary(Ternary::Mad, Type::S32, warp, sums.size(), shared);
        let first = code.compare(Compare::Eq, Type::S32, in_warp, 0);
        let warps = THREADS as i64 / 32;
        for (n, total) in totals.iter().enumerate() {
            let offset = n as i64 * warps * sums.size();
            let place = Place { address: place, offset, valid: Some(first) };
            sums.store(code, Space::Shared, place, &[*total]);
        }
        code.push(Inst::Barrier);
        totals = code.when(owner, |code| {
            let total = |n: usize| {
                let place = |warp: i64| Place::at(shared, (n as i64 * warps + warp) * sums.size());
                let all: Vec<Reg> = (0..warps)
                    .map(|warp| sums.load(code, Space::Shared, place(warp), 1)[0])
                    .collect();
                all[1..].iter().fold(all[0], |total, next| sums.add(code, total, *next))
            };
            (0..few).map(total).collect()
        });
    }
    let owner = code.binary(Binary::And, Type::Pred, owner, inside);
    code.when(owner, |code| -> Result<()> {
        let start = destination.start(code, part, batch);
        for (n, total) in totals.iter().enumerate() {
            let n = code.mov(Type::S32, n as i64);
            let (row, column) = if larger == 0 { (element, n) } else { (n, element) };
            let at = destination.row(code, start, row);
            let at = destination.column(code, at, column);
            let shared = destination.columns(code, column, 1, None);
            let run = Run { at: [batch, row, column], offset: at, valid: None };
            destination.store(code, &mut draft.functions, run, &[*total], &shared)?;
        }
        Ok(())
    })?;
    let remark = format!(
        "out[{}, {}] of sums over {}, batch {}: {lanes} lanes an element, {parts} parts.",
        product.m, product.n, product.k, product.batch
    );
    let name = format!("{}_{}_dot", product.name, product.operand);
    let stage = draft.stage(name, remark, THREADS as u32, 2, elements.div_ceil(own) * parts)?;
    Ok((stage, parts))
}

/// A lane's parts of the sums of a row of the larger operand.
struct LaneSums<'a> {
    /// The larger operand and its row; the smaller one and its rows.
    sides: [(&'a Gather, Vec<Half>); 2],
    vector: usize,
    /// Distance from a vector of a lane to its next.
    turn: usize,
    /// One for each row of the smaller operand.
    sums: Vec<Reg>,
}

impl LaneSums<'_> {
    /// Adds `count` vectors, from depth `from` on: loads first.
    fn add(&self, code: &mut Code, from: Reg, count: usize) {
        let [larger, smaller] = [0, 1].map(|side| self.load(code, side, from, count));
        let number = self.sides[0].0.number;
        let larger: Vec<Reg> = larger[0].iter().map(|raw| number.widen(code, *raw)).collect();
        for (row, sum) in smaller.iter().zip(&self.sums) {
            for (x, y) in larger.iter().zip(row) {
                let y = number.widen(code, *y);
                number.accumulate(code, *sum, *x, y);
            }
        }
    }

    /// The vectors of each row of an operand.
    fn load(&self, code: &mut Code, side: usize, from: Reg, count: usize) -> Vec<Vec<Reg>> {
        let (gather, outers) = &self.sides[side];
        let number = gather.number;
        let run = gather.depth[0].moves == Moves::By(1);
        let depths = gather.halves(code, Direction::Depth, from, [count, self.turn], None, 1);
        let mut rows = vec![vec![]; outers.len()];
        for (turn, depth) in depths.iter().enumerate() {
            if run {
                for (row, outer) in rows.iter_mut().zip(outers) {
                    let place = gather.place(code, outer, depth);
                    row.extend(number.load(code, Space::Global, place, self.vector));
                }
                continue;
            }
            let index = code.binary(Binary::Add, Type::S32, from, (turn * self.turn) as i64);
            let each = gather.halves(code, Direction::Depth, index, [self.vector, 1], None, 1);
            for depth in each {
                for (row, outer) in rows.iter_mut().zip(outers) {
                    let place = gather.place(code, outer, &depth);
                    row.extend(number.load(code, Space::Global, place, 1));
                }
            }
        }
        rows
    }
}
