//! Linear systems with triangular matrices: the op `triangular_solve`, extended to vectors.

use super::matrix::{located, square_matrices};
use wengert_core::op::TriangularSolve;
use wengert_core::{Diagnostic, Dim, Tensor};

/// x with op(a)·x = b (`left_side`) or x·op(a) = b, where op(a) is the upper or `lower` triangle
/// of `a`, or its transpose (`transpose_a`), with ones on the diagonal if `unit_diagonal`.
///
/// `a` has type `[…, n, n]`, `b` has `[…, n, m]` if a is on the left side, else `[…, m, n]`; or
/// `[…, n]`, a vector for each matrix. The result has the type of `b`. Other elements of `a`
/// are not read. A zero on the diagonal gives infinities and NaNs.
///
/// Errors: a dtype other than f32 and f64; shapes that do not fit.
///
/// It is an op, linear in b, and its derivatives of any order use the op itself: dx = op(a)⁻¹·(db
/// − op(da)·x), b̄ = op(a)⁻ᵀ·x̄.
#[track_caller]
pub fn triangular_solve(a: &Tensor, b: &Tensor, options: TriangularSolve) -> Tensor {
    if let Err(poisoned) = square_matrices("triangular_solve", a) {
        return poisoned;
    }
    if b.error().is_some() || b.rank() + 1 != a.rank() {
        return Tensor::apply(options, &[a, b]);
    }
    let Some(n) = b.shape().last().cloned() else {
        let error =
            Diagnostic::new("triangular_solve of a scalar").help("b is a vector or a matrix");
        return Tensor::fail_of(&[a, b], error);
    };
    let mut shape: Vec<Dim> = b.shape()[..b.rank() - 1].to_vec();
    shape.extend(if options.left_side { [n, Dim::constant(1)] } else { [Dim::constant(1), n] });
    located("triangular_solve", || {
        Tensor::apply(options, &[a, &b.reshape(shape)]).reshape(b.shape().to_vec())
    })
}
