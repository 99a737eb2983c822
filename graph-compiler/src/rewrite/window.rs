//! Slices, pads and concatenations that are identities, or that follow one another.

use super::movement::shape;
use super::{Rewriter, Rule, term};
use wengert_core::graph::{Equation, ValueId};
use wengert_core::op::{BroadcastInDim, Concatenate, Slice};
use wengert_core::{Dim, Op};

/// The numbers of a list of bound dimensions.
fn numbers(dims: &[Dim]) -> Option<Vec<i64>> {
    dims.iter().map(Dim::as_constant).collect()
}

/// Start, limit and stride of a slice.
fn bounds(op: &Slice) -> Option<(Vec<i64>, Vec<i64>, Vec<i64>)> {
    let (start, limit) = (numbers(&op.start)?, numbers(&op.limit)?);
    let stride = if op.stride.is_empty() { vec![1; start.len()] } else { op.stride.clone() };
    Some((start, limit, stride))
}

fn slice(start: &[i64], limit: &[i64], stride: &[i64]) -> Slice {
    let dims = |v: &[i64]| v.iter().map(|d| Dim::constant(*d)).collect();
    let stride = if stride.iter().all(|s| *s == 1) { vec![] } else { stride.to_vec() };
    Slice { start: dims(start), limit: dims(limit), stride }
}

fn sliced(equation: &Equation) -> Option<(&Slice, ValueId)> {
    match term(equation) {
        (Op::Slice(op), &[x]) => Some((op, x)),
        _ => None,
    }
}

