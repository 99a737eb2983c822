//! The angle of a point.

use super::pair::{ordered_sum, product};
use crate::math::polynomial;
use crate::math::value::{Double, select};

/// Angle of the point (x, y) in −π..=π; error at most 0.95 ULP. Signs of zeros and infinities as
/// in C99's `atan2`.
///
/// The angle is `base ± atan q` with q = low/high in 0..=1, a pair, and a base of 0, π/2 or π, a
/// pair as well. atan q = q + q³·A(q²); A was fitted by the Remez algorithm to a relative error
/// of the result below 2⁻⁵⁶.
#[inline(always)]
pub fn atan2<V: Double>(y: V, x: V) -> V {
    let c = |value| x.literal(value);
    let (ay, ax) = (y.abs(), x.abs());
    let steep = ay.is_above(ax);
    let (low, high) = (select(steep, ax, ay), select(steep, ay, ax));
    // Scaled if the remainder below would underflow or `high + q·low` overflow.
    let scale = select(
        high.is_below(c(f64::from_bits(123 << 52))),
        c(f64::from_bits((1023 + 128) << 52)),
        c(1.0),
    );
    let scale = select(
        high.is_above(c(f64::from_bits(1923 << 52))),
        c(f64::from_bits((1023 - 128) << 52)),
        scale,
    );
    let (low, high) = (low * scale, high * scale);
    let quotient = low / high;
    // 0/0 gives 0, and ∞/∞ gives 1. A NaN operand compares unequal and stays.
    let quotient = select(high.equals(c(0.0)), c(0.0), quotient);
    let quotient = select(low.equals(c(f64::INFINITY)), c(1.0), quotient);
    // The rest of low/high is multiplied by the derivative 1/(1 + q²): remainder / (high·(1 +
    // q²)). It is negligible where q is tiny, and at infinity.
    let rest = quotient.mul_add(-high, low) / quotient.mul_add(low, high);
    let matters = quotient.is_above(c(f64::from_bits(123 << 52))) & high.is_below(c(f64::INFINITY));
    let rest = select(matters, rest, c(0.0));
    let (s, s_low) = product(quotient, quotient);
    let a = polynomial(
        s,
        [
            -0.33333333333333093,
            0.19999999999955448,
            -0.14285714282802892,
            0.11111111013669096,
            -0.0909090711955009,
            0.07692281189836671,
            -0.0666641501979421,
            0.05880592672263389,
            -0.05253806019333632,
            0.04723294766157029,
            -0.042217210552340845,
            0.0366935838265716,
            -0.02998564523350631,
            0.022085226182398623,
            -0.013995045759848505,
            0.007263393305674238,
            -0.0029193581448213285,
            0.000843489833716498,
            -0.00015479811132950623,
            1.3489380256670655e-05,
        ],
    );
    let (cube, cube_low) = product(quotient, s);
    let cube_low = quotient.mul_add(s_low, cube_low);
    let small = cube.mul_add(a, cube_low.mul_add(a, rest));
    let left = x.is_negative();
    let pi = (std::f64::consts::PI, 1.2246467991473532e-16);
    let half_pi = (std::f64::consts::FRAC_PI_2, 6.123233995736766e-17);
    let base = |part: fn((f64, f64)) -> f64| {
        select(steep, c(part(half_pi)), select(left, c(part(pi)), c(0.0)))
    };
    // π/2 − atan, π − atan, π/2 + atan, or atan.
    let minus = (steep & !left) | (left & !steep);
    let signed = |v: V| select(minus, -v, v);
    let (sum, sum_rest) = ordered_sum(base(|p| p.0), signed(quotient));
    let angle = sum + ((sum_rest + base(|p| p.1)) + signed(small));
    select(x.is_nan() | y.is_nan(), c(f64::NAN), angle).with_sign_of(y)
}
