//! Absorbs additions to a matrix product into the call.
//!
//! A GEMM converts each sum, and adds a bias and a residual, in this order. Each step has the bits
//! of the corresponding graph op, so absorption changes no bit. The sum is still in a register
//! when it is done, so it saves a round trip of the product through memory. Only values with one
//! use are absorbed: a value with other uses has to be stored anyway. Other elementwise consumers
//! become nests that [follow](super::follow) the product.

use crate::view::{View, Work};
use wengert_core::call::{Call, Gemm};
use wengert_core::graph::ValueId;
use wengert_core::id::IdVec;
use wengert_core::op::{Binary, Cost, DotGeneral};
use wengert_core::{DType, Op};

/// Gives the products of a view their addends.
pub(crate) fn addends(view: &mut View<'_>) {
    let users = users(view);
    for n in 0..view.work.len() {
        let Work::Call(Call::Gemm(gemm)) = &view.work[n] else { continue };
        let Op::DotGeneral(dot) = &view.body.equations[n].op else { continue };
        let mut chain = Chain::new(view, &users, n, dot, gemm.clone());
        while chain.step() {}
        let Chain { gemm, operands, covered, last, .. } = chain;
        if last != n {
            covered.iter().for_each(|c| view.work[*c] = Work::Covered);
            view.covers[last] = covered;
            view.work[last] = Work::Call(Call::Gemm(gemm));
            view.operands[last] = operands;
        }
    }
}

/// The only equation that uses a value, once; `None` if there are more uses, or it is an output.
fn users(view: &View<'_>) -> IdVec<ValueId, Option<usize>> {
    let mut count: IdVec<ValueId, usize> = view.body.values.ids().map(|_| 0).collect();
    let mut user: IdVec<ValueId, Option<usize>> = view.body.values.ids().map(|_| None).collect();
    view.body.outputs.iter().for_each(|v| count[*v] += 2);
    for (n, equation) in view.body.equations.iter().enumerate() {
        for operand in &equation.operands {
            count[*operand] += 1;
            user[*operand] = Some(n);
        }
    }
    user.iter().map(|(v, u)| u.filter(|_| count[v] == 1)).collect()
}

/// A product and its consumers.
struct Chain<'v, 'a> {
    view: &'v View<'a>,
    users: &'v IdVec<ValueId, Option<usize>>,
    gemm: Gemm,
    operands: Vec<ValueId>,
    /// Number of the result's axes that form columns.
    columns: usize,
    covered: Vec<usize>,
    /// The equation whose result the call returns.
    last: usize,
}

impl<'v, 'a> Chain<'v, 'a> {
    fn new(
        view: &'v View<'a>,
        users: &'v IdVec<ValueId, Option<usize>>,
        n: usize,
        dot: &DotGeneral,
        gemm: Gemm,
    ) -> Self {
        let equation = &view.body.equations[n];
        let columns =
            view.extents[equation.operands[1]].len() - dot.contract.1.len() - dot.batch.1.len();
        Chain {
            view,
            users,
            gemm,
            operands: equation.operands.clone(),
            columns,
            covered: vec![],
            last: n,
        }
    }

    /// Absorbs the next equation, if it can be.
    fn step(&mut self) -> bool {
        let value = self.view.body.equations[self.last].results[0];
        let Some(next) = self.users[value] else { return false };
        // Another product may have absorbed it.
        if !matches!(self.view.work[next], Work::Compute(_)) || !self.absorb(next, value) {
            return false;
        }
        self.covered.push(std::mem::replace(&mut self.last, next));
        true
    }

    fn absorb(&mut self, next: usize, value: ValueId) -> bool {
        let equation = &self.view.body.equations[next];
        let addends = &mut self.gemm.addends;
        if addends.residual {
            return false;
        }
        match (&equation.op, equation.operands.as_slice()) {
            (Op::ConvertElementType(op), _) => {
                let rounds =
                    self.gemm.result == self.gemm.accumulate && op.dtype == self.gemm.operand;
                if addends.bias || !rounds || self.gemm.operand == self.gemm.accumulate {
                    return false;
                }
                self.gemm.result = op.dtype;
                true
            }
            (Op::Binary(Binary::Add), [x, y]) if self.gemm.result != DType::Bool => {
                let other = if *x == value { *y } else { *x };
                if !addends.bias
                    && let Some(bias) = bias(self.view, other, self.columns)
                {
                    addends.bias = true;
                    self.operands.push(bias);
                    return true;
                }
                if !is_tensor(self.view, other) {
                    return false;
                }
                addends.residual = true;
                self.operands.push(other);
                true
            }
            _ => false,
        }
    }
}

/// Whether all elements are one constant.
fn is_constant(view: &View<'_>, value: ValueId) -> bool {
    let Some(n) = view.definitions[value] else { return false };
    let equation = &view.body.equations[n];
    match (&equation.op, equation.operands.as_slice()) {
        (Op::Constant(constant), _) => constant.value.splat().is_some(),
        (Op::BroadcastInDim(_), [x]) => is_constant(view, *x),
        _ => false,
    }
}

/// The operand of a value that is repeated along all axes except the columns.
fn bias(view: &View<'_>, value: ValueId, columns: usize) -> Option<ValueId> {
    let equation = &view.body.equations[view.definitions[value]?];
    let (Op::BroadcastInDim(op), [x]) = (&equation.op, equation.operands.as_slice()) else {
        return None;
    };
    let rank = view.extents[value].len();
    let trailing: Vec<usize> = (rank - columns..rank).collect();
    let fits = op.dims == trailing && view.extents[*x] == view.extents[value][rank - columns..];
    (fits && !is_constant(view, *x)).then_some(*x)
}

/// Whether it is worth storing: not a repetition of a smaller value.
fn is_tensor(view: &View<'_>, value: ValueId) -> bool {
    match view.definitions[value] {
        None => true,
        Some(n) => {
            view.cost[n] != Cost::Free || view.alias(value).is_some_and(|x| is_tensor(view, x))
        }
    }
}
