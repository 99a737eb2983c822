//! The `derivative` facet: one rule per op. Forward mode, reverse mode and every nesting of them
//! follow from it.
//!
//! Forward mode applies rules equation by equation. Reverse mode transposes the linear program
//! that forward mode produces: `vjp = transpose ∘ linearize`. So an op states *either* its
//! tangent rule (nonlinear ops) *or* its transpose rule (linear ops). Only structural ops and
//! `mul_zero`, the strong product by which jvp rules scale a tangent, need a transpose rule.
//!
//! Rules are written with [`Tensor`]s, so they read like the mathematics and can be
//! differentiated again. A missing tangent (`None`) is a symbolic zero: it costs nothing, and its
//! product with anything is zero.

use crate::build::tensor::Tensor;
use crate::graph::Region;
use crate::op::Op;
use crate::ty::TensorType;

/// How an op is differentiated.
#[derive(Clone, Copy)]
pub enum Derivative {
    /// The derivative is zero wherever it exists, or the result is not a float: compare, argmax,
    /// iota, floor, random bits.
    Zero,
    /// Linear in all float operands together: sums, and ops that move elements.
    Linear(TransposeRule),
    /// The sum of the operands, each with a sign: add, sub, neg. The cotangent of an operand is
    /// the result's with that sign, so there is no rule. The transposing driver may defer the
    /// sign until it is free to apply.
    SignedSum(&'static [Sign]),
    /// Linear in each float operand with the others fixed: products. The jvp is the sum over
    /// operands.
    Multilinear(TransposeRule),
    /// Everything else, by its jvp.
    Nonlinear(JvpRule),
    /// Linear in each of the listed operands with the others fixed, nonlinear in the rest: div in
    /// its numerator. Also products that state their own jvp. The jvp covers all operands; the
    /// transpose rule is with respect to one listed operand.
    LinearIn(&'static [usize], JvpRule, TransposeRule),
    /// By decomposition into other ops ([`crate::op::Compute::Decompose`]).
    Composite,
    /// By a decomposition used for the derivative only; the value is computed otherwise.
    Decomposed(DecompositionRule),
    /// The rule of an op that is itself a tangent: linear in its last operands together, with the
    /// others fixed.
    Tangent(TangentRule),
    /// By a rule that the user gives in a region.
    Custom(Custom),
    /// By differentiating its regions. [`crate::op::Op::control`] gives their roles.
    Control,
    /// By its region, whose values are mostly recomputed: [`crate::op::Checkpoint`].
    Checkpoint,
    /// By the derivative bundle of the called function, built once: [`crate::op::FunctionCall`].
    Function,
    /// None: the function is opaque.
    Opaque,
}

/// The sign of an operand in a sum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Sign {
    /// It is added.
    Plus,
    /// It is subtracted.
    Minus,
}

impl std::ops::Mul for Sign {
    type Output = Sign;
    fn mul(self, other: Sign) -> Sign {
        if self == other { Sign::Plus } else { Sign::Minus }
    }
}

/// The rule that the regions of an op give.
#[derive(Clone, Copy)]
pub enum Custom {
    /// [`crate::op::CustomJvp`]
    Jvp {
        /// Number of last operands that are constants to the rule.
        captures: usize,
    },
    /// [`crate::op::CustomVjp`]
    Vjp {
        /// Number of last operands that are constants to the rule.
        captures: usize,
    },
    /// [`crate::op::CustomLinearSolve`]: linear in the right-hand side.
    LinearSolve {
        /// Number of last operands that are captures of the map and the solvers.
        captures: usize,
    },
    /// [`crate::op::Transposed`]: linear in its tangents together.
    Transposed {
        /// Number of last operands that are tangents.
        tangents: usize,
    },
}

impl Derivative {
    /// The name of the kind in the catalogue.
    pub const fn kind(&self) -> &'static str {
        match self {
            Derivative::Zero => "zero",
            Derivative::Linear(_) | Derivative::SignedSum(_) => "linear",
            Derivative::Multilinear(_) => "multilinear",
            Derivative::Nonlinear(_) => "nonlinear",
            Derivative::LinearIn(..) => "linear in one",
            Derivative::Composite => "composite",
            Derivative::Decomposed(_) => "by decomposition",
            Derivative::Tangent(_) => "linear in the last",
            Derivative::Custom(_) => "custom",
            Derivative::Control => "by its regions",
            Derivative::Checkpoint => "by its region",
            Derivative::Function => "by its function",
            Derivative::Opaque => "none",
        }
    }

