//! Powers.

use super::exp::exponential;
use super::log::{split, to_float};
use super::pair::{ordered_sum, product};
use super::{LN_2_HIGH, LN_2_LOW};
use crate::math::polynomial;
use crate::math::value::{Double, select};

/// ⅓ rounded, and the rest.
const THIRD_HIGH: f64 = 1.0 / 3.0;
const THIRD_LOW: f64 = 1.850371707708594e-17;

/// ln x of a positive normal number less `k_less` powers of two, as a pair with a relative error below 2⁻⁶⁴.
///
/// With x = 2^k·m and s = (m − 1)/(m + 1), ln x = k·ln 2 + 2s·(1 + s²·(⅓ + s²·R(s²))). s is below 0.172, so what R adds is below 2⁻¹²
/// of the whole, and all its rounding errors but the last do not matter; everything else is summed in pairs. R was fitted by the
/// Remez algorithm, with an error below 2⁻⁷² of the whole.
#[inline(always)]
fn logarithm<V: Double>(x: V, k_less: V) -> (V, V) {
    let c = |value| x.literal(value);
    let (k, m) = split(x);
    let k = to_float::<V>(k) - k_less;
    // s: the quotient and the remainder over the denominator.
    let f = m - c(1.0);
    let (denominator, denominator_low) = ordered_sum(c(1.0), m);
    let reciprocal = c(1.0) / denominator;
    let s = f * reciprocal;
    let remainder = s.mul_add(-denominator, f) - s * denominator_low;
    let s_low = remainder * reciprocal;
    let (z, z_low) = product(s, s);
    let z_low = (s + s).mul_add(s_low, z_low);
    let r = polynomial(
        z,
        [
            0.14285714285722556,
            0.1111111110876823,
            0.0909090943515747,
            0.076922784354868,
            0.0666815871022378,
            0.05837409232830771,
            0.05994506811898657,
        ],
    );
    // R = r₀ + z·r; ⅓ + z·R, times z, times s.
    let (r, r_low) = ordered_sum(c(0.1999999999999999), z * r);
    let (zr, zr_low) = product(z, r);
    let zr_low = z.mul_add(r_low + c(-1.2628762565322788e-17), zr_low);
    let (p, p_low) = ordered_sum(c(THIRD_HIGH), zr);
    let p_low = p_low + (zr_low + c(THIRD_LOW));
    let (u, u_low) = product(z, p);
    let u_low = u_low + z.mul_add(p_low, z_low * p);
    let (v, v_low) = product(s, u);
    let v_low = v_low + s.mul_add(u_low, s_low * u);
    let (half, half_low) = ordered_sum(s, v);
    let half_low = half_low + (s_low + v_low);
    let (high, low) = ordered_sum(k * c(LN_2_HIGH), half + half);
    let low = low + k.mul_add(c(LN_2_LOW), half_low + half_low);
    ordered_sum(high, low)
}

/// xʸ; error at most 0.8 ULP. Special values as in C99: 1 for y = 0 and for x = 1 whatever the other is; NaN for a
/// negative finite x with a finite y that is no integer; the sign of x survives for odd integers y.
#[inline(always)]
pub fn pow<V: Double>(x: V, y: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    let subnormal = a.is_below(c(f64::MIN_POSITIVE));
    let normal = select(subnormal, a * c(18_014_398_509_481_984.0), a);
    let (l, l_low) = logarithm(normal, select(subnormal, c(54.0), c(0.0)));
    let l = select(a.equals(c(0.0)), c(f64::NEG_INFINITY), l);
    let l = select(a.is_below(c(f64::INFINITY)), l, a);
    // Beyond 2⁸⁰ no exponent matters but for its sign: |ln x| is 0 or at least 2⁻⁵³. Where |x| is 1 it is 0 whatever y is.
    let bound = c(f64::from_bits((1023 + 80) << 52));
    let bounded = select(y.is_above(bound), bound, y);
    let bounded = select(bounded.is_below(-bound), -bound, bounded);
    let (z, z_low) = product(bounded, l);
    let z_low = bounded.mul_add(l_low, z_low);
    // Beyond these bounds the result is 0 or infinite anyway, and the low part may be NaN. A NaN in z passes.
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
