//! Singular values, by one-sided rotations.

use super::eigh::{SWEEPS, epsilon, inverse_gaps, rotate, rotation};
use super::matrix::{
    along_columns, along_rows, corner, diagonal, each, extents, eye, located, magnitude, matrices,
    only, padded, typed, unless_invalid,
};
use super::qr;
use wengert_compiler::autodiff::rules::{custom_jvp_named, opaque};
use wengert_core::Tensor;
use wengert_core::build::control::{fori, while_loop};

/// Factors of a matrix: (u, s, vt).
type Svd = (Tensor, Tensor, Tensor);

/// a = u·diag(s)·vt with orthonormal columns of u, orthonormal rows of vt, and singular values s
/// ≥ 0 in descending order: (u, s, vt).
///
/// `a` has type `[…, m, n]` and dtype f32 or f64; k = min(m, n). `u: […, m, k]`, `s: […, k]`,
/// `vt: […, k, n]`; if `full_matrices`, `u: […, m, m]` and `vt: […, n, n]`. The signs of each
/// pair of vectors are determined only relative to each other. A matrix with an infinity or a NaN
/// gives NaNs only.
///
/// With P = uᵀ·da·v: ds = diag(P), du = u·(F∘(P·S + S·Pᵀ)) + (I − u·uᵀ)·da·v·S⁻¹,
/// dv = v·(F∘(S·P + Pᵀ·S)) + (I − v·vᵀ)·daᵀ·u·S⁻¹, Fᵢⱼ = 1/(sⱼ² − sᵢ²), and 0 where two are
/// equal, or a singular value is 0 (M. Giles, *Collected matrix derivative results*, 2008, section
/// 3.2; as in JAX, but with 0 in place of infinities). For a repeated or zero singular value, the
/// derivative thus rotates its vectors only towards the vectors of others. If `full_matrices`
/// completes u or vt by arbitrary orthonormal vectors, there is no derivative: that is an error,
/// as in JAX.
///
/// First a = Q·R is factorized. Then pairs of R's rows are rotated until all are orthogonal (J.
/// Demmel and K. Veselić, *Jacobi's method is more accurate than QR*, 1992; Z. Drmač and K.
/// Veselić, *New fast and accurate Jacobi SVD algorithm*, 2008), n/2 pairs at a time as in
/// [`eigh`](super::eigh()).
#[track_caller]
pub fn svd(a: &Tensor, full_matrices: bool) -> (Tensor, Tensor, Tensor) {
    let leading = match matrices("svd", a) {
        Ok(leading) => leading,
        Err(poisoned) => return (poisoned.clone(), poisoned.clone(), poisoned),
    };
    located("svd", || {
        each(a, leading, &|a| {
            let (m, n) = extents(a);
            if full_matrices && m != n {
                return opaque("svd_with_full_matrices", a, |a| decompose(a, true));
            }
            custom_jvp_named("svd", a, |a| decompose(a, false), |_, svd, da| tangent(svd, da))
        })
    })
}

/// The singular values that [`svd`] gives.
#[track_caller]
pub fn svdvals(a: &Tensor) -> Tensor {
    svd(a, false).1
}

fn tangent((u, s, vt): &Svd, da: &Tensor) -> Svd {
    let ((m, k), (_, n)) = (extents(u), extents(vt));
    let (ut, v) = (u.matrix_transpose(), vt.matrix_transpose());
    let da_v = da.dot(&v);
    let p = ut.dot(&da_v);
    let (left, right) = (along_rows(s, k), along_columns(s, k));
    let f = inverse_gaps(&((&right + &left) * (&right - &left)));
    let symmetric = |x: Tensor| &x + x.matrix_transpose();
    let mut du = u.dot(&(&f * symmetric(&p * &right)));
    let mut dv = v.dot(&(&f * symmetric(&p * &left)));
    let over_s = inverse_gaps(s);
    if m > k {
        du = du + (&da_v - u.dot(&p)) * along_columns(&over_s, m);
    }
    if n > k {
        let dat_u = da.matrix_transpose().dot(u);
        dv = dv + (&dat_u - v.dot(&p.matrix_transpose())) * along_columns(&over_s, n);
    }
    (du, diagonal(&p), dv.matrix_transpose())
}

