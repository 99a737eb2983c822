//! The exponential of matrices.

use super::matrix::{each, extents, eye, located, square_matrices, unless_invalid};
use super::solve;
use wengert_core::build::control::fori_upto;
use wengert_core::{DType, Tensor};

/// Most squarings of a result.
const SQUARINGS: i32 = 16;

/// The exponential eᵃ = 1 + a + a²/2 + … of each matrix.
///
/// `a` has type `[…, n, n]` and dtype f32 or f64; so has the result. It is NaN where the norm of
/// a (the greatest column sum of magnitudes) is above 5.37·2¹⁶ (f64) or 3.92·2¹⁶ (f32), as in
/// JAX.
///
/// Scaling and squaring: a is divided by 2ˢ, so that its norm is small enough for a rational
/// approximation, of degree 13 in f64 and 7 in f32, to be exact up to rounding; the result is
/// squared s times (N. Higham, *The scaling and squaring method for the matrix exponential
/// revisited*, 2005). The computation is differentiated with s fixed, which is the best method
/// for the derivative: the approximation of the derivative is the derivative of the approximation
/// (A. Al-Mohy and N. Higham, *Computing the Fréchet derivative of the matrix exponential*,
/// 2009). The rule of [`solve`](super::solve()) is part of it.
#[track_caller]
pub fn matrix_exp(a: &Tensor) -> Tensor {
    match square_matrices("matrix_exp", a) {
        Ok(leading) => located("matrix_exp", || each(a, leading, &of_one)),
        Err(poisoned) => poisoned,
    }
}

/// Coefficients of the approximation p(a)/p(−a), and the greatest norm for which it is accurate.
fn approximation(dtype: DType) -> (&'static [f64], f64) {
    match dtype {
        DType::F32 => (
            &[17297280.0, 8648640.0, 1995840.0, 277200.0, 25200.0, 1512.0, 56.0, 1.0],
            3.92572478313866,
        ),
        _ => (
            &[
                64764752532480000.0,
                32382376266240000.0,
                7771770303897600.0,
                1187353796428800.0,
                129060195264000.0,
                10559470521600.0,
                670442572800.0,
                33522128640.0,
                1323241920.0,
                40840800.0,
                960960.0,
                16380.0,
                182.0,
                1.0,
            ],
            5.371920351148152,
        ),
    }
}

fn of_one(a: &Tensor) -> Tensor {
    let (n, _) = extents(a);
    if n == 0 {
        return a.clone();
    }
    let (b, bound) = approximation(a.dtype());
    let norm = a.abs().sum_axes(&[0]).max_axes(&[0]).stop_gradient();
    let squarings = (&norm / bound).log2().ceil().max(0.0);
    let valid = squarings.le(f64::from(SQUARINGS));
    let s = valid.select(&squarings, &squarings.zeros_like()).convert(DType::I32);
    // A power of two, exactly.
    let scale = s.ones_like().shift_left(&s).convert(a.dtype());
    let r = rational(&(a / scale), b);
    let r = fori_upto(&s, SQUARINGS as usize, &r, |_, r| r.dot(r));
    unless_invalid(&valid, &r)
}

/// p(a)/p(−a) with p(a) = Σ bᵢ·aⁱ.
fn rational(a: &Tensor, b: &[f64]) -> Tensor {
    let (n, _) = extents(a);
    let one = eye(a.dtype(), n, n);
    let a2 = a.dot(a);
    let a4 = a2.dot(&a2);
    let a6 = a4.dot(&a2);
    // Every other term, from `first` on: even powers of a, those above the sixth as products with
    // the sixth.
    let terms = |first: usize| {
        let low = &one * b[first] + &a2 * b[first + 2] + &a4 * b[first + 4] + &a6 * b[first + 6];
        match b.len() {
            14 => low + a6.dot(&(&a2 * b[first + 8] + &a4 * b[first + 10] + &a6 * b[first + 12])),
            _ => low,
        }
    };
    let (even, odd) = (terms(0), a.dot(&terms(1)));
    solve::of_one(&(&even - &odd), &(&even + &odd))
}
