//! Natural logarithms.

use super::pair::{Pair, ordered_sum, product};
use super::{LN_2_HIGH, LN_2_LOW, ROUND};
use crate::math::polynomial;
use crate::math::value::{Double, Integer, Value, select};

/// Bits of √½, the lower end of the significand's interval.
const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;

/// `x = 2^k · m` with √½ ≤ m < √2, for a normal positive x. For other x the result is
/// unspecified, and callers replace it. The integer k is in two's complement.
#[inline(always)]
fn split<V: Double>(x: V) -> (V::Bits, V) {
    let bits = x.to_bits();
    let c = |value| bits.literal(value);
    let shifted = bits.wrapping_sub(c(SQRT_HALF));
    let m = V::from_bits((shifted & c(0x000f_ffff_ffff_ffff)).wrapping_add(c(SQRT_HALF)));
    (shifted.shift_right_signed(52), m)
}

/// A small integer in two's complement as a float, by adding [`ROUND`].
#[inline(always)]
fn to_float<V: Double>(k: V::Bits) -> V {
    let sum = V::from_bits(k.wrapping_add(k.literal(ROUND.to_bits())));
    sum - sum.literal(ROUND)
}

/// `k·ln 2 + ln(1 + f + rest)` for √½ − 1 ≤ f < √2 − 1 and a rest of at most a unit in the last
/// place of 1 + f.
///
/// With s = f/(2 + f), ln(1 + f) = 2s + s³·P(s²) = f − f²/2 + s·(f²/2 + s²·P(s²)), where the last
/// term is below 0.03. P was fitted by the Remez algorithm, and its error is below 2⁻⁶¹ of the
/// result. k·LN_2_HIGH is exact.
#[inline(always)]
fn assemble<V: Double>(k: V, f: V, rest: V) -> V {
    let c = |value| f.literal(value);
    let s = f / (f + c(2.0));
    let z = s * s;
    let p = polynomial(
        z,
        [
            0.6666666666666666,
            0.4000000000000625,
            0.28571428569085916,
            0.2222222264678927,
            0.18181775666270938,
            0.1538709071865992,
            0.13250119113716596,
            0.13251319389047922,
        ],
    );
    let (square, square_rest) = product(f, f);
    let (square, square_rest) = (c(0.5) * square, c(0.5) * square_rest);
    let (high, low) = ordered_sum(k * c(LN_2_HIGH), f);
    let (high, lower) = ordered_sum(high, -square);
    // The rest is multiplied by the derivative 1/(1 + f) = (1 − s)/(1 + s), for which (1 − s)² is
    // precise enough.
    let slope = c(1.0) - s;
    let low = (low + lower) + (rest * (slope * slope) - square_rest);
    let small = k.mul_add(c(LN_2_LOW), s * z.mul_add(p, square));
    high + (small + low)
}

/// ⅓ rounded, and the rest.
const THIRD_HIGH: f64 = 1.0 / 3.0;
const THIRD_LOW: f64 = 1.850371707708594e-17;

/// ln x of a positive normal number, minus `k_less`·ln 2, as a pair with a relative error below
/// 2⁻⁶⁴.
///
/// With x = 2^k·m and s = (m − 1)/(m + 1), ln x = k·ln 2 + 2s·(1 + s²·(⅓ + s²·R(s²))). s is below
/// 0.172, so R contributes less than 2⁻¹² of the whole, and only its last rounding error matters.
/// All other terms are summed in pairs. R was fitted by the Remez algorithm, with an error below
/// 2⁻⁷² of the whole.
#[inline(always)]
pub(super) fn logarithm<V: Double>(x: V, k_less: V) -> (V, V) {
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

/// Replaces the result where x ≤ 0, x is infinite or NaN. `low` is the greatest argument without
/// a logarithm.
#[inline(always)]
fn mend<V: Double>(result: V, x: V, low: f64) -> V {
    let c = |value| x.literal(value);
    let result = select(x.equals(c(low)), c(f64::NEG_INFINITY), result);
    let result = select(x.is_below(c(low)), c(f64::NAN), result);
    let result = select(x.equals(c(f64::INFINITY)), c(f64::INFINITY), result);
    select(x.is_nan(), x, result)
}

/// ln x; error at most 0.7 ULP. −∞ at ±0, NaN below.
#[inline(always)]
pub fn log<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let subnormal = x.is_below(c(f64::MIN_POSITIVE));
    let normal = select(subnormal, x * c(18_014_398_509_481_984.0), x);
    let (k, m) = split(normal);
    let k = to_float::<V>(k) - select(subnormal, c(54.0), c(0.0));
    mend(assemble(k, m - c(1.0), c(0.0)), x, 0.0)
}

/// ln(1 + x); error at most 0.7 ULP. −∞ at −1, NaN below.
#[inline(always)]
pub fn log1p<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    // 1 + x = u + rest exactly.
    let (u, rest) = super::pair::sum(c(1.0), x);
    let (k, m) = split(u);
    // The rest divided by 2^k. Beyond 2¹⁰²² it is negligible; otherwise k + 2048 is not negative.
    let large = k.wrapping_add(k.literal(2048)).is_above(k.literal(1022 + 2048));
    let shift = select(large, k.literal(1022), k);
    let scale = V::from_bits(k.literal(1023).wrapping_sub(shift).shift_left(52));
    // For k = 0 this is x itself, without rest.
    let (f, rest) = ordered_sum(m - c(1.0), rest * scale);
    let result = mend(assemble(to_float::<V>(k), f, rest), x, -1.0);
    // Below 2⁻⁵⁴ the result is x. This keeps the sign of −0.
    select(x.abs().is_below(c(5.0e-17)), x, result)
}

/// ln of a pair, a positive normal number, minus `k_less`·ln 2. The relative error is below 2⁻⁶³
/// where the number is 1.25 or more, or 0.8 or less.
#[inline(always)]
pub(super) fn logarithm_of_pair<V: Double>(x: Pair<V>, k_less: V) -> Pair<V> {
    let (high, low) = logarithm(x.high, k_less);
    Pair::new(high, low + x.low / x.high)
}

/// 1/ln 2 rounded, and the rest.
const LOG2_E_LOW: f64 = 2.0355273740931033e-17;

/// log₂ x; error at most 0.6 ULP, exact at powers of two. −∞ at ±0, NaN below.
#[inline(always)]
pub fn log2<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let subnormal = x.is_below(c(f64::MIN_POSITIVE));
    let normal = select(subnormal, x * c(18_014_398_509_481_984.0), x);
    let (high, low) = logarithm(normal, select(subnormal, c(54.0), c(0.0)));
    let (value, rest) = product(high, c(std::f64::consts::LOG2_E));
    let rest = high.mul_add(c(LOG2_E_LOW), low.mul_add(c(std::f64::consts::LOG2_E), rest));
    mend(value + rest, x, 0.0)
}
