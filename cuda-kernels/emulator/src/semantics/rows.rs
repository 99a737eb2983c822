//! Row functions: one call computes an instruction for all 32 lanes. So an instruction is
//! dispatched once per warp, and rustc vectorises the loop over lanes.

use super::float::{
    Relation, add_brain, add16, double, flush32, fma_brain, fma16, fma32, halves, mul_brain, mul16,
    single,
};
use super::integer::{divide16, divide32, divide64, remainder16, remainder32, remainder64};
use crate::parse::syntax::Type;

/// Threads of a warp.
pub(crate) const WARP: usize = 32;
/// A register of up to 32 bits in every lane.
pub(crate) type Words = [u32; WARP];
/// A register of 64 bits in every lane.
pub(crate) type Doubles = [u64; WARP];

/// A row function, by the widths of its operands and result (W: 32 bits, D: 64 bits).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rows {
    W1(fn(&Words) -> Words),
    W2(fn(&Words, &Words) -> Words),
    W3(fn(&Words, &Words, &Words) -> Words),
    D1(fn(&Doubles) -> Doubles),
    D2(fn(&Doubles, &Doubles) -> Doubles),
    D3(fn(&Doubles, &Doubles, &Doubles) -> Doubles),
    WToD(fn(&Words) -> Doubles),
    DToW(fn(&Doubles) -> Words),
    WWToD(fn(&Words, &Words) -> Doubles),
    WWDToD(fn(&Words, &Words, &Doubles) -> Doubles),
    DWToD(fn(&Doubles, &Words) -> Doubles),
}

/// A comparison of rows: a bit per lane.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CompareRows {
    W(fn(&Words, &Words) -> u32),
    D(fn(&Doubles, &Doubles) -> u32),
}

macro_rules! row {
    ($kind:ident, $result:expr, |$($x:ident: $t:ty),+| $value:expr) => {
        Rows::$kind(|$($x: &[$t; WARP]),+| {
            let mut result = [$result; WARP];
            for lane in 0..WARP {
                $(let $x = $x[lane];)+
                result[lane] = $value;
            }
            result
        })
    };
}
macro_rules! w1 {
    (|$a:ident| $e:expr) => {
        row!(W1, 0u32, |$a: u32| $e)
    };
}
macro_rules! w2 {
    (|$a:ident, $b:ident| $e:expr) => {
        row!(W2, 0u32, |$a: u32, $b: u32| $e)
    };
}
macro_rules! w3 {
    (|$a:ident, $b:ident, $c:ident| $e:expr) => {
        row!(W3, 0u32, |$a: u32, $b: u32, $c: u32| $e)
    };
}
macro_rules! d1 {
    (|$a:ident| $e:expr) => {
        row!(D1, 0u64, |$a: u64| $e)
    };
}
macro_rules! d2 {
    (|$a:ident, $b:ident| $e:expr) => {
        row!(D2, 0u64, |$a: u64, $b: u64| $e)
    };
}
macro_rules! d3 {
    (|$a:ident, $b:ident, $c:ident| $e:expr) => {
        row!(D3, 0u64, |$a: u64, $b: u64, $c: u64| $e)
    };
}

fn f(bits: u32) -> f32 {
    f32::from_bits(bits)
}

fn g(bits: u64) -> f64 {
    f64::from_bits(bits)
}

/// A 16-bit value, sign-extended to 32 bits.
#[inline(always)]
fn s16(bits: u32) -> i32 {
    i32::from(bits as i16)
}

