//! eˣ and what is made of it.

use super::polynomial;

/// 1.5·2²³: adding it to |x| < 2²² rounds x to an integer, which is then in the low bits of the sum.
const ROUND: f32 = 12_582_912.0;
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 rounded to f32, and the rest.
const LN_2_HIGH: f32 = std::f32::consts::LN_2;
const LN_2_LOW: f32 = -1.904_654_2e-9;

/// `x = n·ln 2 + r` with |r| ≤ ln 2 / 2: n, and `e^r − 1` with a relative error of about 2⁻²⁴.
#[inline(always)]
fn reduce(x: f32) -> (i32, f32) {
    let rounded = x.mul_add(LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = n.mul_add(-LN_2_LOW, n.mul_add(-LN_2_HIGH, x));
    let q = polynomial(r, [0.499_999_93, 0.166_665_2, 0.041_668_4, 0.008_368_851, 0.001_381_432]);
    // The difference of the bits is n; for a NaN it is anything, and the NaN in `r` wins.
    ((rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32), (r * r).mul_add(q, r))
}

/// 2ⁿ for n in −126..=127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// eˣ; error at most 1.1 ULP. Results below the normal range are rounded once.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // Beyond these bounds the result is 0 or infinite anyway. Written so that a NaN passes.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    let (n, p) = reduce(x);
    // n is in −150..=128: two factors, of which the first cannot leave the normal range.
    let half = n >> 1;
    ((1.0 + p) * power_of_two(half)) * power_of_two(n.wrapping_sub(half))
}

/// eˣ for −80 ≤ x ≤ 80, with one scaling less.
#[inline(always)]
fn exp_moderate(x: f32) -> f32 {
    let (n, p) = reduce(x);
    (1.0 + p) * power_of_two(n)
}

/// eˣ − 1; error at most 1.5 ULP.
#[inline(always)]
pub fn expm1(x: f32) -> f32 {
    let clamped = if x > 89.0 { 89.0 } else { x };
    let clamped = if clamped < -18.0 { -18.0 } else { clamped };
    let (n, p) = reduce(clamped);
    // 2ⁿ·(p + 1) − 1, in halves so that 2ⁿ stays finite for n = 128.
    let scale = power_of_two(n.wrapping_sub(1));
    let result = 2.0 * scale.mul_add(p, scale - 0.5);
    // Below 2⁻²⁵ the result is x, and so is its sign for −0.
    if x.abs() < 2.98e-8 { x } else { result }
}

/// tanh x; error at most 1.5 ULP.
#[inline(always)]
pub fn tanh(x: f32) -> f32 {
    let a = x.abs();
    // tanh 9.02 rounds to 1.
    let t = if a > 10.0 { 10.0 } else { a };
    // Near 0: x + x³·P(x²).
    let s = t * t;
    let near = polynomial(s, [-0.333_333_2, 0.133_325_86, -0.053_852_31, 0.021_071_68, -0.006_274_240_5]);
    let near = (s * near).mul_add(t, t);
    let far = 1.0 - 2.0 / (exp_moderate(2.0 * t) + 1.0);
    let result = if t < 0.55 { near } else { far };
    result.copysign(x)
}

/// erf x; error at most 1.2 ULP.
#[inline(always)]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();
    let t = if a > 4.0 { 4.0 } else { a };
    // Near 0: x + x·P(x²).
    let s = t * t;
    let near = polynomial(
        s,
        [0.128_379_15, -0.376_124_94, 0.112_818_15, -0.026_766_57, 0.004_993_11, -0.000_599_049_1],
    );
    let near = near.mul_add(t, t);
    // Further out: 1 − e^(−Q(x)), where erfc is small and so the error of its exponential.
    let q = polynomial(
        t,
        [
            0.000_195_675_47,
            1.127_675_6,
            0.637_182_24,
            0.103_931_6,
            -0.022_226_92,
            0.003_043_217_5,
            -0.000_195_937_23,
        ],
    );
    let far = 1.0 - exp_moderate(-q);
    let result = if t < 0.92 { near } else { far };
    result.copysign(x)
}
