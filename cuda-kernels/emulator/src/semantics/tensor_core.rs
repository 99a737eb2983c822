//! The arithmetic of `wgmma`: fused sums of exact products, truncated.
//!
//! NVIDIA does not document how tensor cores add. The definition here is what measurements of
//! Hopper have found:
//!
//! - Xie, Wang, Yang, Yang, "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix
//!   Cores" (2025), and its published program. They report equal bits on an H100 for `wgmma` of
//!   all types below.
//! - Khattak and Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (2025): two extra alignment
//!   bits and truncation on the H100.
//! - Li et al., "FTTN: Feature-Targeted Testing for Numerical Properties of NVIDIA & AMD Matrix
//!   Accelerators" (2024): at least two extra bits and sums of 16 products on the H100.
//! - Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores" (2021), on
//!   earlier architectures: exact products, one alignment, truncation, subnormals kept.
//!
//! # Definition
//!
//! One instruction adds to each element c of the accumulator the K products of a row of A and a
//! column of B (K is 8, 16 or 32) in one fused sum:
//!
//! 1. A factor is `s · 2^e`, with `1 ≤ |s| < 2`, or `|s| < 1` and the least exponent if it is
//!    subnormal. For a zero, e is −126, whatever the format. The product of two factors has
//!    significand `s₁·s₂` and exponent `e₁ + e₂`; it is not normalised.
//! 2. E is the largest exponent among the products and c.
//! 3. Each of these K + 1 terms is truncated toward zero to a multiple of `2^(E − F)`, where F is
//!    25, and 13 for 8-bit floats.
//! 4. The truncated terms are added exactly.
//! 5. The sum is rounded once: to f32 toward zero; for 8-bit floats toward zero to 13 bits of
//!    fraction, stored as f32; to f16 to nearest even.
//!
//! A NaN, or infinities of both signs, give the NaN `0x7fffffff` (f16: `0x7fff`). An infinite
//! term, or a sum beyond the format, gives an infinity. An exact zero is positive. tf32 ignores
//! the low 13 bits of its operands. The negation of A or B by `imm-scale` negates each factor
//! exactly. If D is not added to, c is zero.
//!
//! Integers are added exactly modulo 2³², or clamped once with `.satfinite`.
//!
//! Overflow to infinity and the sign of zero are our reading of the program above; the papers do
//! not state them.

use super::exact::{Exact, F16, F32, Format, Number, Rounding};
use super::matrix::Element;

/// An element of a matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Factor {
    /// Times 2 to the number of fraction bits of the format.
    significand: i32,
    exponent: i32,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Finite,
    Infinite,
    NaN,
}

/// The exponent of a zero.
const ZERO_EXPONENT: i32 = -126;

/// The format of an element.
fn format(element: Element) -> Format {
    match element {
        Element::Float(format) => format,
        Element::E4M3 => Format { exponent_bits: 4, fraction_bits: 3, below: 0 },
        Element::Integer { .. } => unreachable!("integers are added exactly"),
    }
}

impl Factor {
    /// Unpacks an element.
    pub(crate) fn new(element: Element, bits: u64, negate: bool) -> Factor {
        let format = format(element);
        let bits = bits & ((1 << format.bits()) - 1);
        let negative = (bits & format.sign() != 0) != negate;
        let kept = (bits & (format.sign() - 1)) >> format.below;
        let fraction = (kept & ((1 << format.fraction_bits) - 1)) as i32;
        let biased = (kept >> format.fraction_bits) as i32;
        let highest = (1 << format.exponent_bits) - 1;
        let bias = (1 << (format.exponent_bits - 1)) - 1;
        let kind = match element {
            // E4M3 has no infinity and one NaN of each sign.
            Element::E4M3 if biased == highest && fraction == 7 => Kind::NaN,
            Element::E4M3 => Kind::Finite,
            _ if biased == highest && fraction == 0 => Kind::Infinite,
            _ if biased == highest => Kind::NaN,
            _ => Kind::Finite,
        };
        let magnitude = fraction | i32::from(biased != 0) << format.fraction_bits;
        let exponent = if magnitude == 0 { ZERO_EXPONENT } else { biased.max(1) - bias };
        Factor { significand: if negative { -magnitude } else { magnitude }, exponent, kind }
    }