/// Two-operand integer instructions: `add`, `min`, `mul.hi`, …
pub(crate) fn integer2(name: &str, ty: Type) -> Option<Rows> {
    let signed = ty.is_signed();
    Some(match (name, ty.bits()) {
        ("add", 16) => w2!(|a, b| a.wrapping_add(b) & 0xffff),
        ("add", 32) => w2!(|a, b| a.wrapping_add(b)),
        ("add", 64) => d2!(|a, b| a.wrapping_add(b)),
        ("add.sat", 32) if signed => w2!(|a, b| (a as i32).saturating_add(b as i32) as u32),
        ("sub", 16) => w2!(|a, b| a.wrapping_sub(b) & 0xffff),
        ("sub", 32) => w2!(|a, b| a.wrapping_sub(b)),
        ("sub", 64) => d2!(|a, b| a.wrapping_sub(b)),
        ("sub.sat", 32) if signed => w2!(|a, b| (a as i32).saturating_sub(b as i32) as u32),
        ("mul.lo", 16) => w2!(|a, b| a.wrapping_mul(b) & 0xffff),
        ("mul.lo", 32) => w2!(|a, b| a.wrapping_mul(b)),
        ("mul.lo", 64) => d2!(|a, b| a.wrapping_mul(b)),
        ("mul.hi", 16) if signed => w2!(|a, b| (s16(a) * s16(b)) as u32 >> 16),
        ("mul.hi", 16) => w2!(|a, b| a.wrapping_mul(b) >> 16),
        ("mul.hi", 32) if signed => {
            w2!(|a, b| (i64::from(a as i32) * i64::from(b as i32) >> 32) as u32)
        }
        ("mul.hi", 32) => w2!(|a, b| (u64::from(a) * u64::from(b) >> 32) as u32),
        ("mul.hi", 64) if signed => {
            d2!(|a, b| (i128::from(a as i64) * i128::from(b as i64) >> 64) as u64)
        }
        ("mul.hi", 64) => d2!(|a, b| (u128::from(a) * u128::from(b) >> 64) as u64),
        ("mul.wide", 16) if signed => w2!(|a, b| (s16(a) * s16(b)) as u32),
        ("mul.wide", 16) => w2!(|a, b| a.wrapping_mul(b)),
        ("mul.wide", 32) if signed => {
            row!(WWToD, 0u64, |a: u32, b: u32| (i64::from(a as i32) * i64::from(b as i32)) as u64)
        }
        ("mul.wide", 32) => row!(WWToD, 0u64, |a: u32, b: u32| u64::from(a) * u64::from(b)),
        ("div", 16) if signed => w2!(|a, b| u32::from(divide16(a as u16, b as u16, true))),
        ("div", 16) => w2!(|a, b| u32::from(divide16(a as u16, b as u16, false))),
        ("div", 32) if signed => w2!(|a, b| divide32(a, b, true)),
        ("div", 32) => w2!(|a, b| divide32(a, b, false)),
        ("div", 64) if signed => d2!(|a, b| divide64(a, b, true)),
        ("div", 64) => d2!(|a, b| divide64(a, b, false)),
        ("rem", 16) if signed => w2!(|a, b| u32::from(remainder16(a as u16, b as u16, true))),
        ("rem", 16) => w2!(|a, b| u32::from(remainder16(a as u16, b as u16, false))),
        ("rem", 32) if signed => w2!(|a, b| remainder32(a, b, true)),
        ("rem", 32) => w2!(|a, b| remainder32(a, b, false)),
        ("rem", 64) if signed => d2!(|a, b| remainder64(a, b, true)),
        ("rem", 64) => d2!(|a, b| remainder64(a, b, false)),
        ("min", 16) if signed => w2!(|a, b| s16(a).min(s16(b)) as u32 & 0xffff),
        ("max", 16) if signed => w2!(|a, b| s16(a).max(s16(b)) as u32 & 0xffff),
        ("min", 32) if signed => w2!(|a, b| (a as i32).min(b as i32) as u32),
        ("max", 32) if signed => w2!(|a, b| (a as i32).max(b as i32) as u32),
        ("min.relu", 32) if signed => w2!(|a, b| (a as i32).min(b as i32).max(0) as u32),
        ("max.relu", 32) if signed => w2!(|a, b| (a as i32).max(b as i32).max(0) as u32),
        ("min", 64) if signed => d2!(|a, b| (a as i64).min(b as i64) as u64),
        ("max", 64) if signed => d2!(|a, b| (a as i64).max(b as i64) as u64),
        ("min", 16 | 32) => w2!(|a, b| a.min(b)),
        ("max", 16 | 32) => w2!(|a, b| a.max(b)),
        ("min", 64) => d2!(|a, b| a.min(b)),
        ("max", 64) => d2!(|a, b| a.max(b)),
        ("and", 16 | 32) => w2!(|a, b| a & b),
        ("and", 64) => d2!(|a, b| a & b),
        ("or", 16 | 32) => w2!(|a, b| a | b),
        ("or", 64) => d2!(|a, b| a | b),
        ("xor", 16 | 32) => w2!(|a, b| a ^ b),
        ("xor", 64) => d2!(|a, b| a ^ b),
        ("shl", 16) => w2!(|a, b| if b > 15 { 0 } else { a << b & 0xffff }),
        ("shl", 32) => w2!(|a, b| if b > 31 { 0 } else { a << (b & 31) }),
        ("shl", 64) => row!(DWToD, 0u64, |a: u64, b: u32| if b > 63 { 0 } else { a << (b & 63) }),
        ("shr", 16) if signed => w2!(|a, b| (s16(a) >> b.min(15)) as u32 & 0xffff),
        ("shr", 16) => w2!(|a, b| if b > 15 { 0 } else { a >> b }),
        ("shr", 32) if signed => w2!(|a, b| (a as i32 >> b.min(31)) as u32),
        ("shr", 32) => w2!(|a, b| if b > 31 { 0 } else { a >> (b & 31) }),
        ("shr", 64) if signed => row!(DWToD, 0u64, |a: u64, b: u32| (a as i64 >> b.min(63)) as u64),
        ("shr", 64) => row!(DWToD, 0u64, |a: u64, b: u32| if b > 63 { 0 } else { a >> (b & 63) }),
        _ => return None,
    })
}

