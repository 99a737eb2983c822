//! The cube root.

use crate::math::polynomial;
use crate::math::value::{Double, Integer, Value, select};

use super::pair::product;

/// ∛x, also of negative numbers; error at most 0.51 ULP.
///
/// Dividing the bits by three divides the exponent by three, which gives y₀ with an error below
/// 1/32. y₁ = y₀·P(y₀³/|x|), where P(r) ≈ r^(−⅓) has an error of 2⁻²⁸. The difference of y₁³ and
/// |x| is computed in pairs, and two terms of the series of (1 + δ)^(−⅓) correct it.
#[inline(always)]
pub fn cbrt<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let size = x.abs();
    let subnormal = size.is_below(c(f64::MIN_POSITIVE));
    let a = select(subnormal, size * c(18_014_398_509_481_984.0), size);
    let bits = a.to_bits();
    let b = |value| bits.literal(value);
    let third = bits.mul_high(b(0xaaaa_aaaa_aaaa_aaab)).shift_right(1);
    let y = V::from_bits(third.wrapping_add(b(0x2a9f_7893 << 32)));
    let r = (y * y) * (y / a);
    let p = polynomial(
        r,
        [
            2.0004449126922452,
            -2.5108629360627956,
            2.8784841766627243,
            -2.0191747540791094,
            0.7774575130259966,
            -0.12634890872804178,
        ],
    );
    let y = y * p;
    let (square, square_low) = product(y, y);
    let (cube, cube_low) = product(square, y);
    let excess = ((cube - a) + square_low.mul_add(y, cube_low)) / a;
    let correction = excess * excess.mul_add(c(-2.0 / 9.0), c(1.0 / 3.0));
    let y = y.mul_add(-correction, y);
    let y = select(subnormal, y * c(3.814697265625e-06), y).with_sign_of(x);
    // 0, infinities and NaN are returned unchanged.
    select(size.equals(c(0.0)) | !size.is_below(c(f64::INFINITY)), x, y)
}
