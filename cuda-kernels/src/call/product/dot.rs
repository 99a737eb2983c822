//! The product by dot products: each element of out is computed by a warp, or by a block if there
//! are few elements. The lanes divide the sum.
//!
//! For matrix by vector where the rows of the matrix (along the sum) are contiguous: a warp reads
//! 512 bytes of a row at a time, 16 bytes a lane, four times before it waits. Each lane has a sum
//! of its own. At the end lanes exchange theirs (a butterfly, in which both lanes of a pair add
//! the same two numbers), and then the warps of a block through shared memory, in order. 256
//! threads, 64 registers or fewer, 64 bytes of shared memory.
//!
//! Bound: reading the matrix once.

use super::super::draft::Draft;
use super::super::index::{digits, divide};
use super::super::number::{Number, Place};
use super::finish::{Destination, Run};
use super::gather::{Direction, Gather, Half, Moves};
use super::{FULL, Product, check_extent};
use crate::ptx::{Binary, Code, Compare, Inst, Lanes, Reg, Space, Ternary, Type};
use crate::stage::{Slot, Stage};
use wengert_core::Result;

const THREADS: usize = 256;
/// Vectors of a lane that are loaded at a time.
const AT_A_TIME: usize = 4;
/// Minimum number of terms of a part of a sum.
const LONG: usize = 2048;

/// Whether the larger operand is contiguous along the sum.
pub(super) fn fits(product: &Product) -> bool {
    let larger = if product.m >= product.n { &product.lhs } else { &product.rhs };
    let plain = |g: &Gather| g.meetings.is_empty() && g.depth.len() == 1;
    plain(&product.lhs) && plain(&product.rhs) && larger.depth[0].moves == Moves::By(1)
}