/// One-operand integer instructions.
pub(crate) fn integer1(name: &str, ty: Type) -> Option<Rows> {
    Some(match (name, ty.bits()) {
        ("abs", 16) => w1!(|a| s16(a).wrapping_abs() as u32 & 0xffff),
        ("abs", 32) => w1!(|a| (a as i32).wrapping_abs() as u32),
        ("abs", 64) => d1!(|a| (a as i64).wrapping_abs() as u64),
        ("neg", 16) => w1!(|a| a.wrapping_neg() & 0xffff),
        ("neg", 32) => w1!(|a| a.wrapping_neg()),
        ("neg", 64) => d1!(|a| a.wrapping_neg()),
        ("not", 16) => w1!(|a| !a & 0xffff),
        ("not", 32) => w1!(|a| !a),
        ("not", 64) => d1!(|a| !a),
        ("cnot", 16 | 32) => w1!(|a| u32::from(a == 0)),
        ("cnot", 64) => d1!(|a| u64::from(a == 0)),
        ("popc", 32) => w1!(|a| a.count_ones()),
        ("popc", 64) => row!(DToW, 0u32, |a: u64| a.count_ones()),
        ("clz", 32) => w1!(|a| a.leading_zeros()),
        ("clz", 64) => row!(DToW, 0u32, |a: u64| a.leading_zeros()),
        ("brev", 32) => w1!(|a| a.reverse_bits()),
        ("brev", 64) => d1!(|a| a.reverse_bits()),
        ("mov", 16 | 32) => w1!(|a| a),
        ("mov", 64) => d1!(|a| a),
        _ => return None,
    })
}

