//! Natural logarithms.

use crate::math::polynomial;
use crate::math::value::{Integer, Single, Value, select};

const LN_2_HIGH: f32 = std::f32::consts::LN_2;
const LN_2_LOW: f32 = -1.904_654_2e-9;
/// Bits of √½, the lower end of the significand's interval.
const SQRT_HALF: u32 = 0x3f35_04f3;

/// `x = 2^k · m` with √½ ≤ m < √2, for a normal positive x. For other x the result is
/// unspecified, and callers replace it. The integer k is in two's complement.
#[inline(always)]
fn split<V: Single>(x: V) -> (V::Bits, V) {
    let bits = x.to_bits();
    let c = |value| bits.literal(value);
    let shifted = bits.wrapping_sub(c(SQRT_HALF));
    let k = shifted.shift_right_signed(23);
    (k, V::from_bits((shifted & c(0x007f_ffff)).wrapping_add(c(SQRT_HALF))))
}

/// `k·ln 2 + ln(1 + f)` for √½ − 1 ≤ f < √2 − 1.
#[inline(always)]
fn assemble<V: Single>(k: V, f: V) -> V {
    let c = |value| f.literal(value);
    let p = polynomial(
        f,
        [
            0.333_333_12,
            -0.250_000_1,
            0.200_021_34,
            -0.166_680_07,
            0.142_192_25,
            -0.124_051_35,
            0.118_903_22,
            -0.116_796_56,
            0.067_466_05,
        ],
    );
    // ln(1 + f) = f − f²/2 + f³·P(f); every term but f is small.
    let small = (f * f) * f.mul_add(p, c(-0.5));
    let small = k.mul_add(c(LN_2_LOW), small);
    k.mul_add(c(LN_2_HIGH), f + small)
}

/// Replaces the result where x ≤ 0, x is infinite or NaN. `low` is the greatest argument without
/// a logarithm.
#[inline(always)]
fn mend<V: Single>(result: V, x: V, low: f32) -> V {
    let c = |value| x.literal(value);
    let result = select(x.equals(c(low)), c(f32::NEG_INFINITY), result);
    let result = select(x.is_below(c(low)), c(f32::NAN), result);
    let result = select(x.equals(c(f32::INFINITY)), c(f32::INFINITY), result);
    select(x.is_nan(), x, result)
}

/// ln x; error at most 0.9 ULP. −∞ at ±0, NaN below.
#[inline(always)]
pub fn log<V: Single>(x: V) -> V {
    let c = |value| x.literal(value);
    let subnormal = x.is_below(c(f32::MIN_POSITIVE));
    let normal = select(subnormal, x * c(8_388_608.0), x);
    let (k, m) = split(normal);
    let k = V::from_signed(k) - select(subnormal, c(23.0), c(0.0));
    mend(assemble(k, m - c(1.0)), x, 0.0)
}

/// ln(1 + x); error at most 1.5 ULP. −∞ at −1, NaN below.
#[inline(always)]
pub fn log1p<V: Single>(x: V) -> V {
    let c = |value| x.literal(value);
    // 1 + x = u + rest exactly.
    let u = c(1.0) + x;
    let b = u - c(1.0);
    let rest = (c(1.0) - (u - b)) + (x - b);
    let (k, m) = split(u);
    // The rest divided by 2^k. Beyond 2¹²⁶ it is negligible; otherwise k + 128 is not negative.
    let large = k.wrapping_add(k.literal(128)).is_above(k.literal(126 + 128));
    let shift = select(large, k.literal(126), k);
    let scale = V::from_bits(k.literal(127).wrapping_sub(shift).shift_left(23));
    // For k = 0 this is x itself, without error.
    let f = (m - c(1.0)) + rest * scale;
    let result = mend(assemble(V::from_signed(k), f), x, -1.0);
    // Below 2⁻²⁵ the result is x. This keeps the sign of −0.
    select(x.abs().is_below(c(2.98e-8)), x, result)
}
