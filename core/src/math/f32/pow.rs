//! Powers. Inside they work in f64.

use super::{ROUND_WIDE, polynomial_wide, round_wide};

/// Bits of √½ in f64.
const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;

/// log₂ of a positive normal number, with a relative error below 2⁻³⁵.
#[inline(always)]
fn log2(x: f64) -> f64 {
    let shifted = x.to_bits().wrapping_sub(SQRT_HALF);
    let k = (shifted as i64) >> 52;
    let m = f64::from_bits((shifted & 0x000f_ffff_ffff_ffff).wrapping_add(SQRT_HALF));
    // An integer becomes a float by the same trick that rounds.
    let k = f64::from_bits(ROUND_WIDE.to_bits().wrapping_add(k as u64)) - ROUND_WIDE;
    let s = (m - 1.0) / (m + 1.0);
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
fn exp2(z: f64) -> f64 {
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
    let scale = f64::from_bits((n + ROUND_WIDE).to_bits().wrapping_add(1023) << 52);
    p * scale
}

/// xʸ; error at most 0.51 ULP. Special values as in C99: 1 for y = 0 and for x = 1 whatever the other is; NaN for a
/// negative finite x with a finite y that is no integer; the sign of x survives for odd integers y.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let a = f64::from(x).abs();
    let wide = f64::from(y);
    let l = log2(a);
    let l = if a == 0.0 { f64::NEG_INFINITY } else { l };
    let l = if a < f64::INFINITY { l } else { a };
    // Where |x| is 1 the exponent, even an infinite one, does not matter.
    let z = if a == 1.0 { 0.0 } else { wide * l };
    // Beyond these bounds the result is 0 or infinite anyway. A NaN passes.
    let z = if z > 160.0 { 160.0 } else { z };
    let z = if z < -160.0 { -160.0 } else { z };
    let magnitude = exp2(z) as f32;
    // Every |y| ≥ 2²⁴ is an even integer.
    let bounded = if wide.abs() > 16_777_216.0 { 16_777_216.0 } else { wide };
    let sum = bounded + ROUND_WIDE;
    let integer = sum - ROUND_WIDE == bounded;
    let odd = integer && sum.to_bits() & 1 == 1;
    let result = if odd { magnitude.copysign(x) } else { magnitude };
    let result = if x < 0.0 && a < f64::INFINITY && !integer { f32::NAN } else { result };
    let result = if x.is_nan() || y.is_nan() { f32::NAN } else { result };
    if y == 0.0 || x == 1.0 { 1.0 } else { result }
}
