//! `out` and l of a block of queries.
//!
//! Powers of scores are relative to the running maximum of the query's scores. When the maximum
//! grows, the sums so far are rescaled (Milakov and Gimelshein, *Online normalizer calculation
//! for softmax*, 2018). For halves, the reference of the powers moves only when a score exceeds it
//! by more than 2⁸ (Zadouri and others, *FlashAttention-4*, 2026). Each thread sums the powers that
//! it has computed; those of a row are combined after all columns.

use super::super::draft::Draft;
use super::super::index::advance;
use super::columns::Columns;
use super::overlap::Overlap;
use super::rows::Rows;
use super::scores::{Bias, Block, together};
use super::{Engine, Problem, Work, begin, engine};
use crate::ptx::{Binary, Code, Compare, Inst, Operand, Reg, Space, Ternary, Type, Unary};
use crate::scalar::Functions;
use crate::stage::{Slot, Stage};
use wengert_core::Result;

/// The stage.
pub(super) fn stage(problem: &Problem<'_>) -> Result<Stage> {
    let (call, wide) = (problem.call, problem.wide());
    let mut draft = Draft::aligned(problem.alignment);
    draft.spread();
    let three = problem.three(&mut draft);
    let bias = problem.bias(&mut draft);
    let prefix = problem.prefix(&mut draft);
    let out = draft.pointer("out", Slot::write(call.primals()));
    let l = draft.pointer("l", Slot::write(call.primals() + 1));
    let (engine, tiles) = engine(&mut draft, problem, Work::Forward, call.queries);
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
    let running = Running::new(code, engine);
    let begin = code.mov(Type::S32, 0);
    // A positive scale does not change which score is the maximum, so it is applied when the
    // power is computed.
    let direct = bias.is_none() && call.scale.to_f64() > 0.0;
    let factor = direct.then(|| engine.powers().scale(call));
    let columns_of_keys =
        Columns { engine, rows: [k, v], tiles: [tiles[1], tiles[2]], numbers: None };
    let steps = Steps { problem, engine, bias, prefix, first, factor, running: &running };
    match engine.overlapped() {
        Some(overlapped) => {
            let along = Overlap { columns: &columns_of_keys, engine: overlapped, steps: &steps };
            along.each(code, functions, &tiles[0], [begin, end]);
        }
        None => {
            columns_of_keys.each(code, &tiles[..1], [begin, end], |code, rows, from, met, _| {
                let pending = engine.begin(code, &rows[0], &met[0]);
                let products = engine.product(code, pending, None);
                let weights = steps.weights(code, functions, products, from, Rescaled::AtOnce).0;
                engine.accumulate(code, &running.sums, &weights, &met[1]);
            });
        }
    }
    let Running { references, powers, sums } = running;

    let logarithms = problem.logarithms(code, l, head);
    let each = sums.len() / rows;
    let first_row = code.binary(Binary::Add, Type::S32, first, engine.rows().first);
    let writes = code.compare(Compare::Eq, Type::S32, engine.columns().first, 0);
    for i in 0..rows {
        let sum = together(code, ty, engine.lanes(), Binary::Add, powers[i]);
        let row = code.binary(Binary::Add, Type::S32, first_row, engine.rows().far[i]);
        let without_keys = prefix.map(|prefix| {
            let limit = problem.limit(code, prefix, row);
            code.compare(Compare::Le, Type::S32, limit, 0)
        });
        // One reciprocal a row where the bound allows it: a division takes about ten instructions.
        let inverse =
            engine.approximates().then(|| code.unary(Unary::ApproximateReciprocal, ty, sum));
        for value in &sums[i * each..(i + 1) * each] {
            match inverse {
                Some(inverse) => code.binary_into(*value, Binary::Mul, ty, *value, inverse),
                None => code.binary_into(*value, Binary::Div, ty, *value, sum),
            }
            if let Some(without_keys) = without_keys {
                let value_or_zero = code.select(ty, wide.zero(), *value, without_keys);
                code.assign(ty, *value, value_or_zero);
            }
        }
        let inside = code.compare(Compare::Lt, Type::S32, row, call.queries as i64);
        let inside = code.binary(Binary::And, Type::Pred, inside, writes);
        // Not in a branch, so that the logarithms of several rows overlap.
        let mut logarithm =
            |code: &mut Code| engine.powers().logarithm(code, functions, references[i], sum);
        let approximate = engine.approximates().then(|| logarithm(code));
        code.when(inside, |code| {
            let value = approximate.unwrap_or_else(|| logarithm(code));
            let address = advance(code, logarithms, row, wide.size());
            code.store(Space::Global, ty, address, 0, value);
        });
    }
    let rows_of_out = Rows::new(code, problem, out, call.out(), call.queries, head);
    engine.store(code, &sums, &rows_of_out, first, &tiles[0]);
    let remark = format!(
        "Attention of {} queries and {} keys, width {}, {} heads, batch {}: \
         blocks of {tile} by {step}.",
        call.queries, call.keys, call.width, call.heads, call.batch
    );
    let name = format!("attention_{}{}", call.dtype, engine.suffix());
    let threads = engine.threads() as u32;
    let resident = engine.resident();
    draft.stage(name, remark, threads, resident, blocks * call.batch * call.heads)
}

