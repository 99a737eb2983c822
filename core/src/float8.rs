//! The 8-bit floats f8e4m3fn and f8e5m2.
//!
//! Both are of Micikevicius et al., *FP8 Formats for Deep Learning* (2022), with the names of
//! ml_dtypes and MLIR. They are dtypes of storage: tensors hold, move and convert them, and no op
//! does arithmetic in them.
//!
//! | | sign, exponent, mantissa | bias | largest | least normal | least | infinity | NaN |
//! |---|---|---|---|---|---|---|---|
//! | f8e4m3fn | 1, 4, 3 | 7 | 448 | 2⁻⁶ | 2⁻⁹ | none | `0x7f`, `0xff` |
//! | f8e5m2 | 1, 5, 2 | 15 | 57344 | 2⁻¹⁴ | 2⁻¹⁶ | `0x7c`, `0xfc` | `0x7d` to `0x7f`, with a sign too |
//!
//! A conversion rounds to nearest, ties to even. A value that rounds beyond the largest number
//! becomes infinity, in f8e4m3fn NaN. It does not saturate: clamp the operand for that.

use crate::dtype::DType;
use std::fmt;

/// The layout of an 8-bit float: 1 sign bit, then exponent and mantissa.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Bits of the mantissa.
    pub mantissa: u32,
    /// Bias of the exponent.
    pub bias: i32,
    /// Bits of the largest number.
    pub largest: u8,
    /// Bits of the result of an overflow.
    pub overflow: u8,
    /// Bits of the canonical NaN, the quiet one.
    pub nan: u8,
}

impl Layout {
    /// 4 bits of exponent and 3 of mantissa; finite numbers and NaN.
    const E4M3FN: Layout =
        Layout { mantissa: 3, bias: 7, largest: 0x7e, overflow: 0x7f, nan: 0x7f };
    /// 5 bits of exponent and 2 of mantissa, as in IEEE 754.
    const E5M2: Layout = Layout { mantissa: 2, bias: 15, largest: 0x7b, overflow: 0x7c, nan: 0x7e };

    /// The layout of a dtype; `None` if it is no 8-bit float.
    pub const fn of(dtype: DType) -> Option<Layout> {
        match dtype {
            DType::F8E4M3FN => Some(Layout::E4M3FN),
            DType::F8E5M2 => Some(Layout::E5M2),
            _ => None,
        }
    }

    /// Bits of the least infinity or NaN without a sign. Larger bits are NaN.
    pub const fn special(self) -> u8 {
        self.largest + 1
    }

    /// The value of these bits.
    fn decode(self, bits: u8) -> f64 {
        let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
        let size = bits & 0x7f;
        if size > self.largest {
            return if size == self.overflow && self.overflow != self.nan {
                sign * f64::INFINITY
            } else {
                f64::NAN
            };
        }
        let (exponent, fraction) = (i32::from(size >> self.mantissa), size & self.fraction());
        let one = 1 << self.mantissa;
        let units = f64::from(if exponent == 0 { fraction } else { fraction | one });
        sign * units * self.unit(exponent.max(1) - self.bias)
    }

    /// The bits of the nearest number, ties to even.
    fn encode(self, value: f64) -> u8 {
        if value.is_nan() {
            return self.nan;
        }
        let sign = if value.is_sign_negative() { 0x80 } else { 0 };
        let size = value.abs();
        let largest = self.decode(self.largest);
        // The next number, if the exponents went on, is less than 2 · largest.
        if size >= 2.0 * largest {
            return sign | self.overflow;
        }
        let least = 1 - self.bias;
        // The exponent of f64: −1023 for its subnormal numbers, which round to 0.
        let exponent = ((size.to_bits() >> 52) as i32 - 1023).max(least);
        // Exact: a scaling by a power of 2.
        let units = (size / self.unit(exponent)).round_ties_even();
        // A sum, so that rounding up to a power of 2 carries into the exponent.
        let bits = ((exponent - least) as u32 * (1 << self.mantissa)) + units as u32;
        sign | if bits > u32::from(self.largest) { self.overflow } else { bits as u8 }
    }

    /// The distance of numbers with this exponent.
    fn unit(self, exponent: i32) -> f64 {
        f64::from(exponent - self.mantissa as i32).exp2()
    }

    /// The bits of the mantissa.
    const fn fraction(self) -> u8 {
        (1 << self.mantissa) - 1
    }
}

