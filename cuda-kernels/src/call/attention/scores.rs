//! Blocks of scores: scale, bias, what a query does not see, powers.

use super::super::index::advance;
use super::super::number::{Number, Place};
use super::{Engine, Problem, Slots};
use crate::ptx::{Binary, Code, Compare, Lanes, Operand, Reg, Space, Ternary, Type, Unary};
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

    /// Scores from products, in the unit that [`Powers::power`] takes: scaled, with their bias
    /// added.
    pub fn scored(&self, code: &mut Code, products: &[Reg]) -> Vec<Reg> {
        let (wide, call) = (self.problem.wide(), self.problem.call);
        let powers = self.engine.powers();
        let scale = powers.scale(call);
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
                let unit = powers.unit();
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

/// Powers of scores. Approximate powers are powers of 2, of scores in units of log₂ e.
#[derive(Clone, Copy)]
pub(super) struct Powers {
    /// The dtype of sums.
    pub sums: Number,
    /// Whether they are the machine's approximate powers.
    pub approximate: bool,
}

impl Powers {
    fn unit_in_f64(self) -> f64 {
        if self.approximate { std::f64::consts::LOG2_E } else { 1.0 }
    }

    /// The factor of scores that [`Powers::power`] expects: 1, or log₂ e for powers of 2.
    pub fn unit(self) -> Operand {
        self.sums.constant(self.unit_in_f64())
    }

    /// The scale, in that unit.
    pub fn scale(self, call: &Attention) -> Operand {
        self.sums.constant(call.scale.to_f64() * self.unit_in_f64())
    }

    /// The power of a score in that unit.
    pub fn power(self, code: &mut Code, functions: &mut Functions, x: Reg) -> Reg {
        if self.approximate {
            return code.unary(Unary::Exp2, Type::F32, x);
        }
        let dtype = self.sums.0;
        scalar::emit(code, functions, ScalarOp::Exp, &[dtype], dtype, &[x])
            .expect("exp of f32 and of f64 has a program")
    }

    /// The reference of the powers of scores with this maximum: the maximum, or 0 where that is
    /// infinite.
    pub fn reference(self, code: &mut Code, greatest: Reg) -> Reg {
        let ty = self.sums.wide();
        let size = code.unary(Unary::Abs, ty, greatest);
        let finite = code.compare(Compare::Lt, ty, size, self.sums.constant(f64::INFINITY));
        code.select(ty, greatest, self.sums.zero(), finite)
    }

    /// The factor of sums of powers relative to the reference of the maximum `before`, which makes
    /// them relative to `reference`; 0 where there are no sums, since no score was above −∞.
    pub fn rescale(
        self,
        code: &mut Code,
        functions: &mut Functions,
        before: Reg,
        reference: Reg,
    ) -> Reg {
        let ty = self.sums.wide();
        let own = self.reference(code, before);
        let infinite = self.sums.constant(f64::NEG_INFINITY);
        let none = code.compare(Compare::Eq, ty, before, infinite);
        let own = code.select(ty, before, own, none);
        let moved = code.binary(Binary::Sub, ty, own, reference);
        self.power(code, functions, moved)
    }

    /// The logarithm of a sum of powers relative to the reference of this maximum, in units of 1.
    pub fn logarithm(
        self,
        code: &mut Code,
        functions: &mut Functions,
        greatest: Reg,
        sum: Reg,
    ) -> Reg {
        let (dtype, ty) = (self.sums.0, self.sums.wide());
        if self.approximate {
            let reference = self.reference(code, greatest);
            let logarithm = code.unary(Unary::Log2, ty, sum);
            let logarithm = code.binary(Binary::Add, ty, reference, logarithm);
            return code.binary(
                Binary::Mul,
                ty,
                logarithm,
                self.sums.constant(std::f64::consts::LN_2),
            );
        }
        let logarithm = scalar::emit(code, functions, ScalarOp::Log, &[dtype], dtype, &[sum])
            .expect("log of f32 and of f64 has a program");
        let reference = self.reference(code, greatest);
        code.binary(Binary::Add, ty, reference, logarithm)
    }
}

/// The sum, or the maximum, of the values of the lanes whose numbers differ in these bits.
pub(super) fn together(
    code: &mut Code,
    ty: Type,
    lanes: &[i64],
    operation: Binary,
    mut value: Reg,
) -> Reg {
    for lane in lanes {
        let other = code.shuffle(&Lanes::butterfly(*lane), value);
        value = code.binary(operation, ty, value, other);
    }
    value
}