/// The steps over blocks of columns.
pub(super) struct Steps<'a> {
    problem: &'a Problem<'a>,
    engine: &'a dyn Engine,
    bias: Option<Bias>,
    prefix: Option<Reg>,
    /// The first query of the block.
    first: Reg,
    /// The factor of scores, in the unit of powers, if it is applied when powers are computed.
    factor: Option<Operand>,
    pub running: &'a Running,
}

/// When the sums of weighted rows are rescaled, if references move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rescaled {
    /// With the sums of powers.
    AtOnce,
    /// By [`Running::catch_up`]: rows are still being added to them.
    Later,
}

/// The factors of the sums of weighted rows, and whether some row of the warp has one besides 1.
pub(super) struct Moved {
    any: Reg,
    factors: Vec<Reg>,
}

impl Steps<'_> {
    /// The weights of a block whose first column is `from`, from the products of its rows and
    /// columns. Adds the powers to their sums.
    pub fn weights(
        &self,
        code: &mut Code,
        functions: &mut Functions,
        products: Vec<Reg>,
        from: Reg,
        rescaled: Rescaled,
    ) -> (Vec<Reg>, Option<Moved>) {
        let Steps { problem, engine, bias, prefix, first, ref factor, running } = *self;
        let ty = engine.sums().wide();
        let columns = engine.columns().far.len();
        let block = Block { problem, engine, across: false, bias, prefix, first: [first, from] };
        let scores = if factor.is_some() { products } else { block.scored(code, &products) };
        block.hide(code, &scores, f64::NEG_INFINITY);
        let most: Vec<Reg> = scores
            .chunks(columns)
            .map(|own| {
                let rest = own[1..].iter();
                rest.fold(own[0], |most, score| code.binary(Binary::Max, ty, most, *score))
            })
            .collect();
        let (references, moved) = match engine.approximates() {
            true => running.follow(code, functions, engine, &most, (factor.as_ref(), rescaled)),
            false => (running.reach(code, functions, engine, &most, factor.as_ref()), None),
        };
        let mut weights = scores.clone();
        for (i, reference) in references.into_iter().enumerate() {
            let back = code.unary(Unary::Neg, ty, reference);
            for at in i * columns..(i + 1) * columns {
                let moved = match factor {
                    Some(factor) => {
                        code.ternary(Ternary::Fma, ty, scores[at], factor.clone(), back)
                    }
                    None => code.binary(Binary::Sub, ty, scores[at], reference),
                };
                weights[at] = engine.powers().power(code, functions, moved);
                let sum = running.powers[i];
                code.binary_into(sum, Binary::Add, ty, sum, weights[at]);
            }
        }
        (weights, moved)
    }
}

/// Sums over the columns so far, for each row of the thread.
pub(super) struct Running {
    /// References of the powers: the maximum score so far, or one up to [`SLACK`] below it.
    references: Vec<Reg>,
    /// Sums of the thread's powers.
    powers: Vec<Reg>,
    /// Sums of weighted rows, row by row.
    pub sums: Vec<Reg>,
}

/// How far, in powers of 2, a score may exceed its row's reference. A weight of 2⁸ fits a half,
/// and weights have the same relative precision whatever the reference is.
const SLACK: f64 = 8.0;

impl Running {
    /// No columns yet. Where references follow maxima only roughly, the first is the least finite
    /// number, so that differences to it are never NaN.
    fn new(code: &mut Code, engine: &dyn Engine) -> Running {
        let (number, rows) = (engine.sums(), engine.rows().far.len());
        let ty = number.wide();
        let least = if engine.approximates() { f64::from(f32::MIN) } else { f64::NEG_INFINITY };
        let references = (0..rows).map(|_| code.mov(ty, number.constant(least))).collect();
        let powers = (0..rows).map(|_| code.mov(ty, number.zero())).collect();
        Running { references, powers, sums: engine.zeros(code) }
    }

    /// The sums of weighted rows of a row.
    fn sums_of(&self, row: usize) -> &[Reg] {
        let each = self.sums.len() / self.powers.len();
        &self.sums[row * each..(row + 1) * each]
    }

