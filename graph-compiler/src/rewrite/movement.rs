//! Reshape, permute, broadcast and reverse: merges consecutive ones of a kind, and moves
//! elementwise ops in front of broadcasts.

use super::{Rewriter, Rule, term};
use wengert_core::graph::ValueId;
use wengert_core::op::{BroadcastInDim, Permute, Reshape, Reverse};
use wengert_core::{Dim, Op};

/// Extents as an attribute.
pub(super) fn shape(extents: &[usize]) -> Vec<Dim> {
    extents.iter().map(|e| Dim::from(*e)).collect()
}

/// The broadcast that defines a value: the positions of its operand's axes, and the operand.
fn broadcast(cx: &Rewriter<'_>, value: ValueId) -> Option<(Vec<usize>, ValueId)> {
    match cx.definition(value)? {
        (Op::BroadcastInDim(op), &[x]) => Some((op.dims.clone(), x)),
        _ => None,
    }
}

/// The same elements in the same order under another shape.
fn reshape(cx: &mut Rewriter<'_>, value: ValueId, shape: Vec<Dim>) -> Option<ValueId> {
    if cx.ty(value).shape == shape { Some(value) } else { cx.emit(Reshape { shape }, &[value]) }
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "movement_of_equal_elements",
        doc: "reshape, permute, slice, reverse and broadcast of a constant of equal elements → the \
              constant in the result's shape",
        examples: &[
            "%0: f32[] = constant {value=f32[] 2.5}
             %1: f32[6] = broadcast_in_dim %0 {shape=[6]}
             %2: f32[3,2] = reshape %1 {shape=[3,2]}",
            "%0: f32[] = constant {value=f32[] 2.5}
             %1: f32[6] = broadcast_in_dim %0 {shape=[6]}
             %2: f32[3] = slice %1 {limit=[4], start=[1]}",
        ],
        apply: |cx, equation| {
            let moves = matches!(
                equation.op,
                Op::Reshape(_)
                    | Op::Permute(_)
                    | Op::Slice(_)
                    | Op::Reverse(_)
                    | Op::BroadcastInDim(_)
            );
            let &[x] = equation.operands.as_slice() else { return None };
            let splat = cx.splat(x).filter(|_| moves)?;
            // The normal form itself does not change.
            if matches!(equation.op, Op::BroadcastInDim(_)) && cx.ty(x).rank() == 0 {
                return None;
            }
            cx.full_like(splat, equation)
        },
    },
    Rule {
        name: "reshape_of_a_reshape",
        doc: "reshape(reshape(x)) → reshape(x); x if x already has the shape",
        examples: &[
            "%x: f32[6,4]
             %0: f32[24] = reshape %x {shape=[24]}
             %1: f32[3,8] = reshape %0 {shape=[3,8]}",
            "%x: f32[6,4]
             %0: f32[6,4] = reshape %x {shape=[6,4]}",
        ],
        apply: |cx, equation| {
            let (Op::Reshape(op), &[y]) = term(equation) else { return None };
            if cx.ty(y).shape == op.shape {
                return Some(y);
            }
            let (Op::Reshape(_), &[x]) = cx.definition(y)? else { return None };
            reshape(cx, x, op.shape.clone())
        },
    },
    Rule {
        name: "permute_that_moves_nothing",
        doc: "permute(x) → reshape(x) if the axes of extents other than 1 keep their order",
        examples: &["%x: f32[6,1,4]
                     %0: f32[6,4,1] = permute %x {permutation=[0,2,1]}"],
        apply: |cx, equation| {
            let (Op::Permute(op), &[x]) = term(equation) else { return None };
            let extents = cx.extents(x);
            let wide = op.permutation.iter().filter(|a| extents[**a] != 1);
            if !wide.is_sorted() {
                return None;
            }
            let shape = op.permutation.iter().map(|a| Dim::from(extents[*a])).collect();
            reshape(cx, x, shape)
        },
    },
    Rule {
        name: "permute_of_a_permute",
        doc: "permute(permute(x)) → permute(x)",
        examples: &["%x: f32[2,3,4]
                     %0: f32[3,4,2] = permute %x {permutation=[1,2,0]}
                     %1: f32[4,3,2] = permute %0 {permutation=[1,0,2]}"],
        apply: |cx, equation| {
            let (Op::Permute(outer), &[y]) = term(equation) else { return None };
            let (Op::Permute(inner), &[x]) = cx.definition(y)? else { return None };
            let permutation = outer.permutation.iter().map(|a| inner.permutation[*a]).collect();
            cx.emit(Permute { permutation }, &[x])
        },
    },
    Rule {
        name: "reverse_of_a_reverse",
        doc: "reverse(reverse(x)) → reverse(x) along the axes in exactly one of the two; axes of \
              extent 1 are dropped; reverse(x) → x if no axis remains",
        examples: &[
            "%x: f32[3,4,5]
             %0: f32[3,4,5] = reverse %x {axes=[0,1]}
             %1: f32[3,4,5] = reverse %0 {axes=[2,1]}",
            "%x: f32[1,4]
             %0: f32[1,4] = reverse %x {axes=[0]}",
        ],
        apply: |cx, equation| {
            let (Op::Reverse(outer), &[y]) = term(equation) else { return None };
            let extents = cx.extents(y);
            let (axes, x) = match cx.definition(y) {
                Some((Op::Reverse(inner), &[x])) => {
                    let once = |a: &usize| inner.axes.contains(a) != outer.axes.contains(a);
                    ((0..extents.len()).filter(once).collect::<Vec<_>>(), x)
                }
                _ if outer.axes.iter().any(|a| extents[*a] == 1) || outer.axes.is_empty() => {
                    (outer.axes.clone(), y)
                }
                _ => return None,
            };
            let axes: Vec<usize> = axes.into_iter().filter(|a| extents[*a] != 1).collect();
            if axes.is_empty() { Some(x) } else { cx.emit(Reverse { axes }, &[x]) }
        },
    },
    Rule {
        name: "broadcast_that_repeats_nothing",
        doc: "broadcast(x) → reshape(x) if all new axes have extent 1",
        examples: &["%x: f32[6,4]
                     %0: f32[6,1,4] = broadcast_in_dim %x {dims=[0,2], shape=[6,1,4]}"],
        apply: |cx, equation| {
            let (Op::BroadcastInDim(op), &[x]) = term(equation) else { return None };
            let same = cx.elements(x) == cx.elements(equation.results[0]) && cx.elements(x) > 0;
            if !same || cx.splat(x).is_some() {
                return None;
            }
            reshape(cx, x, op.shape.clone())
        },
    },
    Rule {
        name: "broadcast_of_a_broadcast",
        doc: "broadcast(broadcast(x)) → broadcast(x)",
        examples: &["%x: f32[4]
                     %0: f32[3,4] = broadcast_in_dim %x {dims=[1], shape=[3,4]}
                     %1: f32[2,3,4] = broadcast_in_dim %0 {dims=[1,2], shape=[2,3,4]}"],
        apply: |cx, equation| {
            let (Op::BroadcastInDim(outer), &[y]) = term(equation) else { return None };
            let (inner, x) = broadcast(cx, y)?;
            let dims = inner.iter().map(|d| outer.dims[*d]).collect();
            cx.emit(BroadcastInDim { shape: outer.shape.clone(), dims }, &[x])
        },
    },
    Rule {
        name: "broadcast_of_unit_axes",
        doc: "broadcast(reshape(x)) → broadcast(x) if the reshape only adds or drops axes of \
              extent 1",
        examples: &["%x: f32[4]
                     %0: f32[4,1] = reshape %x {shape=[4,1]}
                     %1: f32[4,3] = broadcast_in_dim %0 {dims=[0,1], shape=[4,3]}"],
        apply: |cx, equation| {
            let (Op::BroadcastInDim(op), &[y]) = term(equation) else { return None };
            let (Op::Reshape(_), &[x]) = cx.definition(y)? else { return None };
            let (from, to) = (cx.extents(x), cx.extents(y));
            // The axes of both with extents other than 1, in order; the operand's remaining axes
            // are unit axes.
            let wide = |e: &[usize]| (0..e.len()).filter(|a| e[*a] != 1).collect::<Vec<_>>();
            let (wide_from, wide_to) = (wide(&from), wide(&to));
            let extents =
                |e: &[usize], axes: &[usize]| axes.iter().map(|a| e[*a]).collect::<Vec<_>>();
            if extents(&from, &wide_from) != extents(&to, &wide_to) || wide_from.len() != from.len()
            {
                return None;
            }
            let dims = wide_to.iter().map(|a| op.dims[*a]).collect();
            cx.emit(BroadcastInDim { shape: op.shape.clone(), dims }, &[x])
        },
    },
    Rule {
        name: "elementwise_on_broadcasts",
        doc: "f(broadcast(x), broadcast(y), constant) → broadcast(f(x, y, constant)) for an \
              elementwise op on equal broadcasts",
        examples: &[
            "%x: f32[4], %y: f32[4]
             %0: f32[4,3] = broadcast_in_dim %x {dims=[0], shape=[4,3]}
             %1: f32[4,3] = broadcast_in_dim %y {dims=[0], shape=[4,3]}
             %2: f32[4,3] = mul_zero %0, %1",
            "%x: f32[]
             %0: f32[4,3] = broadcast_in_dim %x {shape=[4,3]}
             %1: f32[4,3] = constant {value=f32[4,3] 2.0}
             %2: f32[4,3] = sub %1, %0
             %3: f32[4,3] = exp %2",
        ],
        apply: |cx, equation| {
            let result = equation.results[0];
            if !equation.op.traits().elementwise || equation.operands.is_empty() {
                return None;
            }
            let shape = cx.ty(result).shape.clone();
            let mut common: Option<(Vec<usize>, Vec<Dim>)> = None;
            for operand in &equation.operands {
                if cx.ty(*operand).shape != shape {
                    return None;
                }
                if cx.splat(*operand).is_some() {
                    continue;
                }
                let (dims, source) = broadcast(cx, *operand)?;
                let found = (dims, cx.ty(source).shape.clone());
                if *common.get_or_insert_with(|| found.clone()) != found {
                    return None;
                }
            }
            // If all operands are constants, folding handles them.
            let (dims, small) = common?;
            if small == shape {
                return None;
            }
            let mut operands = Vec::with_capacity(equation.operands.len());
            for operand in &equation.operands {
                operands.push(match cx.splat(*operand) {
                    Some(splat) => cx.full(splat, &small)?,
                    None => broadcast(cx, *operand)?.1,
                });
            }
            let value = cx.emit(equation.op.clone(), &operands)?;
            cx.emit(BroadcastInDim { shape, dims }, &[value])
        },
    },
];
