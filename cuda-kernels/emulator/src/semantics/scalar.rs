//! Instructions that are computed one value at a time, through one function.

use super::approximate::{self, Function};
use super::convert::{Conversion, extend};
use super::exact::{F32, Format};
use super::float::Float;
use super::integer::{self, Permutation};

/// Functions that are computed value by value.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Scalar {
    Float(Float),
    /// Applied to both halves of a word.
    Pair(Float),
    Convert(Conversion),
    /// Converts two values into the halves of a word (or bytes of a half), the first to the upper
    /// one.
    ConvertPair(Conversion),
    /// Converts two bytes into the halves of a word.
    WidenPair(Conversion),
    Approximate(Function, Format, bool),
    ApproximatePair(Function, Format),
    ApproximateUpper(Function),
    DivideApproximately {
        flush: bool,
    },
    Extract {
        width: u32,
        signed: bool,
    },
    Insert {
        width: u32,
    },
    Find {
        width: u32,
        signed: bool,
        shift_amount: bool,
    },
    Permute(Permutation),
    Funnel {
        left: bool,
        wrap: bool,
    },
    Dot4 {
        signed: (bool, bool),
    },
    Dot2 {
        signed: (bool, bool),
        high: bool,
    },
    Multiply24 {
        signed: bool,
        high: bool,
        add: bool,
    },
    BitMask {
        wrap: bool,
    },
    NthSet,
    /// `slct`: selects by the sign of the third operand, an integer or a float.
    SelectBySign {
        float: bool,
        flush: bool,
    },
    /// Applies an integer function to both halves: `add.u16x2`, `min.s16x2`.
    HalvesInteger(HalvesInteger),
    /// Sign-extension of the low bits (`szext`).
    Extend {
        signed: bool,
        wrap: bool,
    },
    /// `cvt.pack`: two clamped values in the low bits, the third operand shifted up.
    Pack {
        width: u32,
        signed: bool,
        third: bool,
    },
}

/// Integer operations on two halves of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HalvesInteger {
    Add,
    Minimum { signed: bool, relu: bool },
    Maximum { signed: bool, relu: bool },
}

impl Scalar {
    /// A result of an approximate instruction on f32, other than the nearest one: see
    /// [`crate::Approximations`]. All other results are `nearest`.
    pub(crate) fn deviate(self, [a, b, ..]: [u64; 4], nearest: u64, seed: u64) -> u64 {
        let (x, y) = (a as u32, b as u32);
        match self {
            Scalar::Approximate(function, F32, flush) => {
                approximate::deviate(function, flush, x, nearest as u32, seed).into()
            }
            Scalar::DivideApproximately { flush } => {
                approximate::deviate_quotient(flush, [x, y], nearest as u32, seed).into()
            }
            _ => nearest,
        }
    }

    /// The result's bits, to be truncated to the register's width.
    pub(crate) fn evaluate(self, [a, b, c, d]: [u64; 4]) -> u64 {
        let (x, y, z, w) = (a as u32, b as u32, c as u32, d as u32);
        let pair = |f: &dyn Fn(u32, u32, u32) -> u64| {
            f(x & 0xffff, y & 0xffff, z & 0xffff) | f(x >> 16, y >> 16, z >> 16) << 16
        };
        match self {
            Scalar::Float(float) => float.evaluate(a, b, c),
            Scalar::Pair(float) => pair(&|a, b, c| float.evaluate(a.into(), b.into(), c.into())),
            Scalar::Convert(conversion) => conversion.evaluate(a),
            Scalar::ConvertPair(conversion) => {
                let bits = conversion.to.bits();
                let mask = (1 << bits) - 1;
                (conversion.evaluate(a) & mask) << bits | conversion.evaluate(b) & mask
            }
            Scalar::WidenPair(conversion) => {
                let (from, to) = (conversion.from.bits(), conversion.to.bits());
                let part = |at: u32| {
                    conversion.evaluate(a >> (at * from) & ((1 << from) - 1)) & ((1 << to) - 1)
                };
                part(0) | part(1) << to
            }
            Scalar::Approximate(function, format, flush) => {
                approximate::evaluate(function, format, flush, a)
            }
            Scalar::ApproximatePair(function, format) => {
                pair(&|a, _, _| approximate::evaluate(function, format, false, a.into()))
            }
            Scalar::ApproximateUpper(function) => approximate::upper_word(function, a),
            Scalar::DivideApproximately { flush } => approximate::divide(x, y, flush).into(),
            Scalar::Extract { width, signed } => integer::extract(a, y, z, width, signed),
            Scalar::Insert { width } => integer::insert(a, b, z, w, width),
            Scalar::Find { width, signed, shift_amount } => {
                integer::find(a, width, signed, shift_amount).into()
            }
            Scalar::Permute(mode) => integer::permute(x, y, z, mode).into(),
            Scalar::Funnel { left, wrap } => integer::funnel(x, y, z, left, wrap).into(),
            Scalar::Dot4 { signed } => integer::dot4(x, y, z, signed.0, signed.1).into(),
            Scalar::Dot2 { signed, high } => integer::dot2(x, y, z, signed, high).into(),
            Scalar::Multiply24 { signed, high, add } => {
                let product = integer::multiply24(x, y, signed, high);
                product.wrapping_add(if add { z } else { 0 }).into()
            }
            Scalar::BitMask { wrap } => {
                let (start, length) = if wrap { (x & 31, y & 31) } else { (x.min(32), y.min(32)) };
                let ones = if length == 32 { u32::MAX } else { (1 << length) - 1 };
                ones.checked_shl(start).unwrap_or(0).into()
            }
            Scalar::NthSet => integer::nth_set(x, y, z as i32).into(),
            Scalar::SelectBySign { float, flush } => {
                let positive = if float {
                    let c = if flush { F32.flush(c) } else { c };
                    // −0 counts as not negative, NaN as negative.
                    !F32.is_nan(c) && (c & F32.sign() == 0 || c == F32.sign())
                } else {
                    z as i32 >= 0
                };
                if positive { a } else { b }
            }
            Scalar::HalvesInteger(operation) => pair(&|a, b, _| {
                let (p, q) = (a as u16 as i16, b as u16 as i16);
                let signed =
                    |value: i16, relu: bool| if relu { value.max(0) as u16 } else { value as u16 };
                u64::from(match operation {
                    HalvesInteger::Add => (a as u16).wrapping_add(b as u16),
                    HalvesInteger::Minimum { signed: true, relu } => signed(p.min(q), relu),
                    HalvesInteger::Maximum { signed: true, relu } => signed(p.max(q), relu),
                    HalvesInteger::Minimum { .. } => a.min(b) as u16,
                    HalvesInteger::Maximum { .. } => a.max(b) as u16,
                })
            }),
            Scalar::Extend { signed, wrap } => {
                let length = if wrap { y & 31 } else { y.min(32) };
                match length {
                    0 => 0,
                    _ if signed => extend(a & ((1 << length) - 1), length) as u32 as u64,
                    _ => a & ((1 << length) - 1),
                }
            }
            Scalar::Pack { width, signed, third } => {
                let (least, most) = if signed {
                    (-(1i64 << (width - 1)), (1 << (width - 1)) - 1)
                } else {
                    (0, (1i64 << width) - 1)
                };
                let clamp = |value: u32| {
                    (i64::from(value as i32).clamp(least, most) as u64) & ((1 << width) - 1)
                };
                let above = if third { c << (2 * width) } else { 0 };
                (above | clamp(x) << width | clamp(y)) & 0xffff_ffff
            }
        }
    }
}
