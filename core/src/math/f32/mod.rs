//! Elementary functions of f32: branch-free, so that a loop over them vectorises.
//!
//! All functions use one technique: reduce the argument to a short interval, evaluate a minimax
//! polynomial there by Horner's rule, undo the reduction, and replace the special values with
//! selects at the end. Rounding to the nearest integer is done by adding and subtracting 1.5·2²³,
//! which needs no conversion instruction and leaves the integer in the low bits of the sum. The
//! polynomials were fitted by the Remez algorithm to the *relative* error of the function.

mod angle;
mod exp;
mod log;
mod pow;
mod wide;

pub use angle::{atan2, cos, sin};
pub use exp::{MODERATE, erf, exp, exp_moderate, expm1, tanh};
pub use log::{log, log1p};
pub use pow::pow;
pub use wide::{
    acos, acosh, asin, asinh, atanh, cbrt, cosh, digamma, erf_inv, erfc, lgamma, log2, polygamma,
    sinh,
};

use super::value::Double;

/// Σ `coefficients[k] · x^k` by Horner's rule. F64 has precision to spare, so products are
/// rounded as well, which costs less than a fused multiply-add on machines without one.
#[inline(always)]
fn polynomial_wide<W: Double, const N: usize>(x: W, coefficients: [f64; N]) -> W {
    let mut sum = x.literal(coefficients[N - 1]);
    let mut k = N - 1;
    while k > 0 {
        k -= 1;
        sum = sum * x + x.literal(coefficients[k]);
    }
    sum
}

/// Adding it to |x| < 2⁵¹ rounds x to an integer, which is then in the low bits of the sum.
const ROUND_WIDE: f64 = 6_755_399_441_055_744.0;

/// Nearest integer, ties to even, for |x| < 2⁵¹.
#[inline(always)]
fn round_wide<W: Double>(x: W) -> W {
    (x + x.literal(ROUND_WIDE)) - x.literal(ROUND_WIDE)
}
