//! Natural logarithms.

use super::pair::{ordered_sum, product};
use super::{LN_2_HIGH, LN_2_LOW, ROUND};
use crate::math::polynomial;
use crate::math::value::{Double, Integer, Value, select};

/// Bits of √½, where the significand's interval starts.
const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;

/// `x = 2^k · m` with √½ ≤ m < √2, for a normal positive x; anything else gives garbage that callers replace. The integer k is
/// in two's complement.
#[inline(always)]
pub(super) fn split<V: Double>(x: V) -> (V::Bits, V) {
    let bits = x.to_bits();
    let c = |value| bits.literal(value);
    let shifted = bits.wrapping_sub(c(SQRT_HALF));
    let m = V::from_bits((shifted & c(0x000f_ffff_ffff_ffff)).wrapping_add(c(SQRT_HALF)));
    (shifted.shift_right_signed(52), m)
}

/// A small integer in two's complement as a float: by the same trick that rounds.
#[inline(always)]
pub(super) fn to_float<V: Double>(k: V::Bits) -> V {
    let sum = V::from_bits(k.wrapping_add(k.literal(ROUND.to_bits())));
    sum - sum.literal(ROUND)
}

/// `k·ln 2 + ln(1 + f + rest)` for √½ − 1 ≤ f < √2 − 1 and a rest of at most a unit in the last place of 1 + f.
///
/// With s = f/(2 + f), ln(1 + f) = 2s + s³·P(s²) = f − f²/2 + s·(f²/2 + s²·P(s²)), of which the last term is below 0.03. P was fitted by
/// the Remez algorithm; the error that it leaves is below 2⁻⁶¹ of the result. k·LN_2_HIGH is exact.
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
    // The rest counts with the derivative 1/(1 + f) = (1 − s)/(1 + s), of which (1 − s)² is enough.
    let slope = c(1.0) - s;
    let low = (low + lower) + (rest * (slope * slope) - square_rest);
    let small = k.mul_add(c(LN_2_LOW), s * z.mul_add(p, square));
    high + (small + low)
}

/// Replaces the result where x ≤ 0, x is infinite or not a number: `low` is the greatest argument without logarithm.
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
    // The rest divided by 2^k; beyond 2¹⁰²² it no longer matters. Where it does, k + 2048 is not negative.
    let large = k.wrapping_add(k.literal(2048)).is_above(k.literal(1022 + 2048));
    let shift = select(large, k.literal(1022), k);
    let scale = V::from_bits(k.literal(1023).wrapping_sub(shift).shift_left(52));
    // For k = 0 this is x itself, without rest.
    let (f, rest) = ordered_sum(m - c(1.0), rest * scale);
    let result = mend(assemble(to_float::<V>(k), f, rest), x, -1.0);
    // Below 2⁻⁵⁴ the result is x, and so is its sign for −0.
    select(x.abs().is_below(c(5.0e-17)), x, result)
}
