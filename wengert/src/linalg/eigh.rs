//! Eigenvalues and eigenvectors of symmetric matrices, by Jacobi's rotations.

use super::matrix::{
    along_columns, along_rows, corner, diagonal, each, extents, eye, located, magnitude, only,
    padded, places, square_matrices, typed, unless_invalid,
};
use wengert_compiler::autodiff::rules::custom_jvp_named;
use wengert_core::build::control::{fori, while_loop};
use wengert_core::{DType, Tensor};

/// Most sweeps. Six to ten are usual.
pub(super) const SWEEPS: i32 = 30;

/// (w, v) with (a + aᵀ)/2 · v = v·diag(w): eigenvalues in ascending order, and orthonormal
/// eigenvectors as the columns of v.
///
/// `a` has type `[…, n, n]` and dtype f32 or f64; `w: […, n]`, `v: […, n, n]`. The sign of an
/// eigenvector is not determined. A matrix with an infinity or a NaN gives NaNs only.
///
/// dw = diag(vᵀ·da·v), dv = v·(F∘(vᵀ·da·v)) with Fᵢⱼ = 1/(wⱼ − wᵢ), and 0 where the two are equal
/// (M. Giles, *Collected matrix derivative results*, 2008, section 3.1). For a repeated
/// eigenvalue, the derivative thus rotates its eigenvectors only towards the eigenvectors of
/// others. That is right for functions of the space that they span; JAX gives NaN there. The
/// derivative of single eigenvalues of such a space is that along the computed vectors.
///
/// Jacobi's method: rotations of pairs of rows and columns diagonalise the matrix. Each step
/// rotates n/2 disjoint pairs, so it is a few kernels over the whole matrix. All pairs meet in n
/// − 1 steps, a sweep (R. Brent and F. Luk, *The solution of singular-value and symmetric
/// eigenvalue problems on multiprocessor arrays*, 1985). It ends when the elements off the
/// diagonal are of the order of rounding errors.
#[track_caller]
pub fn eigh(a: &Tensor) -> (Tensor, Tensor) {
    match square_matrices("eigh", a) {
        Ok(leading) => located("eigh", || each(a, leading, &of_one)),
        Err(poisoned) => (poisoned.clone(), poisoned),
    }
}

/// The eigenvalues that [`eigh`] gives.
#[track_caller]
pub fn eigvalsh(a: &Tensor) -> Tensor {
    eigh(a).0
}

fn of_one(a: &Tensor) -> (Tensor, Tensor) {
    let symmetric = (a + a.matrix_transpose()) * 0.5;
    custom_jvp_named("eigh", &symmetric, decompose, |_, (w, v), da| {
        let (n, _) = extents(v);
        let turned = v.matrix_transpose().dot(&da.dot(v));
        let gaps = along_columns(w, n) - along_rows(w, n);
        let dv = v.dot(&(inverse_gaps(&gaps) * &turned));
        (diagonal(&turned), dv)
    })
}

/// The inverse of each element; 0 where the inverse is infinite.
pub(super) fn inverse_gaps(gaps: &Tensor) -> Tensor {
    let none = gaps.eq(0.0);
    only(&none.not(), &none.select(&gaps.ones_like(), gaps).reciprocal())
}

fn decompose(a: &Tensor) -> (Tensor, Tensor) {
    let (n, _) = extents(a);
    let epsilon = epsilon(a.dtype());
    if n == 0 {
        return (Tensor::zeros(&typed(a, [0])), a.clone());
    }
    let scale = magnitude(a);
    let valid = scale.is_finite();
    let size = n.next_multiple_of(2);
    let a = padded(&(a / &scale), size, size);
    let (row, column) = places(size, size);
    let off_diagonal = row.ne(column);
    let off = |a: &Tensor| only(&off_diagonal, a).square().sum();
    let bound = a.square().sum() * (epsilon * epsilon);
    let init = (a.clone(), eye(a.dtype(), size, size), off(&a), Tensor::constant(0i32));
    let (a, v, ..) = while_loop(
        &init,
        |(_, _, off, sweep)| off.gt(&bound).and(sweep.lt(SWEEPS)),
        |(a, v, _, sweep)| {
            let (a, v) = fori(size - 1, &(a.clone(), v.clone()), |_, (a, v)| {
                let (c, s) = rotations(a);
                let half = rotate(a, &c, &s);
                // In a symmetric matrix, columns equal rows.
                (rotate(&half.matrix_transpose(), &c, &s), rotate(v, &c, &s))
            });
            let left = off(&a);
            (a, v, left, sweep + 1)
        },
    );
    let w = diagonal(&corner(&a, n, n)) * scale;
    let order = w.argsort(0);
    let v = corner(&v, n, n).gather_rows(&order).matrix_transpose();
    (unless_invalid(&valid, &w.gather_rows(&order)), unless_invalid(&valid, &v))
}

/// The distance from 1 to the next number.
pub(super) fn epsilon(dtype: DType) -> f64 {
    if dtype == DType::F32 { f32::EPSILON.into() } else { f64::EPSILON }
}

/// Cosines and sines of the rotations that zero the entries at (i, i + n/2).
fn rotations(a: &Tensor) -> (Tensor, Tensor) {
    let half = extents(a).0 / 2;
    let block = |i: usize, j: usize| {
        let rows = a.slice_axis(0, i * half, (i + 1) * half);
        diagonal(&rows.slice_axis(1, j * half, (j + 1) * half))
    };
    rotation(&block(0, 0), &block(1, 1), &block(0, 1))
}

/// Cosine and sine of the smaller angle that diagonalises the symmetric matrix (p, r; r, q).
pub(super) fn rotation(p: &Tensor, q: &Tensor, r: &Tensor) -> (Tensor, Tensor) {
    let none = r.eq(0.0);
    let theta = (q - p) / (none.select(&r.ones_like(), r) * 2.0);
    let magnitude = (theta.abs() + (theta.square() + 1.0).sqrt()).reciprocal();
    let tangent = only(&none.not(), &theta.lt(0.0).select(&-&magnitude, &magnitude));
    let cosine = (tangent.square() + 1.0).rsqrt();
    let sine = &tangent * &cosine;
    (cosine, sine)
}

/// Rotates rows i and i + n/2, for all i, and permutes the rows so that new pairs meet: the first
/// stays, the others advance one place around the ring of the first half and, backwards, the
/// second. After n − 1 calls the order is the initial one.
pub(super) fn rotate(x: &Tensor, c: &Tensor, s: &Tensor) -> Tensor {
    let (rows, columns) = extents(x);
    let half = rows / 2;
    let (c, s) = (along_rows(c, columns), along_rows(s, columns));
    let (top, bottom) = (x.slice_axis(0, 0, half), x.slice_axis(0, half, rows));
    let (first, second) = (&c * &top - &s * &bottom, &s * &top + &c * &bottom);
    if half == 1 {
        return Tensor::concatenate(&[&first, &second], 0);
    }
    let part = |x: &Tensor, from: usize, to: usize| x.slice_axis(0, from, to);
    let parts = [
        part(&first, 0, 1),
        part(&second, 0, 1),
        part(&first, 1, half - 1),
        part(&second, 1, half),
        part(&first, half - 1, half),
    ];
    Tensor::concatenate(&parts.iter().collect::<Vec<_>>(), 0)
}
