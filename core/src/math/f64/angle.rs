//! Sine and cosine.

use super::pair::{ordered_sum, product};
use crate::math::polynomial;
use crate::math::value::{Double, Integer, Value, select};

/// 64 zeros, and the first 1152 bits of 2/π.
const TWO_OVER_PI: [u64; 19] = [
    0,
    0xa2f9_836e_4e44_1529,
    0xfc27_57d1_f534_ddc0,
    0xdb62_9599_3c43_9041,
    0xfe51_63ab_debb_c561,
    0xb724_6e3a_424d_d2e0,
    0x0649_2eea_09d1_921c,
    0xfe1d_eb1c_b129_a73e,
    0xe882_35f5_2ebb_4484,
    0xe99c_7026_b45f_7e41,
    0x3991_d639_8353_39f4,
    0x9c84_5f8b_bdf9_283b,
    0x1ff8_97ff_de05_980f,
    0xef2f_118b_5a0a_6d1f,
    0x6d36_7ecf_27cb_09b7,
    0x4f46_3f66_9e5f_ea2d,
    0x7527_bac7_ebe5_f17b,
    0x3d07_39f7_8a52_92ea,
    0x6bfb_5fb1_1f8d_5d08,
];

/// π/2 rounded, and the rest.
const HALF_PI_HIGH: f64 = std::f64::consts::FRAC_PI_2;
const HALF_PI_LOW: f64 = 6.123233995736766e-17;

/// The first M words, or the M words from `distance` on where the condition holds.
#[inline(always)]
fn moved<B: Value, const N: usize, const M: usize>(
    words: [B; N],
    distance: usize,
    far: B::Mask,
) -> [B; M] {
    let mut result = [words[0]; M];
    let mut k = 0;
    while k < M {
        result[k] = select(far, words[k + distance], words[k]);
        k += 1;
    }
    result
}

/// High and low half of a product of 128 bits, from products of 32 bits, which machines multiply
/// in vectors.
#[inline(always)]
fn wide_product<B: Integer<Literal = u64>>(x: B, y: B) -> (B, B) {
    let low = |v: B| v & v.literal(0xffff_ffff);
    let high = |v: B| v.shift_right(32);
    let bottom = low(x).wrapping_mul(low(y));
    let inner = high(x).wrapping_mul(low(y)).wrapping_add(high(bottom));
    let outer = low(x).wrapping_mul(high(y)).wrapping_add(low(inner));
    let top = high(x).wrapping_mul(high(y)).wrapping_add(high(inner)).wrapping_add(high(outer));
    (top, outer.shift_left(32) | low(bottom))
}

/// |x| as a multiple of π/2, modulo 4 and in two's complement, and a rest in −π/4..=π/4 as a pair.
///
/// This is Payne and Hanek's reduction with integers. Let |x| = M·2^(e − 62) with 2⁶² ≤ M < 2⁶³.
/// The product with those bits of 2/π whose weight is at least 2^(64 − e) is a multiple of 4 and
/// is dropped: e bits are skipped, where `TWO_OVER_PI` has 64 zeros in front. The next 192 bits
/// make an integer W with |x|·2/π ≡ M·W·2⁻¹⁹⁰ modulo 4, and an error below 2⁻¹²⁶. No f64 is
/// closer to a multiple of π/2 than 2⁻⁶¹ of it, so the relative error of the rest stays below
/// 2⁻⁶⁴. Below π/4 the rest is |x| itself.
#[inline(always)]
fn reduce<V: Double>(x: V) -> (V::Bits, V, V) {
    let a = x.abs();
    let c = |value| a.literal(value);
    let bits = a.to_bits();
    let b = |value| bits.literal(value);
    // Between π/4 and 1, e would be −1, so M is halved instead.
    let below_1 = a.is_below(c(1.0));
    let significand = (bits & b(0x000f_ffff_ffff_ffff)) | b(0x0010_0000_0000_0000);
    let m = select(below_1, significand.shift_left(9), significand.shift_left(10));
    let e = select(below_1, b(0), bits.shift_right(52).wrapping_sub(b(1023)));
    // The first word of W, selected by the bits of its number e / 64. Only words that later steps
    // may need are moved.
    let at = |bit: u64| (e & b(bit)).differs(b(0));
    // Constants are chosen by masking the differences of their bits. From selects the compiler
    // would make a load from a chosen address, which does not vectorise.
    let mask = select(at(512), b(u64::MAX), b(0));
    let mut words = [mask; 11];
    let mut k = 0;
    while k < 11 {
        words[k] = b(TWO_OVER_PI[k]) ^ (mask & b(TWO_OVER_PI[k] ^ TWO_OVER_PI[k + 8]));
        k += 1;
    }
    let words: [_; 7] = moved(words, 4, at(256));
    let words: [_; 5] = moved(words, 2, at(128));
    let words: [_; 4] = moved(words, 1, at(64));
    let count = e & b(63);
    let rest_of_word = b(63).wrapping_sub(count);
    let funnel = |k: usize| {
        words[k].shift_left_by(count) | words[k + 1].shift_right(1).shift_right_by(rest_of_word)
    };
    let w = [funnel(2), funnel(1), funnel(0)];
    // The upper two words of M·W modulo 2¹⁹².
    let (carried, _) = wide_product(m, w[0]);
    let (middle, low) = wide_product(m, w[1]);
    let low = low.wrapping_add(carried);
    let carry = select(low.is_below(carried), b(1), b(0));
    let high = m.wrapping_mul(w[2]).wrapping_add(middle).wrapping_add(carry);
    let quadrant = high.wrapping_add(b(1 << 61)).shift_right(62);
    // The fraction −½..½ in 128 bits of two's complement, made positive (up to 2⁻¹²⁸).
    let (high, low) = (high.shift_left(2) | low.shift_right(62), low.shift_left(2));
    let negative = high.shift_right_signed(63);
    let (high, low) = (high ^ negative, low ^ negative);
    // Parts of 52, 52 and 24 bits become the fraction bits of floats with a leading one, which is
    // then subtracted.
    let part = |digits: V::Bits, one: f64| V::from_bits(digits | b(one.to_bits())) - c(one);
    let first = part(high.shift_right(12), 1.0);
    let second = part(
        (high & b(0xfff)).shift_left(40) | low.shift_right(24),
        f64::from_bits((1023 - 52) << 52),
    );
    let third = part((low & b(0x00ff_ffff)).shift_left(28), f64::from_bits((1023 - 104) << 52));
    let (fraction, below) = ordered_sum(first, second);
    let below = below + third;
    let (rest, rest_low) = product(fraction, c(HALF_PI_HIGH));
    let rest_low = rest_low + fraction.mul_add(c(HALF_PI_LOW), below * c(HALF_PI_HIGH));
    let sign = negative & b(1 << 63);
    let signed = |v: V| V::from_bits(v.to_bits() ^ sign);
    let small = a.is_below(c(std::f64::consts::FRAC_PI_4));
    (
        select(small, b(0), quadrant),
        select(small, a, signed(rest)),
        select(small, c(0.0), signed(rest_low)),
    )
}