/// Three-operand integer instructions.
pub(crate) fn integer3(name: &str, ty: Type) -> Option<Rows> {
    let signed = ty.is_signed();
    Some(match (name, ty.bits()) {
        ("mad.lo", 16) => w3!(|a, b, c| a.wrapping_mul(b).wrapping_add(c) & 0xffff),
        ("mad.lo", 32) => w3!(|a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mad.lo", 64) => d3!(|a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mad.hi", 16) if signed => {
            w3!(|a, b, c| ((s16(a) * s16(b)) as u32 >> 16).wrapping_add(c) & 0xffff)
        }
        ("mad.hi", 16) => w3!(|a, b, c| (a.wrapping_mul(b) >> 16).wrapping_add(c) & 0xffff),
        ("mad.hi", 32) if signed => {
            w3!(|a, b, c| ((i64::from(a as i32) * i64::from(b as i32) >> 32) as u32)
                .wrapping_add(c))
        }
        ("mad.hi", 32) => {
            w3!(|a, b, c| ((u64::from(a) * u64::from(b) >> 32) as u32).wrapping_add(c))
        }
        ("mad.hi.sat", 32) if signed => w3!(|a, b, c| {
            let high = (i64::from(a as i32) * i64::from(b as i32) >> 32) as i32;
            high.saturating_add(c as i32) as u32
        }),
        ("mad.hi", 64) if signed => {
            d3!(|a, b, c| ((i128::from(a as i64) * i128::from(b as i64) >> 64) as u64)
                .wrapping_add(c))
        }
        ("mad.hi", 64) => {
            d3!(|a, b, c| ((u128::from(a) * u128::from(b) >> 64) as u64).wrapping_add(c))
        }
        ("mad.wide", 16) if signed => w3!(|a, b, c| ((s16(a) * s16(b)) as u32).wrapping_add(c)),
        ("mad.wide", 16) => w3!(|a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        ("mad.wide", 32) if signed => row!(WWDToD, 0u64, |a: u32, b: u32, c: u64| {
            ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c)
        }),
        ("mad.wide", 32) => {
            row!(WWDToD, 0u64, |a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b))
                .wrapping_add(c))
        }
        ("sad", 16) if signed => w3!(|a, b, c| s16(a).abs_diff(s16(b)).wrapping_add(c) & 0xffff),
        ("sad", 32) if signed => w3!(|a, b, c| (a as i32).abs_diff(b as i32).wrapping_add(c)),
        ("sad", 64) if signed => d3!(|a, b, c| (a as i64).abs_diff(b as i64).wrapping_add(c)),
        ("sad", 16) => w3!(|a, b, c| a.abs_diff(b).wrapping_add(c) & 0xffff),
        ("sad", 32) => w3!(|a, b, c| a.abs_diff(b).wrapping_add(c)),
        ("sad", 64) => d3!(|a, b, c| a.abs_diff(b).wrapping_add(c)),
        _ => return None,
    })
}

