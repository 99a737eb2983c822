//! `cvt`: between all pairs of types, with all roundings and clamps.

use super::exact::{BF16, E5M2, Exact, F16, F32, F64, Format, Number, Rounding, TF32};

/// Type of the operand or the result of a conversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Signed(u32),
    Unsigned(u32),
    Float(Format),
    /// 8 bits: bias 7, no infinities, NaN is `0x7f`.
    E4M3,
}

/// A conversion with its modifiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Conversion {
    pub(crate) to: Kind,
    pub(crate) from: Kind,
    pub(crate) rounding: Rounding,
    /// `.rni` and similar between floats: the result is a whole number.
    pub(crate) whole: bool,
    pub(crate) flush: bool,
    pub(crate) saturate: bool,
    pub(crate) relu: bool,
    /// `.satfinite`: overflow gives the largest finite number.
    pub(crate) finite: bool,
}

/// `bits` of width `width`, sign-extended.
pub(crate) fn extend(bits: u64, width: u32) -> i64 {
    ((bits << (64 - width)) as i64) >> (64 - width)
}

/// The lowest `width` bits.
pub(crate) fn low(bits: u64, width: u32) -> u64 {
    if width == 64 { bits } else { bits & ((1 << width) - 1) }
}

impl Conversion {
    pub(crate) fn new(to: Kind, from: Kind) -> Conversion {
        let rounding = Rounding::NearestEven;
        Conversion {
            to,
            from,
            rounding,
            whole: false,
            flush: false,
            saturate: false,
            relu: false,
            finite: false,
        }
    }

    /// The result in the width of its type; signed integers are sign-extended to 64 bits, so that
    /// they fit any register.
    pub(crate) fn evaluate(self, bits: u64) -> u64 {
        let number = match self.from {
            Kind::Signed(width) => return self.of_integer(i128::from(extend(bits, width))),
            Kind::Unsigned(width) => return self.of_integer(i128::from(low(bits, width))),
            Kind::Float(format) => {
                let bits = low(bits, format.bits());
                format.unpack(if self.flush { format.flush(bits) } else { bits })
            }
            Kind::E4M3 => unpack_e4m3(bits & 0xff),
        };
        match self.to {
            Kind::Signed(width) | Kind::Unsigned(width) => self.to_integer(number, width),
            Kind::Float(format) => self.to_float(number, format),
            Kind::E4M3 => self.to_e4m3(number),
        }
    }

    fn of_integer(self, value: i128) -> u64 {
        match self.to {
            Kind::Signed(width) | Kind::Unsigned(width) => {
                let value = if self.saturate {
                    value.clamp(self.least(width), self.most(width))
                } else {
                    value
                };
                match self.to {
                    Kind::Signed(_) => extend(value as u64, width) as u64,
                    _ => low(value as u64, width),
                }
            }
            Kind::Float(format) => self.to_float(Number::Finite(Exact::integer(value)), format),
            Kind::E4M3 => self.to_e4m3(Number::Finite(Exact::integer(value))),
        }
    }

    fn least(self, width: u32) -> i128 {
        if matches!(self.to, Kind::Signed(_)) { -(1 << (width - 1)) } else { 0 }
    }

    fn most(self, width: u32) -> i128 {
        if matches!(self.to, Kind::Signed(_)) { (1 << (width - 1)) - 1 } else { (1 << width) - 1 }
    }

    fn to_integer(self, number: Number, width: u32) -> u64 {
        let value = match number {
            // PTX ISA, cvt: zero; for f64 sources and 64-bit results, the middle of the range.
            Number::NaN if width == 64 || self.from == Kind::Float(F64) => 1i128 << (width - 1),
            Number::NaN => 0,
            Number::Infinite(negative) => {
                if negative {
                    self.least(width)
                } else {
                    self.most(width)
                }
            }
            Number::Finite(value) => {
                let magnitude = if value.exponent > 0
                    && value.mantissa.leading_zeros() as i32 <= value.exponent
                {
                    i128::MAX
                } else {
                    value.rounded(0, self.rounding).min(i128::MAX as u128) as i128
                };
                let signed = if value.negative { -magnitude } else { magnitude };
                signed.clamp(self.least(width), self.most(width))
            }
        };
        match self.to {
            Kind::Signed(_) => extend(value as u64, width) as u64,
            _ => low(value as u64, width),
        }
    }

