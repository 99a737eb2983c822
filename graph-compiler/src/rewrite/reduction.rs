//! Reductions over no axes, and of equal elements.

use super::movement::shape;
use super::{Rule, term};
use wengert_core::op::{Binary, Reduce, ReduceKind, Reshape};
use wengert_core::{Op, Scalar};

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "reduction_of_one",
        doc: "a reduction over axes of extent 1 → reshape; sums of floats also add their initial \
              value 0.0",
        examples: &[
            "%x: f32[6,1]
             %0: f32[6] = reduce_sum %x {axes=[1]}",
            "%x: f16[6,1,2]
             %0: f16[6,2] = reduce_max %x {axes=[1]}",
            "%x: i32[6]
             %0: i32[6] = reduce_sum %x {axes=[]}",
        ],
        apply: |cx, equation| {
            let (Op::Reduce(op), &[x]) = term(equation) else { return None };
            let extents = cx.extents(x);
            if op.axes.iter().any(|a| extents[*a] != 1) {
                return None;
            }
            let result = shape(&cx.extents(equation.results[0]));
            let one =
                if op.axes.is_empty() { x } else { cx.emit(Reshape { shape: result }, &[x])? };
            let dtype = cx.ty(one).dtype;
            if op.kind != ReduceKind::Sum || !dtype.is_float() {
                return Some(one);
            }
            let zero = cx.full_like(Scalar::zero(dtype), equation)?;
            cx.emit(Binary::Add, &[one, zero])
        },
    },
    Rule {
        name: "extremum_of_a_broadcast",
        doc: "reduce_max, reduce_min, reduce_and, reduce_or over all repeated axes of a broadcast \
              → the same reduction over the remaining axes",
        examples: &[
            "%x: f32[4,5]
             %0: f32[3,4,5] = broadcast_in_dim %x {dims=[1,2], shape=[3,4,5]}
             %1: f32[5] = reduce_max %0 {axes=[0,1]}",
            "%x: i64[4,5]
             %0: i64[2,4,5] = broadcast_in_dim %x {dims=[1,2], shape=[2,4,5]}
             %1: i64[5] = reduce_and %0 {axes=[0,1]}",
        ],
        apply: |cx, equation| {
            let (Op::Reduce(op), &[y]) = term(equation) else { return None };
            let (Op::BroadcastInDim(broadcast), &[x]) = cx.definition(y)? else { return None };
            let idempotent =
                !matches!(op.kind, ReduceKind::Sum | ReduceKind::Prod | ReduceKind::Xor);
            // Only new axes are repeated, and their extents must be at least 1.
            let new = |a: &usize| !broadcast.dims.contains(a);
            let extents = cx.extents(y);
            if !idempotent
                || cx.extents(x) != broadcast.dims.iter().map(|d| extents[*d]).collect::<Vec<_>>()
            {
                return None;
            }
            if !(0..extents.len()).any(|a| new(&a))
                || (0..extents.len()).any(|a| new(&a) && !op.axes.contains(&a))
            {
                return None;
            }
            if op.axes.iter().any(|a| extents[*a] == 0) {
                return None;
            }
            let position = |a: &usize| broadcast.dims.iter().position(|d| d == a);
            let axes: Vec<usize> = op.axes.iter().filter_map(position).collect();
            cx.emit(Reduce { kind: op.kind, axes }, &[x])
        },
    },
    Rule {
        name: "sum_of_equal_elements",
        doc: "reduce_sum of n float elements c → n · c if every partial sum is exact: c is an \
              integer, and |n · c| is within the dtype's exact integers",
        examples: &[
            "%0: f32[3,7] = constant {value=f32[3,7] 3.0}
             %1: f32[3] = reduce_sum %0 {axes=[1]}",
            "%0: f16[40] = constant {value=f16[40] -2.0}
             %1: f16[] = reduce_sum %0 {axes=[0]}",
        ],
        apply: |cx, equation| {
            let (Op::Reduce(op), &[x]) = term(equation) else { return None };
            let splat = cx.splat(x).filter(|_| op.kind == ReduceKind::Sum)?;
            let extents = cx.extents(x);
            let count: usize = op.axes.iter().map(|a| extents[*a]).product();
            let (value, dtype) = (splat.to_f64(), splat.dtype());
            let exact = match dtype {
                wengert_core::DType::F16 => 2048.0,
                wengert_core::DType::BF16 => 256.0,
                wengert_core::DType::F32 => 16_777_216.0,
                wengert_core::DType::F64 => 9_007_199_254_740_992.0,
                _ => return None,
            };
            let sum = value * count as f64;
            if value.fract() != 0.0 || sum.abs() > exact || !sum.is_finite() {
                return None;
            }
            // A sum starts at +0.
            cx.full_like(Scalar::from_f64(dtype, sum + 0.0), equation)
        },
    },
];
