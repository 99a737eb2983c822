//! Transcendental functions: the value of f64 arithmetic, rounded once into the format.
//!
//! Hardware is less accurate: `ex2.approx.f32` errs by 2 ulp, `lg2.approx` by 2^-22 absolute near
//! 1, `sin` and `cos` by 2^-20.5 absolute over −π…π, `tanh.approx.f32` by 2^-11 relative, `rcp`
//! by 1 ulp, `rsqrt` by 2^-22.9 relative, `sqrt.approx` by 2^-23 relative, `div.full` by 2 ulp (PTX
//! ISA). [`deviate`] gives other results within these errors.

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

/// The greatest error of a function of f32 at `x`, if its value is `exact`; 0 where the ISA states
/// the result, or no error.
fn greatest_error(function: Function, x: f64, exact: f64) -> f64 {
    let relative = |exponent: f64| exponent.exp2() * exact.abs();
    match function {
        // The table of special operands has 1 for subnormal numbers and zeros.
        Function::Exp2 if x.abs() < f64::from(f32::MIN_POSITIVE) => 0.0,
        Function::Exp2 => 2.0 * ulp(exact),
        Function::Log2 if x > 0.5 && x < 2.0 => (-22f64).exp2(),
        Function::Log2 => relative(-22.0),
        Function::Sine | Function::Cosine if x.abs() <= std::f64::consts::PI => (-20.5f64).exp2(),
        Function::Sine | Function::Cosine => 0.0,
        Function::Tanh if x.abs() < f64::from(f32::MIN_POSITIVE) => 0.0,
        Function::Tanh => relative(-11.0),
        Function::Reciprocal => ulp(exact),
        Function::ReciprocalRoot => relative(-22.9),
        Function::Root => relative(-23.0),
    }
}

/// The distance of numbers of f32 near a value.
fn ulp(value: f64) -> f64 {
    let exponent = (value.abs().to_bits() >> 52) as i32 - 1023;
    f64::from(exponent.max(-126) - 23).exp2()
}

/// A result of `function` of f32 within its greatest error; `nearest` is the nearest one.
pub(crate) fn deviate(function: Function, flush: bool, bits: u32, nearest: u32, seed: u64) -> u32 {
    let x = f64::from(f32::from_bits(if flush { flush32(bits) } else { bits }));
    let exact = of(function, x);
    let error = if x.is_finite() { greatest_error(function, x, exact) } else { 0.0 };
    let found = within(exact, error, flush, nearest, mixed([seed, function as u64, bits.into()]));
    let crosses_zero = matches!(function, Function::Log2 | Function::Sine | Function::Cosine);
    let is_other_sign = (found ^ nearest) >> 31 == 1;
    if is_other_sign && !crosses_zero { nearest } else { found }
}

/// A result of `div.full.f32` within 2 ulp; `nearest` is the nearest one.
pub(crate) fn deviate_quotient(flush: bool, [a, b]: [u32; 2], nearest: u32, seed: u64) -> u32 {
    let part = |bits: u32| f64::from(f32::from_bits(if flush { flush32(bits) } else { bits }));
    let exact = part(a) / part(b);
    let random = mixed([seed, u64::MAX, u64::from(a) << 32 | u64::from(b)]);
    // A quotient that is 0 has an operand that is 0 or infinite.
    let error = if exact == 0.0 { 0.0 } else { 2.0 * ulp(exact) };
    let found = within(exact, error, flush, nearest, random);
    if (found ^ nearest) >> 31 == 1 { nearest } else { found }
}

/// A number of f32 at most `error` from `exact`, which random bits choose.
fn within(exact: f64, error: f64, flush: bool, nearest: u32, random: u64) -> u32 {
    let is_special = !exact.is_finite() || !f32::from_bits(nearest).is_finite();
    if is_special || error == 0.0 || flush && nearest & 0x7f80_0000 == 0 {
        return nearest;
    }
    let fraction = (random >> 12) as f64 / (1u64 << 52) as f64;
    let part = match random & 3 {
        0 => 1.0,
        1 => -1.0,
        _ => 2.0 * fraction - 1.0,
    };
    let mut found = (exact + part * error) as f32;
    if (f64::from(found) - exact).abs() > error {
        found = if f64::from(found) > exact { found.next_down() } else { found.next_up() };
    }
    let is_good = (f64::from(found) - exact).abs() <= error && found.is_finite();
    // A flushed result stays a normal number: the ISA flushes exact results, not approximate ones.
    let is_normal = found.to_bits() & 0x7f80_0000 != 0;
    if is_good && (is_normal || !flush) { found.to_bits() } else { nearest }
}

/// Bits that depend on all words, by the finalizer of SplitMix64.
fn mixed(words: [u64; 3]) -> u64 {
    words.into_iter().fold(0, |state: u64, word| {
        let mut z = state.wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FUNCTIONS: [Function; 8] = [
        Function::Exp2,
        Function::Log2,
        Function::Sine,
        Function::Cosine,
        Function::Tanh,
        Function::Reciprocal,
        Function::ReciprocalRoot,
        Function::Root,
    ];

    /// Results deviate, and by no more than the stated errors. The greatest deviations come close
    /// to these.
    #[test]
    fn deviations_are_within_the_stated_errors_and_reach_them() {
        for function in FUNCTIONS {
            let (mut others, mut greatest) = (0, 0.0f64);
            for n in 0..20_000u32 {
                let x = 0.01 + n as f32 * 1.5e-4;
                let nearest = single(function, false, x.to_bits());
                let found = deviate(function, false, x.to_bits(), nearest, 7);
                assert_eq!(found, deviate(function, false, x.to_bits(), nearest, 7));
                others += u32::from(found != nearest);
                let exact = of(function, x.into());
                let error = greatest_error(function, x.into(), exact);
                let distance = (f64::from(f32::from_bits(found)) - exact).abs();
                assert!(distance <= error, "{function:?} {x}");
                greatest = greatest.max(distance / error);
            }
            assert!(others > 5_000 && greatest > 0.9, "{function:?} {others} {greatest}");
        }
    }

    #[test]
    fn quotients_deviate_within_two_units() {
        let mut units = 0.0f64;
        for n in 0..20_000u32 {
            let (a, b) = ((n as f32 + 0.5) * 1e-3, 3.7 - n as f32 * 1e-3);
            let (a, b) = (a.to_bits(), b.to_bits());
            let found = deviate_quotient(false, [a, b], divide(a, b, false), 3);
            let exact = f64::from(f32::from_bits(a)) / f64::from(f32::from_bits(b));
            units = units.max((f64::from(f32::from_bits(found)) - exact).abs() / ulp(exact));
        }
        assert!((1.5..=2.0).contains(&units), "{units}");
    }

    #[test]
    fn special_results_stay() {
        let inputs = [-1000.0, 0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-40, -1.0];
        for function in [Function::Exp2, Function::Tanh, Function::ReciprocalRoot, Function::Root] {
            for x in inputs {
                let nearest = single(function, false, x.to_bits());
                let found = deviate(function, false, x.to_bits(), nearest, 1);
                let value = f32::from_bits(nearest);
                let is_special = x == 0.0 || !value.is_finite() || x.is_infinite();
                if is_special && function != Function::Tanh {
                    assert_eq!(found, nearest, "{function:?} {x}");
                }
                if !value.is_nan() {
                    assert_eq!(found >> 31, nearest >> 31, "{function:?} {x}");
                }
            }
        }
        // Flushed to zero.
        let x = (-130f32).to_bits();
        assert_eq!(deviate(Function::Exp2, true, x, single(Function::Exp2, true, x), 5), 0);
    }
}