    fn to_float(self, number: Number, format: Format) -> u64 {
        let number = match number {
            Number::Finite(value) if self.whole && value.exponent < 0 => {
                let mantissa = value.rounded(0, self.rounding);
                Number::Finite(Exact { mantissa, exponent: 0, sticky: false, ..value })
            }
            other => other,
        };
        let mut bits = format.pack(number, self.rounding);
        if self.flush {
            bits = format.flush(bits);
        }
        let negative = bits & format.sign() != 0;
        if self.saturate {
            let one = format.pack(Number::Finite(Exact::integer(1)), Rounding::Zero);
            return if format.is_nan(bits) || negative { 0 } else { bits.min(one) };
        }
        if format.is_nan(bits) {
            return bits;
        }
        if self.relu && negative {
            return 0;
        }
        if self.finite && bits & !format.sign() == format.infinity() {
            return bits - (1 << format.below);
        }
        bits
    }

    fn to_e4m3(self, number: Number) -> u64 {
        // The largest number, 448, has exponent field 15, which IEEE formats reserve for
        // infinities: use one exponent bit more, and clamp.
        let wide = Format { exponent_bits: 5, fraction_bits: 3, below: 0 };
        let value = match number {
            Number::NaN => return 0x7f,
            Number::Infinite(negative) => return self.e4m3_overflow(negative),
            // The bias is 15 in the wider format and 7 here.
            Number::Finite(value) => value,
        };
        let sign = if value.negative { 0x80 } else { 0 };
        if self.relu && value.negative {
            return 0;
        }
        let lowest = -9;
        if value.mantissa == 0 {
            return sign;
        }
        let top = 127 - value.mantissa.leading_zeros() as i32;
        let unit = (value.exponent + top - wide.fraction_bits as i32).max(lowest);
        let kept = value.rounded(unit, self.rounding);
        let magnitude = kept + (((unit - lowest) as u128) << 3);
        if magnitude > 0x7e { self.e4m3_overflow(value.negative) } else { magnitude as u64 | sign }
    }

    fn e4m3_overflow(self, negative: bool) -> u64 {
        match (self.relu && negative, self.finite) {
            (true, _) => 0,
            (_, true) => 0x7e | if negative { 0x80 } else { 0 },
            _ => 0x7f | if negative { 0x80 } else { 0 },
        }
    }
}

fn unpack_e4m3(bits: u64) -> Number {
    if bits & 0x7f == 0x7f {
        return Number::NaN;
    }
    let (biased, fraction) = ((bits >> 3 & 15) as i32, u128::from(bits & 7));
    let mantissa = fraction | if biased == 0 { 0 } else { 8 };
    Number::Finite(Exact {
        negative: bits & 0x80 != 0,
        mantissa,
        exponent: biased.max(1) - 10,
        sticky: false,
    })
}

