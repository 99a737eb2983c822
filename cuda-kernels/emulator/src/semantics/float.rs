//! Floating-point arithmetic: every operation in every format, rounding and modifier, one value
//! at a time; and the common cases (round to nearest even) in a form that vectorises.

use super::exact::{Exact, Format, Number, Rounding};

/// Operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Add,
    Subtract,
    Multiply,
    /// `a·b + c`, rounded once.
    FusedMultiplyAdd,
    Divide,
    Reciprocal,
    SquareRoot,
    Minimum,
    Maximum,
    Absolute,
    Negate,
}

/// An operation with its modifiers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Float {
    pub(crate) operation: Operation,
    pub(crate) format: Format,
    pub(crate) rounding: Rounding,
    /// Subnormal operands and results are flushed to zero.
    pub(crate) flush: bool,
    /// The result is clamped to 0…1, and NaN is 0.
    pub(crate) saturate: bool,
    /// Negative results are 0.
    pub(crate) relu: bool,
    /// `min` and `max` propagate NaN.
    pub(crate) nan: bool,
    /// `min` and `max` of magnitudes, with the exclusive or of the signs.
    pub(crate) xor_sign: bool,
}

impl Float {
    pub(crate) fn new(operation: Operation, format: Format) -> Float {
        let rounding = Rounding::NearestEven;
        Float {
            operation,
            format,
            rounding,
            flush: false,
            saturate: false,
            relu: false,
            nan: false,
            xor_sign: false,
        }
    }

    /// The result's bits.
    pub(crate) fn evaluate(self, a: u64, b: u64, c: u64) -> u64 {
        let format = self.format;
        let flush = |bits| if self.flush { format.flush(bits) } else { bits };
        let (a, b, c) = (flush(a), flush(b), flush(c));
        let (x, y, z) = (|| format.unpack(a), || format.unpack(b), || format.unpack(c));
        let round = |number: Number| flush(format.pack(number, self.rounding));
        let result = match self.operation {
            Operation::Add => round(x().plus(y(), self.rounding)),
            Operation::Subtract => round(x().plus(format.unpack(b ^ format.sign()), self.rounding)),
            Operation::Multiply => round(x().times(y())),
            Operation::FusedMultiplyAdd => round(x().times(y()).plus(z(), self.rounding)),
            Operation::Divide => round(x().over(y())),
            Operation::Reciprocal => round(Number::Finite(Exact::integer(1)).over(x())),
            Operation::SquareRoot => round(x().root()),
            Operation::Minimum | Operation::Maximum => self.select(a, b),
            Operation::Absolute | Operation::Negate => {
                if format.is_nan(a) {
                    format.nan()
                } else if self.operation == Operation::Absolute {
                    a & !format.sign()
                } else {
                    a ^ format.sign()
                }
            }
        };
        self.finish(result)
    }

    fn select(self, a: u64, b: u64) -> u64 {
        let format = self.format;
        let sign = (a ^ b) & format.sign();
        let (a, b) = if self.xor_sign { (a & !format.sign(), b & !format.sign()) } else { (a, b) };
        let picked = match (format.is_nan(a), format.is_nan(b)) {
            (true, true) => return format.nan(),
            (true, false) | (false, true) if self.nan => return format.nan(),
            (true, false) => b,
            (false, true) => a,
            (false, false) => {
                // As integers: the magnitude of negative ones is inverted, so −0 lies below +0.
                let order = |bits: u64| {
                    let magnitude = (bits & (format.sign() - 1)) as i64;
                    if bits & format.sign() != 0 { -1 - magnitude } else { magnitude }
                };
                let first = (order(a) <= order(b)) == (self.operation == Operation::Minimum);
                if first { a } else { b }
            }
        };
        if self.xor_sign { picked & !format.sign() | sign } else { picked }
    }

    fn finish(self, bits: u64) -> u64 {
        let format = self.format;
        if self.saturate {
            let one = format.pack(Number::Finite(Exact::integer(1)), Rounding::Zero);
            return match bits {
                _ if format.is_nan(bits) || bits & format.sign() != 0 => 0,
                _ if bits > one => one,
                _ => bits,
            };
        }
        if self.relu && bits & format.sign() != 0 && !format.is_nan(bits) { 0 } else { bits }
    }
}

/// `setp` and `set`: relations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Relation {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    /// Neither operand is NaN.
    Numbers,
    /// An operand is NaN.
    NaN,
}

/// A relation of floats; `unordered` relations hold if an operand is NaN.
pub(crate) fn compare(
    format: Format,
    relation: Relation,
    unordered: bool,
    flush: bool,
    a: u64,
    b: u64,
) -> bool {
    let (a, b) = if flush { (format.flush(a), format.flush(b)) } else { (a, b) };
    let nan = format.is_nan(a) || format.is_nan(b);
    match relation {
        Relation::Numbers => return !nan,
        Relation::NaN => return nan,
        _ if nan => return unordered,
        _ => {}
    }
    let order = |bits: u64| {
        let magnitude = (bits & (format.sign() - 1)) as i64;
        if bits & format.sign() != 0 { -magnitude } else { magnitude }
    };
    let ordering = order(a).cmp(&order(b));
    match relation {
        Relation::Equal => ordering.is_eq(),
        Relation::NotEqual => ordering.is_ne(),
        Relation::Less => ordering.is_lt(),
        Relation::LessEqual => ordering.is_le(),
        Relation::Greater => ordering.is_gt(),
        _ => ordering.is_ge(),
    }
}

