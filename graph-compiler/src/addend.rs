//! Addends of matrix products: a bias, which is a number for each column, or a residual, which has
//! the shape of the product.
//!
//! Two passes look for them. `round_once` moves the rounding of halves behind them, and `addends`
//! absorbs them into the call. Both ask this module, so that what one prepares, the other absorbs.

use wengert_core::Op;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{Cost, DotGeneral};

/// What an addition adds to a product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Addend {
    /// A number for each column: the operand of the broadcast.
    Bias(ValueId),
    /// A tensor of the product's shape.
    Residual(ValueId),
}

/// A body's values with their definitions.
#[derive(Clone, Copy)]
pub(crate) struct Addends<'a> {
    pub body: &'a Body,
    /// The equation that defines a value.
    pub definitions: &'a IdVec<ValueId, Option<usize>>,
}

impl<'a> Addends<'a> {
    /// The addend that a value is for a product whose result has that many axes of columns; `None`
    /// if it repeats a smaller value in another way.
    pub fn of(&self, value: ValueId, columns: usize) -> Option<Addend> {
        let bias = self.bias(value, columns).map(Addend::Bias);
        bias.or_else(|| self.is_tensor(value).then_some(Addend::Residual(value)))
    }

    /// The equation that defines a value, if one does.
    pub fn definition(&self, value: ValueId) -> Option<&'a Equation> {
        self.definitions[value].map(|n| &self.body.equations[n])
    }

    /// Whether all elements are one constant.
    fn is_constant(&self, value: ValueId) -> bool {
        let Some(equation) = self.definition(value) else { return false };
        match (&equation.op, equation.operands.as_slice()) {
            (Op::Constant(constant), _) => constant.value.splat().is_some(),
            (Op::BroadcastInDim(_), [x]) => self.is_constant(*x),
            _ => false,
        }
    }

    /// The operand of a value that is repeated along all axes except the columns.
    fn bias(&self, value: ValueId, columns: usize) -> Option<ValueId> {
        let equation = self.definition(value)?;
        let (Op::BroadcastInDim(op), [x]) = (&equation.op, equation.operands.as_slice()) else {
            return None;
        };
        let shape = &self.body.ty(value).shape;
        let first = shape.len().checked_sub(columns)?;
        let fits = op.dims.iter().copied().eq(first..shape.len())
            && self.body.ty(*x).shape == shape[first..];
        (fits && !self.is_constant(*x)).then_some(*x)
    }

    /// Whether it is worth storing: not a repetition of a smaller value.
    fn is_tensor(&self, value: ValueId) -> bool {
        let Some(equation) = self.definition(value) else { return true };
        match (&equation.op, equation.operands.as_slice()) {
            (Op::Reshape(_), [x]) => self.is_tensor(*x),
            (op, _) => op.traits().cost != Cost::Free,
        }
    }
}

/// Number of the axes of a product's result that form columns.
pub(crate) fn columns(body: &Body, equation: &Equation, dot: &DotGeneral) -> usize {
    let rank = body.ty(equation.operands[1]).shape.len();
    rank - dot.contract.1.len() - dot.batch.1.len()
}

/// For each value the only equation that uses it, once; `None` if there are more uses, or it is an
/// output.
pub(crate) fn users(body: &Body) -> IdVec<ValueId, Option<usize>> {
    let mut count: IdVec<ValueId, usize> = body.values.ids().map(|_| 0).collect();
    let mut user: IdVec<ValueId, Option<usize>> = body.values.ids().map(|_| None).collect();
    body.outputs.iter().for_each(|v| count[*v] += 2);
    for (n, equation) in body.equations.iter().enumerate() {
        for operand in &equation.operands {
            count[*operand] += 1;
            user[*operand] = Some(n);
        }
    }
    user.iter().map(|(v, u)| u.filter(|_| count[v] == 1)).collect()
}