/// The stage, and the number of parts of each sum.
pub(super) fn stage(product: &Product) -> Result<(Stage, usize)> {
    let elements = product.batch * product.m * product.n;
    check_extent("the number of elements of a product", elements)?;
    // Few long sums get a block each.
    let lanes = if elements < 4 * FULL && product.k >= 2048 { THREADS } else { 32 };
    let own = THREADS / lanes;
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
    let parts = product.parts(elements.div_ceil(own), LONG.max(AT_A_TIME * turn));
    let range = product.k.div_ceil(parts).next_multiple_of(turn);
    let parts = product.k.div_ceil(range);

    let mut draft = Draft::aligned(product.alignment);
    let [lhs, rhs] = product.arguments.map(Slot::read);
    let pointers = [draft.pointer("lhs", lhs), draft.pointer("rhs", rhs)];
    let mut destination = match parts {
        1 => Destination::result(&mut draft, product),
        _ => Destination::parts(&mut draft, product, parts),
    };
    let sums = product.sums();
    let shared =
        (lanes > 32).then(|| draft.shared("warps", (THREADS / 32) as u32 * sums.size() as u32));
    let (thread, block) = (draft.thread(), draft.block());
    let code = &mut draft.code;
    let (first, part) = divide(code, block, parts);
    let (which, lane) = divide(code, thread, lanes);
    let element = code.ternary(Ternary::Mad, Type::S32, first, own as i64, which);
    let inside = code.compare(Compare::Lt, Type::S32, element, elements as i64);
    let all = digits(code, element, &[product.batch, product.m, product.n]);
    let sum = code.mov(sums.wide(), sums.zero());
    code.when(inside, |code| {
        let outers = [0, 1].map(|n| {
            let operand = sides[n].operand(code, pointers[n], all[0]);
            sides[n].half(code, Direction::Outer, all[1 + n], Some(operand), 1)
        });
        let from = code.binary(Binary::Mul, Type::S32, part, range as i64);
        let to = code.binary(Binary::Add, Type::S32, from, range as i64);
        let to = code.binary(Binary::Min, Type::S32, to, product.k as i64);
        let at = code.ternary(Ternary::Mad, Type::S32, lane, vector as i64, from);
        // Whole turns of all lanes, several at a time; then single vectors, up to the lane's
        // last.
        let whole = code.binary(Binary::Sub, Type::S32, to, (AT_A_TIME * turn - 1) as i64);
        let own_whole = code.ternary(Ternary::Mad, Type::S32, lane, vector as i64, whole);
        let lane_sum = LaneSum { sides, outers, vector, turn, sum };
        let next = code.mov(Type::S32, at);
        code.count(at, own_whole, (AT_A_TIME * turn) as i64, |code, index| {
            lane_sum.add(code, index, AT_A_TIME);
            code.binary_into(next, Binary::Add, Type::S32, index, (AT_A_TIME * turn) as i64);
        });
        code.count(next, to, turn as i64, |code, index| lane_sum.add(code, index, 1));
    });
    let mut total = sum;
    for bits in [16, 8, 4, 2, 1] {
        let other = code.shuffle(&Lanes::butterfly(bits), total);
        total = sums.add(code, total, other);
    }
    let mut owner = code.compare(Compare::Eq, Type::S32, lane, 0);
    if let Some(shared) = shared {
        let (warp, in_warp) = divide(code, thread, 32);
        let place = code.ternary(Ternary::Mad, Type::S32, warp, sums.size(), shared);
        let first = code.compare(Compare::Eq, Type::S32, in_warp, 0);
        sums.store(
            code,
            Space::Shared,
            Place { valid: Some(first), ..Place::at(place, 0) },
            &[total],
        );
        code.push(Inst::Barrier);
        total = code.when(owner, |code| {
            let all: Vec<Reg> = (0..THREADS as i64 / 32)
                .map(|n| sums.load(code, Space::Shared, Place::at(shared, n * sums.size()), 1)[0])
                .collect();
            all[1..].iter().fold(all[0], |total, next| sums.add(code, total, *next))
        });
    }
    owner = code.binary(Binary::And, Type::Pred, owner, inside);
    code.when(owner, |code| {
        let start = destination.start(code, part, all[0]);
        let at = destination.row(code, start, all[1]);
        let at = destination.column(code, at, all[2]);
        let bias = destination.bias(code, all[2], 1, None);
        let run = Run { at: [all[0], all[1], all[2]], offset: at, valid: None };
        let functions = &mut draft.functions;
        destination.store(code, functions, run, &[total], &bias)
    })?;
    let remark = format!(
        "out[{}, {}] of sums over {}, batch {}: {lanes} lanes an element, {parts} parts.",
        product.m, product.n, product.k, product.batch
    );
    let name = format!("{}_{}_dot", product.name, product.operand);
    let stage = draft.stage(name, remark, THREADS as u32, 0, elements.div_ceil(own) * parts)?;
    Ok((stage, parts))
}

/// A lane's part of a sum.
struct LaneSum<'a> {
    sides: [&'a Gather; 2],
    outers: [Half; 2],
    vector: usize,
    /// Distance from a vector of a lane to its next.
    turn: usize,
    sum: Reg,
}

impl LaneSum<'_> {
    /// Adds `count` vectors, from depth `from` on: loads first.
    fn add(&self, code: &mut Code, from: Reg, count: usize) {
        let loaded = [0, 1].map(|n| {
            let (gather, outer) = (self.sides[n], &self.outers[n]);
            let number = gather.number;
            let run = gather.depth[0].moves == Moves::By(1);
            let depths = gather.halves(code, Direction::Depth, from, [count, self.turn], None, 1);
            let mut raw = vec![];
            for (turn, depth) in depths.iter().enumerate() {
                if run {
                    let place = gather.place(code, outer, depth);
                    raw.extend(number.load(code, Space::Global, place, self.vector));
                    continue;
                }
                let index = code.binary(Binary::Add, Type::S32, from, (turn * self.turn) as i64);
                let each = gather.halves(code, Direction::Depth, index, [self.vector, 1], None, 1);
                for depth in each {
                    let place = gather.place(code, outer, &depth);
                    raw.extend(number.load(code, Space::Global, place, 1));
                }
            }
            raw
        });
        for (x, y) in loaded[0].iter().zip(&loaded[1]) {
            let [x, y] = [(0, x), (1, y)].map(|(n, raw)| self.sides[n].number.widen(code, *raw));
            self.sides[0].number.accumulate(code, self.sum, x, y);
        }
    }
}
