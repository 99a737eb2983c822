//! Householder's factorization.

use super::matrix::{
    BLOCK, along_columns, along_rows, corner, divide_by_upper, each, extents, eye, located,
    matrices, numbers, only, padded, places, strictly_lower, typed, upper,
};
use wengert_compiler::autodiff::rules::{custom_jvp_named, opaque};
use wengert_core::Tensor;
use wengert_core::build::control::{fori, scan, scan_reverse};
use wengert_core::op::TriangularSolve;

/// a = Q·R with orthonormal columns of Q and an upper triangular (or trapezoidal) R: (q, r).
///
/// `a` has type `[…, m, n]` and dtype f32 or f64; k = min(m, n). `q: […, m, k]`, `r: […, k, n]`;
/// if `full_matrices`, `q: […, m, m]`, `r: […, m, n]`. Signs are those of LAPACK: an entry of R's
/// diagonal has the opposite sign of the entry before its reflection, or equals it where no
/// reflection was needed.
///
/// With F = Qᵀ·da·R⁻¹ (of the first k columns) and Ω = low(F) − low(F)ᵀ, where low is the
/// strictly lower triangle: dQ = Q·(Ω − F) + da·R⁻¹, dR = Qᵀ·da − Ω·R (S. Walter and L. Lehmann,
/// *Algorithmic differentiation of linear algebra functions with application in optimum
/// experimental design*, 2009; as in JAX, and for wide matrices too). If the first k columns are
/// linearly dependent, R has a zero on its diagonal, and the derivative is infinite or NaN. A
/// tall matrix with `full_matrices` has no derivative, since the columns that complete Q are
/// arbitrary: that is an error, as in JAX.
///
/// Blocks of 32 reflections are applied as I − V·T·Vᵀ (R. Schreiber and C. Van Loan, *A
/// storage-efficient WY representation for products of Householder transformations*, 1989).
#[track_caller]
pub fn qr(a: &Tensor, full_matrices: bool) -> (Tensor, Tensor) {
    let leading = match matrices("qr", a) {
        Ok(leading) => leading,
        Err(poisoned) => return (poisoned.clone(), poisoned),
    };
    located("qr", || {
        each(a, leading, &|a| {
            let (m, n) = extents(a);
            if full_matrices && m > n {
                return opaque("qr_with_full_matrices", a, |a| factor(a, true));
            }
            custom_jvp_named("qr", a, |a| factor(a, false), |_, (q, r), da| tangent(q, r, da))
        })
    })
}

fn tangent(q: &Tensor, r: &Tensor, da: &Tensor) -> (Tensor, Tensor) {
    let (k, n) = extents(r);
    let qt_da = q.matrix_transpose().dot(da);
    let square = corner(r, k, k);
    let da_over_r = divide_by_upper(&corner(da, extents(da).0, k), &square);
    let f = q.matrix_transpose().dot(&da_over_r);
    let low = strictly_lower(&f);
    let omega = &low - low.matrix_transpose();
    // Below the diagonal F and Ω are equal, so only rounding errors remain there.
    let dr = upper(&(&qt_da - omega.dot(r)));
    debug_assert_eq!(extents(&dr), (k, n));
    (q.dot(&(omega - f)) + da_over_r, dr)
}

