//! What is written with several equations, but is one op of ONNX: `Relu`, `Gelu`, and
//! normalizations with their scale and bias.

use super::composite;
use super::graph::{Exporter, Value};
use super::walk::Call;
use std::collections::BTreeMap;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::op::{Binary, Compare, NormalizeKind, Unary};
use wengert_core::{Dim, IdVec, Op, Result, Scalar};

/// An equation that stands for several.
pub(super) struct Pattern {
    /// The operands of the whole.
    pub operands: Vec<ValueId>,
    /// The equation of the normalization, if it is one.
    pub norm: Option<Op>,
    pub rule: fn(&mut Exporter, &Call<'_>, &Pattern) -> Result<Vec<Value>>,
}

/// The patterns of a body, by the number of their last equation.
pub(super) fn find(body: &Body) -> BTreeMap<usize, Pattern> {
    let finder = Finder { body, definitions: body.definitions() };
    let mut found = BTreeMap::new();
    for (number, equation) in body.equations.iter().enumerate() {
        let pattern = finder
            .relu(equation)
            .or_else(|| finder.gelu(equation))
            .or_else(|| finder.normalization(equation));
        if let Some(pattern) = pattern {
            found.insert(number, pattern);
        }
    }
    found
}

struct Finder<'a> {
    body: &'a Body,
    definitions: IdVec<ValueId, Option<usize>>,
}

impl<'a> Finder<'a> {
    fn definition(&self, id: ValueId) -> Option<&'a Equation> {
        self.definitions[id].map(|number| &self.body.equations[number])
    }

    /// The operands of the equation that defines a value, if it is this op.
    fn operands(&self, id: ValueId, op: impl Fn(&Op) -> bool) -> Option<&'a [ValueId]> {
        self.definition(id).filter(|e| op(&e.op)).map(|e| e.operands.as_slice())
    }

    /// The element that a value repeats.
    fn splat(&self, id: ValueId) -> Option<Scalar> {
        let equation = self.definition(id)?;
        match &equation.op {
            Op::Constant(constant) => constant.value.splat(),
            Op::BroadcastInDim(_) => self.splat(equation.operands[0]),
            _ => None,
        }
    }

    fn binary(&self, id: ValueId, op: Binary) -> Option<[ValueId; 2]> {
        match self.operands(id, |o| *o == Op::Binary(op))? {
            [x, y] => Some([*x, *y]),
            _ => None,
        }
    }

    /// The other operand of a binary op, one of whose operands repeats this number.
    fn beside(&self, id: ValueId, op: Binary, number: f64) -> Option<ValueId> {
        let [x, y] = self.binary(id, op)?;
        let is =
            |id: ValueId| self.splat(id).is_some_and(|s| s == Scalar::from_f64(s.dtype(), number));
        if is(y) { Some(x) } else { is(x).then_some(y) }
    }

    /// 0 where x ≤ 0, else x.
    fn relu(&self, equation: &Equation) -> Option<Pattern> {
        let Op::Select(_) = equation.op else { return None };
        let [condition, zero, x] = equation.operands[..] else { return None };
        let is_zero = |id: ValueId| self.splat(id).is_some_and(|s| s == Scalar::zero(s.dtype()));
        let [compared, bound] = self.operands(condition, |o| *o == Op::Compare(Compare::Le))?
        else {
            return None;
        };
        let float = self.body.values[x].dtype.is_float();
        (float && *compared == x && is_zero(*bound) && is_zero(zero)).then(|| Pattern {
            operands: vec![x],
            norm: None,
            rule: composite::relu,
        })
    }

    /// x·½·(erf(x/√2) + 1).
    fn gelu(&self, equation: &Equation) -> Option<Pattern> {
        let Op::Binary(Binary::Mul) = equation.op else { return None };
        let [x, y] = [equation.operands[0], equation.operands[1]];
        let of = |half: ValueId, sum: ValueId| {
            let x = self.beside(half, Binary::Mul, 0.5)?;
            let erf = self.beside(sum, Binary::Add, 1.0)?;
            let [scaled] = self.operands(erf, |o| *o == Op::Unary(Unary::Erf))? else {
                return None;
            };
            let inner = self.beside(*scaled, Binary::Mul, std::f64::consts::FRAC_1_SQRT_2)?;
            (inner == x).then_some(x)
        };
        let x = of(x, y).or_else(|| of(y, x))?;
        Some(Pattern { operands: vec![x], norm: None, rule: composite::gelu })
    }

    /// A normalization along the last axis, scaled and shifted by one number for each position.
    fn normalization(&self, equation: &Equation) -> Option<Pattern> {
        let Op::Binary(op @ (Binary::Mul | Binary::Add)) = equation.op else { return None };
        let [x, y] = [equation.operands[0], equation.operands[1]];
        let scaled = |x: ValueId, y: ValueId| {
            let norm = self.definition(x)?;
            let Op::Normalize(normalize) = &norm.op else { return None };
            let last = normalize.axis + 1 == self.body.values[x].rank();
            let scale = self.row(y)?;
            last.then_some((norm, normalize.kind, scale))
        };
        if op == Binary::Mul {
            let (norm, _, scale) = scaled(x, y).or_else(|| scaled(y, x))?;
            return Some(Pattern {
                operands: vec![norm.operands[0], scale],
                norm: Some(norm.op.clone()),
                rule: composite::normalization,
            });
        }
        let shifted = |product: ValueId, bias: ValueId| {
            let [x, y] = self.binary(product, Binary::Mul)?;
            let (norm, kind, scale) = scaled(x, y).or_else(|| scaled(y, x))?;
            let bias = self.row(bias)?;
            (kind == NormalizeKind::Standardize).then(|| Pattern {
                operands: vec![norm.operands[0], scale, bias],
                norm: Some(norm.op.clone()),
                rule: composite::normalization,
            })
        };
        shifted(x, y).or_else(|| shifted(y, x))
    }

    /// The vector that a value repeats along all axes but the last.
    fn row(&self, id: ValueId) -> Option<ValueId> {
        let equation = self.definition(id)?;
        let Op::BroadcastInDim(op) = &equation.op else { return None };
        let row = equation.operands[0];
        let shape = &self.body.values[row].shape;
        let is_row = op.dims == [op.shape.len().checked_sub(1)?]
            && shape.len() == 1
            && shape.first() == op.shape.last()
            && shape.first() != Some(&Dim::constant(1));
        is_row.then_some(row)
    }
}
