//! Reductions, positions of extrema, and running sums.

use super::elementwise::computed;
use super::graph::{Exporter, Value, attribute_int};
use super::table::{Rule, rule};
use super::walk::{Call, constant, refuse};
use wengert_core::op::{Cumulative, CumulativeKind};
use wengert_core::{DType, Dim, Op, Result, Scalar, Tensor};

pub(super) const RULES: &[Rule] = &[
    rule("reduce_sum", "ReduceSum", |e, c| reduce(e, c, "ReduceSum")),
    rule("reduce_prod", "ReduceProd", |e, c| reduce(e, c, "ReduceProd")),
    rule("reduce_max", "ReduceMax", |e, c| reduce(e, c, "ReduceMax")),
    rule("reduce_min", "ReduceMin", |e, c| reduce(e, c, "ReduceMin")),
    rule("reduce_and", "ReduceMin of bools; bits of integers are refused", |e, c| {
        bools(e, c, "ReduceMin")
    }),
    rule("reduce_or", "ReduceMax of bools; bits of integers are refused", |e, c| {
        bools(e, c, "ReduceMax")
    }),
    rule("reduce_xor", "ReduceSum of bools; bits of integers are refused", |e, c| {
        if c.dtype() != DType::Bool {
            return bits();
        }
        let Op::Reduce(op) = c.op else { unreachable!("the rule of reduce_xor") };
        let axes = op.axes.clone();
        e.composed(c, |x| {
            let count = x[0].convert(DType::I32).sum_axes(axes.as_slice());
            vec![count.and(1).ne(0)]
        })
    }),
    rule("argmax", "ArgMax", |e, c| position(e, c, "ArgMax")),
    rule("argmin", "ArgMin", |e, c| position(e, c, "ArgMin")),
    rule("cumsum", "CumSum", |e, c| {
        let Op::Cumulative(op) = c.op else { unreachable!("the rule of cumsum") };
        let dtype = c.dtype();
        let carrier = if dtype.is_half() { DType::F32 } else { computed(dtype) };
        let x = e.full(c, 0)?;
        let x = e.cast(&x, carrier);
        let axis = e.scalar(Scalar::from_i64(DType::I64, op.axis as i64));
        let attributes = vec![attribute_int("reverse", i64::from(op.reverse))];
        let sum = e.op("CumSum", &[&x, &axis], attributes, x.ty.clone());
        Ok(vec![e.cast(&sum, dtype)])
    }),
    rule("cumprod", "Mul, log₂ n times", running),
    rule("cummax", "Max, log₂ n times", running),
    rule("cummin", "Min, log₂ n times", running),
    rule("cumlogsumexp", "Exp, Log and others, log₂ n times", running),
];

fn reduce(e: &mut Exporter, c: &Call<'_>, op: &str) -> Result<Vec<Value>> {
    let Op::Reduce(reduce) = c.op else { unreachable!("the rule of a reduction") };
    let dtype = c.dtype();
    let x = e.full(c, 0)?;
    if reduce.axes.is_empty() {
        return Ok(vec![x]);
    }
    let extremum = matches!(op, "ReduceMax" | "ReduceMin");
    if dtype == DType::U64 && extremum {
        return refuse("runtimes have no extrema of u64", "convert the operand to i64");
    }
    let carrier = computed(dtype);
    let x = e.cast(&x, carrier);
    let axes = e.axes(&reduce.axes);
    let attributes = vec![attribute_int("keepdims", 0)];
    let result = e.op(op, &[&x, &axes], attributes, c.results[0].with_dtype(carrier));
    Ok(vec![e.cast(&result, dtype)])
}

fn bits<T>() -> Result<T> {
    refuse("ONNX does not reduce the bits of integers", "reduce bools in place of bits")
}

fn bools(e: &mut Exporter, c: &Call<'_>, op: &str) -> Result<Vec<Value>> {
    if c.dtype() != DType::Bool {
        return bits();
    }
    let Op::Reduce(reduce) = c.op else { unreachable!("the rule of a reduction") };
    let x = e.full(c, 0)?;
    if reduce.axes.is_empty() {
        return Ok(vec![x]);
    }
    let x = e.cast(&x, DType::I32);
    let axes = e.axes(&reduce.axes);
    let attributes = vec![attribute_int("keepdims", 0)];
    let result = e.op(op, &[&x, &axes], attributes, c.results[0].with_dtype(DType::I32));
    Ok(vec![e.cast(&result, DType::Bool)])
}

fn position(e: &mut Exporter, c: &Call<'_>, op: &str) -> Result<Vec<Value>> {
    let Op::Argument(argument) = c.op else { unreachable!("the rule of a position") };
    let carrier = match c.dtype() {
        DType::Bool => DType::I32,
        DType::U64 => {
            return refuse("runtimes have no extrema of u64", "convert the operand to i64");
        }
        other => computed(other),
    };
    let x = e.full(c, 0)?;
    let x = e.cast(&x, carrier);
    let attributes =
        vec![attribute_int("axis", argument.axis as i64), attribute_int("keepdims", 0)];
    let index = e.op(op, &[&x], attributes, c.results[0].with_dtype(DType::I64));
    Ok(vec![e.cast(&index, argument.index)])
}

/// Combines each element with that at distance 1, then 2, 4 and so on (Hillis and Steele, 1986).
fn running(e: &mut Exporter, c: &Call<'_>) -> Result<Vec<Value>> {
    let Op::Cumulative(op) = c.op else { unreachable!("the rule of running values") };
    let n = constant(&c.types[0].shape[op.axis])?;
    e.composed(c, |x| {
        let dtype = x[0].dtype();
        let mut x = x[0].convert(dtype.wide());
        let mut distance = 1;
        while distance < n {
            x = combined(op, &x, &shifted(op, &x, distance));
            distance *= 2;
        }
        vec![x.convert(dtype)]
    })
}

/// The elements at a distance before each, or behind; the identity where there is none.
fn shifted(op: &Cumulative, x: &Tensor, distance: i64) -> Tensor {
    let rank = x.rank();
    let along = |value: i64| {
        (0..rank).map(|axis| Dim::constant(if axis == op.axis { value } else { 0 })).collect()
    };
    let (low, high) = match op.reverse {
        false => (along(distance), along(-distance)),
        true => (along(-distance), along(distance)),
    };
    let dtype = x.dtype();
    let identity = match op.kind {
        CumulativeKind::Sum => Scalar::zero(dtype),
        CumulativeKind::Prod => Scalar::one(dtype),
        CumulativeKind::Max | CumulativeKind::LogSumExp => Scalar::lowest(dtype),
        CumulativeKind::Min => Scalar::highest(dtype),
    };
    let pad = wengert_core::op::Pad { low, high, interior: vec![] };
    Tensor::apply(pad, &[x, &Tensor::constant(wengert_core::Literal::full(&[], identity))])
}

fn combined(op: &Cumulative, x: &Tensor, y: &Tensor) -> Tensor {
    match op.kind {
        CumulativeKind::Sum => x + y,
        CumulativeKind::Prod => x * y,
        CumulativeKind::Max => x.max(y),
        CumulativeKind::Min => x.min(y),
        CumulativeKind::LogSumExp => {
            let (most, least) = (x.max(y), x.min(y));
            // Equal infinities have no difference.
            let difference = least.eq(&most).select(x.zeros_like(), &least - &most);
            &most + (difference.exp() + 1.0).log()
        }
    }
}