/// Floating-point instructions that round to nearest even and do not saturate. All others are
/// computed lane by lane.
pub(crate) fn float(name: &str, ty: Type, flush: bool) -> Option<Rows> {
    Some(match (name, ty, flush) {
        ("add", Type::Float(32), false) => w2!(|a, b| single(f(a) + f(b))),
        ("add", Type::Float(32), true) => {
            w2!(|a, b| flush32(single(f(flush32(a)) + f(flush32(b)))))
        }
        ("sub", Type::Float(32), false) => w2!(|a, b| single(f(a) - f(b))),
        ("sub", Type::Float(32), true) => {
            w2!(|a, b| flush32(single(f(flush32(a)) - f(flush32(b)))))
        }
        ("mul", Type::Float(32), false) => w2!(|a, b| single(f(a) * f(b))),
        ("mul", Type::Float(32), true) => {
            w2!(|a, b| flush32(single(f(flush32(a)) * f(flush32(b)))))
        }
        ("fma", Type::Float(32), false) => w3!(|a, b, c| fma32(a, b, c)),
        ("fma", Type::Float(32), true) => {
            w3!(|a, b, c| flush32(fma32(flush32(a), flush32(b), flush32(c))))
        }
        ("div", Type::Float(32), false) => w2!(|a, b| single(f(a) / f(b))),
        ("sqrt", Type::Float(32), false) => w1!(|a| single(f(a).sqrt())),
        ("rcp", Type::Float(32), false) => w1!(|a| single(1.0 / f(a))),
        ("div", Type::Float(32), true) => {
            w2!(|a, b| flush32(single(f(flush32(a)) / f(flush32(b)))))
        }
        ("sqrt", Type::Float(32), true) => w1!(|a| flush32(single(f(flush32(a)).sqrt()))),
        ("rcp", Type::Float(32), true) => w1!(|a| flush32(single(1.0 / f(flush32(a))))),
        ("max", Type::Float(32), true) => w2!(|a, b| extreme(flush32(a), flush32(b), false)),
        ("min", Type::Float(32), true) => w2!(|a, b| extreme(flush32(a), flush32(b), true)),
        ("add", Type::Float(64), false) => d2!(|a, b| double(g(a) + g(b))),
        ("sub", Type::Float(64), false) => d2!(|a, b| double(g(a) - g(b))),
        ("mul", Type::Float(64), false) => d2!(|a, b| double(g(a) * g(b))),
        ("fma", Type::Float(64), false) => d3!(|a, b, c| double(g(a).mul_add(g(b), g(c)))),
        ("div", Type::Float(64), false) => d2!(|a, b| double(g(a) / g(b))),
        ("sqrt", Type::Float(64), false) => d1!(|a| double(g(a).sqrt())),
        ("rcp", Type::Float(64), false) => d1!(|a| double(1.0 / g(a))),
        ("neg", Type::Float(32), false) => w1!(|a| single(f(a ^ 1 << 31))),
        ("abs", Type::Float(32), false) => w1!(|a| single(f(a & !(1 << 31)))),
        ("neg", Type::Float(64), false) => d1!(|a| double(g(a ^ 1 << 63))),
        ("abs", Type::Float(64), false) => d1!(|a| double(g(a & !(1 << 63)))),
        ("max", Type::Float(32), false) => w2!(|a, b| extreme(a, b, false)),
        ("min", Type::Float(32), false) => w2!(|a, b| extreme(a, b, true)),
        ("copysign", Type::Float(32), false) => w2!(|a, b| a & 1 << 31 | b & !(1 << 31)),
        ("copysign", Type::Float(64), false) => d2!(|a, b| a & 1 << 63 | b & !(1 << 63)),
        ("add", Type::Float(16), false) => w2!(|a, b| add16(a, b)),
        ("mul", Type::Float(16), false) => w2!(|a, b| mul16(a, b)),
        ("sub", Type::Float(16), false) => w2!(|a, b| add16(a, b ^ 0x8000)),
        ("fma", Type::Float(16), false) => w3!(|a, b, c| fma16(a, b, c)),
        ("add", Type::Brain, false) => w2!(|a, b| add_brain(a, b)),
        ("mul", Type::Brain, false) => w2!(|a, b| mul_brain(a, b)),
        ("sub", Type::Brain, false) => w2!(|a, b| add_brain(a, b ^ 0x8000)),
        ("fma", Type::Brain, false) => w3!(|a, b, c| fma_brain(a, b, c)),
        ("add", Type::HalfPair, false) => w2!(|a, b| halves(a, b, 0, |a, b, _| add16(a, b))),
        ("mul", Type::HalfPair, false) => w2!(|a, b| halves(a, b, 0, |a, b, _| mul16(a, b))),
        ("sub", Type::HalfPair, false) => {
            w2!(|a, b| halves(a, b, 0, |a, b, _| add16(a, b ^ 0x8000)))
        }
        ("fma", Type::HalfPair, false) => w3!(|a, b, c| halves(a, b, c, fma16)),
        ("add", Type::BrainPair, false) => w2!(|a, b| halves(a, b, 0, |a, b, _| add_brain(a, b))),
        ("mul", Type::BrainPair, false) => w2!(|a, b| halves(a, b, 0, |a, b, _| mul_brain(a, b))),
        ("sub", Type::BrainPair, false) => {
            w2!(|a, b| halves(a, b, 0, |a, b, _| add_brain(a, b ^ 0x8000)))
        }
        ("fma", Type::BrainPair, false) => w3!(|a, b, c| halves(a, b, c, fma_brain)),
        _ => return None,
    })
}

/// `min.f32` and `max.f32`: a number takes precedence over NaN, and −0 lies below +0.
#[inline(always)]
fn extreme(a: u32, b: u32, least: bool) -> u32 {
    let order = |bits: u32| (bits as i32) ^ ((bits as i32 >> 31) as u32 >> 1) as i32;
    let first = (order(a) <= order(b)) == least;
    let picked = if first { a } else { b };
    let (x, y) = (f(a).is_nan(), f(b).is_nan());
    match (x, y) {
        (false, false) => picked,
        (true, false) => b,
        (false, true) => a,
        (true, true) => 0x7fff_ffff,
    }
}