    /// True if the op is differentiated by differentiating its regions.
    pub const fn is_by_regions(&self) -> bool {
        matches!(self, Derivative::Control | Derivative::Checkpoint | Derivative::Function)
    }

    /// The transpose rule of an op that is linear in all float operands together; `None` for all
    /// others.
    pub fn linear(&self) -> Option<TransposeRule> {
        match self {
            Derivative::Linear(rule) => Some(*rule),
            Derivative::SignedSum(_) => Some(transpose_signed_sum),
            _ => None,
        }
    }
}

/// The transpose rule of signed sums: each term gets the cotangent with its sign.
fn transpose_signed_sum(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Derivative::SignedSum(signs) = t.op.derivative() else {
        unreachable!("the rule of signed sums")
    };
    let ct = t.cotangents[0].as_ref().expect("a transpose rule is called with a cotangent");
    let of = |(operand, sign): (&TransposeOperand, &Sign)| match (operand.is_linear(), sign) {
        (false, _) => None,
        (true, Sign::Plus) => Some(ct.clone()),
        (true, Sign::Minus) => Some(-ct),
    };
    t.operands.iter().zip(signs).map(of).collect()
}

impl std::fmt::Debug for Derivative {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.kind())
    }
}

/// The arguments of a jvp rule.
pub struct Jvp<'a> {
    /// The op.
    pub op: &'a Op,
    /// Operands.
    pub operands: &'a [Tensor],
    /// Results, already computed.
    pub results: &'a [Tensor],
    /// The operands' tangents; `None` is zero. At least one is present.
    pub tangents: &'a [Option<Tensor>],
    /// The regions of the op.
    pub regions: &'a [Region],
}

/// Returns the tangent of each result, linear in the given tangents.
pub type JvpRule = fn(&Jvp<'_>) -> Vec<Option<Tensor>>;

/// The arguments of a transpose rule.
pub struct Transpose<'a> {
    /// The op.
    pub op: &'a Op,
    /// Operands.
    pub operands: &'a [TransposeOperand],
    /// Types of the results.
    pub results: &'a [TensorType],
    /// Cotangents of the results; at least one is present.
    pub cotangents: &'a [Option<Tensor>],
}

/// An operand of an equation being transposed.
#[derive(Clone)]
pub enum TransposeOperand {
    /// The equation is linear in it, and its cotangent is wanted.
    Linear(TensorType),
    /// A value that does not depend on the linear inputs of the program.
    Known(Tensor),
}

impl TransposeOperand {
    /// The operand's type.
    pub fn ty(&self) -> &TensorType {
        match self {
            TransposeOperand::Linear(ty) => ty,
            TransposeOperand::Known(tensor) => tensor.ty(),
        }
    }

    /// True if a cotangent is wanted.
    pub fn is_linear(&self) -> bool {
        matches!(self, TransposeOperand::Linear(_))
    }

    /// The value of a known operand.
    pub fn known(&self) -> &Tensor {
        match self {
            TransposeOperand::Known(tensor) => tensor,
            TransposeOperand::Linear(_) => {
                panic!("a transpose rule asks for the value of an operand that is linear")
            }
        }
    }
}

/// Returns the results of an op with its regions, expressed by other ops.
pub type DecompositionRule = fn(&Op, &[Region], &[Tensor]) -> Vec<Tensor>;

/// The derivative of an op that is itself a tangent.
#[derive(Clone, Copy)]
pub struct TangentRule {
    /// Maps the operand count to the number of last operands in which it is linear together.
    pub linear: fn(usize) -> usize,
    /// Replaces the op where any operand has a tangent.
    pub decomposition: DecompositionRule,
    /// The transpose with respect to those operands; the others are known.
    pub transpose: TransposeRule,
}

/// Returns the cotangent of each operand; `None` for known operands and for zero.
pub type TransposeRule = fn(&Transpose<'_>) -> Vec<Option<Tensor>>;
