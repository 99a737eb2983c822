//! Floating-point numbers, unpacked exactly, and packed with any rounding into any format.
//!
//! A finite number is `mantissa · 2^exponent`, with a *sticky* flag that means "plus a positive
//! amount of less than one unit of the mantissa". Sums, products, quotients and roots are formed
//! with at least 60 bits more than any format keeps, so that one rounding at the end is the
//! correct rounding of the exact result.

/// IEEE-like binary formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Format {
    pub(crate) exponent_bits: u32,
    pub(crate) fraction_bits: u32,
    /// Zero bits below the fraction: tf32 is an f32 whose last 13 bits are ignored.
    pub(crate) below: u32,
}

pub(crate) const F16: Format = Format { exponent_bits: 5, fraction_bits: 10, below: 0 };
pub(crate) const BF16: Format = Format { exponent_bits: 8, fraction_bits: 7, below: 0 };
pub(crate) const TF32: Format = Format { exponent_bits: 8, fraction_bits: 10, below: 13 };
pub(crate) const F32: Format = Format { exponent_bits: 8, fraction_bits: 23, below: 0 };
pub(crate) const F64: Format = Format { exponent_bits: 11, fraction_bits: 52, below: 0 };
/// Has infinities and NaN as IEEE formats do.
pub(crate) const E5M2: Format = Format { exponent_bits: 5, fraction_bits: 2, below: 0 };

/// Direction in which a result between two numbers is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rounding {
    NearestEven,
    NearestAway,
    Zero,
    Down,
    Up,
}

/// A finite number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Exact {
    pub(crate) negative: bool,
    pub(crate) mantissa: u128,
    pub(crate) exponent: i32,
    pub(crate) sticky: bool,
}

/// Any number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Number {
    NaN,
    Infinite(bool),
    Finite(Exact),
}

impl Format {
    pub(crate) const fn bits(self) -> u32 {
        1 + self.exponent_bits + self.fraction_bits + self.below
    }

    const fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// The NaN that arithmetic returns.
    pub(crate) const fn nan(self) -> u64 {
        match self.bits() {
            64 => 0xfff8_0000_0000_0000,
            bits => (1 << (bits - 1)) - 1,
        }
    }

    pub(crate) const fn infinity(self) -> u64 {
        ((1 << self.exponent_bits) - 1) << (self.fraction_bits + self.below)
    }

    pub(crate) const fn sign(self) -> u64 {
        1 << (self.bits() - 1)
    }

    pub(crate) const fn is_nan(self, bits: u64) -> bool {
        bits & (self.sign() - 1) > self.infinity()
    }

    pub(crate) const fn is_subnormal(self, bits: u64) -> bool {
        let magnitude = bits & (self.sign() - 1);
        magnitude != 0 && magnitude < 1 << (self.fraction_bits + self.below)
    }

    /// Flushes a subnormal to zero of its sign.
    pub(crate) const fn flush(self, bits: u64) -> u64 {
        if self.is_subnormal(bits) { bits & self.sign() } else { bits }
    }

    /// Unpacks a number.
    pub(crate) fn unpack(self, bits: u64) -> Number {
        let negative = bits & self.sign() != 0;
        let kept = (bits & (self.sign() - 1)) >> self.below;
        let fraction = kept & ((1 << self.fraction_bits) - 1);
        let biased = (kept >> self.fraction_bits) as i32;
        if biased == (1 << self.exponent_bits) - 1 {
            return if fraction == 0 { Number::Infinite(negative) } else { Number::NaN };
        }
        let hidden = u64::from(biased != 0) << self.fraction_bits;
        Number::Finite(Exact {
            negative,
            mantissa: u128::from(fraction | hidden),
            exponent: biased.max(1) - self.bias() - self.fraction_bits as i32,
            sticky: false,
        })
    }

