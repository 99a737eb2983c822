//! Constant folding while a nest is built.
//!
//! A reduction that begins with its first element, not with the identity, leaves comparisons with
//! the identity that are constant. Such instructions are on bools and integers, whose results are
//! unique. Floats are not folded: their bits are decided elsewhere.

use super::evaluate::evaluate;
use super::{Reg, ScalarOp};
use crate::{DType, Scalar};

/// The known result of an instruction.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Folded {
    /// A constant.
    Constant(Scalar),
    /// The value of an operand.
    Operand(Reg),
}

/// The result of an instruction, if it is known. Its dtypes have been checked. `constant` returns
/// the value of a constant register.
pub(super) fn fold(
    op: ScalarOp,
    operands: &[Reg],
    result: DType,
    constant: impl Fn(Reg) -> Option<Scalar>,
) -> Option<Folded> {
    let known: Vec<Option<Scalar>> = operands.iter().map(|r| constant(*r)).collect();
    let all: Option<Vec<Scalar>> = known.iter().copied().collect();
    if let Some(all) = all
        && (result == DType::Bool || result.is_integer())
    {
        return Some(Folded::Constant(evaluate(op, &all, result)));
    }
    let truth = |k: usize| known[k].map(|value| value == Scalar::from(true));
    match op {
        ScalarOp::Select => {
            Some(Folded::Operand(if truth(0)? { operands[1] } else { operands[2] }))
        }
        ScalarOp::And | ScalarOp::Or if result == DType::Bool => {
            let (k, value) = match (truth(0), truth(1)) {
                (Some(value), _) => (0, value),
                (_, Some(value)) => (1, value),
                _ => return None,
            };
            // True is the identity of `and` and the absorbing element of `or`.
            let identity = value == (op == ScalarOp::And);
            Some(Folded::Operand(operands[if identity { 1 - k } else { k }]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nest::NestBuilder;

    /// Bools and integers of constants, and operands that a constant determines.
    #[test]
    fn what_is_known_is_not_written() {
        let mut nest = NestBuilder::new("known");
        let x = nest.input("x", DType::Bool, &[1]);
        let y = nest.output("y", DType::Bool, &[5]);
        nest.phase([]);
        let at = |n: i64| [crate::nest::Affine::constant(n)];
        let open = nest.load(x, &at(0));
        let (yes, no) = (nest.constant(true.into()), nest.constant(false.into()));
        let (two, three) = (nest.constant(Scalar::of(2i32)), nest.constant(Scalar::of(3i32)));
        assert_eq!(nest.scalar(ScalarOp::Lt, &[two, three]), yes);
        assert_eq!(nest.scalar(ScalarOp::And, &[open, yes]), open);
        assert_eq!(nest.scalar(ScalarOp::And, &[no, open]), no);
        assert_eq!(nest.scalar(ScalarOp::Or, &[yes, open]), yes);
        assert_eq!(nest.scalar(ScalarOp::Or, &[open, no]), open);
        assert_eq!(nest.scalar(ScalarOp::Select, &[no, yes, open]), open);
        let sum = nest.scalar(ScalarOp::Add, &[two, two]);
        assert_eq!(sum, nest.constant(Scalar::of(4i32)));
        // These have no known result.
        let both = nest.scalar(ScalarOp::And, &[open, open]);
        assert!(both != open && nest.scalar(ScalarOp::Not, &[open]) != open);
        // Sums of floats are not folded.
        let half = nest.constant(Scalar::of(0.5f32));
        assert_ne!(nest.scalar(ScalarOp::Add, &[half, half]), nest.constant(Scalar::of(1.0f32)));
        nest.store(y, &at(0), both);
        (1..5).for_each(|n| nest.store(y, &at(n), yes));
        nest.finish().expect("the nest is right");
    }
}
