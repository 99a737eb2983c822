//! Channels: in memory they are the last axis, as convolutions have them.
//!
//! A convolution with its channels in front, as other frameworks' models have, becomes one with
//! channels last between two permutes (`conv_general_dilated` states this). The permute of its
//! result costs a pass over memory if the next op must be in memory too. So it moves behind ops
//! that can as well compute with channels last, until it meets the inverse permute of the next
//! convolution. The rule ends at ops with another operand that has its channels in front, and at
//! ops that mix axes.

use super::movement::shape;
use super::{Rewriter, Rule};
use wengert_core::Op;
use wengert_core::graph::{Equation, ValueId};
use wengert_core::op::{BroadcastInDim, Concatenate, Permute, ReduceWindow, Windows};

/// The axis of channels last to which an axis of channels first belongs.
fn last(axis: usize, rank: usize) -> usize {
    match axis {
        0 => 0,
        1 => rank - 1,
        _ => axis - 1,
    }
}

/// The permutation from channels last to channels first.
fn to_first(rank: usize) -> Vec<usize> {
    (0..rank).map(|axis| last(axis, rank)).collect()
}

/// A list with an entry for each axis, in the order of channels last; empty if it is.
fn in_order<T: Clone>(list: &[T]) -> Vec<T> {
    let mut entries: Vec<(usize, T)> =
        list.iter().cloned().enumerate().map(|(n, x)| (last(n, list.len()), x)).collect();
    entries.sort_by_key(|(axis, _)| *axis);
    entries.into_iter().map(|(_, x)| x).collect()
}

/// The value with channels last that a permute puts in front.
fn moved(cx: &Rewriter<'_>, value: ValueId) -> Option<ValueId> {
    let (Op::Permute(op), &[x]) = cx.definition(value)? else { return None };
    (op.permutation == to_first(cx.ty(x).rank())).then_some(x)
}

/// An operand with channels last: one that is moved to the front, or one that repeats.
fn with_channels_last(cx: &mut Rewriter<'_>, value: ValueId) -> Option<ValueId> {
    if let Some(x) = moved(cx, value) {
        return Some(x);
    }
    let (Op::BroadcastInDim(op), &[x]) = cx.definition(value)? else { return None };
    let rank = op.shape.len();
    let (dims, extents) = (op.dims.clone(), cx.extents(value));
    let mut dims: Vec<(usize, usize)> =
        dims.into_iter().map(|axis| last(axis, rank)).zip(0..).collect();
    // A broadcast keeps the order of axes.
    dims.sort_unstable();
    let (dims, permutation): (Vec<usize>, Vec<usize>) = dims.into_iter().unzip();
    let x = match permutation.is_sorted() {
        true => x,
        false => cx.emit(Permute { permutation }, &[x])?,
    };
    cx.emit(BroadcastInDim { dims, shape: shape(&in_order(&extents)) }, &[x])
}

/// The op on operands with channels last.
fn op_with_channels_last(equation: &Equation, rank: usize) -> Option<Op> {
    match &equation.op {
        Op::Concatenate(op) => Some(Concatenate { axis: last(op.axis, rank) }.into()),
        Op::ReduceWindow(ReduceWindow { kind, windows }) => {
            let windows = Windows {
                window: in_order(&windows.window),
                stride: in_order(&windows.stride),
                padding: in_order(&windows.padding),
                base_dilation: in_order(&windows.base_dilation),
                window_dilation: in_order(&windows.window_dilation),
            };
            // The order in which the elements of a window are added is part of the bits.
            let wide = |axes: &[usize]| axes.iter().filter(|e| **e > 1).count();
            let channels = windows.window[rank - 1] > 1;
            let keeps = !channels || wide(&windows.window) == 1;
            keeps.then(|| ReduceWindow { kind: *kind, windows }.into())
        }
        op => (op.traits().elementwise && equation.regions.is_empty()).then(|| op.clone()),
    }
}

pub(super) const RULES: &[Rule] = &[Rule {
    name: "channels_move_to_the_front_late",
    doc: "op(permute(x), …) → permute(op(x, …)), where the permute moves the last of at least four \
          axes behind the first one, op is elementwise, a concatenation or a window reduction, and \
          its other operands are such permutes or broadcasts",
    examples: &[
        "%x: f32[2,3,4,5], %b: f32[5]
         %0: f32[2,5,3,4] = permute %x {permutation=[0,3,1,2]}
         %1: f32[2,5,3,4] = broadcast_in_dim %b {dims=[1], shape=[2,5,3,4]}
         %2: f32[2,5,3,4] = add %0, %1",
        "%x: f32[2,3,4,5], %b: f32[5,3,4]
         %0: f32[2,5,3,4] = permute %x {permutation=[0,3,1,2]}
         %1: f32[2,5,3,4] = broadcast_in_dim %b {dims=[1,2,3], shape=[2,5,3,4]}
         %2: f32[2,5,3,4] = div %1, %0",
        "%x: f32[2,3,4,5], %y: f32[2,3,4,6]
         %0: f32[2,5,3,4] = permute %x {permutation=[0,3,1,2]}
         %1: f32[2,6,3,4] = permute %y {permutation=[0,3,1,2]}
         %2: f32[2,11,3,4] = concatenate %0, %1 {axis=1}",
        "%x: f32[2,5,4,3]
         %0: f32[2,3,5,4] = permute %x {permutation=[0,3,1,2]}
         %1: f32[2,3,2,4] = reduce_window_sum %0 {padding=[[0,0],[0,0],[1,0],[1,1]], \
         stride=[1,1,2,1], window=[1,1,3,3]}",
        "%x: f32[2,5,4,3]
         %0: f32[2,3,5,4] = permute %x {permutation=[0,3,1,2]}
         %1: f32[2,3,5,4] = reduce_window_sum %0 {padding=[[0,0],[1,1],[0,0],[0,0]], \
         window=[1,3,1,1]}",
    ],
    apply: |cx, equation| {
        let &[result] = equation.results.as_slice() else { return None };
        let rank = cx.ty(result).rank();
        let same_rank = |v: &ValueId| cx.ty(*v).rank() == rank;
        let operands = &equation.operands;
        if rank < 4 || !operands.iter().all(same_rank) {
            return None;
        }
        if !operands.iter().any(|value| moved(cx, *value).is_some()) {
            return None;
        }
        let op = op_with_channels_last(equation, rank)?;
        let operands: Option<Vec<ValueId>> =
            operands.iter().map(|value| with_channels_last(cx, *value)).collect();
        let y = cx.emit(op, &operands?)?;
        cx.emit(Permute { permutation: to_first(rank) }, &[y])
    },
}];
