//! The second kernel: adds the partial results of a row.
//!
//! A block of 256 threads has some columns of one row: 8 lanes of a vector each, for each of
//! [`GROUPS`] groups. Group g adds the ranges g, g + [`GROUPS`], and so on, [`AT_A_TIME`] of them
//! after one wait for memory. Each time their greatest m becomes the reference, and the sums so
//! far are rescaled. At the end the groups of a warp are added as a tree, and the warps in order.
//! Ranges that the row does not see take part with m = −∞ and sums of 0, which change no bit.
//!
//! Bound by latency: the partial results were written a moment ago, and are in the second-level
//! cache.

use super::super::super::draft::Draft;
use super::super::super::index::{advance, both, digits, divide, quotient};
use super::super::super::number::{Number, Place};
use super::super::Problem;
use super::super::rows::Rows;
use super::super::scores::together;
use super::Shape;
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Space, Ternary, Type};
use crate::stage::{Access, Slot, Stage};
use wengert_core::Result;

/// Lanes of a group: each has a vector of columns.
const LANES: usize = 8;
const GROUPS: usize = 32;
const THREADS: usize = LANES * GROUPS;
const WARPS: usize = THREADS / 32;
/// The bits in which the lanes differ that have the same columns.
const ACROSS: [i64; 2] = [8, 16];
/// Ranges that a group loads at a time.
const AT_A_TIME: usize = 4;

