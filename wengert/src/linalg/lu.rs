//! Gaussian elimination with row exchanges.

use super::matrix::{
    BLOCK, corner, divide_by_upper, each, extents, eye, located, matrices, numbers, only, padded,
    places, solve_lower, solve_upper, strictly_lower, typed, upper,
};
use wengert_compiler::autodiff::rules::custom_jvp_named;
use wengert_core::build::control::fori;
use wengert_core::op::{Reduce, ReduceKind};
use wengert_core::{DType, Tensor, TensorType};

/// Factors of a matrix: (lu, pivots, permutation), as `jax.lax.linalg.lu` gives them.
pub(super) type Lu = (Tensor, Tensor, Tensor);

/// The factorization a\[permutation\] = L·U with partial pivoting: (lu, pivots, permutation).
///
/// `a` has type `[…, m, n]` and dtype f32 or f64; k = min(m, n). `lu: […, m, n]` holds U on the
/// diagonal and above it, and L below it, without L's unit diagonal. `pivots: i32[…, k]` is the
/// row with which each of the first k rows has been exchanged, in order. `permutation: i32[…, m]`
/// is the row of a at each row of the result. A pivot is the entry of greatest magnitude, the
/// first if there are several. If all candidates are 0, the column is unchanged, and U is
/// singular.
///
/// dL = L·low(F) and dU = up(F)·U, where F = L⁻¹·da\[permutation\]·U⁻¹ is split into its strictly
/// lower triangle and its upper triangle with the diagonal, for a square matrix; for others, L
/// and U are extended by a unit matrix (F. de Hoog, R. Anderssen and M. Lukas, *Differentiation
/// of matrix functionals using triangular factorization*, 2011; as in JAX). Where U has a zero on
/// its diagonal the derivative is infinite or NaN. Where two pivots tie the factorization jumps,
/// and the derivative is that of the chosen pivot.
#[track_caller]
pub fn lu(a: &Tensor) -> (Tensor, Tensor, Tensor) {
    match matrices("lu", a) {
        Ok(leading) => located("lu", || each(a, leading, &of_one)),
        Err(poisoned) => (poisoned.clone(), poisoned.clone(), poisoned),
    }
}

/// The factors of one matrix, with their derivative rule.
pub(super) fn of_one(a: &Tensor) -> Lu {
    custom_jvp_named("lu", a, factor, |_, (lu, pivots, permutation), da| {
        (tangent(lu, permutation, da), pivots.zeros_like(), permutation.zeros_like())
    })
}

/// x with a·x = b, from the factors of a square matrix.
pub(super) fn solve_with((lu, _, permutation): &Lu, b: &Tensor) -> Tensor {
    match extents(lu).0 {
        0 => b.clone(),
        _ => solve_upper(lu, &solve_lower(lu, &b.gather_rows(permutation), true)),
    }
}

fn tangent(lu: &Tensor, permutation: &Tensor, da: &Tensor) -> Tensor {
    let (m, n) = extents(lu);
    let k = m.min(n);
    if k == 0 {
        return lu.zeros_like();
    }
    let dtype = lu.dtype();
    let unit_from_k = |size: usize| {
        let (row, column) = places(size, size);
        row.eq(column).and(row.ge(k as i32)).convert(dtype)
    };
    let l = padded(&strictly_lower(&corner(lu, m, k)), m, m) + eye(dtype, m, m);
    let u = padded(&upper(&corner(lu, k, n)), n, n) + unit_from_k(n);
    let f = divide_by_upper(&solve_lower(&l, &da.gather_rows(permutation), true), &u);
    l.dot(&strictly_lower(&f)) + upper(&f).dot(&u)
}