    /// Rounds a number into the format.
    pub(crate) fn pack(self, number: Number, rounding: Rounding) -> u64 {
        let value = match number {
            Number::NaN => return self.nan(),
            Number::Infinite(negative) => {
                return self.infinity() | if negative { self.sign() } else { 0 };
            }
            Number::Finite(value) => value,
        };
        let sign = if value.negative { self.sign() } else { 0 };
        if value.mantissa == 0 && !value.sticky {
            return sign;
        }
        let top = 127 - value.mantissa.leading_zeros() as i32;
        let lowest = 1 - self.bias() - self.fraction_bits as i32;
        let unit = (value.exponent + top - self.fraction_bits as i32).max(lowest);
        let kept = value.rounded(unit, rounding);
        // A carry out of the fraction correctly increments the exponent.
        let biased = (unit - lowest) as u128;
        let magnitude = (kept + (biased << self.fraction_bits)) << self.below;
        if magnitude < u128::from(self.infinity()) {
            return magnitude as u64 | sign;
        }
        let to_infinity = match rounding {
            Rounding::NearestEven | Rounding::NearestAway => true,
            Rounding::Zero => false,
            Rounding::Down => value.negative,
            Rounding::Up => !value.negative,
        };
        sign | if to_infinity { self.infinity() } else { self.infinity() - (1 << self.below) }
    }
}

impl Exact {
    pub(crate) const fn zero(negative: bool) -> Exact {
        Exact { negative, mantissa: 0, exponent: 0, sticky: false }
    }

    /// The magnitude in units of `2^unit`, rounded to an integer.
    pub(crate) fn rounded(self, unit: i32, rounding: Rounding) -> u128 {
        let shift = unit - self.exponent;
        let (kept, half, rest) = match shift {
            ..=0 => (self.mantissa << (-shift).min(127), false, self.sticky),
            1..=127 => {
                let below = self.mantissa & ((1 << shift) - 1);
                let half = below >> (shift - 1) != 0;
                (self.mantissa >> shift, half, self.sticky || below & ((1 << (shift - 1)) - 1) != 0)
            }
            128 => (0, self.mantissa >> 127 != 0, self.sticky || self.mantissa << 1 != 0),
            _ => (0, false, self.sticky || self.mantissa != 0),
        };
        let up = match rounding {
            Rounding::NearestEven => half && (rest || kept & 1 == 1),
            Rounding::NearestAway => half,
            Rounding::Zero => false,
            Rounding::Down => self.negative && (half || rest),
            Rounding::Up => !self.negative && (half || rest),
        };
        kept + u128::from(up)
    }

    /// With the highest bit of the mantissa at 124, so that sums have room.
    fn normalised(self) -> Exact {
        if self.mantissa == 0 {
            return self;
        }
        let shift = self.mantissa.leading_zeros() as i32 - 3;
        let mantissa = if shift >= 0 { self.mantissa << shift } else { self.mantissa >> -shift };
        let lost = shift < 0 && self.mantissa & ((1 << -shift) - 1) != 0;
        Exact { mantissa, exponent: self.exponent - shift, sticky: self.sticky || lost, ..self }
    }

    /// The exact sum; `rounding` only decides the sign of an exact zero.
    pub(crate) fn plus(self, other: Exact, rounding: Rounding) -> Exact {
        if self.mantissa == 0 && other.mantissa == 0 {
            let same = self.negative == other.negative;
            return Exact::zero(if same { self.negative } else { rounding == Rounding::Down });
        }
        if self.mantissa == 0 {
            return other;
        }
        if other.mantissa == 0 {
            return self;
        }
        let (a, b) = (self.normalised(), other.normalised());
        let (large, small) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
        let shift = (large.exponent - small.exponent) as u32;
        let moved = small.mantissa.checked_shr(shift).unwrap_or(0);
        let lost = small.sticky || shift >= 128 || moved << shift != small.mantissa;
        if large.negative == small.negative {
            let sticky = lost || large.sticky;
            return Exact { mantissa: large.mantissa + moved, sticky, ..large };
        }
        // Slightly more than `moved` is to be subtracted: subtract one unit more, and set the
        // sticky flag.
        let taken = moved + u128::from(lost);
        if large.mantissa == taken && !lost {
            return Exact::zero(rounding == Rounding::Down);
        }
        if large.mantissa >= taken {
            Exact { mantissa: large.mantissa - taken, sticky: lost || large.sticky, ..large }
        } else {
            // Equal exponents, so nothing was lost.
            Exact {
                negative: small.negative,
                mantissa: taken - large.mantissa,
                sticky: false,
                ..large
            }
        }
    }

