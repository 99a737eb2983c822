//! Blocks of scores: scale, bias, what a query does not see, powers.

use super::super::index::advance;
use super::super::number::Place;
use super::{Engine, Problem, Slots};
use crate::ptx::{Binary, Code, Compare, Operand, Reg, Space, Ternary, Type, Unary};
use crate::scalar::{self, Functions};
use wengert_core::call::Attention;
use wengert_core::nest::ScalarOp;

/// Bias of the scores of one head.
#[derive(Clone, Copy)]
pub(super) struct Bias {
    pub address: Reg,
    /// Bytes from one query's row to the next one's, and from one head's to the next one's.
    pub row: i64,
    pub head: i64,
}

/// A block of scores, as one thread holds it.
pub(super) struct Block<'a> {
    pub problem: &'a Problem<'a>,
    pub engine: &'a dyn Engine,
    /// Whether rows are keys and columns queries.
    pub across: bool,
    pub bias: Option<Bias>,
    pub prefix: Option<Reg>,
    /// First row and first column.
    pub first: [Reg; 2],
}

impl Block<'_> {
    /// Rows and columns of the thread.
    fn slots(&self) -> [&Slots; 2] {
        [self.engine.rows(), self.engine.columns()]
    }

    /// The indices of queries and keys among [rows, columns].
    fn queries_and_keys(&self) -> [usize; 2] {
        if self.across { [1, 0] } else { [0, 1] }
    }

    /// Scores from products, in the unit that [`power`] takes: scaled, with their bias added.
    pub fn scored(&self, code: &mut Code, products: &[Reg]) -> Vec<Reg> {
        let (wide, call) = (self.problem.wide(), self.problem.call);
        let scale = scale(call, self.engine);
        let scores: Vec<Reg> = products
            .iter()
            .map(|p| code.binary(Binary::Mul, wide.wide(), *p, scale.clone()))
            .collect();
        let Some(bias) = self.bias else { return scores };
        let slots = self.slots();
        let [of_queries, of_keys] = self.queries_and_keys();
        let columns = slots[1].far.len();
        let begins =
            [0, 1].map(|n| code.binary(Binary::Add, Type::S32, self.first[n], slots[n].first));
        let mut sums = scores.clone();
        for (i, query) in slots[of_queries].far.iter().enumerate() {
            let t = code.binary(Binary::Add, Type::S32, begins[of_queries], *query);
            let inside = code.compare(Compare::Lt, Type::S32, t, call.queries as i64);
            let row = advance(code, bias.address, t, bias.row);
            let row = advance(code, row, begins[of_keys], wide.size());
            for (j, key) in slots[of_keys].far.iter().enumerate() {
                let s = code.binary(Binary::Add, Type::S32, begins[of_keys], *key);
                let valid = code.compare(Compare::Lt, Type::S32, s, call.keys as i64);
                let valid = code.binary(Binary::And, Type::Pred, valid, inside);
                let place = Place { address: row, offset: key * wide.size(), valid: Some(valid) };
                let added = wide.load(code, Space::Global, place, 1)[0];
                let at = if self.across { j * columns + i } else { i * columns + j };
                let unit = unit(self.engine);
                sums[at] = code.ternary(Ternary::Fma, wide.wide(), added, unit, scores[at]);
            }
        }
        sums
    }

    /// Whether a query does not see a key, under a causal mask or with a prefix.
    fn unseen(&self, code: &mut Code, query: Reg, key: Reg) -> Reg {
        match self.prefix {
            None => code.compare(Compare::Gt, Type::S32, key, query),
            Some(prefix) => {
                let limit = self.problem.limit(code, prefix, query);
                code.compare(Compare::Ge, Type::S32, key, limit)
            }
        }
    }

    /// Overwrites values whose query does not see their key, or whose query or key is out of
    /// range.
    pub fn hide(&self, code: &mut Code, values: &[Reg], hidden: f64) {
        let (call, tiles) = (self.problem.call, self.engine.extents());
        let [of_queries, of_keys] = self.queries_and_keys();
        let (queries, keys) = (self.first[of_queries], self.first[of_keys]);
        let extents =
            if self.across { [call.keys, call.queries] } else { [call.queries, call.keys] };
        // Most blocks hide nothing. Rows out of range are never stored, but columns out of range
        // would be summed.
        let mut some: Option<Reg> = None;
        let mut or = |code: &mut Code, one: Reg| {
            some = Some(match some {
                None => one,
                Some(other) => code.binary(Binary::Or, Type::Pred, one, other),
            });
        };
        if call.causal || self.prefix.is_some() {
            let last = code.binary(Binary::Add, Type::S32, keys, tiles[of_keys] as i64 - 1);
            let unseen = self.unseen(code, queries, last);
            or(code, unseen);
        }
        if !extents[1].is_multiple_of(tiles[1]) {
            let end = code.binary(Binary::Add, Type::S32, self.first[1], tiles[1] as i64);
            let beyond = code.compare(Compare::Gt, Type::S32, end, extents[1] as i64);
            or(code, beyond);
        }
        let Some(some) = some else { return };
        let wide = self.engine.sums();
        let value = if hidden == 0.0 { wide.zero() } else { wide.constant(hidden) };
        code.when(some, |code| {
            let slots = self.slots();
            let begins =
                [0, 1].map(|n| code.binary(Binary::Add, Type::S32, self.first[n], slots[n].first));
            let columns = slots[1].far.len();
            for (j, column) in slots[1].far.iter().enumerate() {
                let at_column = code.binary(Binary::Add, Type::S32, begins[1], *column);
                let beyond = (!extents[1].is_multiple_of(tiles[1]))
                    .then(|| code.compare(Compare::Ge, Type::S32, at_column, extents[1] as i64));
                for (i, row) in slots[0].far.iter().enumerate() {
                    let mut gone = beyond;
                    if call.causal || self.prefix.is_some() {
                        let at_row = code.binary(Binary::Add, Type::S32, begins[0], *row);
                        let (t, s) =
                            if self.across { (at_column, at_row) } else { (at_row, at_column) };
                        let unseen = self.unseen(code, t, s);
                        gone = Some(match gone {
                            None => unseen,
                            Some(other) => code.binary(Binary::Or, Type::Pred, unseen, other),
                        });
                    }
                    let gone = gone.expect("something may be hidden");
                    let to = values[i * columns + j];
                    let kept = code.select(wide.wide(), value.clone(), to, gone);
                    code.assign(wide.wide(), to, kept);
                }
            }
        });
    }
}

/// The factor of scores that [`power`] expects: 1, or log₂ e for powers of 2.
pub(super) fn unit(engine: &dyn Engine) -> Operand {
    let powers_of_two = engine.approximates();
    engine.sums().constant(if powers_of_two { std::f64::consts::LOG2_E } else { 1.0 })
}

/// The scale, in that unit.
pub(super) fn scale(call: &Attention, engine: &dyn Engine) -> Operand {
    let unit = if engine.approximates() { std::f64::consts::LOG2_E } else { 1.0 };
    engine.sums().constant(call.scale.to_f64() * unit)
}

/// The power of a score in that unit.
pub(super) fn power(
    code: &mut Code,
    functions: &mut Functions,
    engine: &dyn Engine,
    x: Reg,
) -> Reg {
    if engine.approximates() {
        return code.unary(Unary::Exp2, Type::F32, x);
    }
    let dtype = engine.sums().0;
    scalar::emit(code, functions, ScalarOp::Exp, &[dtype], dtype, &[x])
        .expect("exp of f32 and of f64 has a program")
}