/// Frequent conversions: (to, from) with no modifier except the one that the pair requires.
pub(crate) fn convert(to: Type, from: Type) -> Option<Rows> {
    use Type::{Brain, Float, Signed, Unsigned};
    Some(match (to, from) {
        (Signed(64), Signed(32)) => row!(WToD, 0u64, |a: u32| a as i32 as i64 as u64),
        (Signed(64) | Unsigned(64), Unsigned(32)) => row!(WToD, 0u64, |a: u32| u64::from(a)),
        (Unsigned(32) | Signed(32), Unsigned(64) | Signed(64)) => {
            row!(DToW, 0u32, |a: u64| a as u32)
        }
        (Float(32), Signed(32)) => w1!(|a| (a as i32 as f32).to_bits()),
        (Float(32), Unsigned(32)) => w1!(|a| (a as f32).to_bits()),
        (Float(32), Float(16)) => w1!(|a| single(super::float::widen16(a))),
        (Float(32), Brain) => w1!(|a| single(super::float::widen_brain(a))),
        (Float(16), Float(32)) => w1!(|a| super::float::narrow16(f(a))),
        (Brain, Float(32)) => w1!(|a| super::float::narrow_brain(f(a))),
        (Float(64), Float(32)) => row!(WToD, 0u64, |a: u32| double(f64::from(f(a)))),
        (Float(32), Float(64)) => row!(DToW, 0u32, |a: u64| single(g(a) as f32)),
        (Float(64), Signed(32)) => row!(WToD, 0u64, |a: u32| f64::from(a as i32).to_bits()),
        (Float(64), Unsigned(32)) => row!(WToD, 0u64, |a: u32| f64::from(a).to_bits()),
        (Unsigned(32) | Signed(32), Unsigned(16)) => w1!(|a| a & 0xffff),
        (Unsigned(32) | Signed(32), Unsigned(8)) => w1!(|a| a & 0xff),
        (Unsigned(32) | Signed(32), Signed(16)) => w1!(|a| s16(a) as u32),
        (Unsigned(32) | Signed(32), Signed(8)) => w1!(|a| i32::from(a as i8) as u32),
        (Unsigned(16) | Signed(16), Unsigned(32) | Signed(32)) => w1!(|a| a & 0xffff),
        _ => return None,
    })
}

/// Conversions that round to a whole number, with an integer or a float as result. `rounding` is
/// `rni`, `rzi`, `rmi` or `rpi`.
pub(crate) fn whole(to: Type, from: Type, rounding: &str) -> Option<Rows> {
    use Type::{Float, Signed, Unsigned};
    // Rust's casts saturate, and convert NaN to 0, as PTX does for f32.
    Some(match (to, from, rounding) {
        (Signed(32), Float(32), "rzi") => w1!(|a| f(a) as i32 as u32),
        (Unsigned(32), Float(32), "rzi") => w1!(|a| f(a) as u32),
        (Signed(32), Float(32), "rni") => w1!(|a| f(a).round_ties_even() as i32 as u32),
        (Signed(32), Float(32), "rmi") => w1!(|a| f(a).floor() as i32 as u32),
        (Signed(32), Float(32), "rpi") => w1!(|a| f(a).ceil() as i32 as u32),
        (Signed(64), Float(64), "rzi") => {
            d1!(|a| if g(a).is_nan() { 1 << 63 } else { g(a) as i64 as u64 })
        }
        (Float(32), Float(32), "rni") => w1!(|a| single(f(a).round_ties_even())),
        (Float(32), Float(32), "rzi") => w1!(|a| single(f(a).trunc())),
        (Float(32), Float(32), "rmi") => w1!(|a| single(f(a).floor())),
        (Float(32), Float(32), "rpi") => w1!(|a| single(f(a).ceil())),
        (Float(64), Float(64), "rni") => d1!(|a| double(g(a).round_ties_even())),
        (Float(64), Float(64), "rzi") => d1!(|a| double(g(a).trunc())),
        (Float(64), Float(64), "rmi") => d1!(|a| double(g(a).floor())),
        (Float(64), Float(64), "rpi") => d1!(|a| double(g(a).ceil())),
        _ => return None,
    })
}

