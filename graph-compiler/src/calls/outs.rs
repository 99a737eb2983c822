//! Gives the backward pass of attention its forward result in place of the sums that it needs.
//!
//! The cotangents of attention need m = Σ c̄∘out for each query, which a graph computes by ordinary
//! ops. As a kernel of its own the sum reads both tensors, and the call then reads c̄ again. Where
//! the target's call [takes out](wengert_core::call::Attention::out_given), it adds up m while it
//! has the rows of c̄. A cotangent of the logarithms is part of m, too; then the sums stay.

use crate::addend::users;
use crate::view::{View, Work};
use wengert_core::call::{Attention, Call};
use wengert_core::graph::ValueId;
use wengert_core::op::{Binary, ReduceKind};
use wengert_core::{Op, Target};

/// Replaces the sums of a view's attentions.
pub(crate) fn outs(view: &mut View<'_>, target: &Target) {
    let users = users(view.body);
    for n in 0..view.work.len() {
        let Work::Call(Call::Attention(attention)) = &view.work[n] else { continue };
        let call = Call::Attention(Attention { out_given: true, ..attention.clone() });
        if !attention.backward || attention.out_given || !target.claims(&call) {
            continue;
        }
        let operands = &view.operands[n];
        let (given, m) = (operands[operands.len() - 2], operands[operands.len() - 1]);
        let Some(sum) = Sum::of(view, given, m) else { continue };
        let only_user = |equation: &usize| users[view.body.equations[*equation].results[0]];
        if sum.equations.iter().any(|equation| only_user(equation).is_none()) {
            continue;
        }
        // A conversion that others read as well is computed for them.
        let conversions = sum.conversions.iter().filter(|c| only_user(c).is_some());
        let covered: Vec<usize> = sum.equations.iter().chain(conversions).copied().collect();
        covered.iter().for_each(|c| view.work[*c] = Work::Covered);
        view.covers[n].extend(covered);
        *view.operands[n].last_mut().expect("it has operands") = sum.other;
        view.work[n] = Work::Call(call);
    }
}

/// m as the sum of the products of two tensors `[B, T, N, H]` along their last axis, `[B, N, T]`.
struct Sum {
    /// The factor that was not asked about.
    other: ValueId,
    /// The equations that compute m, but for conversions of the factors.
    equations: [usize; 3],
    conversions: Vec<usize>,
}

impl Sum {
    /// `None` if m is no such sum, or `factor` none of its factors.
    fn of(view: &View<'_>, factor: ValueId, m: ValueId) -> Option<Sum> {
        let body = view.body;
        let permuted = view.definitions[m]?;
        let Op::Permute(permute) = &body.equations[permuted].op else { return None };
        let summed = view.definitions[body.equations[permuted].operands[0]]?;
        let Op::Reduce(reduce) = &body.equations[summed].op else { return None };
        let multiplied = view.definitions[body.equations[summed].operands[0]]?;
        // The strong product differs where a factor is not finite.
        let Op::Binary(Binary::Mul | Binary::MulZero) = &body.equations[multiplied].op else {
            return None;
        };
        let mut conversions = Vec::new();
        let mut widened = |value: ValueId| {
            let Some(n) = view.definitions[value] else { return value };
            let equation = &body.equations[n];
            match (&equation.op, equation.operands.as_slice()) {
                (Op::ConvertElementType(_), [narrow]) if body.ty(*narrow) == body.ty(factor) => {
                    conversions.push(n);
                    *narrow
                }
                _ => value,
            }
        };
        let [x, y] = body.equations[multiplied].operands.as_slice() else { return None };
        let (x, y) = (widened(*x), widened(*y));
        let other = if x == factor { y } else { x };
        let fits = (x == factor || y == factor)
            && body.ty(other) == body.ty(factor)
            && permute.permutation == [0, 2, 1]
            && reduce.kind == ReduceKind::Sum
            && reduce.axes == [3];
        fits.then_some(Sum { other, equations: [permuted, summed, multiplied], conversions })
    }
}