    const ZERO: Factor = Factor { significand: 0, exponent: ZERO_EXPONENT, kind: Kind::Finite };
}

/// How sums are truncated and rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sums {
    /// Fraction bits of the significands of two multiplied factors.
    product_bits: i32,
    /// Bits below the largest exponent that terms keep: F.
    kept: i32,
    d: Element,
    /// Fraction bits of a result in f32.
    result_bits: i32,
}

impl Sums {
    /// The rule for a product of these types.
    pub(crate) fn new(a: Element, b: Element, d: Element) -> Sums {
        let narrow = a.bits() == 8;
        Sums {
            product_bits: (format(a).fraction_bits + format(b).fraction_bits) as i32,
            kept: if narrow { 13 } else { 25 },
            d,
            result_bits: if narrow { 13 } else { 23 },
        }
    }

    /// The accumulator with the products of `a` and `b` added; `None` stands for a zero.
    pub(crate) fn add(self, c: Option<u64>, a: &[Factor], b: &[Factor]) -> u64 {
        let c = c.map_or(Factor::ZERO, |bits| Factor::new(self.d, bits, false));
        let mut largest = c.exponent;
        let mut special = c.kind != Kind::Finite;
        for (a, b) in a.iter().zip(b) {
            largest = largest.max(a.exponent + b.exponent);
            special |= a.kind != Kind::Finite || b.kind != Kind::Finite;
        }
        if special {
            return self.special(c, a, b);
        }
        let c_bits = format(self.d).fraction_bits as i32;
        let mut sum = truncated(c.significand.into(), self.kept - c_bits + c.exponent - largest);
        let shift = self.kept - self.product_bits - largest;
        for (a, b) in a.iter().zip(b) {
            let product = i64::from(a.significand) * i64::from(b.significand);
            sum += truncated(product, shift + a.exponent + b.exponent);
        }
        self.round(sum, largest - self.kept)
    }

    /// A sum with infinities or NaNs.
    fn special(self, c: Factor, a: &[Factor], b: &[Factor]) -> u64 {
        let (mut positive, mut negative, mut nan) = (false, false, c.kind == Kind::NaN);
        let mut infinite = |below: bool| {
            positive |= !below;
            negative |= below;
        };
        if c.kind == Kind::Infinite {
            infinite(c.significand < 0);
        }
        for (a, b) in a.iter().zip(b) {
            let infinities = a.kind == Kind::Infinite || b.kind == Kind::Infinite;
            nan |= a.kind == Kind::NaN || b.kind == Kind::NaN;
            if infinities {
                nan |= a.significand == 0 || b.significand == 0;
                infinite((a.significand < 0) != (b.significand < 0));
            }
        }
        let format = format(self.d);
        if nan || positive && negative {
            return format.nan();
        }
        format.infinity() | if negative { format.sign() } else { 0 }
    }

    /// `sum · 2^unit` in the accumulator's format.
    fn round(self, sum: i64, unit: i32) -> u64 {
        let exact = Exact {
            negative: sum < 0,
            mantissa: sum.unsigned_abs().into(),
            exponent: unit,
            sticky: false,
        };
        if self.d == Element::Float(F16) {
            return if sum == 0 { 0 } else { pack(F16, exact, Rounding::NearestEven) };
        }
        if sum == 0 {
            return 0;
        }
        let format = if self.result_bits == 23 { F32 } else { SHORT };
        let bits = pack(format, exact, Rounding::Zero);
        // Truncation stops at the largest finite number only if the sum is less than the next.
        let top = 127 - exact.mantissa.leading_zeros() as i32 + unit;
        if top > 127 { F32.infinity() | bits & F32.sign() } else { bits }
    }
}

/// f32 with 13 bits of fraction.
const SHORT: Format = Format { exponent_bits: 8, fraction_bits: 13, below: 10 };

fn pack(format: Format, exact: Exact, rounding: Rounding) -> u64 {
    format.pack(Number::Finite(exact), rounding)
}