macro_rules! bits {
    ($kind:ident, $t:ty, |$a:ident, $b:ident| $e:expr) => {
        CompareRows::$kind(|x: &[$t; WARP], y: &[$t; WARP]| {
            let mut result = 0;
            for lane in 0..WARP {
                let ($a, $b) = (x[lane], y[lane]);
                result |= u32::from($e) << lane;
            }
            result
        })
    };
}

macro_rules! relations {
    ($kind:ident, $t:ty, $relation:expr, |$x:ident| $value:expr) => {
        match $relation {
            Relation::Equal => bits!($kind, $t, |a, b| {
                let $x = a;
                let l = $value;
                let $x = b;
                l == $value
            }),
            Relation::NotEqual => bits!($kind, $t, |a, b| {
                let $x = a;
                let l = $value;
                let $x = b;
                l != $value
            }),
            Relation::Less => bits!($kind, $t, |a, b| {
                let $x = a;
                let l = $value;
                let $x = b;
                l < $value
            }),
            Relation::LessEqual => bits!($kind, $t, |a, b| {
                let $x = a;
                let l = $value;
                let $x = b;
                l <= $value
            }),
            Relation::Greater => bits!($kind, $t, |a, b| {
                let $x = a;
                let l = $value;
                let $x = b;
                l > $value
            }),
            Relation::GreaterEqual => bits!($kind, $t, |a, b| {
                let $x = a;
                let l = $value;
                let $x = b;
                l >= $value
            }),
            Relation::Numbers | Relation::NaN => return None,
        }
    };
}

