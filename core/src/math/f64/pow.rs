//! Powers.

use super::exp::exponential;
use super::log::logarithm;
use super::pair::product;
use crate::math::value::{Double, select};

/// xʸ; error at most 0.8 ULP. Special values as in C99: 1 for y = 0 and for x = 1, whatever the
/// other is; NaN for a negative finite x with a finite y that is no integer; the result has the
/// sign of x for odd integers y.
#[inline(always)]
pub fn pow<V: Double>(x: V, y: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    let subnormal = a.is_below(c(f64::MIN_POSITIVE));
    let normal = select(subnormal, a * c(18_014_398_509_481_984.0), a);
    let (l, l_low) = logarithm(normal, select(subnormal, c(54.0), c(0.0)));
    let l = select(a.equals(c(0.0)), c(f64::NEG_INFINITY), l);
    let l = select(a.is_below(c(f64::INFINITY)), l, a);
    // |ln x| is 0 or at least 2⁻⁵³, so beyond 2⁸⁰ only the sign of the exponent matters. Where
    // |x| is 1, ln |x| is 0 and y is irrelevant.
    let bound = c(f64::from_bits((1023 + 80) << 52));
    let bounded = select(y.is_above(bound), bound, y);
    let bounded = select(bounded.is_below(-bound), -bound, bounded);
    let (z, z_low) = product(bounded, l);
    let z_low = bounded.mul_add(l_low, z_low);
    // Beyond these bounds the result is 0 or infinite, and the low part may be NaN. A NaN in z
    // passes.
    let z_low = select(z.abs().is_below(c(750.0)), z_low, c(0.0));
    let z = select(z.is_above(c(710.0)), c(710.0), z);
    let z = select(z.is_below(c(-746.0)), c(-746.0), z);
    let magnitude = exponential(z, z_low).value();
    let integer = y.round_even().equals(y);
    let half = y * c(0.5);
    let odd = integer & half.round_even().differs(half);
    let result = select(odd, magnitude.with_sign_of(x), magnitude);
    let undefined = x.is_below(c(0.0)) & a.is_below(c(f64::INFINITY)) & !integer;
    let result = select(undefined | x.is_nan() | y.is_nan(), c(f64::NAN), result);
    select(y.equals(c(0.0)) | x.equals(c(1.0)), c(1.0), result)
}
