//! Determinants.

use super::lu::{self, Lu, parity, product, solve_with};
use super::matrix::{
    along_rows, diagonal, each, extents, eye, located, only, solve_lower, solve_upper,
    square_matrices,
};
use wengert_compiler::autodiff::rules::custom_jvp_named;
use wengert_core::{DType, Tensor};

/// The determinant of each matrix.
///
/// `a` has type `[…, n, n]` and dtype f32 or f64; the result is `[…]`. The determinant of a 0 × 0
/// matrix is 1. Products of many pivots overflow or underflow; [`slogdet`] avoids this.
///
/// d det = tr(adj(a)·da) (Jacobi's formula). The adjugate is computed from the factors. For a
/// regular matrix it is det·a⁻¹. If one pivot is 0, it is finite and follows from the null
/// vectors of a and aᵀ. If several are 0, it is taken as 0, which is right for a rank below n − 1.
/// The second derivative of a singular matrix is infinite or NaN.
///
/// By [`lu`](super::lu()).
#[track_caller]
pub fn det(a: &Tensor) -> Tensor {
    match square_matrices("det", a) {
        Ok(leading) => located("det", || each(a, leading, &det_of_one)),
        Err(poisoned) => poisoned,
    }
}

/// (sign, logarithm of the magnitude) of the determinant of each matrix: det = sign·exp(log).
///
/// `a` has type `[…, n, n]` and dtype f32 or f64; both results are `[…]`. The sign is 1 or −1;
/// for a singular matrix it is 0, and the logarithm is −∞.
///
/// d log = tr(a⁻¹·da), from the same factors; infinite or NaN for a singular matrix. The
/// derivative of the sign is 0.
#[track_caller]
pub fn slogdet(a: &Tensor) -> (Tensor, Tensor) {
    match square_matrices("slogdet", a) {
        Ok(leading) => located("slogdet", || each(a, leading, &slogdet_of_one)),
        Err(poisoned) => (poisoned.clone(), poisoned),
    }
}

fn slogdet_of_one(a: &Tensor) -> (Tensor, Tensor) {
    custom_jvp_named(
        "slogdet",
        &(a.clone(), lu::of_one(a)),
        |(_, factors)| {
            let pivots = diagonal(&factors.0);
            (parity(factors) * product(&pivots.sign()), pivots.abs().log().sum())
        },
        |(_, factors), (sign, _), (da, _)| {
            (sign.zeros_like(), diagonal(&solve_with(factors, da)).sum())
        },
    )
}

fn det_of_one(a: &Tensor) -> Tensor {
    custom_jvp_named(
        "det",
        &(a.clone(), lu::of_one(a)),
        |(_, factors)| parity(factors) * product(&diagonal(&factors.0)),
        |(_, factors), det, (da, _)| diagonal(&adjugate_times(factors, det, da)).sum(),
    )
}

/// adj(a)·b
fn adjugate_times(factors: &Lu, det: &Tensor, b: &Tensor) -> Tensor {
    let (lu, _, permutation) = factors;
    let (n, _) = extents(lu);
    if n == 0 {
        return b.clone();
    }
    let pivots = diagonal(lu);
    let zero = pivots.eq(0.0);
    // U with ones in place of zero pivots. If there is one, its column and row of U's inverse are
    // null vectors of U and Uᵀ.
    let regular = lu + eye(lu.dtype(), n, n) * along_rows(&zero.convert(lu.dtype()), n);
    let y = solve_upper(&regular, &solve_lower(lu, &b.gather_rows(permutation), true));
    let at_zero = solve_upper(&regular, &(along_rows(&zero.convert(lu.dtype()), n) * &y));
    let others = parity(factors) * product(&zero.select(&pivots.ones_like(), &pivots));
    let count = zero.convert(DType::I32).sum();
    let singular = only(&count.eq(1), &(at_zero * &others));
    count.eq(0).select(&(y * det), &singular)
}