macro_rules! float8 {
    ($($(#[$doc:meta])* $name:ident $dtype:ident $layout:ident;)*) => {$(
        $(#[$doc])*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// The largest finite number.
            pub const MAX: Self = $name(Layout::$layout.largest);

            /// The number with these bits.
            pub const fn from_bits(bits: u8) -> Self {
                $name(bits)
            }

            /// Its bits.
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// Its value, which f64 has.
            pub fn to_f64(self) -> f64 {
                Layout::$layout.decode(self.0)
            }

            /// The nearest number, ties to even.
            pub fn from_f64(value: f64) -> Self {
                $name(Layout::$layout.encode(value))
            }
        }

        impl PartialEq for $name {
            /// Equality of numbers: NaN differs from itself, and −0 equals 0.
            fn eq(&self, other: &Self) -> bool {
                self.to_f64() == other.to_f64()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                self.to_f64().partial_cmp(&other.to_f64())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f64(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f64(), f)
            }
        }
    )*};
}

float8! {
    /// A number of f8e4m3fn: see [the module](self).
    f8e4m3fn F8E4M3FN E4M3FN;
    /// A number of f8e5m2: see [the module](self).
    f8e5m2 F8E5M2 E5M2;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the bits from 0 on, up to the largest number.
    fn numbers(layout: Layout) -> Vec<f64> {
        (0..=layout.largest).map(|bits| layout.decode(bits)).collect()
    }

    #[test]
    fn numbers_are_those_of_the_formats() {
        let (e4m3, e5m2) = (numbers(Layout::E4M3FN), numbers(Layout::E5M2));
        assert_eq!((e4m3[1], e4m3[8], e4m3[0x38], e4m3[0x7e]), (0.001953125, 0.015625, 1.0, 448.0));
        assert_eq!((e5m2[1], e5m2[4]), (2f64.powi(-16), 2f64.powi(-14)));
        assert_eq!((e5m2[0x3c], e5m2[0x7b]), (1.0, 57344.0));
        for numbers in [e4m3, e5m2] {
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        }
        assert_eq!(f8e5m2::from_bits(0xfc).to_f64(), f64::NEG_INFINITY);
        assert!((0x7d..0x80).all(|bits| f8e5m2::from_bits(bits).to_f64().is_nan()));
        assert!(f8e4m3fn::from_bits(0xff).to_f64().is_nan());
        // f8e5m2 is the upper half of f16.
        for bits in 0..=255u8 {
            let half = half::f16::from_bits(u16::from(bits) << 8).to_f64();
            let value = f8e5m2::from_bits(bits).to_f64();
            assert!(value == half || value.is_nan() && half.is_nan());
        }
    }

    #[test]
    fn conversions_round_to_nearest_even() {
        for layout in [Layout::E4M3FN, Layout::E5M2] {
            let numbers = numbers(layout);
            for (bits, pair) in numbers.windows(2).enumerate() {
                let (low, high) = (bits as u8, bits as u8 + 1);
                let middle = (pair[0] + pair[1]) / 2.0;
                let even = if low & 1 == 0 { low } else { high };
                let cases = [
                    (pair[0], low),
                    (middle.next_down(), low),
                    (middle, even),
                    (middle.next_up(), high),
                    (pair[1].next_down(), high),
                ];
                for (value, expected) in cases {
                    assert_eq!(layout.encode(value), expected, "{value} in {layout:?}");
                    assert_eq!(layout.encode(-value), expected | 0x80, "−{value} in {layout:?}");
                }
            }
        }
    }

    #[test]
    fn edges() {
        let e4m3 = |value| f8e4m3fn::from_f64(value).to_bits();
        let e5m2 = |value| f8e5m2::from_f64(value).to_bits();
        assert_eq!([464.0, 464f64.next_up(), 480.0, 1e300].map(e4m3), [0x7e, 0x7f, 0x7f, 0x7f]);
        assert_eq!([f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(e4m3), [0x7f, 0xff, 0x7f]);
        assert_eq!([61440f64.next_down(), 61440.0, -1e300].map(e5m2), [0x7b, 0x7c, 0xfc]);
        assert_eq!([f64::INFINITY, -f64::NAN].map(e5m2), [0x7c, 0x7e]);
        assert_eq!([-0.0, f64::MIN_POSITIVE / 2.0, -1e-300].map(e4m3), [0x80, 0, 0x80]);
    }
}
