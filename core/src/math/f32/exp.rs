//! eˣ and the functions computed from it.

use crate::math::polynomial;
use crate::math::value::{Integer, Single, Value, select};

/// 1.5·2²³: adding it to |x| < 2²² rounds x to an integer, which is then in the low bits of the
/// sum.
const ROUND: f32 = 12_582_912.0;
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// ln 2 rounded to f32, and the rest.
const LN_2_HIGH: f32 = std::f32::consts::LN_2;
const LN_2_LOW: f32 = -1.904_654_2e-9;

/// `x = n·ln 2 + r` with |r| ≤ ln 2 / 2: the bits of [`ROUND`] + n, and `e^r − 1` with a relative
/// error of about 2⁻²⁴. For a NaN the bits are arbitrary, and the NaN in `r` decides the result.
#[inline(always)]
fn reduce<V: Single>(x: V) -> (V::Bits, V) {
    let c = |value| x.literal(value);
    let rounded = x.mul_add(c(LOG2_E), c(ROUND));
    let n = rounded - c(ROUND);
    let r = n.mul_add(c(-LN_2_LOW), n.mul_add(c(-LN_2_HIGH), x));
    let q = polynomial(r, [0.499_999_93, 0.166_665_2, 0.041_668_4, 0.008_368_851, 0.001_381_432]);
    (rounded.to_bits(), (r * r).mul_add(q, r))
}

/// n in two's complement, from the bits of [`ROUND`] + n.
#[inline(always)]
fn exponent<V: Single>(rounded: V::Bits) -> V::Bits {
    rounded.wrapping_sub(rounded.literal(ROUND.to_bits()))
}

/// `x·2ⁿ`, from the bits of [`ROUND`] + n, if x and the result are normal: n is added to the
/// exponent. The low nine bits of `ROUND` are zeros, so the shift leaves only n.
#[inline(always)]
fn scaled<V: Single>(x: V, rounded: V::Bits) -> V {
    V::from_bits(x.to_bits().wrapping_add(rounded.shift_left(23)))
}

/// 2ⁿ for n in −126..=127.
#[inline(always)]
fn power_of_two<V: Single>(n: V::Bits) -> V {
    V::from_bits(n.wrapping_add(n.literal(127)).shift_left(23))
}

/// eˣ; error at most 1.1 ULP. Results below the normal range are rounded once.
#[inline(always)]
pub fn exp<V: Single>(x: V) -> V {
    let c = |value| x.literal(value);
    // Beyond these bounds the result is 0 or infinite. The comparisons let a NaN pass.
    let x = select(x.is_above(c(89.0)), c(89.0), x);
    let x = select(x.is_below(c(-104.0)), c(-104.0), x);
    let (rounded, p) = reduce(x);
    // n is in −150..=128: two factors, the first of which stays in the normal range.
    let n = exponent::<V>(rounded);
    let half = n.shift_right_signed(1);
    ((c(1.0) + p) * power_of_two(half)) * power_of_two(n.wrapping_sub(half))
}

/// eˣ for |x| ≤ 80, and for a NaN, with one scaling fewer.
#[inline(always)]
fn exp_bounded<V: Single>(x: V) -> V {
    let (rounded, p) = reduce(x);
    (x.literal(1.0) + p) * power_of_two(exponent::<V>(rounded))
}

/// The largest |x| for which [`exp_moderate`] is defined: the result is normal.
pub const MODERATE: f32 = 87.0;

/// eˣ for |x| ≤ [`MODERATE`], with the bits of [`exp`] and half of its instructions. Not for a
/// NaN, whose bits an addition may turn into those of a number.
#[inline(always)]
pub fn exp_moderate<V: Single>(x: V) -> V {
    let (rounded, p) = reduce(x);
    scaled(x.literal(1.0) + p, rounded)
}

/// eˣ − 1; error at most 1.5 ULP.
#[inline(always)]
pub fn expm1<V: Single>(x: V) -> V {
    let c = |value| x.literal(value);
    let clamped = select(x.is_above(c(89.0)), c(89.0), x);
    let clamped = select(clamped.is_below(c(-18.0)), c(-18.0), clamped);
    let (rounded, p) = reduce(clamped);
    let n = exponent::<V>(rounded);
    // 2ⁿ·(p + 1) − 1, in halves so that 2ⁿ stays finite for n = 128.
    let scale: V = power_of_two(n.wrapping_sub(n.literal(1)));
    let result = c(2.0) * scale.mul_add(p, scale - c(0.5));
    // Below 2⁻²⁵ the result is x. This keeps the sign of −0.
    select(x.abs().is_below(c(2.98e-8)), x, result)
}

/// tanh x; error at most 1.5 ULP.
#[inline(always)]
pub fn tanh<V: Single>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    // tanh 9.02 rounds to 1.
    let t = select(a.is_above(c(10.0)), c(10.0), a);
    // Around 0: x + x³·P(x²).
    let s = t * t;
    let near =
        polynomial(s, [-0.333_333_2, 0.133_325_86, -0.053_852_31, 0.021_071_68, -0.006_274_240_5]);
    let near = (s * near).mul_add(t, t);
    // 1 − 2/(e^2t + 1). A reciprocal costs a GPU half of a division, and doubling it is exact.
    let reciprocal = c(1.0) / (exp_bounded(c(2.0) * t) + c(1.0));
    let far = reciprocal.mul_add(c(-2.0), c(1.0));
    select(t.is_below(c(0.55)), near, far).with_sign_of(x)
}

/// erf x; error at most 1.2 ULP.
#[inline(always)]
pub fn erf<V: Single>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    let t = select(a.is_above(c(4.0)), c(4.0), a);
    // Around 0: x + x·P(x²).
    let s = t * t;
    let near = polynomial(
        s,
        [0.128_379_15, -0.376_124_94, 0.112_818_15, -0.026_766_57, 0.004_993_11, -0.000_599_049_1],
    );
    let near = near.mul_add(t, t);
    // Elsewhere: 1 − e^(−Q(x)). Erfc is small there, and so is the error of its exponential.
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
    let far = c(1.0) - exp_bounded(-q);
    select(t.is_below(c(0.92)), near, far).with_sign_of(x)
}
