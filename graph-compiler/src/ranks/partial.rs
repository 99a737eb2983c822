//! The ops that may use a partial sum within a region.
//!
//! If f is linear, then f(a) + f(b) = f(a + b): the sum of its results for the microbatches is its
//! result for the batch. An op with several operands is linear in its partial operands together,
//! with whole factors beside them. A whole term would be added once for each microbatch, so it has
//! to be zero.

use super::regions::State;
use wengert_core::Op;
use wengert_core::graph::{Body, Equation};
use wengert_core::op::{Binary, ReduceKind, Unary};

/// Whether the result of an op on whole operands with these states is known to be zero.
pub(super) fn zero(op: &Op, of: &[State]) -> bool {
    match op {
        Op::Constant(op) => op.value.splat().is_some_and(|s| s.to_f64() == 0.0),
        Op::BroadcastInDim(_) | Op::Reshape(_) | Op::Permute(_) | Op::ConvertElementType(_) => {
            of[0] == State::Zero
        }
        _ => false,
    }
}

/// Whether an op is linear in its partial operands. `of` has the states of its operands.
pub(super) fn linear(body: &Body, equation: &Equation, of: &[State]) -> bool {
    let partial = |k: usize| of[k] == State::Partial;
    let whole = |k: usize| of[k].is_whole();
    let term = |k: usize| partial(k) || of[k] == State::Zero;
    let all = 0..of.len();
    match &equation.op {
        Op::Unary(Unary::Neg)
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::BroadcastInDim(_)
        | Op::Slice(_)
        | Op::Reverse(_)
        | Op::OptimizationBarrier(_) => true,
        // Conversions to integers cut fractions, and those to smaller ones wrap.
        Op::ConvertElementType(_) => body.ty(equation.results[0]).dtype.is_float(),
        Op::Reduce(op) => op.kind == ReduceKind::Sum,
        Op::Binary(Binary::Add | Binary::Sub) | Op::Concatenate(_) => all.into_iter().all(term),
        Op::Binary(Binary::Mul | Binary::MulZero) | Op::DotGeneral(_) => whole(0) != whole(1),
        // The division of integers is rounded.
        Op::Binary(Binary::Div) => {
            partial(0) && whole(1) && body.ty(equation.results[0]).dtype.is_float()
        }
        Op::Select(_) => whole(0) && term(1) && term(2),
        Op::Pad(_) => partial(0) && of[1] == State::Zero,
        Op::DynamicSlice(_) => all.skip(1).all(whole),
        Op::DynamicUpdateSlice(_) => term(0) && term(1) && all.skip(2).all(whole),
        _ => false,
    }
}