/// Comparisons of integers, and ordered comparisons of floats except "not equal", which is
/// computed lane by lane.
pub(crate) fn compare(ty: Type, relation: Relation) -> Option<CompareRows> {
    Some(match ty {
        Type::Signed(16) => relations!(W, u32, relation, |x| s16(x)),
        Type::Signed(32) => relations!(W, u32, relation, |x| x as i32),
        Type::Signed(64) => relations!(D, u64, relation, |x| x as i64),
        Type::Unsigned(16 | 32) | Type::Bits(16 | 32) => relations!(W, u32, relation, |x| x),
        Type::Unsigned(64) | Type::Bits(64) => relations!(D, u64, relation, |x| x),
        Type::Float(32) if relation != Relation::NotEqual => relations!(W, u32, relation, |x| f(x)),
        Type::Float(64) if relation != Relation::NotEqual => relations!(D, u64, relation, |x| g(x)),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::semantics::convert::{Conversion, Kind};
    use crate::semantics::exact::{BF16, F16, F32, F64, Format, Rounding};
    use crate::semantics::float::{self, Float, Operation};
    use proptest::prelude::*;

    /// One lane of a row function of up to three operands.
    fn apply(rows: Rows, [a, b, c]: [u64; 3]) -> u64 {
        let (w, d) = (|x: u64| [x as u32; WARP], |x: u64| [x; WARP]);
        match rows {
            Rows::W1(f) => f(&w(a))[5].into(),
            Rows::W2(f) => f(&w(a), &w(b))[5].into(),
            Rows::W3(f) => f(&w(a), &w(b), &w(c))[5].into(),
            Rows::D1(f) => f(&d(a))[5],
            Rows::D2(f) => f(&d(a), &d(b))[5],
            Rows::D3(f) => f(&d(a), &d(b), &d(c))[5],
            Rows::WToD(f) => f(&w(a))[5],
            Rows::DToW(f) => f(&d(a))[5].into(),
            Rows::WWToD(f) => f(&w(a), &w(b))[5],
            Rows::WWDToD(f) => f(&w(a), &w(b), &d(c))[5],
            Rows::DWToD(f) => f(&d(a), &w(b))[5],
        }
    }

    const OPERATIONS: [(&str, Operation); 11] = [
        ("add", Operation::Add),
        ("sub", Operation::Subtract),
        ("mul", Operation::Multiply),
        ("fma", Operation::FusedMultiplyAdd),
        ("div", Operation::Divide),
        ("sqrt", Operation::SquareRoot),
        ("rcp", Operation::Reciprocal),
        ("min", Operation::Minimum),
        ("max", Operation::Maximum),
        ("neg", Operation::Negate),
        ("abs", Operation::Absolute),
    ];

    const FORMATS: [(Type, Format); 4] = [
        (Type::Float(16), F16),
        (Type::Brain, BF16),
        (Type::Float(32), F32),
        (Type::Float(64), F64),
    ];

    const TYPES: [Type; 12] = [
        Type::Signed(8),
        Type::Unsigned(8),
        Type::Signed(16),
        Type::Unsigned(16),
        Type::Signed(32),
        Type::Unsigned(32),
        Type::Signed(64),
        Type::Unsigned(64),
        Type::Float(16),
        Type::Brain,
        Type::Float(32),
        Type::Float(64),
    ];

    fn cut(bits: u64, width: u32) -> u64 {
        if width == 64 { bits } else { bits & ((1 << width) - 1) }
    }

    /// Values with few significant bits, for which ties and overflows are likely, and arbitrary
    /// values.
    fn values() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            any::<f32>().prop_map(|x| x.to_bits().into()),
            (-300i32..300).prop_map(|n| (f64::from(n) / 4.0).to_bits()),
            (-300i32..300).prop_map(|n| (n as f32 / 4.0).to_bits().into()),
            (0u32..16, any::<u32>()).prop_map(|(low, high)| u64::from(low | high << 28)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(3000))]
        #[test]
        fn rows_are_the_scalar_functions(a in values(), b in values(), c in values()) {
            for (name, operation) in OPERATIONS {
                for (ty, format) in FORMATS {
                    for flush in [false, true] {
                        let Some(rows) = float(name, ty, flush) else { continue };
                        let operands = [a, b, c].map(|x| cut(x, ty.bits()));
                        let scalar = Float { flush, ..Float::new(operation, format) };
                        let exact = scalar.evaluate(operands[0], operands[1], operands[2]);
                        prop_assert_eq!(
                            apply(rows, operands),
                            exact,
                            "{} {:?} {} {:x?}",
                            name,
                            ty,
                            flush,
                            operands
                        );
                    }
                }
            }
        }

        #[test]
        fn conversions_are_the_scalar_ones(a in values()) {
            let roundings = [
                ("rni", Rounding::NearestEven),
                ("rzi", Rounding::Zero),
                ("rmi", Rounding::Down),
                ("rpi", Rounding::Up),
            ];
            for to in TYPES {
                for from in TYPES {
                    let kinds = (Kind::of(to).unwrap(), Kind::of(from).unwrap());
                    let plain = Conversion::new(kinds.0, kinds.1);
                    let bits = cut(a, from.bits());
                    let width = to.bits().max(16);
                    if let Some(rows) = convert(to, from) {
                        prop_assert_eq!(
                            apply(rows, [bits; 3]),
                            cut(plain.evaluate(bits), width),
                            "{:?} {:?} {:x}",
                            to,
                            from,
                            bits
                        );
                    }
                    for (name, rounding) in roundings {
                        if let Some(rows) = whole(to, from, name) {
                            let scalar = Conversion { rounding, whole: true, ..plain };
                            prop_assert_eq!(
                                apply(rows, [bits; 3]),
                                cut(scalar.evaluate(bits), width),
                                "{} {:?} {:?} {:x}",
                                name,
                                to,
                                from,
                                bits
                            );
                        }
                    }
                }
            }
        }

        #[test]
        fn comparisons_are_the_scalar_ones(a in values(), b in values()) {
            for relation in [
                Relation::Equal,
                Relation::Less,
                Relation::LessEqual,
                Relation::Greater,
                Relation::GreaterEqual,
            ] {
                if let Some(CompareRows::W(f)) = compare(Type::Float(32), relation) {
                    let row = f(&[a as u32; WARP], &[b as u32; WARP]);
                    let scalar = float::compare(
                        F32,
                        relation,
                        false,
                        false,
                        a & 0xffff_ffff,
                        b & 0xffff_ffff,
                    );
                    prop_assert_eq!(row, if scalar { u32::MAX } else { 0 });
                }
                if let Some(CompareRows::D(f)) = compare(Type::Float(64), relation) {
                    let row = f(&[a; WARP], &[b; WARP]);
                    prop_assert_eq!(
                        row & 1 == 1,
                        float::compare(F64, relation, false, false, a, b)
                    );
                }
            }
        }
    }
}
