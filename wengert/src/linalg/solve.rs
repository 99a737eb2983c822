//! Linear systems with square matrices, and inverses.

use super::lu;
use super::matrix::{each, extents, eye, located, square_matrices};
use wengert_compiler::autodiff::rules::custom_jvp_named;
use wengert_core::{Dim, Tensor, diagnostic};

/// x with a·x = b.
///
/// `a` has type `[…, n, n]` and dtype f32 or f64, `b` has type `[…, n, m]`, or `[…, n]`, a vector
/// for each matrix; leading axes are equal. The result has the type of b. A singular matrix gives
/// infinities and NaNs.
///
/// dx = a⁻¹·(db − da·x), with the factors used for x; so b̄ = a⁻ᵀ·x̄ and ā = −b̄·xᵀ (M. Giles,
/// *Collected matrix derivative results*, 2008, section 2.3).
///
/// By [`lu`](super::lu()).
#[track_caller]
pub fn solve(a: &Tensor, b: &Tensor) -> Tensor {
    let leading = match square_matrices("solve", a) {
        Ok(leading) => leading,
        Err(poisoned) => return poisoned,
    };
    if b.error().is_some() {
        return b.clone();
    }
    let (vector, fits) = (b.rank() == leading + 1, [leading + 1, leading + 2].contains(&b.rank()));
    if !fits || b.dtype() != a.dtype() || b.shape()[..=leading] != a.shape()[..=leading] {
        let error = diagnostic!("solve: a has type {}, b has type {}", a.ty(), b.ty()).help(
            "b has the dtype and the leading axes of a, then as many rows as a, and columns \
                 unless it is a vector",
        );
        return Tensor::fail_of(&[a, b], error);
    }
    located("solve", || {
        let columns = match vector {
            true => b.reshape(b.shape().iter().cloned().chain([Dim::constant(1)])),
            false => b.clone(),
        };
        let x = each(&(a.clone(), columns), leading, &|(a, b)| of_one(a, b));
        if vector { x.reshape(b.shape().to_vec()) } else { x }
    })
}

/// The inverse of each matrix.
///
/// `a` has type `[…, n, n]` and dtype f32 or f64; so has the result. A singular matrix gives
/// infinities and NaNs. For linear systems, [`solve`] takes fewer operations and is more exact.
///
/// dy = −y·da·y.
#[track_caller]
pub fn inv(a: &Tensor) -> Tensor {
    match square_matrices("inv", a) {
        Ok(leading) => located("inv", || {
            each(a, leading, &|a| {
                let (n, _) = extents(a);
                let invert = |a: &Tensor| lu::solve_with(&lu::factor(a), &eye(a.dtype(), n, n));
                custom_jvp_named("inv", a, invert, |_, y, da| -y.dot(da).dot(y))
            })
        }),
        Err(poisoned) => poisoned,
    }
}

pub(super) fn of_one(a: &Tensor, b: &Tensor) -> Tensor {
    // The factors have their own rule, which higher derivatives of this rule use.
    let factors = lu::of_one(a);
    custom_jvp_named(
        "solve",
        &((a.clone(), b.clone()), factors),
        |((_, b), factors)| lu::solve_with(factors, b),
        |(_, factors), x, ((da, db), _)| lu::solve_with(factors, &(db - da.dot(x))),
    )
}