impl Kind {
    /// Width of a value.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Kind::Signed(width) | Kind::Unsigned(width) => width,
            Kind::Float(format) => format.bits(),
            Kind::E4M3 => 8,
        }
    }

    /// The kind of a type that has one value.
    pub(crate) fn of(ty: crate::parse::syntax::Type) -> Option<Kind> {
        use crate::parse::syntax::Type;
        Some(match ty {
            Type::Signed(width) => Kind::Signed(width),
            Type::Unsigned(width) | Type::Bits(width) if width <= 64 => Kind::Unsigned(width),
            Type::Float(16) => Kind::Float(F16),
            Type::Float(32) => Kind::Float(F32),
            Type::Float(64) => Kind::Float(F64),
            Type::Brain => Kind::Float(BF16),
            Type::Tensor32 => Kind::Float(TF32),
            Type::E4M3 => Kind::E4M3,
            Type::E5M2 => Kind::Float(E5M2),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn convert(to: Kind, from: Kind, rounding: Rounding, bits: u64) -> u64 {
        Conversion { rounding, ..Conversion::new(to, from) }.evaluate(bits)
    }

    #[test]
    fn integers_from_floats() {
        let f32_to = |to, rounding, value: f32| {
            convert(to, Kind::Float(F32), rounding, value.to_bits().into())
        };
        assert_eq!(f32_to(Kind::Signed(32), Rounding::Zero, -1.9) as i64, -1);
        assert_eq!(f32_to(Kind::Signed(32), Rounding::NearestEven, 2.5), 2);
        assert_eq!(f32_to(Kind::Signed(32), Rounding::Up, 2.1), 3);
        assert_eq!(f32_to(Kind::Signed(32), Rounding::Down, -2.1) as i64, -3);
        assert_eq!(f32_to(Kind::Signed(32), Rounding::Zero, 1e20), 0x7fff_ffff);
        assert_eq!(f32_to(Kind::Unsigned(32), Rounding::Zero, -5.0), 0);
        assert_eq!(f32_to(Kind::Unsigned(8), Rounding::Zero, 300.0), 255);
        assert_eq!(f32_to(Kind::Unsigned(32), Rounding::Zero, f32::INFINITY), 0xffff_ffff);
        assert_eq!(f32_to(Kind::Signed(32), Rounding::Zero, f32::NAN), 0);
        assert_eq!(f32_to(Kind::Signed(64), Rounding::Zero, f32::NAN), 1 << 63);
        assert_eq!(f32_to(Kind::Unsigned(64), Rounding::Zero, f32::MAX), u64::MAX);
        assert_eq!(f32_to(Kind::Unsigned(64), Rounding::Zero, 3.0 * 2f32.powi(62)), 3 << 62);
    }

    #[test]
    fn whole_numbers_as_floats() {
        let conversion =
            Conversion { whole: true, ..Conversion::new(Kind::Float(F32), Kind::Float(F32)) };
        let round = |value: f32| f32::from_bits(conversion.evaluate(value.to_bits().into()) as u32);
        assert_eq!(round(0.5).to_bits(), 0);
        assert_eq!(round(-0.5).to_bits(), 0x8000_0000);
        assert_eq!(round(1.5), 2.0);
        assert_eq!(round(1e30), 1e30);
    }

    #[test]
    fn integers_clamp_only_if_asked() {
        let plain = Conversion::new(Kind::Unsigned(8), Kind::Signed(32));
        assert_eq!(plain.evaluate((-1i32) as u32 as u64), 0xff);
        assert_eq!(Conversion { saturate: true, ..plain }.evaluate((-1i32) as u32 as u64), 0);
        assert_eq!(Conversion { saturate: true, ..plain }.evaluate(300), 255);
    }

    #[test]
    fn tf32_keeps_ten_bits() {
        let away = |bits| convert(Kind::Float(TF32), Kind::Float(F32), Rounding::NearestAway, bits);
        assert_eq!(away(0x3f80_0fff), 0x3f80_0000);
        assert_eq!(away(0x3f80_1000), 0x3f80_2000);
        assert_eq!(
            convert(Kind::Float(TF32), Kind::Float(F32), Rounding::NearestEven, 0x3f80_1000),
            0x3f80_0000
        );
    }

    #[test]
    fn eight_bit_floats() {
        let e4m3 = Conversion { finite: true, ..Conversion::new(Kind::E4M3, Kind::Float(F32)) };
        let narrow = |value: f32| e4m3.evaluate(value.to_bits().into());
        assert_eq!(narrow(1.0), 0x38);
        assert_eq!(narrow(448.0), 0x7e);
        assert_eq!(narrow(1e9), 0x7e);
        assert_eq!(narrow(-1e9), 0xfe);
        assert_eq!(narrow(2f32.powi(-9)), 1);
        assert_eq!(narrow(2f32.powi(-10)), 0);
        assert_eq!(narrow(f32::NAN), 0x7f);
        for bits in 0..=0xff_u64 {
            let wide = Conversion::new(Kind::Float(F32), Kind::E4M3).evaluate(bits);
            if bits & 0x7f != 0x7f {
                assert_eq!(e4m3.evaluate(wide), bits);
            }
        }
    }

    #[test]
    fn halves_of_every_kind_agree_with_half() {
        for bits in 0..=0xffff_u64 {
            let wide = Conversion::new(Kind::Float(F64), Kind::Float(F16)).evaluate(bits);
            let theirs = half::f16::from_bits(bits as u16);
            if theirs.is_nan() {
                assert!(f64::from_bits(wide).is_nan());
            } else {
                assert_eq!(f64::from_bits(wide).to_bits(), theirs.to_f64().to_bits());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4000))]
        #[test]
        fn as_rust_converts(bits: u64) {
            let even = Rounding::NearestEven;
            let (single, double) = (bits as u32, bits);
            let f = f32::from_bits(single);
            prop_assert_eq!(
                convert(Kind::Float(F32), Kind::Signed(64), even, bits) as u32,
                (bits as i64 as f32).to_bits()
            );
            prop_assert_eq!(
                convert(Kind::Float(F32), Kind::Unsigned(64), even, bits) as u32,
                (bits as f32).to_bits()
            );
            prop_assert_eq!(
                convert(Kind::Float(F64), Kind::Unsigned(64), even, bits),
                (bits as f64).to_bits()
            );
            if !f.is_nan() {
                let integer =
                    convert(Kind::Signed(32), Kind::Float(F32), Rounding::Zero, single.into());
                prop_assert_eq!(integer as i32, f as i32);
                let integer =
                    convert(Kind::Unsigned(64), Kind::Float(F32), Rounding::Zero, single.into());
                prop_assert_eq!(integer, f as u64);
            }
            let d = f64::from_bits(double);
            if !d.is_nan() {
                prop_assert_eq!(
                    convert(Kind::Float(F32), Kind::Float(F64), even, double) as u32,
                    (d as f32).to_bits()
                );
                prop_assert_eq!(
                    convert(Kind::Signed(64), Kind::Float(F64), Rounding::Zero, double),
                    d as i64 as u64
                );
            }
        }
    }
}