    /// The exact product of two numbers of at most 64 bits each.
    pub(crate) fn times(self, other: Exact) -> Exact {
        Exact {
            negative: self.negative != other.negative,
            mantissa: self.mantissa * other.mantissa,
            exponent: self.exponent + other.exponent,
            sticky: false,
        }
    }

    /// The quotient of numbers of at most 64 bits each; the divisor is not zero.
    pub(crate) fn over(self, other: Exact) -> Exact {
        if self.mantissa == 0 {
            return Exact::zero(self.negative != other.negative);
        }
        let shift = self.mantissa.leading_zeros();
        let dividend = self.mantissa << shift;
        Exact {
            negative: self.negative != other.negative,
            mantissa: dividend / other.mantissa,
            exponent: self.exponent - shift as i32 - other.exponent,
            sticky: !dividend.is_multiple_of(other.mantissa),
        }
    }

    /// The root of a number that is not negative (or is a zero, which stays).
    pub(crate) fn root(self) -> Exact {
        if self.mantissa == 0 {
            return self;
        }
        let mut shift = self.mantissa.leading_zeros() as i32 - 1;
        if (self.exponent - shift) % 2 != 0 {
            shift -= 1;
        }
        let square = self.mantissa << shift;
        let mantissa = square.isqrt();
        Exact {
            negative: false,
            mantissa,
            exponent: (self.exponent - shift) / 2,
            sticky: mantissa * mantissa != square,
        }
    }

    /// An integer.
    pub(crate) fn integer(value: i128) -> Exact {
        Exact { negative: value < 0, mantissa: value.unsigned_abs(), exponent: 0, sticky: false }
    }
}

impl Number {
    fn negative(self) -> bool {
        match self {
            Number::NaN => false,
            Number::Infinite(negative) => negative,
            Number::Finite(value) => value.negative,
        }
    }

    pub(crate) fn plus(self, other: Number, rounding: Rounding) -> Number {
        match (self, other) {
            (Number::NaN, _) | (_, Number::NaN) => Number::NaN,
            (Number::Infinite(a), Number::Infinite(b)) if a != b => Number::NaN,
            (Number::Infinite(a), _) | (_, Number::Infinite(a)) => Number::Infinite(a),
            (Number::Finite(a), Number::Finite(b)) => Number::Finite(a.plus(b, rounding)),
        }
    }

    pub(crate) fn times(self, other: Number) -> Number {
        let negative = self.negative() != other.negative();
        match (self, other) {
            (Number::NaN, _) | (_, Number::NaN) => Number::NaN,
            (Number::Infinite(_), Number::Infinite(_)) => Number::Infinite(negative),
            (Number::Infinite(_), Number::Finite(a)) | (Number::Finite(a), Number::Infinite(_)) => {
                if a.mantissa == 0 {
                    Number::NaN
                } else {
                    Number::Infinite(negative)
                }
            }
            (Number::Finite(a), Number::Finite(b)) => Number::Finite(a.times(b)),
        }
    }

    pub(crate) fn over(self, other: Number) -> Number {
        let negative = self.negative() != other.negative();
        match (self, other) {
            (Number::NaN, _) | (_, Number::NaN) => Number::NaN,
            (Number::Infinite(_), Number::Infinite(_)) => Number::NaN,
            (Number::Infinite(_), Number::Finite(_)) => Number::Infinite(negative),
            (Number::Finite(_), Number::Infinite(_)) => Number::Finite(Exact::zero(negative)),
            (Number::Finite(a), Number::Finite(b)) => match (a.mantissa == 0, b.mantissa == 0) {
                (true, true) => Number::NaN,
                (false, true) => Number::Infinite(negative),
                _ => Number::Finite(a.over(b)),
            },
        }
    }

