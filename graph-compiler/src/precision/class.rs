//! The class of each op: how a policy of mixed precision treats it.

use wengert_core::Op;
use wengert_core::op::{AttentionKind, Binary, Unary};

/// How the pass treats an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Class {
    /// Takes halves, adds in f32.
    Product,
    /// Computes each element from those at the same place.
    Elementwise,
    /// A sum or difference of tensors.
    Addition,
    /// Moves elements: the halves of the result are those of the operands.
    Movement,
    /// Normalises along an axis: takes and gives halves, and computes in f32.
    Normalization,
    /// Has regions that are treated like functions.
    Control,
    /// Takes and gives f32.
    Wide,
}

/// The class of an op under a policy without exceptions.
///
/// Wide elementwise functions are those of PyTorch's autocast to f32: they amplify the relative
/// error of their operand (`exp`, `pow`), or lose it near a zero (`log`).
pub(super) fn class(op: &Op) -> Class {
    match op {
        Op::DotGeneral(_) | Op::ConvGeneralDilated(_) => Class::Product,
        // The tangent's rounding is not that of any kernel.
        Op::Attention(op) if op.kind != AttentionKind::Jvp => Class::Product,
        Op::Binary(Binary::Add | Binary::Sub) => Class::Addition,
        Op::Binary(Binary::Pow | Binary::Rem | Binary::Atan2) => Class::Wide,
        Op::Unary(
            Unary::Exp
            | Unary::Exp2
            | Unary::Expm1
            | Unary::Log
            | Unary::Log1p
            | Unary::Log2
            | Unary::Rsqrt
            | Unary::Reciprocal
            | Unary::Tan
            | Unary::Sinh
            | Unary::Cosh
            | Unary::Asin
            | Unary::Acos
            | Unary::Acosh
            | Unary::Atanh
            | Unary::ErfInv
            | Unary::Lgamma
            | Unary::Digamma,
        ) => Class::Wide,
        Op::Unary(_)
        | Op::Binary(_)
        | Op::IntegerPow(_)
        | Op::Select(_)
        | Op::Clamp(_)
        | Op::Compare(_)
        | Op::IsFinite(_)
        | Op::ConvertElementType(_) => Class::Elementwise,
        Op::SelectN(_) => Class::Movement,
        op if op.traits().movement => Class::Movement,
        Op::Normalize(_) => Class::Normalization,
        op if op.control().is_some() => Class::Control,
        _ => Class::Wide,
    }
}
