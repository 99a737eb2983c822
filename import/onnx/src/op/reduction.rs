//! Reductions.

use super::{Call, Row, one, row};
use crate::value::Value;
use wengert_core::op::Unary;
use wengert_core::{DType, Result, Tensor};

/// A reduction along axes, which it drops.
type Reduce = fn(&Tensor, &[usize]) -> Tensor;

/// Axes were an attribute before this version, and an operand since.
macro_rules! reduce {
    ($name:literal, $operand_since:literal, $reduce:expr) => {
        [
            row($name, 1, |call| {
                let axes = call.some_ints("axes")?;
                reduced(call, axes, $reduce)
            }),
            row($name, $operand_since, |call| {
                let axes = call.given(1).map(|_| call.ints(1)).transpose()?;
                reduced(call, axes, $reduce)
            }),
        ]
    };
}

const REDUCTIONS: [[Row; 2]; 10] = [
    reduce!("ReduceSum", 13, |x, axes| x.sum_axes(axes)),
    reduce!("ReduceMean", 18, mean),
    reduce!("ReduceMax", 18, |x, axes| match x.dtype() {
        DType::Bool => x.any_axes(axes),
        _ => x.max_axes(axes),
    }),
    reduce!("ReduceMin", 18, |x, axes| match x.dtype() {
        DType::Bool => x.all_axes(axes),
        _ => x.min_axes(axes),
    }),
    reduce!("ReduceProd", 18, |x, axes| x.prod_axes(axes)),
    reduce!("ReduceL1", 18, |x, axes| x.unary(Unary::Abs).sum_axes(axes)),
    reduce!("ReduceL2", 18, |x, axes| {
        let wide = x.convert(if x.dtype().is_float() { x.dtype() } else { DType::F64 });
        wide.unary(Unary::Square).sum_axes(axes).unary(Unary::Sqrt).convert(x.dtype())
    }),
    reduce!("ReduceLogSum", 18, |x, axes| {
        let wide = x.convert(if x.dtype().is_float() { x.dtype() } else { DType::F64 });
        wide.sum_axes(axes).unary(Unary::Log).convert(x.dtype())
    }),
    reduce!("ReduceLogSumExp", 18, log_sum_exp),
    reduce!("ReduceSumSquare", 18, |x, axes| x.unary(Unary::Square).sum_axes(axes)),
];

const OTHERS: [Row; 4] = [
    row("ArgMax", 1, |call| extreme(call, true)),
    row("ArgMin", 1, |call| extreme(call, false)),
    row("CumProd", 1, |call| {
        let x = call.tensor(0)?;
        let axis = call.axis(call.ints(1)?.first().copied().unwrap_or(0), x.rank())?;
        let reverse = call.flag("reverse", false)?;
        let mut turned = if reverse { x.reverse(axis) } else { x.clone() };
        if call.flag("exclusive", false)? {
            let mut around = vec![(0, 0); x.rank()];
            around[axis] = (1, -1);
            turned = turned.pad(&around, 1);
        }
        let products = turned.cumprod(axis);
        one(if reverse { products.reverse(axis) } else { products })
    }),
    row("CumSum", 11, |call| {
        let x = call.tensor(0)?;
        let axis = call.axis(call.ints(1)?.first().copied().unwrap_or(0), x.rank())?;
        let reverse = call.flag("reverse", false)?;
        let turned = if reverse { x.reverse(axis) } else { x.clone() };
        let sums = turned.cumsum(axis);
        let sums = if call.flag("exclusive", false)? { &sums - &turned } else { sums };
        one(if reverse { sums.reverse(axis) } else { sums })
    }),
];

pub(super) const ROWS: &[Row] = &join();

const fn join() -> [Row; 2 * REDUCTIONS.len() + OTHERS.len()] {
    let mut all = [OTHERS[0]; 2 * REDUCTIONS.len() + OTHERS.len()];
    let mut n = 0;
    while n < REDUCTIONS.len() {
        all[2 * n] = REDUCTIONS[n][0];
        all[2 * n + 1] = REDUCTIONS[n][1];
        n += 1;
    }
    n = 0;
    while n < OTHERS.len() {
        all[2 * REDUCTIONS.len() + n] = OTHERS[n];
        n += 1;
    }
    all
}

fn reduced(call: &Call<'_, '_, '_>, axes: Option<Vec<i64>>, reduce: Reduce) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axes = match axes.filter(|axes| !axes.is_empty()) {
        Some(axes) => call.axes(&axes, x.rank())?,
        None if call.flag("noop_with_empty_axes", false)? => return one(x),
        None => (0..x.rank()).collect(),
    };
    let result = reduce(&x, &axes);
    one(match call.flag("keepdims", true)? {
        true => result.unsqueeze(&axes.iter().map(|axis| *axis as i64).collect::<Vec<_>>()),
        false => result,
    })
}

fn mean(x: &Tensor, axes: &[usize]) -> Tensor {
    match x.dtype().is_float() {
        true => x.mean_axes(axes),
        false => x.convert(DType::F64).mean_axes(axes).convert(x.dtype()),
    }
}

fn log_sum_exp(x: &Tensor, axes: &[usize]) -> Tensor {
    let wide = x.convert(if x.dtype().is_float() { x.dtype() } else { DType::F64 });
    let mut axes = axes.to_vec();
    axes.sort_unstable();
    // From the last axis on, so that the others keep their numbers.
    let sums = axes.iter().rev().fold(wide, |sums, axis| sums.logsumexp(*axis));
    sums.convert(x.dtype())
}

fn extreme(call: &Call<'_, '_, '_>, greatest: bool) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axis = call.axis(call.int("axis", 0)?, x.rank())?;
    let last = call.flag("select_last_index", false)?;
    let turned = if last { x.reverse(axis) } else { x.clone() };
    let found = if greatest { turned.argmax(axis) } else { turned.argmin(axis) };
    let mut found = found.convert(DType::I64);
    if last {
        let highest = Tensor::dim_as_value(x.shape()[axis].clone(), DType::I64) - 1;
        found = highest - found;
    }
    one(if call.flag("keepdims", true)? { found.unsqueeze(axis) } else { found })
}