/// sin of the quadrant and the rest y + low. The polynomials were fitted by the Remez algorithm;
/// their errors are below 2⁻⁵⁷ and 2⁻⁵⁹.
#[inline(always)]
fn sine_of<V: Double>(quadrant: V::Bits, y: V, low: V) -> V {
    let c = |value| y.literal(value);
    let b = |value| quadrant.literal(value);
    let (z, z_low) = product(y, y);
    let sine = polynomial(
        z,
        [
            -0.16666666666666666,
            0.008333333333333323,
            -0.00019841269841255129,
            2.755731921422316e-06,
            -2.5052104920292915e-08,
            1.6058367758255973e-10,
            -7.578754956431188e-13,
        ],
    );
    let cosine = polynomial(
        z,
        [
            0.041666666666666664,
            -0.0013888888888888874,
            2.480158730157153e-05,
            -2.755731921539103e-07,
            2.087675436957662e-09,
            -1.1470293653681282e-11,
            4.738126497312124e-14,
        ],
    );
    // y − y³/6 + …, and low times the derivative, for which 1 − y²/2 is precise enough.
    let sine = y + (z * y).mul_add(sine, low * z.mul_add(c(-0.5), c(1.0)));
    // 1 − y²/2 + …, with all bits of y² and the rounding error of the first difference.
    let (base, base_low) = ordered_sum(c(1.0), c(-0.5) * z);
    let small = z_low.mul_add(c(-0.5), base_low) - y * low;
    let cosine = base + (z * z).mul_add(cosine, small);
    let value = select((quadrant & b(1)).equals(b(0)), sine, cosine);
    // Bit 1 of the quadrant is the sign.
    V::from_bits(value.to_bits() ^ (quadrant & b(2)).shift_left(62))
}

/// sin x for every x; error at most 0.8 ULP. NaN at ±∞. The argument is reduced with as many bits
/// of π as it needs.
#[inline(always)]
pub fn sin<V: Double>(x: V) -> V {
    let (quadrant, y, low) = reduce(x);
    let value = sine_of(quadrant, y, low);
    let bits = x.to_bits();
    let signed = V::from_bits(value.to_bits() ^ (bits & bits.literal(1 << 63)));
    select(x.abs().is_below(x.literal(f64::INFINITY)), signed, x.literal(f64::NAN))
}

/// cos x for every x; error at most 0.8 ULP. NaN at ±∞. The argument is reduced with as many bits
/// of π as it needs.
#[inline(always)]
pub fn cos<V: Double>(x: V) -> V {
    let (quadrant, y, low) = reduce(x);
    let value = sine_of(quadrant.wrapping_add(quadrant.literal(1)), y, low);
    select(x.abs().is_below(x.literal(f64::INFINITY)), value, x.literal(f64::NAN))
}