    pub(crate) fn root(self) -> Number {
        match self {
            Number::NaN => Number::NaN,
            Number::Infinite(negative) => {
                if negative {
                    Number::NaN
                } else {
                    self
                }
            }
            Number::Finite(value) if value.negative && value.mantissa != 0 => Number::NaN,
            Number::Finite(value) => Number::Finite(value.root()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(format: Format, bits: u64) {
        let packed = format.pack(format.unpack(bits), Rounding::NearestEven);
        if format.is_nan(bits) {
            assert_eq!(packed, format.nan());
        } else {
            assert_eq!(packed, bits, "{bits:#x}");
        }
    }

    #[test]
    fn all_sixteen_bit_numbers_survive() {
        for bits in 0..=0xffff {
            round_trip(F16, bits);
            round_trip(BF16, bits);
        }
    }

    /// Rust's own arithmetic is IEEE's, rounded to nearest even.
    fn same32(ours: u64, native: f32) {
        if native.is_nan() {
            assert!(F32.is_nan(ours));
        } else {
            assert_eq!(ours as u32, native.to_bits(), "{native:e}");
        }
    }

    fn same64(ours: u64, native: f64) {
        if native.is_nan() {
            assert!(F64.is_nan(ours));
        } else {
            assert_eq!(ours, native.to_bits(), "{native:e}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn arithmetic_is_ieee(a: u32, b: u32, c: u32, near in -3i32..3) {
            let b = if near == 0 { a ^ (b & 0x8000_0003) } else { b };
            let (x, y, z) = (F32.unpack(a.into()), F32.unpack(b.into()), F32.unpack(c.into()));
            let (p, q, r) = (f32::from_bits(a), f32::from_bits(b), f32::from_bits(c));
            let even = Rounding::NearestEven;
            same32(F32.pack(x.plus(y, even), even), p + q);
            same32(F32.pack(x.times(y), even), p * q);
            same32(F32.pack(x.over(y), even), p / q);
            same32(F32.pack(x.root(), even), p.sqrt());
            same32(F32.pack(x.times(y).plus(z, even), even), p.mul_add(q, r));
        }

        #[test]
        fn double_arithmetic_is_ieee(a: u64, b: u64, c: u64) {
            let (x, y, z) = (F64.unpack(a), F64.unpack(b), F64.unpack(c));
            let (p, q, r) = (f64::from_bits(a), f64::from_bits(b), f64::from_bits(c));
            let even = Rounding::NearestEven;
            same64(F64.pack(x.plus(y, even), even), p + q);
            same64(F64.pack(x.times(y), even), p * q);
            same64(F64.pack(x.over(y), even), p / q);
            same64(F64.pack(x.root(), even), p.sqrt());
            same64(F64.pack(x.times(y).plus(z, even), even), p.mul_add(q, r));
            let near = f64::from_bits((p * q).to_bits() ^ (1 << 63) ^ (c & 3));
            same64(
                F64.pack(x.times(y).plus(F64.unpack(near.to_bits()), even), even),
                p.mul_add(q, near),
            );
        }

        #[test]
        fn directed_roundings_enclose(a: u32, b: u32) {
            let (x, y) = (F32.unpack(a.into()), F32.unpack(b.into()));
            let product = x.times(y);
            let exact = f64::from(f32::from_bits(a)) * f64::from(f32::from_bits(b));
            prop_assume!(!exact.is_nan());
            let at = |rounding| f64::from(f32::from_bits(F32.pack(product, rounding) as u32));
            prop_assert!(at(Rounding::Down) <= exact && exact <= at(Rounding::Up));
            prop_assert!(at(Rounding::Zero).abs() <= exact.abs());
            prop_assert_eq!(
                at(Rounding::Zero),
                if exact < 0.0 { at(Rounding::Up) } else { at(Rounding::Down) }
            );
        }
    }
}