/// Q and R, full or not, without a derivative rule.
pub(super) fn factor(a: &Tensor, full: bool) -> (Tensor, Tensor) {
    let (m, n) = extents(a);
    let k = m.min(n);
    let columns_of_q = if full { m } else { k };
    if k == 0 {
        return (eye(a.dtype(), m, columns_of_q), Tensor::zeros(&typed(a, [columns_of_q, n])));
    }
    // Rows and columns of zeros pad the last block; their reflections are the identity.
    let width = k.min(BLOCK);
    let steps = k.div_ceil(width);
    let (rows, columns) = (m.max(steps * width), n.max(steps * width));
    let (_, column) = places(rows, columns);
    let (r, (v, t)) = scan(&padded(a, rows, columns), &numbers(steps), |a, step| {
        let start = step * width as i64;
        let (panel, v, tau) = panel(&a.dynamic_slice_in_dim(&start, width, 1), &start);
        let t = together(&v, &tau);
        let a = match columns == width {
            true => panel,
            false => {
                let right = column.ge(&start + width as i64);
                let reflected = v.dot(&t.matrix_transpose().dot(&v.matrix_transpose().dot(a)));
                (a - only(&right, &reflected)).dynamic_update_slice_in_dim(&panel, &start, 1)
            }
        };
        (a, (v, t))
    });
    let q = eye(a.dtype(), rows, columns_of_q);
    let (q, _) = scan_reverse(&q, &(v, t), |q, (v, t)| {
        let reflected = v.dot(&t.dot(&v.matrix_transpose().dot(q)));
        (q - reflected, Vec::<Tensor>::new())
    });
    (corner(&q, m, columns_of_q), upper(&corner(&r, columns_of_q, n)))
}

/// T with H₁·H₂⋯ = I − V·T·Vᵀ, where Hⱼ = I − τⱼ·vⱼ·vⱼᵀ. Its inverse is diag(1/τ) and, above it,
/// VᵀV.
fn together(v: &Tensor, tau: &Tensor) -> Tensor {
    let (_, width) = extents(v);
    let gram = v.matrix_transpose().dot(v);
    let scaled = along_rows(tau, width) * gram;
    let diagonal = eye(v.dtype(), width, width) * along_rows(tau, width);
    let unit = TriangularSolve { left_side: true, unit_diagonal: true, ..Default::default() };
    Tensor::apply(unit, &[&scaled, &diagonal])
}

/// Reflects the columns whose diagonal begins at row `start` onto it: the resulting columns, the
/// vectors of the reflections and their τ.
fn panel(a: &Tensor, start: &Tensor) -> (Tensor, Tensor, Tensor) {
    let (rows, width) = extents(a);
    let (i, c) = (numbers(rows), numbers(width));
    let init = (a.clone(), a.zeros_like(), Tensor::zeros(&typed(a, [width])));
    fori(width, &init, |j, (a, v, tau)| {
        let r = start + j;
        let (at, below) = (i.eq(&r), i.gt(&r));
        let x = a.dynamic_index_in_dim(j, 1);
        let alpha = x.dynamic_index_in_dim(&r, 0);
        let tail = only(&below, &x);
        let most = tail.abs().max_axes(&[0]);
        let nothing = most.eq(0.0);
        // Scaled, so that squares neither overflow nor underflow.
        let scale = nothing.select(&most.ones_like(), &most.max(alpha.abs()));
        let norm = ((&tail / &scale).square().sum() + (&alpha / &scale).square()).sqrt() * &scale;
        let beta = nothing.select(&alpha, &alpha.ge(0.0).select(&-&norm, &norm));
        let t = nothing.select(&alpha.zeros_like(), &((&beta - &alpha) / &beta));
        let divisor = nothing.select(&alpha.ones_like(), &(&alpha - &beta));
        let u = &tail / &divisor + at.convert(x.dtype());
        let share = (along_rows(&u, width) * a).sum_axes(&[0]) * &t;
        let reflected = a - along_rows(&u, width) * along_columns(&share, rows);
        let column = at.select(&beta, &only(&i.lt(&r), &x));
        let later = c.gt(j).broadcast_in_dim(a.shape().to_vec(), &[1]);
        let this = c.eq(j).broadcast_in_dim(a.shape().to_vec(), &[1]);
        let a = later.select(&reflected, &this.select(&along_rows(&column, width), a));
        let v = v.dynamic_update_slice_in_dim(&u.reshape([rows, 1]), j, 1);
        (a, v, tau.dynamic_update_slice_in_dim(&t.reshape([1usize]), j, 0))
    })
}
