//! The `derivative` facet: one rule per op, from which forward mode, reverse mode and every
//! nesting of them come.
//!
//! Forward mode applies rules equation by equation. Reverse mode is transposition of the linear
//! program that forward mode leaves behind: `vjp = transpose ∘ linearize`. So an op states
//! *either* how tangents go forward (nonlinear ops) *or* how cotangents go back (linear ops), and
//! only `mul_zero`, the strong product that jvp rules use to scale a tangent, and structural ops
//! need the latter.
//!
//! Rules are written with [`Tensor`]s, so they read like the mathematics and can be
//! differentiated again. A missing tangent (`None`) is a symbolic zero: it costs nothing and
//! annihilates.

use crate::graph::Region;
use crate::graph::tensor::Tensor;
use crate::op::Op;
use crate::ty::TensorType;

/// How an op is differentiated.
#[derive(Clone, Copy)]
pub enum Derivative {
    /// The derivative is zero wherever it exists, or the result is not a float: compare, argmax,
    /// iota, floor, random bits.
    Zero,
    /// Linear in all float operands together: sums, and all that moves elements about.
    Linear(TransposeRule),
    /// The sum of the operands, each with a sign: add, sub, neg. The cotangent of an operand is
    /// the result's with that sign, so there is no rule, and the driver that transposes may keep
    /// the sign aside until it knows where it costs nothing.
    SignedSum(&'static [Sign]),
    /// Linear in each float operand with the others fixed: products. The jvp is the sum over
    /// operands.
    Multilinear(TransposeRule),
    /// Anything else, by its jvp.
    Nonlinear(JvpRule),
    /// Linear in each of the given operands with the others fixed, nonlinear in the rest: div in
    /// its numerator. Also products that state their own jvp. The jvp serves all operands; the
    /// other rule transposes with respect to one of the given ones.
    LinearIn(&'static [usize], JvpRule, TransposeRule),
    /// By decomposition into other ops ([`crate::op::Compute::Decompose`]).
    Composite,
    /// By a decomposition that is made for the derivative alone; the value without one is
    /// computed otherwise.
    Decomposed(DecompositionRule),
    /// That of an op which is the tangent of another: linear in its last operands together, with
    /// the others fixed.
    Tangent(TangentRule),
    /// By a rule that the user gives in a region.
    Custom(Custom),
    /// By differentiating its regions: [`crate::op::Op::control`] says what they are to it.
    Control,
    /// By its region, of which little is kept: [`crate::op::Checkpoint`].
    Checkpoint,
    /// By the bundle of the function that it calls, made once: [`crate::op::FunctionCall`].
    Function,
    /// Not at all: a function that nobody may look into.
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

/// Which rule the regions of an op have.
#[derive(Clone, Copy)]
pub enum Custom {
    /// [`crate::op::CustomJvp`]
    Jvp {
        /// How many of the last operands are constants to the rule.
        captures: usize,
    },
    /// [`crate::op::CustomVjp`]
    Vjp {
        /// How many of the last operands are constants to the rule.
        captures: usize,
    },
    /// [`crate::op::CustomLinearSolve`]: linear in the right-hand side.
    LinearSolve {
        /// How many of the last operands are what the map and the solvers use.
        captures: usize,
    },
    /// [`crate::op::Transposed`]: linear in its tangents together.
    Transposed {
        /// How many of the last operands are tangents.
        tangents: usize,
    },
}

impl Derivative {
    /// The kind, in a word, for the catalogue.
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

    /// How an op that is linear in all float operands together is transposed; `None` for all
    /// others.
    pub fn linear(&self) -> Option<TransposeRule> {
        match self {
            Derivative::Linear(rule) => Some(*rule),
            Derivative::SignedSum(_) => Some(transpose_signed_sum),
            _ => None,
        }
    }
}

/// The cotangent of a signed sum for each of its terms, with the term's sign.
fn transpose_signed_sum(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Derivative::SignedSum(signs) = t.op.derivative() else { unreachable!("the rule of signed sums") };
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

/// What a jvp rule sees.
pub struct Jvp<'a> {
    /// The op.
    pub op: &'a Op,
    /// Operands.
    pub operands: &'a [Tensor],
    /// Results, already computed.
    pub results: &'a [Tensor],
    /// The operands' tangents; `None` is zero. At least one is present.
    pub tangents: &'a [Option<Tensor>],
    /// What the op runs.
    pub regions: &'a [Region],
}

/// Gives the tangent of each result, linear in the given tangents.
pub type JvpRule = fn(&Jvp<'_>) -> Vec<Option<Tensor>>;

/// What a transpose rule sees.
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

/// An operand of an equation that is transposed.
#[derive(Clone)]
pub enum TransposeOperand {
    /// The equation is linear in it: a cotangent is wanted.
    Linear(TensorType),
    /// A value that does not depend on what the program is linear in.
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

/// Gives the results of an op with its regions on operands, by other ops.
pub type DecompositionRule = fn(&Op, &[Region], &[Tensor]) -> Vec<Tensor>;

/// How an op that is a tangent is differentiated.
#[derive(Clone, Copy)]
pub struct TangentRule {
    /// In how many of its last operands, of so many in all, it is linear together.
    pub linear: fn(usize) -> usize,
    /// What stands for it where any operand has a tangent.
    pub decomposition: DecompositionRule,
    /// How it is transposed with respect to those operands; the others are known.
    pub transpose: TransposeRule,
}

/// Gives the cotangent of each operand; `None` for known operands and for zero.
pub type TransposeRule = fn(&Transpose<'_>) -> Vec<Option<Tensor>>;
