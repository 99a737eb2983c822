//! Transcendental functions: the value of f64 arithmetic, rounded once into the format.
//!
//! Hardware is less accurate: `ex2.approx.f32` errs by 2 ulp, `lg2.approx` by 2^-22 absolute near
//! 1, `sin` and `cos` by 2^-20.5 absolute over −π…π, `tanh.approx.f32` by 2^-11 relative, `rcp`
//! by 1 ulp, `rsqrt` by 2^-22.9 relative (PTX ISA).

use super::exact::{F32, F64, Format, Rounding};
use super::float::flush32;

/// A function of one value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Function {
    Exp2,
    Log2,
    Sine,
    Cosine,
    Tanh,
    Reciprocal,
    ReciprocalRoot,
    Root,
}

/// `function` of `bits` in `format`.
pub(crate) fn evaluate(function: Function, format: Format, flush: bool, bits: u64) -> u64 {
    if format == F32 {
        return single(function, flush, bits as u32).into();
    }
    let bits = if flush { format.flush(bits) } else { bits };
    let value = f64::from_bits(F64.pack(format.unpack(bits), Rounding::NearestEven));
    let rounded = format.pack(F64.unpack(of(function, value).to_bits()), Rounding::NearestEven);
    if flush { format.flush(rounded) } else { rounded }
}

fn of(function: Function, value: f64) -> f64 {
    match function {
        Function::Exp2 => value.exp2(),
        Function::Log2 => value.log2(),
        Function::Sine => value.sin(),
        Function::Cosine => value.cos(),
        Function::Tanh => value.tanh(),
        Function::Reciprocal => 1.0 / value,
        Function::ReciprocalRoot => 1.0 / value.sqrt(),
        Function::Root => value.sqrt(),
    }
}

/// The same for f32, which Rust's arithmetic rounds directly.
fn single(function: Function, flush: bool, bits: u32) -> u32 {
    let bits = if flush { flush32(bits) } else { bits };
    let result = super::float::single(of(function, f64::from(f32::from_bits(bits))) as f32);
    if flush { flush32(result) } else { result }
}

/// `rcp.approx.ftz.f64` and `rsqrt.approx.ftz.f64` read and write the upper word only.
pub(crate) fn upper_word(function: Function, bits: u64) -> u64 {
    evaluate(function, F64, true, bits & 0xffff_ffff_0000_0000) & 0xffff_ffff_0000_0000
}

/// `div.approx.f32` and `div.full.f32`.
pub(crate) fn divide(a: u32, b: u32, flush: bool) -> u32 {
    let part = |bits: u32| f32::from_bits(if flush { flush32(bits) } else { bits });
    let quotient = super::float::single(part(a) / part(b));
    if flush { F32.flush(quotient.into()) as u32 } else { quotient }
}
