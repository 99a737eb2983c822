//! Determinants, by elimination with pivots.

use super::{Call, Row, one, row};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::op::Unary;
use wengert_core::{DType, Diagnostic, Dim, Result, Tensor};

pub(super) const ROWS: &[Row] = &[row("Det", 11, determinant)];

/// Most rows of a matrix: the elimination of each is a few equations.
const ROWS_OF_MATRIX: usize = 64;

fn determinant(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let x = call.ranked(0, 2)?;
    let rank = x.rank();
    let [rows, columns] = [&x.shape()[rank - 2], &x.shape()[rank - 1]];
    if rows != columns {
        return Err(Diagnostic::new(format!("{} is no square matrix", x.ty())));
    }
    let count = rows.as_extent().filter(|count| (1..=ROWS_OF_MATRIX).contains(count));
    let count = count.ok_or_else(|| {
        refuse(Class::Shape, format!("{rows} rows, not a number from 1 to {ROWS_OF_MATRIX}"))
    })?;
    let (row, column) = (rank - 2, rank - 1);
    let mut rest = x.convert(x.dtype().wide());
    let mut product: Option<Tensor> = None;
    for left in (1..=count).rev() {
        // The row with the greatest first element changes places with the first one.
        let first = rest.slice_axis(column, 0, 1);
        let at = first.unary(Unary::Abs).argmax(row).unsqueeze(row).convert(DType::I32);
        let mut shape = rest.shape().to_vec();
        shape[row] = Dim::constant(1);
        let pivot_row = rest.take_along_axis(&at.broadcast_to(&shape), row);
        let pivot = pivot_row.slice_axis(column, 0, 1).squeeze([row, column]);
        let is_first = at.squeeze([row, column]).eq(0);
        let signed = is_first.select(&pivot, -&pivot);
        product = Some(match product.take() {
            Some(product) => product * signed,
            None => signed,
        });
        if left == 1 {
            break;
        }
        let number = Tensor::iota(DType::I32, rest.shape().to_vec(), row);
        let own = number.eq(&at.broadcast_to(rest.shape()));
        let top = rest.slice_axis(row, 0, 1).broadcast_to(rest.shape());
        let others = own.select(&top, &rest).slice_axis(row, 1, left);
        // A pivot of 0 is that of a column of zeros: nothing is left to eliminate.
        let pivot = pivot.unsqueeze([row, column]);
        let divisor = pivot.eq(0.0).select(pivot.ones_like(), &pivot);
        let factors = others.slice_axis(column, 0, 1) / divisor;
        let tail = pivot_row.slice_axis(column, 1, left);
        rest = others.slice_axis(column, 1, left) - factors * tail;
    }
    one(product.expect("a matrix has rows").convert(x.dtype()))
}
