//! Absorbs additions to a matrix product into the call.
//!
//! A GEMM adds a bias and a residual to each sum, and converts it, in the order of
//! [`Addends`](wengert_core::call::Addends). Each step has the bits of the corresponding graph op,
//! so absorption changes no bit. The sum is still in a register when it is done, so it saves a
//! round trip of the product through memory. Only values with one use are absorbed: a value with
//! other uses has to be stored anyway. Other elementwise consumers become nests that
//! [follow](super::follow) the product.
//!
//! Sums that have the result's dtype take their addends one by one. Sums of f32 whose result is a
//! half take them as a whole: the additions of widened halves and the rounding, which the pass
//! `round_once` has put there. A part of that form would store a product in f32.

use crate::addend::{Addend, Addends, columns, users};
use crate::view::{View, Work};
use wengert_core::call::{Call, Gemm};
use wengert_core::graph::{Equation, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::Binary;
use wengert_core::{DType, Op, Target};

/// Gives the products of a view their addends.
pub(crate) fn addends(view: &mut View<'_>, target: &Target) {
    let users = users(view.body);
    for n in 0..view.work.len() {
        let Work::Call(Call::Gemm(gemm)) = &view.work[n] else { continue };
        let mut chain = Chain::new(view, &users, n, gemm.clone());
        if !chain.halves() {
            while chain.step(target) {}
        }
        let Chain { gemm, operands, covered, last, .. } = chain;
        if last != n {
            covered.iter().for_each(|c| view.work[*c] = Work::Covered);
            view.covers[last] = covered;
            view.work[last] = Work::Call(Call::Gemm(gemm));
            view.operands[last] = operands;
        }
    }
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
        gemm: Gemm,
    ) -> Self {
        // The call may end with a product's scales.
        let all = [n].into_iter().chain(view.covers[n].iter().copied());
        let mut products = all.filter_map(|n| match &view.body.equations[n] {
            equation @ Equation { op: Op::DotGeneral(dot), .. } => Some((equation, dot)),
            _ => None,
        });
        let (equation, dot) = products.next().expect("a gemm is a product of the graph");
        let columns = columns(view.body, equation, dot);
        let (operands, covered) = (view.operands[n].clone(), view.covers[n].clone());
        Chain { view, users, gemm, operands, columns, covered, last: n }
    }

    /// Absorbs the next equation, if it can be.
    fn step(&mut self, target: &Target) -> bool {
        let value = self.view.body.equations[self.last].results[0];
        let Some(next) = self.users[value] else { return false };
        // Another product may have absorbed it.
        if !matches!(self.view.work[next], Work::Compute(_)) || !self.absorb(next, value, target) {
            return false;
        }
        self.covered.push(std::mem::replace(&mut self.last, next));
        true
    }

    fn absorb(&mut self, next: usize, value: ValueId, target: &Target) -> bool {
        let equation = &self.view.body.equations[next];
        let (Op::Binary(Binary::Add), [x, y]) = (&equation.op, equation.operands.as_slice()) else {
            return false;
        };
        let other = if *x == value { *y } else { *x };
        if self.gemm.result == DType::Bool || self.gemm.narrows() || self.gemm.addends.residual {
            return false;
        }
        match self.known().of(other, self.columns) {
            Some(Addend::Bias(bias)) if !self.gemm.addends.bias => {
                self.gemm.addends.bias = true;
                self.operands.push(bias);
            }
            Some(Addend::Residual(residual))
                if !(self.gemm.addends.bias && target.residual_first) =>
            {
                self.gemm.addends.residual = true;
                self.operands.push(residual);
            }
            _ => return false,
        }
        true
    }

    fn known(&self) -> Addends<'v> {
        Addends { body: self.view.body, definitions: &self.view.definitions }
    }

    /// Absorbs the residual and the bias of a product of halves, and the rounding after them, if
    /// the product has this form. Either addend may be absent.
    fn halves(&mut self) -> bool {
        let Gemm { operand, accumulate, result, .. } = self.gemm;
        if !operand.is_half() || result != accumulate {
            return false;
        }
        let equations = &self.view.body.equations;
        let (mut residual, mut bias, mut covered, mut last) = (None, None, vec![], self.last);
        loop {
            let value = equations[last].results[0];
            let Some(next) = self.users[value] else { return false };
            if !matches!(self.view.work[next], Work::Compute(_)) {
                return false;
            }
            covered.push(std::mem::replace(&mut last, next));
            match (&equations[next].op, equations[next].operands.as_slice()) {
                (Op::ConvertElementType(op), _) if op.dtype == operand => break,
                (Op::Binary(Binary::Add), [x, y]) => {
                    let other = if *x == value { *y } else { *x };
                    match self.half(other) {
                        Some(Addend::Bias(b)) if bias.is_none() => bias = Some(b),
                        // The bias is the last.
                        Some(Addend::Residual(r)) if bias.is_none() && residual.is_none() => {
                            residual = Some(r);
                        }
                        _ => return false,
                    }
                }
                _ => return false,
            }
        }
        self.gemm.addends.bias = bias.is_some();
        self.gemm.addends.residual = residual.is_some();
        self.gemm.result = operand;
        self.operands.extend(bias.into_iter().chain(residual));
        (self.covered, self.last) = (covered, last);
        true
    }

    /// The addend that a value is before it is widened from the dtype of the operands.
    fn half(&self, value: ValueId) -> Option<Addend> {
        let known = self.known();
        let before = |value: ValueId| {
            let equation = known.definition(value)?;
            let Op::ConvertElementType(_) = &equation.op else { return None };
            let x = equation.operands[0];
            (known.body.ty(x).dtype == self.gemm.operand).then_some(x)
        };
        match before(value) {
            Some(half) => known.of(half, self.columns),
            None => match known.of(value, self.columns)? {
                Addend::Bias(bias) => before(bias).map(Addend::Bias),
                Addend::Residual(_) => None,
            },
        }
    }
}