/// The part of a concatenation that contains a slice, with the slice of that part.
fn part(cx: &Rewriter<'_>, op: &Slice, axis: usize, parts: &[ValueId]) -> Option<(Slice, ValueId)> {
    let (mut start, mut limit, stride) = bounds(op)?;
    let mut before = 0i64;
    for part in parts {
        let extent = cx.extents(*part)[axis] as i64;
        if start[axis] >= before && limit[axis] <= before + extent {
            start[axis] -= before;
            limit[axis] -= before;
            return Some((slice(&start, &limit, &stride), *part));
        }
        before += extent;
    }
    None
}

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "slice_of_everything",
        doc: "slice(x) → x if the slice has every element of x",
        examples: &["%x: f32[6,4]
                     %0: f32[6,4] = slice %x {limit=[6,4], start=[0,0]}"],
        apply: |cx, equation| {
            let (_, x) = sliced(equation)?;
            (cx.ty(x) == cx.ty(equation.results[0])).then_some(x)
        },
    },
    Rule {
        name: "slice_of_a_slice",
        doc: "slice(slice(x)) → slice(x)",
        examples: &["%x: f32[20,9]
                     %0: f32[9,4] = slice %x {limit=[19,8], start=[2,1], stride=[2,2]}
                     %1: f32[3,2] = slice %0 {limit=[8,3], start=[1,1], stride=[3,1]}"],
        apply: |cx, equation| {
            let (outer, y) = sliced(equation)?;
            let (Op::Slice(inner), &[x]) = cx.definition(y)? else { return None };
            let count = cx.extents(equation.results[0]);
            let ((start, _, stride), (base, _, step)) = (bounds(outer)?, bounds(inner)?);
            let extents = cx.extents(x);
            let (mut from, mut to, mut by) = (vec![], vec![], vec![]);
            for axis in 0..extents.len() {
                from.push(base[axis] + start[axis] * step[axis]);
                by.push(stride[axis] * step[axis]);
                let last = (count[axis] as i64 - 1) * by[axis] + 1;
                to.push(from[axis] + last.max(0));
            }
            // An empty slice may start beyond the end of the operand.
            if (0..extents.len()).any(|a| from[a] > to[a] || to[a] > extents[a] as i64) {
                return None;
            }
            cx.emit(slice(&from, &to, &by), &[x])
        },
    },
    Rule {
        name: "slice_of_a_broadcast",
        doc: "slice(broadcast(x)) → broadcast(slice(x))",
        examples: &["%x: f32[1,5]
                     %0: f32[7,5] = broadcast_in_dim %x {dims=[0,1], shape=[7,5]}
                     %1: f32[3,2] = slice %0 {limit=[5,4], start=[2,1], stride=[1,2]}"],
        apply: |cx, equation| {
            let (op, y) = sliced(equation)?;
            let (Op::BroadcastInDim(broadcast), &[x]) = cx.definition(y)? else { return None };
            let dims = broadcast.dims.clone();
            let (start, limit, stride) = bounds(op)?;
            let (from, to) = (cx.extents(x), cx.extents(equation.results[0]));
            let (mut low, mut high, mut step) = (vec![], vec![], vec![]);
            for (axis, target) in dims.iter().enumerate() {
                let repeated = from[axis] == 1;
                low.push(if repeated { 0 } else { start[*target] });
                high.push(if repeated { 1 } else { limit[*target] });
                step.push(if repeated { 1 } else { stride[*target] });
            }
            let part = cx.emit(slice(&low, &high, &step), &[x])?;
            cx.emit(BroadcastInDim { shape: shape(&to), dims }, &[part])
        },
    },
    Rule {
        name: "slice_of_a_concatenation",
        doc: "slice(concatenate(…, x, …)) → slice(x) if the slice lies within x",
        examples: &["%x: f32[3,2], %y: f32[4,2]
                     %0: f32[7,2] = concatenate %x, %y {axis=0}
                     %1: f32[2,2] = slice %0 {limit=[6,2], start=[4,0]}"],
        apply: |cx, equation| {
            let (op, y) = sliced(equation)?;
            let (Op::Concatenate(concatenate), parts) = cx.definition(y)? else { return None };
            let (op, part) = part(cx, op, concatenate.axis, parts)?;
            cx.emit(op, &[part])
        },
    },
    Rule {
        name: "concatenation_of_one",
        doc: "concatenate(…) → concatenate without its empty operands; concatenate(x) → x",
        examples: &[
            "%x: f32[3,2]
             %0: f32[3,2] = concatenate %x {axis=1}",
            "%x: f32[3,2], %y: f32[3,0]
             %0: f32[3,4] = concatenate %x, %y, %x {axis=1}",
        ],
        apply: |cx, equation| {
            let Op::Concatenate(op) = &equation.op else { return None };
            let mut parts = equation.operands.clone();
            parts.retain(|v| cx.elements(*v) > 0);
            match parts.as_slice() {
                &[x] => Some(x),
                [] => None,
                parts if parts.len() == equation.operands.len() => None,
                parts => cx.emit(op.clone(), parts),
            }
        },
    },
    Rule {
        name: "concatenation_of_concatenations",
        doc: "concatenate(concatenate(x, y), z) → concatenate(x, y, z) along the same axis",
        examples: &["%x: f32[3], %y: f32[4], %z: f32[5]
                     %0: f32[7] = concatenate %x, %y {axis=0}
                     %1: f32[12] = concatenate %0, %z {axis=0}"],
        apply: |cx, equation| {
            let Op::Concatenate(op) = &equation.op else { return None };
            let parts_of = |v: &ValueId| match cx.definition(*v) {
                Some((Op::Concatenate(inner), parts)) if inner.axis == op.axis => parts.to_vec(),
                _ => vec![*v],
            };
            let parts: Vec<ValueId> = equation.operands.iter().flat_map(parts_of).collect();
            // Flattening every link of a long chain would take quadratic time.
            if parts.len() == equation.operands.len() || parts.len() > 64 {
                return None;
            }
            cx.emit(Concatenate { axis: op.axis }, &parts)
        },
    },
    Rule {
        name: "pad_of_nothing",
        doc: "pad(x) → x if all padding is 0",
        examples: &["%x: f32[3,2]
                     %0: f32[] = constant {value=f32[] 1.0}
                     %1: f32[3,2] = pad %x, %0 {high=[0,0], low=[0,0]}"],
        apply: |cx, equation| {
            let (Op::Pad(op), &[x, _]) = term(equation) else { return None };
            let nothing = numbers(&op.low)?
                .iter()
                .chain(&numbers(&op.high)?)
                .chain(&op.interior)
                .all(|n| *n == 0);
            (nothing && cx.ty(x) == cx.ty(equation.results[0])).then_some(x)
        },
    },
    Rule {
        name: "pad_with_what_is_there",
        doc: "pad of a constant of equal elements by the same element → the constant in the \
              result's shape",
        examples: &["%0: f32[] = constant {value=f32[] 1.5}
                     %1: f32[3] = broadcast_in_dim %0 {shape=[3]}
                     %2: f32[7] = pad %1, %0 {high=[1], low=[3]}"],
        apply: |cx, equation| {
            let (Op::Pad(_), &[x, value]) = term(equation) else { return None };
            let splat = cx.splat(x)?;
            if cx.splat(value) != Some(splat) {
                return None;
            }
            cx.full_like(splat, equation)
        },
    },
];