/// The factorization, `BLOCK` columns at a time.
pub(super) fn factor(a: &Tensor) -> Lu {
    let (m, n) = extents(a);
    let k = m.min(n);
    if k == 0 {
        return (a.clone(), Tensor::zeros(&TensorType::new(DType::I32, [0usize])), numbers(m));
    }
    // Rows and columns of zeros pad the last block; they are never exchanged with others.
    let width = k.min(BLOCK);
    let steps = k.div_ceil(width);
    let (rows, columns) = (m.max(steps * width), n.max(steps * width));
    let (row, column) = places(rows, columns);
    let init = (
        padded(a, rows, columns),
        Tensor::zeros(&TensorType::new(DType::I32, [steps * width])),
        numbers(rows),
    );
    let (a, pivots, permutation) = fori(steps, &init, |step, (a, pivots, permutation)| {
        let start = step * width as i64;
        let end = &start + width as i64;
        let panel = a.dynamic_slice_in_dim(&start, width, 1);
        let (panel, chosen, exchanged) = self::panel(&panel, &start);
        let a = a.gather_rows(&exchanged).dynamic_update_slice_in_dim(&panel, &start, 1);
        let pivots = pivots.dynamic_update_slice_in_dim(&chosen, &start, 0);
        let permutation = permutation.gather_rows(&exchanged);
        if columns == width {
            return (a, pivots, permutation);
        }
        // Right of the panel: the rows of U, then the trailing rows.
        let right = column.ge(&end);
        let top = panel.dynamic_slice_in_dim(&start, width, 0);
        let across = a.dynamic_slice_in_dim(&start, width, 0);
        let right_of_top = right.slice_axis(0, 0, width);
        let across = right_of_top.select(&solve_lower(&top, &across, true), &across);
        let below = only(&row.slice_axis(1, 0, width).ge(&end), &panel);
        let a = a.dynamic_update_slice_in_dim(&across, &start, 0)
            - below.dot(&only(&right_of_top, &across));
        (a, pivots, permutation)
    });
    (corner(&a, m, n), pivots.slice_axis(0, 0, k), permutation.slice_axis(0, 0, m))
}

/// Factorizes the columns whose diagonal begins at row `start`: factors, pivots, and the original
/// row at each row.
fn panel(a: &Tensor, start: &Tensor) -> Lu {
    let (rows, width) = extents(a);
    let (i, c) = (numbers(rows), numbers(width));
    let as_columns = |mask: &Tensor| mask.broadcast_in_dim(a.shape().to_vec(), &[0]);
    let as_rows = |mask: &Tensor| mask.broadcast_in_dim(a.shape().to_vec(), &[1]);
    let init = (a.clone(), Tensor::zeros(&TensorType::new(DType::I32, [width])), i.clone());
    fori(width, &init, |j, (a, pivots, permutation)| {
        let r = start + j;
        let column = a.dynamic_index_in_dim(j, 1);
        let q = i.ge(&r).select(&column.abs(), &column.full_like(-1.0)).argmax(0);
        let (at_r, at_q, below) = (i.eq(&r), i.eq(&q), i.gt(&r));
        let exchanged = |x: &Tensor, of_r: &Tensor, of_q: &Tensor, at_r: &Tensor, at_q: &Tensor| {
            at_r.select(of_q, &at_q.select(of_r, x))
        };
        let (row_r, row_q) = (a.dynamic_index_in_dim(&r, 0), a.dynamic_index_in_dim(&q, 0));
        let (all_r, all_q) = (as_rows(&row_r), as_rows(&row_q));
        let x = exchanged(a, &all_r, &all_q, &as_columns(&at_r), &as_columns(&at_q));
        let pivot = row_q.dynamic_index_in_dim(j, 0);
        let column = exchanged(&column, &row_r.dynamic_index_in_dim(j, 0), &pivot, &at_r, &at_q);
        let l = pivot.eq(0.0).select(&column, &(&column / &pivot));
        let rest = &x - as_columns(&l) * &all_q;
        let is_column = as_rows(&c.eq(j));
        let eliminated = as_rows(&c.gt(j)).select(&rest, &is_column.select(&as_columns(&l), &x));
        let x = as_columns(&below).select(&eliminated, &x);
        let of = |n: &Tensor| permutation.dynamic_index_in_dim(n, 0);
        let permutation = exchanged(permutation, &of(&r), &of(&q), &at_r, &at_q);
        (x, pivots.dynamic_update_slice_in_dim(&q.reshape([1usize]), j, 0), permutation)
    })
}

/// 1 for an even number of row exchanges, −1 for an odd one.
pub(super) fn parity((lu, pivots, _): &Lu) -> Tensor {
    let k = pivots.shape()[0].as_extent().expect("extents of matrices have been checked");
    let one = Tensor::zeros(&typed(lu, [k])).full_like(1.0);
    product(&pivots.ne(numbers(k)).select(&-&one, &one))
}

/// The product of all elements of a vector.
pub(super) fn product(x: &Tensor) -> Tensor {
    Tensor::apply(Reduce::new(ReduceKind::Prod, [0]), &[x])
}
