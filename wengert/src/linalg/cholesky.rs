//! Cholesky's factorization.

use super::matrix::{
    BLOCK, all, along_columns, corner, diagonal, divide_by_lower_transposed, each, extents, eye,
    located, lower, numbers, only, padded, places, solve_lower, square_matrices, typed,
    unless_invalid,
};
use wengert_compiler::autodiff::rules::custom_jvp_named;
use wengert_core::Tensor;
use wengert_core::build::control::fori;

/// The lower triangular L with a positive diagonal and L·Lᵀ = (a + aᵀ)/2.
///
/// `a` has type `[…, n, n]` and dtype f32 or f64; so has the result. If a matrix is not positive
/// definite, up to rounding, its whole factor is NaN, as in JAX.
///
/// dL = L·Φ(L⁻¹·da·L⁻ᵀ), where Φ is the lower triangle with half of the diagonal (S. Särkkä,
/// *Bayesian Filtering and Smoothing*, 2013, theorem A.1; I. Murray, *Differentiation of the
/// Cholesky decomposition*, 2016). The cotangent of a is symmetric.
///
/// A left-looking algorithm, 32 columns at a time: products with earlier columns update the
/// current ones.
#[track_caller]
pub fn cholesky(a: &Tensor) -> Tensor {
    match square_matrices("cholesky", a) {
        Ok(leading) => located("cholesky", || each(a, leading, &of_one)),
        Err(poisoned) => poisoned,
    }
}

fn of_one(a: &Tensor) -> Tensor {
    let symmetric = (a + a.matrix_transpose()) * 0.5;
    custom_jvp_named("cholesky", &symmetric, factor, |_, l, da| {
        let inner = solve_lower(l, &divide_by_lower_transposed(da, l), false);
        let (n, _) = extents(l);
        let half = eye(l.dtype(), n, n) * -0.5 + 1.0;
        l.dot(&lower(&(inner * half)))
    })
}

fn factor(a: &Tensor) -> Tensor {
    let (n, _) = extents(a);
    if n == 0 {
        return a.clone();
    }
    let l = if n <= BLOCK { columns(a) } else { blocks(a, n) };
    let valid = all(&diagonal(&l).gt(0.0));
    unless_invalid(&valid, &l)
}

fn blocks(a: &Tensor, n: usize) -> Tensor {
    let size = n.next_multiple_of(BLOCK);
    // a is padded by the unit matrix, which is its own factor.
    let (row, column) = places(size, size);
    let more = row.eq(column).and(row.ge(n as i32)).convert(a.dtype());
    let a = padded(a, size, size) + more;
    let row = Tensor::iota(wengert_core::DType::I32, [size, BLOCK], 0);
    let l = fori(size / BLOCK, &a.zeros_like(), |k, l| {
        let start = k * BLOCK as i64;
        let known = l.dynamic_slice_in_dim(&start, BLOCK, 0);
        let panel = a.dynamic_slice_in_dim(&start, BLOCK, 1) - l.dot(&known.matrix_transpose());
        let top = columns(&panel.dynamic_slice_in_dim(&start, BLOCK, 0));
        let below = only(&row.ge(&start + BLOCK as i64), &divide_by_lower_transposed(&panel, &top));
        l.dynamic_update_slice_in_dim(
            &below.dynamic_update_slice_in_dim(&top, &start, 0),
            &start,
            1,
        )
    });
    corner(&l, n, n)
}

/// The factor, column by column. NaN from the first column whose pivot is not positive.
fn columns(a: &Tensor) -> Tensor {
    let (n, _) = extents(a);
    let i = numbers(n);
    fori(n, &Tensor::zeros(&typed(a, [n, n])), |j, l| {
        let row = along_columns(&l.dynamic_index_in_dim(j, 0), n);
        let column = a.dynamic_index_in_dim(j, 1) - (l * row).sum_axes(&[1]);
        let d = column.dynamic_index_in_dim(j, 0).sqrt();
        let column = i.eq(j).select(&d, &(column / &d));
        l.dynamic_update_slice_in_dim(&only(&i.ge(j), &column).reshape([n, 1]), j, 1)
    })
}
