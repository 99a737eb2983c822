//! Powers, computed in f64.

use super::{ROUND_WIDE, polynomial_wide, round_wide};
use crate::math::value::{Double, Float, Integer, Single, Value, select};

/// Bits of √½ in f64.
const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;

/// log₂ of a positive normal number, with a relative error below 2⁻³⁵.
#[inline(always)]
fn log2<W: Double>(x: W) -> W {
    let c = |value| x.literal(value);
    let bits = x.to_bits();
    let b = |value| bits.literal(value);
    let shifted = bits.wrapping_sub(b(SQRT_HALF));
    let k = shifted.shift_right_signed(52);
    let m = W::from_bits((shifted & b(0x000f_ffff_ffff_ffff)).wrapping_add(b(SQRT_HALF)));
    // An integer becomes a float by adding the bits of `ROUND_WIDE`.
    let k = W::from_bits(b(ROUND_WIDE.to_bits()).wrapping_add(k)) - c(ROUND_WIDE);
    let s = (m - c(1.0)) / (m + c(1.0));
    let p = polynomial_wide(
        s * s,
        [
            2.885_390_081_790_167_7,
            0.961_796_673_247_627_9,
            0.577_083_601_889_335_9,
            0.411_671_748_470_555_2,
            0.340_747_452_948_332_85,
        ],
    );
    k + s * p
}

/// 2ᶻ for −1000 < z < 1000, with a relative error below 2⁻³⁴.
#[inline(always)]
fn exp2<W: Double>(z: W) -> W {
    let n = round_wide(z);
    let p = polynomial_wide(
        z - n,
        [
            0.999_999_999_961_072_1,
            0.693_147_180_731_151_9,
            0.240_226_512_041_601_4,
            0.055_504_103_472_782_8,
            0.009_618_026_441_802_426,
            0.001_333_392_547_970_573_2,
            0.000_154_695_532_299_649_46,
            0.000_015_201_719_159_013_8,
        ],
    );
    let bits = (n + z.literal(ROUND_WIDE)).to_bits();
    let scale = W::from_bits(bits.wrapping_add(bits.literal(1023)).shift_left(52));
    p * scale
}

/// xʸ; error at most 0.51 ULP. Special values as in C99: 1 for y = 0 and for x = 1, whatever the
/// other is; NaN for a negative finite x with a finite y that is no integer; the result has the
/// sign of x for odd integers y.
#[inline(always)]
pub fn pow<V: Single>(x: V, y: V) -> V {
    let a = x.widen().abs();
    let wide = y.widen();
    let c = |value| a.literal(value);
    let l = log2(a);
    let l = select(a.equals(c(0.0)), c(f64::NEG_INFINITY), l);
    let l = select(a.is_below(c(f64::INFINITY)), l, a);
    // Where |x| is 1, the exponent is irrelevant, even an infinite one.
    let z = select(a.equals(c(1.0)), c(0.0), wide * l);
    // Beyond these bounds the result is 0 or infinite. A NaN passes.
    let z = select(z.is_above(c(160.0)), c(160.0), z);
    let z = select(z.is_below(c(-160.0)), c(-160.0), z);
    let magnitude = V::narrow(exp2(z));
    // Every |y| ≥ 2²⁴ is an even integer.
    let bounded = select(wide.abs().is_above(c(16_777_216.0)), c(16_777_216.0), wide);
    let sum = bounded + c(ROUND_WIDE);
    let integer = (sum - c(ROUND_WIDE)).equals(bounded);
    let bits = sum.to_bits();
    let odd = integer & (bits & bits.literal(1)).equals(bits.literal(1));
    let result = select(odd, magnitude.with_sign_of(x), magnitude);
    let undefined = x.is_below(x.literal(0.0)) & a.is_below(c(f64::INFINITY)) & !integer;
    let result = select(undefined, x.literal(f32::NAN), result);
    let result = select(x.is_nan() | y.is_nan(), x.literal(f32::NAN), result);
    select(y.equals(y.literal(0.0)) | x.equals(x.literal(1.0)), x.literal(1.0), result)
}
