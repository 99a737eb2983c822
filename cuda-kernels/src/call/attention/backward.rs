//! Cotangents: of a block of queries, or of the keys and values of a block of keys.
//!
//! If several heads of queries share a head of keys, the block of keys iterates over the queries of
//! one head after the other. From head to head, addresses advance by constants.
//!
//! If out is given, the kernel of queries adds up m and stores it in the workspace, which the
//! kernel of keys and values reads.
//!
//! Probabilities are recomputed from scores and l. The cotangents of scores weight rows without
//! the scale; the finished sums are multiplied by it.

use super::super::draft::Draft;
use super::super::index::advance;
use super::super::number::{Number, Place};
use super::columns::{Columns, Numbers};
use super::rows::Rows;
use super::scores::{Block, together};
use super::{Engine, Problem, Twice, Work, begin, engine};
use crate::ptx::{Binary, Code, Compare, Inst, Reg, Space, Special, Ternary, Type, Unary};
use crate::stage::{Slot, Stage};
use wengert_core::Result;

/// The stage, of queries or (`across`) of keys and values.
pub(super) fn stage(problem: &Problem<'_>, across: bool) -> Result<Stage> {
    let (call, wide) = (problem.call, problem.wide());
    let mut draft = Draft::aligned(problem.alignment);
    draft.spread();
    let three = problem.three(&mut draft);
    let bias = problem.bias(&mut draft);
    let prefix = problem.prefix(&mut draft);
    let given = call.primals();
    let [l, c] = [("l", 0), ("c", 1)].map(|(name, n)| draft.pointer(name, Slot::read(given + n)));
    let m = draft.pointer("m", problem.slot_of_sums(across));
    // The kernel of queries adds up m, for itself and for the other one.
    let out = (call.out_given && !across).then(|| draft.pointer("out", Slot::read(given + 2)));
    let results: Vec<Reg> = match across {
        false => vec![problem.cotangent(&mut draft, "dq", 0)],
        true if call.packed => vec![problem.cotangent(&mut draft, "dqkv", 1); 2],
        true => {
            vec![problem.cotangent(&mut draft, "dk", 1), problem.cotangent(&mut draft, "dv", 2)]
        }
    };
    let count = if across { call.keys } else { call.queries };
    let work = if across { Work::OfKeys } else { Work::OfQueries };
    let (engine, tiles) = engine(&mut draft, problem, work, count);
    let engine = engine.as_ref();
    let [tile, step] = engine.extents();
    let block = draft.block();
    let code = &mut draft.code;
    let blocks = count.div_ceil(tile);
    let heads = if across { call.key_heads() } else { call.heads };
    let (own, number) = problem.position(code, block, [heads, blocks], call.causal && !across);
    let [head, key_head] = match across {
        false => [own, problem.of_keys(code, own)],
        true => [problem.of_queries(code, own), own],
    };
    let first = begin(code, number, tile);
    let prefix = problem.prefix_of(code, prefix, own[0]);
    let zero = code.mov(Type::S32, 0);
    // The end of the keys that the block's queries see.
    let seen = match (across, prefix) {
        (false, _) => problem.seen(code, prefix, first, tile),
        (true, Some(_)) => problem.seen(code, prefix, zero, call.queries),
        (true, None) => zero,
    };
    let [q, k, v] = [0, 1, 2].map(|part| {
        let (count, head) = if part == 0 { (call.queries, head) } else { (call.keys, key_head) };
        let rows = Rows::new(code, problem, three[part], call.part(part), count, head);
        Rows { end: prefix.filter(|_| part > 0).map(|_| seen), ..rows }
    });
    let c = Rows::new(code, problem, c, call.out(), call.queries, head);
    let bias = problem.bias_of(code, bias, head);
    let of_queries = [l, m].map(|pointer| problem.logarithms(code, pointer, head));
    let numbers = across.then(|| Numbers::new(&mut draft, engine, of_queries, call.queries));
    let (code, functions) = (&mut draft.code, &mut draft.functions);
    // Rows and columns of the product for the scores, and of the one for the cotangent of
    // probabilities.
    let (rows, columns) = if across { ([k, v], [q, c]) } else { ([q, c], [k, v]) };
    for (rows, tile) in rows.iter().zip(&tiles) {
        engine.fill(code, rows, first, tile);
    }
    let out = out.map(|out| Rows::new(code, problem, out, call.out(), call.queries, head));
    let kept = (!across).then(|| {
        let [l, m] = of_queries;
        let l = of_rows(code, problem, engine, first, l);
        let m = match &out {
            Some(out) => sums_of_rows(code, problem, engine, [out, &c], [first, m]),
            None => of_rows(code, problem, engine, first, m),
        };
        used(code, problem, engine, [l, m])
    });

    let (ty, powers) = (wide.wide(), engine.powers());
    let width = engine.columns().far.len();
    let sums: Vec<Vec<Reg>> = results.iter().map(|_| engine.zeros(code)).collect();
    let (from, to) = match across {
        false => (zero, seen),
        true => problem.queries_of(code, prefix, first, step),
    };
    let (negated, scale) =
        (|code: &mut Code, x: &Reg| code.unary(Unary::Neg, ty, *x), powers.scale(call));
    let along = Columns { engine, rows: columns, tiles: [tiles[2], tiles[3]], numbers };
    let mut walk = |code: &mut Code| {
        along.each(code, &tiles[..2], [from, to], |code, rows, from, met, numbers| {
            let block = Block { problem, engine, across, bias, prefix, first: [first, from] };
            let [of_scores, of_slopes] = [0, 1].map(|n| engine.begin(code, &rows[n], &met[n]));
            let products = engine.product(code, of_scores, None);
            let of_queries = match (&kept, numbers) {
                (Some(kept), _) => OfQueries::Kept(kept),
                (None, shared) => OfQueries::Shared(shared.expect("columns are queries")),
            };
            let l = of_queries.l(code, engine);
            let back: Vec<Reg> = l.iter().map(|l| negated(code, l)).collect();
            let of_query = |at: usize| if across { at % width } else { at / width };
            let scores = match bias {
                None => products,
                Some(_) => block.scored(code, &products),
            };
            let moved: Vec<Reg> = (scores.iter().enumerate())
                .map(|(at, score)| match bias {
                    None => {
                        let back = back[of_query(at)];
                        code.ternary(Ternary::Fma, ty, *score, scale.clone(), back)
                    }
                    Some(_) => code.binary(Binary::Sub, ty, *score, l[of_query(at)]),
                })
                .collect();
            // Before the powers, so that they are computed during the next product.
            block.hide(code, &moved, f64::NEG_INFINITY);
            let p: Vec<Reg> =
                moved.into_iter().map(|moved| powers.power(code, functions, moved)).collect();
            let of_other = |at: usize| if across { at / width } else { at % width };
            let negative = |code: &mut Code| -> Vec<Reg> {
                let m = of_queries.m(code, engine);
                (0..p.len()).map(|at| m[of_query(at)][of_other(at) % 2]).collect()
            };
            // The sum of values goes on while the cotangents of scores are computed.
            if across && engine.asynchronous() {
                engine.accumulate(code, &sums[1], &p, &met[1]);
            }
            let slopes = engine.product(code, of_slopes, Some(&negative));
            let s: Vec<Reg> = (slopes.iter().zip(&p))
                .map(|(difference, p)| code.binary(Binary::Mul, ty, *p, *difference))
                .collect();
            if across && !engine.asynchronous() {
                engine.accumulate(code, &sums[1], &p, &met[1]);
            }
            engine.accumulate(code, &sums[0], &s, &met[0]);
        })
    };
    if across && call.group > 1 {
        let row = call.width as i64 * Number(call.dtype).size();
        let logarithm = call.queries as i64 * wide.size();
        let moved = [(q.address, row), (c.address, row)]
            .into_iter()
            .chain(along.numbers.as_ref().map(|numbers| (numbers.address, logarithm)))
            .chain(bias.map(|bias| (bias.address, bias.head)))
            .filter(|(_, bytes)| *bytes > 0);
        code.count(0, call.group as i64, 1, |code, _| {
            walk(code);
            // All threads are done with the tiles of this head.
            code.push(Inst::Barrier);
            for (address, bytes) in moved {
                code.binary_into(address, Binary::Add, Type::S64, address, bytes);
            }
        });
    } else {
        walk(code);
    }

    let scale = wide.constant(call.scale.to_f64());
    for sum in &sums[0] {
        code.binary_into(*sum, Binary::Mul, ty, *sum, scale.clone());
    }
    for (n, (sums, pointer)) in sums.iter().zip(results).enumerate() {
        let part = n + usize::from(across);
        let rows = Rows::new(code, problem, pointer, call.part(part), count, own);
        engine.store(code, sums, &rows, first, &tiles[n]);
    }
    let what = if across { "keys and values" } else { "queries" };
    let remark = format!(
        "Cotangents of {what} of attention, {} queries and {} keys, width {}, {} heads, batch {}: \
         blocks of {tile} by {step}.",
        call.queries, call.keys, call.width, call.heads, call.batch
    );
    let results = if across { "kv" } else { "q" };
    let name = format!("attention_{}_d{results}{}", call.dtype, engine.suffix());
    let (threads, resident) = (engine.threads() as u32, engine.resident());
    draft.stage(name, remark, threads, resident, blocks * call.batch * heads)
}