    /// Multiplies the sums of a row.
    fn rescale(&self, code: &mut Code, ty: Type, row: usize, factor: Reg) {
        for sum in [&self.powers[row..=row], self.sums_of(row)].concat() {
            code.binary_into(sum, Binary::Mul, ty, sum, factor);
        }
    }

    /// Waits for the sums of weighted rows, and multiplies them by the factors of moved references.
    /// Each branch waits: where the wait comes before the branch, `ptxas` schedules it before most
    /// of the powers.
    pub fn catch_up(&self, code: &mut Code, engine: &dyn Engine, moved: &Moved) {
        let ty = engine.sums().wide();
        let rescaled = |code: &mut Code| {
            engine.settle(code);
            for (row, factor) in moved.factors.iter().enumerate() {
                for sum in self.sums_of(row) {
                    code.binary_into(*sum, Binary::Mul, ty, *sum, *factor);
                }
            }
        };
        code.either(moved.any, rescaled, |code| engine.settle(code));
    }

    /// Moves references to the maximum of their row where the thread's scores exceed them by more
    /// than [`SLACK`]. That is rare after the first block of columns, so the lanes that share a
    /// row compare their maxima, and sums are rescaled, only if some row of the warp needs it.
    /// Whether a reference moves depends on the scores of its row alone.
    fn follow(
        &self,
        code: &mut Code,
        functions: &mut Functions,
        engine: &dyn Engine,
        most: &[Reg],
        (factor, rescaled): (Option<&Operand>, Rescaled),
    ) -> (Vec<Reg>, Option<Moved>) {
        let (number, ty) = (engine.sums(), engine.sums().wide());
        let excess: Vec<Reg> = (most.iter().zip(&self.references))
            .map(|(most, reference)| match factor {
                Some(factor) => {
                    let back = code.unary(Unary::Neg, ty, *reference);
                    code.ternary(Ternary::Fma, ty, *most, factor.clone(), back)
                }
                None => code.binary(Binary::Sub, ty, *most, *reference),
            })
            .collect();
        let greatest = excess[1..]
            .iter()
            .fold(excess[0], |greatest, excess| code.binary(Binary::Max, ty, greatest, *excess));
        let slack = number.constant(SLACK);
        let far = code.compare(Compare::Gt, ty, greatest, slack.clone());
        let lanes = code.reg_of(Type::B32);
        code.push(Inst::Ballot(lanes, far, Operand::Int(0xffff_ffff)));
        let any = code.compare(Compare::Ne, Type::B32, lanes, 0);
        let moved = (rescaled == Rescaled::Later).then(|| {
            let one = |_| code.mov(ty, number.constant(1.0));
            Moved { any, factors: (0..most.len()).map(one).collect() }
        });
        code.when(any, |code| {
            for (row, reference) in self.references.iter().enumerate() {
                let [excess, most] = [excess[row], most[row]]
                    .map(|value| together(code, ty, engine.lanes(), Binary::Max, value));
                let most = match factor {
                    Some(factor) => code.binary(Binary::Mul, ty, most, factor.clone()),
                    None => most,
                };
                let far = code.compare(Compare::Gt, ty, excess, slack.clone());
                let now = code.select(ty, most, *reference, far);
                let difference = code.binary(Binary::Sub, ty, *reference, now);
                let factor = engine.powers().power(code, functions, difference);
                code.assign(ty, *reference, now);
                match &moved {
                    None => self.rescale(code, ty, row, factor),
                    Some(moved) => {
                        code.assign(ty, moved.factors[row], factor);
                        let sum = self.powers[row];
                        code.binary_into(sum, Binary::Mul, ty, sum, factor);
                    }
                }
            }
        });
        (self.references.clone(), moved)
    }

    /// Moves references to the maxima of their rows.
    fn reach(
        &self,
        code: &mut Code,
        functions: &mut Functions,
        engine: &dyn Engine,
        most: &[Reg],
        factor: Option<&Operand>,
    ) -> Vec<Reg> {
        let (powers, ty) = (engine.powers(), engine.sums().wide());
        let mut references = vec![];
        for (row, (most, reference)) in most.iter().zip(&self.references).enumerate() {
            let most = match factor {
                Some(factor) => code.binary(Binary::Mul, ty, *most, factor.clone()),
                None => *most,
            };
            let most = code.binary(Binary::Max, ty, most, *reference);
            let most = together(code, ty, engine.lanes(), Binary::Max, most);
            let now = powers.reference(code, most);
            let factor = powers.rescale(code, functions, *reference, now);
            code.assign(ty, *reference, most);
            self.rescale(code, ty, row, factor);
            references.push(now);
        }
        references
    }
}