/// The bits of an f32 result, with a canonical NaN.
#[inline(always)]
pub(crate) fn single(value: f32) -> u32 {
    if value.is_nan() { 0x7fff_ffff } else { value.to_bits() }
}

/// The bits of an f64 result, with a canonical NaN.
#[inline(always)]
pub(crate) fn double(value: f64) -> u64 {
    if value.is_nan() { 0xfff8_0000_0000_0000 } else { value.to_bits() }
}

/// Flushes subnormal f32 bits to zero.
#[inline(always)]
pub(crate) fn flush32(bits: u32) -> u32 {
    if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits }
}

/// `a·b + c` of doubles whose product is exact, rounded to odd, so that rounding again to a
/// format of less than 51 bits is the single rounding (Boldo and Melquiond, "Emulation of a FMA
/// and correctly rounded sums", 2008).
#[inline(always)]
pub(crate) fn sum_to_odd(product: f64, c: f64) -> f64 {
    let sum = product + c;
    let b = sum - product;
    let error = (product - (sum - b)) + (c - b);
    let bits = sum.to_bits();
    let inexact = error != 0.0 && bits & 1 == 0 && sum.is_finite();
    // Towards the error: away from zero if the error has the sign of the sum.
    let away = (error > 0.0) == (sum > 0.0);
    let odd = if away { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
    f64::from_bits(if inexact { odd } else { bits })
}

/// `fma.rn.f32`
#[inline(always)]
pub(crate) fn fma32(a: u32, b: u32, c: u32) -> u32 {
    let product = f64::from(f32::from_bits(a)) * f64::from(f32::from_bits(b));
    single(sum_to_odd(product, f64::from(f32::from_bits(c))) as f32)
}

/// Exact conversion of f16 to f32.
#[inline(always)]
pub(crate) fn widen16(bits: u32) -> f32 {
    let sign = (bits & 0x8000) << 16;
    let magnitude = bits & 0x7fff;
    // Exponent and fraction in place, then scaled by 2^112: exact, subnormals included.
    let scaled = f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000);
    let special = f32::from_bits(magnitude << 13 | 0x7f80_0000);
    let value = if magnitude >= 0x7c00 { special } else { scaled };
    f32::from_bits(value.to_bits() | sign)
}

/// Exact conversion of bf16 to f32.
#[inline(always)]
pub(crate) fn widen_brain(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// f32 to f16, to nearest even.
#[inline(always)]
pub(crate) fn narrow16(value: f32) -> u32 {
    let bits = value.to_bits();
    let sign = bits >> 16 & 0x8000;
    let magnitude = bits & 0x7fff_ffff;
    // Subnormal results: after 0.5 is added, the last bit of the sum's fraction is 2^-24.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let odd = magnitude >> 13 & 1;
    let normal = (magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd)) >> 13;
    let finite = if magnitude < 113 << 23 { subnormal } else { normal.min(0x7c00) };
    let result = if magnitude > 0x7f80_0000 {
        return 0x7fff;
    } else if magnitude >= 0x4780_0000 {
        0x7c00
    } else {
        finite
    };
    result | sign
}

/// f32 to bf16, to nearest even.
#[inline(always)]
pub(crate) fn narrow_brain(value: f32) -> u32 {
    let bits = value.to_bits();
    if value.is_nan() { 0x7fff } else { bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16 }
}

/// Converts a double that was rounded to odd (or is exact) to the f32 that rounds to odd, so that
/// it may be rounded again.
#[inline(always)]
pub(crate) fn odd_single(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    let bits = near.to_bits();
    if back == value || bits & 1 == 1 || !near.is_finite() {
        return near;
    }
    let grow = back.abs() < value.abs();
    f32::from_bits(if grow { bits + 1 } else { bits - 1 })
}

/// Applies `f` to both halves of a word.
#[inline(always)]
pub(crate) fn halves(a: u32, b: u32, c: u32, f: impl Fn(u32, u32, u32) -> u32) -> u32 {
    f(a & 0xffff, b & 0xffff, c & 0xffff) | f(a >> 16, b >> 16, c >> 16) << 16
}

/// `add.rn.f16`: f32 has enough bits that rounding the sum of halves twice equals rounding it
/// once (24 ≥ 2·11 + 2).
#[inline(always)]
pub(crate) fn add16(a: u32, b: u32) -> u32 {
    narrow16(widen16(a) + widen16(b))
}