/// `value · 2^shift`, truncated toward zero to an integer.
#[inline(always)]
fn truncated(value: i64, shift: i32) -> i64 {
    match shift {
        0.. => value << shift.min(63),
        -62..=-1 => {
            let magnitude = (value.unsigned_abs() >> -shift) as i64;
            if value < 0 { -magnitude } else { magnitude }
        }
        _ => 0,
    }
}

/// The integer product of a row and a column, added to `c`.
pub(crate) fn add_integers(c: i32, a: &[i64], b: &[i64], saturate: bool) -> i32 {
    let sum = i64::from(c) + a.iter().zip(b).map(|(a, b)| a * b).sum::<i64>();
    if saturate { sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32 } else { sum as i32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semantics::exact::{BF16, E5M2, TF32};
    use proptest::prelude::*;

    /// The definition once more, in f64: every operation below is exact there.
    fn reference(kept: i32, fraction: i32, c: f64, terms: &[(f64, f64)]) -> f64 {
        let exponent = |x: f64| {
            if x == 0.0 { -126 } else { (x.abs().log2().floor() as i32).max(-126) }
        };
        let mut parts = vec![(c, exponent(c))];
        parts.extend(terms.iter().map(|&(a, b)| (a * b, exponent(a) + exponent(b))));
        let largest = parts.iter().map(|p| p.1).max().expect("there is c");
        let unit = 2f64.powi(largest - kept);
        let sum: f64 = parts.iter().map(|p| (p.0 / unit).trunc() * unit).sum();
        let last = 2f64.powi(exponent(sum) - fraction);
        (sum / last).trunc() * last
    }

    fn bf16(bits: u16) -> f64 {
        f64::from(f32::from_bits(u32::from(bits) << 16))
    }

    /// A number of moderate size, from 16 random bits.
    fn moderate(bits: u16) -> u16 {
        let exponent = 107 + (bits >> 7 & 0xff) % 40;
        bits & 0x807f | exponent << 7
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn sums_are_those_of_the_definition(
            a in prop::collection::vec(any::<u16>(), 16),
            b in prop::collection::vec(any::<u16>(), 16),
            c in -1e6f32..1e6,
            zeros: u16,
        ) {
            let bits = |v: &[u16]| -> Vec<u16> {
                v.iter().enumerate()
                    .map(|(at, &x)| if zeros >> at & 1 == 1 { 0 } else { moderate(x) })
                    .collect()
            };
            let (a, b) = (bits(&a), bits(&b));
            let element = Element::Float(BF16);
            let factors = |v: &[u16]| -> Vec<Factor> {
                v.iter().map(|&x| Factor::new(element, x.into(), false)).collect()
            };
            let sums = Sums::new(element, element, Element::Float(F32));
            let found = sums.add(Some(c.to_bits().into()), &factors(&a), &factors(&b));
            let terms: Vec<(f64, f64)> =
                a.iter().zip(&b).map(|(&a, &b)| (bf16(a), bf16(b))).collect();
            let expected = reference(25, 23, c.into(), &terms);
            prop_assert_eq!(f64::from(f32::from_bits(found as u32)), expected);
        }
    }

    fn factors(element: Element, bits: &[u64]) -> Vec<Factor> {
        bits.iter().map(|&b| Factor::new(element, b, false)).collect()
    }

    #[test]
    fn bits_below_the_largest_term_are_cut() {
        let f16 = Element::Float(F16);
        let sums = Sums::new(f16, f16, Element::Float(F32));
        // 1·1 + 2⁻¹³·2⁻¹³: F is 25, so 2⁻²⁶ is lost and 2⁻²⁵ would be kept; f32 cuts it anyway.
        let one = 0x3c00;
        let small = 0x0800; // 2⁻¹³
        let add = |c: u64, a: &[u64], b: &[u64]| {
            f32::from_bits(sums.add(Some(c), &factors(f16, a), &factors(f16, b)) as u32)
        };
        assert_eq!(add(0, &[one, small], &[one, small]), 1.0);
        // Four times 2⁻²⁵ make 2⁻²³, the last bit of 1 in f32. Four times 2⁻²⁶ are cut one by one.
        let smaller = 0x0c00; // 2⁻¹²
        assert_eq!(
            add(0, &[one, small, small, small, small], &[one, smaller, smaller, smaller, smaller]),
            1.0 + 2f32.powi(-23)
        );
        assert_eq!(
            add(0, &[one, small, small, small, small], &[one, small, small, small, small]),
            1.0
        );
        // The result is truncated: 1 + 2⁻²⁴ + 2⁻²⁵ is 1.
        assert_eq!(add(0, &[one, smaller, small], &[one, smaller, smaller]), 1.0);
    }

    #[test]
    fn eight_bit_floats_keep_thirteen_bits() {
        let e5m2 = Element::Float(E5M2);
        let sums = Sums::new(e5m2, e5m2, Element::Float(F32));
        let at = |exponent: i32| ((exponent + 15) as u64) << 2;
        let add = |c: f32, a: &[u64], b: &[u64]| {
            let (a, b) = (factors(e5m2, a), factors(e5m2, b));
            f32::from_bits(sums.add(Some(c.to_bits().into()), &a, &b) as u32)
        };
        assert_eq!(add(0.0, &[at(0), at(-6)], &[at(0), at(-7)]), 1.0 + 2f32.powi(-13));
        assert_eq!(add(0.0, &[at(0), at(-7)], &[at(0), at(-7)]), 1.0);
        // The accumulator itself is cut to 13 bits.
        assert_eq!(add(1.0 + 2f32.powi(-20), &[0], &[0]), 1.0);
    }

    #[test]
    fn special_values() {
        let bf = Element::Float(BF16);
        let sums = Sums::new(bf, bf, Element::Float(F32));
        let (infinity, minus, nan, zero, one) = (0x7f80, 0xff80, 0x7fc0, 0, 0x3f80);
        let add = |a: &[u64], b: &[u64]| sums.add(None, &factors(bf, a), &factors(bf, b));
        assert_eq!(add(&[infinity], &[one]), 0x7f80_0000);
        assert_eq!(add(&[minus], &[one]), 0xff80_0000);
        assert_eq!(add(&[infinity], &[zero]), 0x7fff_ffff);
        assert_eq!(add(&[infinity, minus], &[one, one]), 0x7fff_ffff);
        assert_eq!(add(&[nan], &[one]), 0x7fff_ffff);
        // The largest bf16 squared is beyond f32.
        assert_eq!(add(&[0x7f7f], &[0x7f7f]), 0x7f80_0000);
        assert_eq!(add(&[0x8000], &[one]), 0);
        // Subnormal factors count.
        assert_eq!(add(&[1], &[0x7f00]), f32::to_bits(2f32.powi(-133 + 127)).into());
    }

    #[test]
    fn halves_are_rounded_to_nearest() {
        let f16 = Element::Float(F16);
        let sums = Sums::new(f16, f16, f16);
        let add =
            |c: u64, a: &[u64], b: &[u64]| sums.add(Some(c), &factors(f16, a), &factors(f16, b));
        // 1 + 2⁻¹¹ is a tie, and goes to the even 1; 1 + 2⁻¹⁰ + 2⁻¹¹ goes up.
        assert_eq!(add(0x3c00, &[0x1000], &[0x3c00]), 0x3c00);
        assert_eq!(add(0x3c01, &[0x1000], &[0x3c00]), 0x3c02);
        assert_eq!(add(0x7bff, &[0x7bff], &[0x3c00]), 0x7c00);
    }

    #[test]
    fn the_four_bit_exponents_have_no_infinity() {
        let sums = Sums::new(Element::E4M3, Element::E4M3, Element::Float(F32));
        let e4m3 = |bits: &[u64]| factors(Element::E4M3, bits);
        assert_eq!(sums.add(None, &e4m3(&[0x7e]), &e4m3(&[0x38])), f32::to_bits(448.0).into());
        assert_eq!(sums.add(None, &e4m3(&[0x7f]), &e4m3(&[0x38])), 0x7fff_ffff);
        let tf32 = Element::Float(TF32);
        assert_eq!(Factor::new(tf32, 0x3f80_1fff, false), Factor::new(tf32, 0x3f80_0000, false));
        assert_eq!(add_integers(i32::MAX, &[1], &[1], false), i32::MIN);
        assert_eq!(add_integers(i32::MAX, &[1], &[1], true), i32::MAX);
    }
}