fn decompose(a: &Tensor, full: bool) -> Svd {
    let (m, n) = extents(a);
    if m < n {
        let (u, s, vt) = decompose(&a.matrix_transpose(), full);
        return (vt.matrix_transpose(), s, u.matrix_transpose());
    }
    if n == 0 {
        return (
            eye(a.dtype(), m, if full { m } else { 0 }),
            Tensor::zeros(&typed(a, [0])),
            eye(a.dtype(), 0, 0),
        );
    }
    let scale = magnitude(a);
    let valid = scale.is_finite();
    let (q, r) = qr::factor(&(a / &scale), full);
    // R = G·W, where the rows of W are orthogonal. They are diag(s)·vt, and G, the product of the
    // rotations, is R's u.
    let (g, w) = orthogonal_rows(&corner(&r, n, n));
    let order = (-w.square().sum_axes(&[1])).argsort(0);
    let (g, w) = (g.gather_rows(&order).matrix_transpose(), w.gather_rows(&order));
    // The rows are orthogonal, but some may be 0: a factorization completes them to an
    // orthonormal basis.
    let (v, triangle) = qr::factor(&w.matrix_transpose(), false);
    let d = diagonal(&triangle);
    let signs = d.lt(0.0).select(&d.full_like(-1.0), &d.ones_like());
    let vt = v.matrix_transpose() * along_rows(&signs, n);
    let found = corner(&q, m, n).dot(&g);
    let u = match full && m > n {
        true => Tensor::concatenate(&[&found, &q.slice_axis(1, n, m)], 1),
        false => found,
    };
    [u, d.abs() * scale, vt].map(|x| unless_invalid(&valid, &x)).into()
}

/// (Gᵀ, W) with r = G·W, G orthogonal, and the rows of W orthogonal to each other.
fn orthogonal_rows(r: &Tensor) -> (Tensor, Tensor) {
    let (n, _) = extents(r);
    let size = n.next_multiple_of(2);
    let half = size / 2;
    let tolerance = epsilon(r.dtype()) * (n as f64).sqrt();
    let worst = Tensor::zeros(&typed(r, [])).full_like(1.0);
    let init = (eye(r.dtype(), size, n), padded(r, size, n), worst, Tensor::constant(0i32));
    let (g, w, ..) = while_loop(
        &init,
        |(_, _, worst, sweep)| worst.gt(tolerance).and(sweep.lt(SWEEPS)),
        |(g, w, worst, sweep)| {
            let none = worst.zeros_like();
            let (g, w, worst) =
                fori(size - 1, &(g.clone(), w.clone(), none), |_, (g, w, worst)| {
                    let (top, bottom) = (w.slice_axis(0, 0, half), w.slice_axis(0, half, size));
                    let dot = |x: &Tensor, y: &Tensor| (x * y).sum_axes(&[1]);
                    let (p, q, r) = (dot(&top, &top), dot(&bottom, &bottom), dot(&top, &bottom));
                    // Cosine of the angle between the rows.
                    let lengths = p.sqrt() * q.sqrt();
                    let none = lengths.eq(0.0);
                    let angle =
                        only(&none.not(), &(r.abs() / none.select(&lengths.ones_like(), &lengths)));
                    let (c, s) = rotation(&p, &q, &only(&angle.gt(tolerance), &r));
                    (rotate(g, &c, &s), rotate(w, &c, &s), worst.max(angle.max_axes(&[0])))
                });
            (g, w, worst, sweep + 1)
        },
    );
    (corner(&g, n, n), corner(&w, n, n))
}
