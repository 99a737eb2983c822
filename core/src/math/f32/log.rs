//! Natural logarithms.

use super::polynomial;

const LN_2_HIGH: f32 = std::f32::consts::LN_2;
const LN_2_LOW: f32 = -1.904_654_2e-9;
/// Bits of √½, where the significand's interval starts.
const SQRT_HALF: u32 = 0x3f35_04f3;

/// `x = 2^k · m` with √½ ≤ m < √2, for a normal positive x; anything else gives garbage that callers replace.
#[inline(always)]
fn split(x: f32) -> (i32, f32) {
    let shifted = x.to_bits().wrapping_sub(SQRT_HALF);
    let k = (shifted as i32) >> 23;
    (k, f32::from_bits((shifted & 0x007f_ffff).wrapping_add(SQRT_HALF)))
}

/// `k·ln 2 + ln(1 + f)` for √½ − 1 ≤ f < √2 − 1.
#[inline(always)]
fn assemble(k: f32, f: f32) -> f32 {
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
    // ln(1 + f) = f − f²/2 + f³·P(f); everything but f itself is small.
    let small = (f * f) * f.mul_add(p, -0.5);
    let small = k.mul_add(LN_2_LOW, small);
    k.mul_add(LN_2_HIGH, f + small)
}

/// Replaces the result where x ≤ 0, x is infinite or not a number: `low` is the greatest argument without logarithm.
#[inline(always)]
fn mend(result: f32, x: f32, low: f32) -> f32 {
    let result = if x == low { f32::NEG_INFINITY } else { result };
    let result = if x < low { f32::NAN } else { result };
    let result = if x == f32::INFINITY { f32::INFINITY } else { result };
    if x.is_nan() { x } else { result }
}

/// ln x; error at most 0.9 ULP. −∞ at ±0, NaN below.
#[inline(always)]
pub fn log(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let normal = if subnormal { x * 8_388_608.0 } else { x };
    let (k, m) = split(normal);
    let k = k as f32 - if subnormal { 23.0 } else { 0.0 };
    mend(assemble(k, m - 1.0), x, 0.0)
}

/// ln(1 + x); error at most 1.5 ULP. −∞ at −1, NaN below.
#[inline(always)]
pub fn log1p(x: f32) -> f32 {
    // 1 + x = u + c exactly.
    let u = 1.0 + x;
    let b = u - 1.0;
    let c = (1.0 - (u - b)) + (x - b);
    let (k, m) = split(u);
    // c/2^k; beyond 2¹²⁶ it no longer matters.
    let shift = if k > 126 { 126 } else { k };
    let scale = f32::from_bits((127_i32.wrapping_sub(shift) as u32) << 23);
    // For k = 0 this is x itself, without error.
    let f = (m - 1.0) + c * scale;
    let result = mend(assemble(k as f32, f), x, -1.0);
    // Below 2⁻²⁵ the result is x, and so is its sign for −0.
    if x.abs() < 2.98e-8 { x } else { result }
}
