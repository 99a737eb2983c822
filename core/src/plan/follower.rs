//! Followers in a plan: a nest in the step after a product, which an executor may run on the
//! product's tiles.
//!
//! The two steps say what is computed. Whether they are interleaved is up to the executor. The
//! plan is correct either way, so this module decides from the steps alone.

use super::{Address, Argument, Plan, Step, Value};
use crate::id::{Id, IdVec};
use crate::nest::{self, BufferRole};

/// The parameter of the second step's nest that is the result of the product in the first step,
/// if the nest may run on each tile of the product as soon as the tile is computed.
///
/// The nest must [follow](nest::follows) the product. It must read nothing else that the product
/// writes, and write nothing that the product reads.
pub fn follower(plan: &Plan, product: &Step, next: &Step) -> Option<usize> {
    let (Step::Call { call, arguments: product, .. }, Step::Nest { nest, arguments }) =
        (product, next)
    else {
        return None;
    };
    let (result, operands) = product.split_last().filter(|_| call.has_tiles())?;
    let nest = &plan.nests[*nest];
    let written: Vec<bool> = nest.parameters().map(|(_, b)| b.role != BufferRole::In).collect();
    let meet = |a: &Argument, b: &Argument| meet(&plan.values, a, b);
    let mut reads = (0..arguments.len()).filter(|n| !written[*n] && meet(&arguments[*n], result));
    let (tile, None) = (reads.next()?, reads.next()) else { return None };
    let same = |a: &Argument| {
        a.at == result.at && plan.values[a.value].bytes() == plan.values[result.value].bytes()
    };
    let apart = arguments
        .iter()
        .zip(&written)
        .filter(|(_, written)| **written)
        .all(|(a, _)| !operands.iter().any(|o| meet(o, a)) && (!meet(a, result) || same(a)));
    let follows = same(&arguments[tile]) && nest::follows(nest, nest::BufferId::new(tile));
    (follows && apart).then_some(tile)
}

/// True if the two may share bytes.
fn meet(values: &IdVec<super::ValueId, Value>, a: &Argument, b: &Argument) -> bool {
    let bytes = |argument: &Argument| values[argument.value].bytes();
    let end = |argument: &Argument| argument.at.offset.saturating_add(bytes(argument));
    let Address { space, offset, strides } = &a.at;
    let within = *offset < end(b) && b.at.offset < end(a);
    // With different strides it may be anywhere.
    *space == b.at.space && bytes(a) > 0 && bytes(b) > 0 && (within || *strides != b.at.strides)
}