/// `mul.rn.f16`
#[inline(always)]
pub(crate) fn mul16(a: u32, b: u32) -> u32 {
    narrow16(widen16(a) * widen16(b))
}

/// `fma.rn.f16`
#[inline(always)]
pub(crate) fn fma16(a: u32, b: u32, c: u32) -> u32 {
    let product = f64::from(widen16(a) * widen16(b));
    narrow16(odd_single(sum_to_odd(product, f64::from(widen16(c)))))
}

/// `add.rn.bf16`
#[inline(always)]
pub(crate) fn add_brain(a: u32, b: u32) -> u32 {
    narrow_brain(widen_brain(a) + widen_brain(b))
}

/// `mul.rn.bf16`
#[inline(always)]
pub(crate) fn mul_brain(a: u32, b: u32) -> u32 {
    narrow_brain(widen_brain(a) * widen_brain(b))
}

/// `fma.rn.bf16`
#[inline(always)]
pub(crate) fn fma_brain(a: u32, b: u32, c: u32) -> u32 {
    let product = f64::from(widen_brain(a)) * f64::from(widen_brain(b));
    narrow_brain(odd_single(sum_to_odd(product, f64::from(widen_brain(c)))))
}

#[cfg(test)]
mod tests {
    use super::super::exact::{BF16, F16, F32};
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn widening_and_narrowing_agree_with_half() {
        for bits in 0..=0xffff_u32 {
            let ours = widen16(bits);
            let theirs = half::f16::from_bits(bits as u16).to_f32();
            assert!(
                ours == theirs && ours.is_sign_negative() == theirs.is_sign_negative()
                    || ours.is_nan() && theirs.is_nan()
            );
            if !ours.is_nan() {
                assert_eq!(narrow16(ours), bits);
            }
            let ours = widen_brain(bits);
            let theirs = half::bf16::from_bits(bits as u16).to_f32();
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan());
            if !ours.is_nan() {
                assert_eq!(narrow_brain(ours), bits);
            }
        }
    }

    #[test]
    fn narrowing_between_neighbours_agrees_with_half_and_with_the_exact_form() {
        for bits in 0..0x7c00_u32 {
            let (low, high) = (widen16(bits), widen16(bits + 1));
            let middle = if high.is_infinite() { 65520.0 } else { (low + high) / 2.0 };
            for value in [middle, middle.next_up(), middle.next_down()] {
                for value in [value, -value] {
                    assert_eq!(
                        narrow16(value),
                        u32::from(half::f16::from_f32(value).to_bits()),
                        "{value:e}"
                    );
                    let exact = F16.pack(F32.unpack(value.to_bits().into()), Rounding::NearestEven);
                    assert_eq!(u64::from(narrow16(value)), exact, "{value:e}");
                }
            }
        }
        for bits in 0..0x7f80_u32 {
            let low = widen_brain(bits);
            let middle = f32::from_bits(low.to_bits() + 0x8000);
            for value in [middle, middle.next_up(), middle.next_down()] {
                assert_eq!(
                    narrow_brain(value),
                    u32::from(half::bf16::from_f32(value).to_bits()),
                    "{value:e}"
                );
                let exact = BF16.pack(F32.unpack(value.to_bits().into()), Rounding::NearestEven);
                assert_eq!(u64::from(narrow_brain(value)), exact, "{value:e}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20000))]
        #[test]
        fn the_fast_forms_are_the_exact_ones(a: u32, b: u32, c: u32, near: bool) {
            let c = if near {
                ((f32::from_bits(a) * f32::from_bits(b)).to_bits() ^ 0x8000_0000) ^ (c & 7)
            } else {
                c
            };
            let exact = |operation, format| Float::new(operation, format);
            let fma = exact(Operation::FusedMultiplyAdd, F32);
            prop_assert_eq!(u64::from(fma32(a, b, c)), fma.evaluate(a.into(), b.into(), c.into()));
            let (a, b, c) = (a & 0xffff, b & 0xffff, c >> 13 & 0xffff);
            let [x, y, z] = [a, b, c].map(u64::from);
            prop_assert_eq!(u64::from(add16(a, b)), exact(Operation::Add, F16).evaluate(x, y, 0));
            prop_assert_eq!(
                u64::from(mul16(a, b)),
                exact(Operation::Multiply, F16).evaluate(x, y, 0)
            );
            prop_assert_eq!(
                u64::from(fma16(a, b, c)),
                exact(Operation::FusedMultiplyAdd, F16).evaluate(x, y, z)
            );
            prop_assert_eq!(
                u64::from(add_brain(a, b)),
                exact(Operation::Add, BF16).evaluate(x, y, 0)
            );
            prop_assert_eq!(
                u64::from(mul_brain(a, b)),
                exact(Operation::Multiply, BF16).evaluate(x, y, 0)
            );
            prop_assert_eq!(
                u64::from(fma_brain(a, b, c)),
                exact(Operation::FusedMultiplyAdd, BF16).evaluate(x, y, z)
            );
        }
    }
}
