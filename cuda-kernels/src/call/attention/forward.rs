//! `out` and l of a block of queries.
//!
//! Powers of scores are relative to the running maximum of the query's scores. When the maximum
//! grows, the sums so far are rescaled (Milakov and Gimelshein, *Online normalizer calculation
//! for softmax*, 2018). Each thread sums the powers that it has computed; those of a row are
//! combined after all columns.

use super::super::draft::Draft;
use super::super::index::advance;
use super::super::number::Number;
use super::columns::Columns;
use super::mma::Work;
use super::rows::Rows;
use super::{Block, Engine, Problem, begin, engine, power, scale};
use crate::ptx::{Binary, Code, Compare, Lanes, Reg, Space, Ternary, Type, Unary};
use crate::scalar;
use crate::stage::{Slot, Stage};
use wengert_core::Result;
use wengert_core::nest::ScalarOp;

/// The stage.
pub(super) fn stage(problem: &Problem<'_>) -> Result<Stage> {
    let (call, wide) = (problem.call, problem.wide());
    let mut draft = Draft::aligned(problem.alignment);
    let three = problem.three(&mut draft);
    let bias = problem.bias(&mut draft);
    let prefix = problem.prefix(&mut draft);
    let out = draft.pointer("out", Slot::write(call.primals()));
    let l = draft.pointer("l", Slot::write(call.primals() + 1));
    let (engine, tiles) = engine(&mut draft, call, Work::Forward, call.queries);
    let engine = engine.as_ref();
    let [tile, step] = engine.extents();
    let block = draft.block();
    let (code, functions) = (&mut draft.code, &mut draft.functions);
    let blocks = call.queries.div_ceil(tile);
    let (head, number) = problem.position(code, block, [call.heads, blocks], call.causal);
    let key_head = problem.of_keys(code, head);
    let first = begin(code, number, tile);
    let prefix = problem.prefix_of(code, prefix, head[0]);
    let end = problem.seen(code, prefix, first, tile);
    let [q, k, v] = [0, 1, 2].map(|part| {
        let (count, head) = if part == 0 { (call.queries, head) } else { (call.keys, key_head) };
        let rows = Rows::new(code, problem, three[part], call.part(part), count, head);
        Rows { end: prefix.filter(|_| part > 0).map(|_| end), ..rows }
    });
    let bias = problem.bias_of(code, bias, head);
    engine.fill(code, &q, first, &tiles[0]);

    let ty = wide.wide();
    let rows = engine.rows().far.len();
    let columns = engine.columns().far.len();
    let greatest: Vec<Reg> =
        (0..rows).map(|_| code.mov(ty, wide.constant(f64::NEG_INFINITY))).collect();
    let powers: Vec<Reg> = (0..rows).map(|_| code.mov(ty, wide.zero())).collect();
    let sums = engine.zeros(code);
    let begin = code.mov(Type::S32, 0);
    // A positive scale does not change which score is the maximum, so it is applied when the
    // power is computed.
    let direct = bias.is_none() && call.scale.to_f64() > 0.0;
    let scale = scale(call, engine);
    let columns_of_keys =
        Columns { engine, rows: [k, v], tiles: [tiles[1], tiles[2]], numbers: None };
    columns_of_keys.each(code, [begin, end], |code, from, columns_tiles, _| {
        let products = engine.product(code, &tiles[0], &columns_tiles[0]);
        let block = Block { problem, engine, across: false, bias, prefix, first: [first, from] };
        let scores = if direct { products } else { block.scored(code, &products) };
        block.hide(code, &[&scores], f64::NEG_INFINITY);
        let mut weights = scores.clone();
        for i in 0..rows {
            let own = i * columns..(i + 1) * columns;
            let mut most = scores[own.start];
            for score in &scores[own.start + 1..own.end] {
                most = code.binary(Binary::Max, ty, most, *score);
            }
            let most = match direct {
                true => code.binary(Binary::Mul, ty, most, scale.clone()),
                false => most,
            };
            let most = code.binary(Binary::Max, ty, most, greatest[i]);
            let most = together(code, engine, Binary::Max, most);
            let (before, now) = (shift(code, wide, greatest[i]), shift(code, wide, most));
            // There are no sums before the first score above −∞.
            let none = code.compare(Compare::Eq, ty, greatest[i], wide.constant(f64::NEG_INFINITY));
            let before = code.select(ty, greatest[i], before, none);
            let moved = code.binary(Binary::Sub, ty, before, now);
            let factor = power(code, functions, engine, moved);
            let back = code.unary(Unary::Neg, ty, now);
            code.assign(ty, greatest[i], most);
            code.binary_into(powers[i], Binary::Mul, ty, powers[i], factor);
            for at in own {
                let moved = match direct {
                    true => code.ternary(Ternary::Fma, ty, scores[at], scale.clone(), back),
                    false => code.binary(Binary::Sub, ty, scores[at], now),
                };
                weights[at] = power(code, functions, engine, moved);
                code.binary_into(powers[i], Binary::Add, ty, powers[i], weights[at]);
            }
            let each = sums.len() / rows;
            for sum in &sums[i * each..(i + 1) * each] {
                code.binary_into(*sum, Binary::Mul, ty, *sum, factor);
            }
        }
        engine.accumulate(code, &sums, &weights, &columns_tiles[1]);
    });

    let logarithms = problem.logarithms(code, l, head);
    let each = sums.len() / rows;
    let first_row = code.binary(Binary::Add, Type::S32, first, engine.rows().first);
    let writes = code.compare(Compare::Eq, Type::S32, engine.columns().first, 0);
    for i in 0..rows {
        let sum = together(code, engine, Binary::Add, powers[i]);
        let row = code.binary(Binary::Add, Type::S32, first_row, engine.rows().far[i]);
        let without_keys = prefix.map(|prefix| {
            let limit = problem.limit(code, prefix, row);
            code.compare(Compare::Le, Type::S32, limit, 0)
        });
        for value in &sums[i * each..(i + 1) * each] {
            code.binary_into(*value, Binary::Div, ty, *value, sum);
            if let Some(without_keys) = without_keys {
                let value_or_zero = code.select(ty, wide.zero(), *value, without_keys);
                code.assign(ty, *value, value_or_zero);
            }
        }
        let inside = code.compare(Compare::Lt, Type::S32, row, call.queries as i64);
        let inside = code.binary(Binary::And, Type::Pred, inside, writes);
        code.when(inside, |code| {
            let logarithm = scalar::emit(code, functions, ScalarOp::Log, &[wide.0], wide.0, &[sum])
                .expect("log of f32 and of f64 has a program");
            let most = shift(code, wide, greatest[i]);
            let value = match engine.approximates() {
                true => {
                    let unit = wide.constant(std::f64::consts::LN_2);
                    code.ternary(Ternary::Fma, ty, most, unit, logarithm)
                }
                false => code.binary(Binary::Add, ty, most, logarithm),
            };
            let address = advance(code, logarithms, row, wide.size());
            code.store(Space::Global, ty, address, 0, value);
        });
    }
    let rows_of_out = Rows::new(code, problem, out, call.out(), call.queries, head);
    engine.store(code, &sums, &rows_of_out, first);
    let remark = format!(
        "Attention of {} queries and {} keys, width {}, {} heads, batch {}: \
         blocks of {tile} by {step}.",
        call.queries, call.keys, call.width, call.heads, call.batch
    );
    let (threads, name) = (engine.threads() as u32, format!("attention_{}", call.dtype));
    let resident = engine.resident();
    draft.stage(name, remark, threads, resident, blocks * call.batch * call.heads)
}

/// The sum, or the maximum, of the numbers of the lanes that share a row.
fn together(code: &mut Code, engine: &dyn Engine, operation: Binary, mut value: Reg) -> Reg {
    let ty = engine.sums().wide();
    for lane in engine.lanes() {
        let other = code.shuffle(&Lanes::butterfly(*lane), value);
        value = code.binary(operation, ty, value, other);
    }
    value
}

/// The reference of the powers: the maximum score, or 0 where that is infinite.
fn shift(code: &mut Code, wide: Number, greatest: Reg) -> Reg {
    let ty = wide.wide();
    let size = code.unary(Unary::Abs, ty, greatest);
    let finite = code.compare(Compare::Lt, ty, size, wide.constant(f64::INFINITY));
    code.select(ty, greatest, wide.zero(), finite)
}