/// The stage.
pub(super) fn stage(problem: &Problem<'_>, shape: &Shape) -> Result<Stage> {
    let (call, sums, powers) = (problem.call, shape.sums, shape.powers());
    let (ty, size, vector) = (sums.wide(), sums.size(), sums.vector());
    let of_block = LANES * vector;
    let chunks = shape.columns.div_ceil(of_block);

    let mut draft = Draft::aligned(problem.alignment);
    let [weighted, pairs] = shape.pointers(&mut draft, Access::Read);
    let prefix = problem.prefix(&mut draft);
    let out = draft.pointer("out", Slot::write(call.primals()));
    let l = draft.pointer("l", Slot::write(call.primals() + 1));
    let [of_warps, totals] = [("sums_of_warps", of_block), ("of_warps", 2)]
        .map(|(name, each)| draft.shared(name, (WARPS * each * size as usize) as u32));
    let (thread, block) = (draft.thread(), draft.block());
    let (code, functions) = (&mut draft.code, &mut draft.functions);
    let (row, chunk) = divide(code, block, chunks);
    let all = digits(code, row, &[call.batch, call.heads, call.queries]);
    let (head, query) = ([all[0], all[1]], all[2]);
    let prefix = problem.prefix_of(code, prefix, head[0]);
    let seen = problem.seen(code, prefix, query, 1);
    let up = code.binary(Binary::Add, Type::S32, seen, shape.keys as i64 - 1);
    let ranges = quotient(code, up, shape.keys);

    let (group, lane) = divide(code, thread, LANES);
    let column = code.binary(Binary::Mul, Type::S32, chunk, of_block as i64);
    let own = code.ternary(Ternary::Mad, Type::S32, lane, vector as i64, column);
    let exists = (!shape.columns.is_multiple_of(of_block))
        .then(|| code.compare(Compare::Lt, Type::S32, own, shape.columns as i64));
    let first = code.binary(Binary::Mul, Type::S32, row, shape.ranges as i64);
    let bytes = shape.columns as i64 * size;
    let pairs = advance(code, pairs, first, 2 * size);
    let weighted = advance(code, weighted, first, bytes);
    let weighted = advance(code, weighted, own, size);

    let greatest = code.mov(ty, sums.constant(f64::NEG_INFINITY));
    // The sums of the columns, and of the powers.
    let so_far: Vec<Reg> = (0..=vector).map(|_| code.mov(ty, sums.zero())).collect();
    code.count(group, ranges, (AT_A_TIME * GROUPS) as i64, |code, at| {
        let pairs = advance(code, pairs, at, 2 * size);
        let weighted = advance(code, weighted, at, bytes);
        let loaded: Vec<(Reg, Vec<Reg>)> = (0..AT_A_TIME)
            .map(|n| {
                let far = (n * GROUPS) as i64;
                let inside = (n > 0).then(|| {
                    let at = code.binary(Binary::Add, Type::S32, at, far);
                    code.compare(Compare::Lt, Type::S32, at, ranges)
                });
                let place = Place { address: pairs, offset: far * 2 * size, valid: inside };
                let pair = sums.load(code, Space::Global, place, 2);
                let valid = both(code, inside, exists);
                let place = Place { address: weighted, offset: far * bytes, valid };
                let mut terms = sums.load(code, Space::Global, place, vector);
                terms.push(pair[1]);
                let most = match inside {
                    None => pair[0],
                    Some(inside) => {
                        let none = sums.constant(f64::NEG_INFINITY);
                        code.select(ty, pair[0], none, inside)
                    }
                };
                (most, terms)
            })
            .collect();
        let now = loaded
            .iter()
            .fold(greatest, |most, (other, _)| code.binary(Binary::Max, ty, most, *other));
        let reference = powers.reference(code, now);
        let factor = powers.rescale(code, functions, greatest, reference);
        for sum in &so_far {
            code.binary_into(*sum, Binary::Mul, ty, *sum, factor);
        }
        for (most, terms) in loaded {
            let factor = powers.rescale(code, functions, most, reference);
            for (sum, term) in so_far.iter().zip(terms) {
                sums.accumulate(code, *sum, factor, term);
            }
        }
        code.assign(ty, greatest, now);
    });

    let (warp, in_warp) = divide(code, thread, 32);
    let leads = code.compare(Compare::Eq, Type::S32, in_warp, 0);
    let of_warp = code.ternary(Ternary::Mad, Type::S32, warp, size, totals);
    let most = together(code, ty, &ACROSS, Binary::Max, greatest);
    let place = Place { address: of_warp, offset: 0, valid: Some(leads) };
    sums.store(code, Space::Shared, place, &[most]);
    code.push(Inst::Barrier);
    let most = of_all_warps(code, sums, Binary::Max, Place::at(totals, 0), size);
    let reference = powers.reference(code, most);
    let factor = powers.rescale(code, functions, greatest, reference);
    let mut scaled: Vec<Reg> = (so_far.iter())
        .map(|sum| {
            let sum = code.binary(Binary::Mul, ty, *sum, factor);
            together(code, ty, &ACROSS, Binary::Add, sum)
        })
        .collect();
    let power_sum = scaled.pop().expect("the sum of powers is the last");
    let behind = WARPS as i64 * size;
    let place = Place { address: of_warp, offset: behind, valid: Some(leads) };
    sums.store(code, Space::Shared, place, &[power_sum]);
    let writes = code.compare(Compare::Lt, Type::S32, in_warp, LANES as i64);
    let to = code.ternary(Ternary::Mad, Type::S32, warp, of_block as i64 * size, of_warps);
    let to = code.ternary(Ternary::Mad, Type::S32, in_warp, vector as i64 * size, to);
    let place = Place { address: to, offset: 0, valid: Some(writes) };
    sums.store(code, Space::Shared, place, &scaled);
    code.push(Inst::Barrier);

    let column = code.binary(Binary::Add, Type::S32, column, thread);
    let inside = code.compare(Compare::Lt, Type::S32, thread, of_block as i64);
    let below = code.compare(Compare::Lt, Type::S32, column, call.width as i64);
    let stores = code.binary(Binary::And, Type::Pred, inside, below);
    code.when(stores, |code| {
        let from = code.ternary(Ternary::Mad, Type::S32, thread, size, of_warps);
        let (distance, powers_at) = (of_block as i64 * size, Place::at(totals, behind));
        let sum = of_all_warps(code, sums, Binary::Add, Place::at(from, 0), distance);
        let power_sum = of_all_warps(code, sums, Binary::Add, powers_at, size);
        let mut value = code.binary(Binary::Div, ty, sum, power_sum);
        if prefix.is_some() {
            let none = code.compare(Compare::Eq, Type::S32, seen, 0);
            value = code.select(ty, sums.zero(), value, none);
        }
        let rows = Rows::new(code, problem, out, call.out(), call.queries, head);
        let to = advance(code, rows.address, query, rows.position);
        let to = advance(code, to, column, rows.number.size());
        let raw = rows.number.narrow(code, value);
        rows.number.store(code, Space::Global, Place::at(to, 0), &[raw]);
        let first = code.compare(Compare::Eq, Type::S32, column, 0);
        code.when(first, |code| {
            let value = powers.logarithm(code, functions, most, power_sum);
            let logarithms = problem.logarithms(code, l, head);
            let to = advance(code, logarithms, query, size);
            sums.store(code, Space::Global, Place::at(to, 0), &[value]);
        });
    });
    let remark = format!(
        "Adds the partial results of {} ranges of {} keys, for {} rows of width {}.",
        shape.ranges, shape.keys, shape.results, call.width
    );
    let name = format!("attention_combine_{}", call.dtype);
    draft.stage(name, remark, THREADS as u32, 0, shape.results.saturating_mul(chunks))
}

/// The sum in order, or the maximum, of numbers of all warps, which are `distance` bytes apart in
/// shared memory.
fn of_all_warps(
    code: &mut Code,
    sums: Number,
    operation: Binary,
    first: Place,
    distance: i64,
) -> Reg {
    let all: Vec<Reg> = (0..WARPS as i64)
        .map(|n| {
            let place = Place { offset: first.offset + n * distance, ..first };
            sums.load(code, Space::Shared, place, 1)[0]
        })
        .collect();
    let rest = all[1..].iter();
    rest.fold(all[0], |total, next| code.binary(operation, sums.wide(), total, *next))
}
