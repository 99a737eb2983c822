//! Ops that move elements.

use wengert_core::Op;

/// Whether each element of the results is an element of the operands as it is, at another place.
/// Choices by a condition or by an order are not among them.
pub(crate) fn moves_elements(op: &Op) -> bool {
    matches!(
        op,
        Op::BroadcastInDim(_)
            | Op::Reshape(_)
            | Op::Permute(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Concatenate(_)
            | Op::Reverse(_)
            | Op::Gather(_)
            | Op::TakeAlongAxis(_)
            | Op::DynamicSlice(_)
            | Op::DynamicUpdateSlice(_)
            | Op::WindowGather(_)
            | Op::OptimizationBarrier(_)
    )
}