/// l, in the unit of powers, and −m of the thread's queries of a block of scores.
enum OfQueries<'a> {
    /// Rows are queries: the thread keeps them in registers.
    Kept(&'a (Vec<Reg>, Vec<Twice>)),
    /// Columns are queries: they are in shared memory, at an address.
    Shared((&'a Numbers, Reg)),
}

impl OfQueries<'_> {
    fn l(&self, code: &mut Code, engine: &dyn Engine) -> Vec<Reg> {
        match self {
            OfQueries::Kept((l, _)) => l.clone(),
            OfQueries::Shared((numbers, at)) => numbers.l(code, engine, *at),
        }
    }

    fn m(&self, code: &mut Code, engine: &dyn Engine) -> Vec<Twice> {
        match self {
            OfQueries::Kept((_, m)) => m.clone(),
            OfQueries::Shared((numbers, at)) => numbers.m(code, engine, *at),
        }
    }
}

/// m of the thread's queries in a block that begins with `first`: the sums of the products of two
/// rows. The lanes that share a row add up parts of it, and the first one stores the sum.
fn sums_of_rows(
    code: &mut Code,
    problem: &Problem<'_>,
    engine: &dyn Engine,
    [out, c]: [&Rows; 2],
    [first, to]: [Reg; 2],
) -> Vec<Reg> {
    let (wide, number, queries) = (problem.wide(), out.number, problem.call.queries);
    let (slots, lanes) = (engine.rows(), engine.lanes());
    let sharing = 1 + lanes.iter().sum::<i64>();
    let vector = out.vector.min(c.vector).min(number.vector());
    let thread = code.mov(Type::U32, Special::TidX);
    let lane = code.binary(Binary::And, Type::B32, thread, sharing - 1);
    let begin = code.binary(Binary::Add, Type::S32, first, slots.first);
    let piece = vector as i64 * number.size();
    let pieces = (out.width / vector) as i64;
    let is_first = code.compare(Compare::Eq, Type::S32, lane, 0);
    let mut sums = Vec::new();
    for far in &slots.far {
        let row = code.binary(Binary::Add, Type::S32, begin, *far);
        let exists = code.compare(Compare::Lt, Type::S32, row, queries as i64);
        let starts = [out, c].map(|rows| {
            let at = advance(code, rows.address, row, rows.position);
            advance(code, at, lane, piece)
        });
        let sum = code.mov(wide.wide(), wide.zero());
        for turn in 0..(pieces as u64).div_ceil(sharing as u64) as i64 {
            let valid = match (turn + 1) * sharing <= pieces {
                true => exists,
                false => {
                    let left = pieces - turn * sharing;
                    let inside = code.compare(Compare::Lt, Type::S32, lane, left);
                    code.binary(Binary::And, Type::Pred, exists, inside)
                }
            };
            let offset = turn * sharing * piece;
            let [x, y] = starts.map(|address| {
                let place = Place { address, offset, valid: Some(valid) };
                number.load(code, Space::Global, place, vector)
            });
            for (x, y) in x.into_iter().zip(y) {
                let (x, y) = (number.widen(code, x), number.widen(code, y));
                wide.accumulate(code, sum, x, y);
            }
        }
        let sum = together(code, wide.wide(), lanes, Binary::Add, sum);
        let address = advance(code, to, row, wide.size());
        let stores = code.binary(Binary::And, Type::Pred, exists, is_first);
        let place = Place { address, offset: 0, valid: Some(stores) };
        wide.store(code, Space::Global, place, &[sum]);
        sums.push(sum);
    }
    sums
}

/// A number of each of the thread's queries that is in range, from a row of numbers of a head.
/// Rows are queries.
fn of_rows(
    code: &mut Code,
    problem: &Problem<'_>,
    engine: &dyn Engine,
    first: Reg,
    address: Reg,
) -> Vec<Reg> {
    let (wide, queries, slots) = (problem.wide(), problem.call.queries, engine.rows());
    let begin = code.binary(Binary::Add, Type::S32, first, slots.first);
    let address = advance(code, address, begin, wide.size());
    let mut one = |far: &i64| {
        let at = code.binary(Binary::Add, Type::S32, begin, *far);
        let valid = Some(code.compare(Compare::Lt, Type::S32, at, queries as i64));
        wide.load(code, Space::Global, Place { address, offset: far * wide.size(), valid }, 1)[0]
    };
    slots.far.iter().map(&mut one).collect()
}

/// l in the unit of powers, and −m.
fn used(
    code: &mut Code,
    problem: &Problem<'_>,
    engine: &dyn Engine,
    [mut l, m]: [Vec<Reg>; 2],
) -> (Vec<Reg>, Vec<Twice>) {
    let ty = problem.wide().wide();
    if engine.approximates() {
        for l in &mut l {
            *l = code.binary(Binary::Mul, ty, *l, engine.powers().unit());
        }
    }
    let m = m.into_iter().map(|m| [(); 2].map(|()| code.unary(Unary::Neg, ty, m))).collect();
    (l, m)
}
