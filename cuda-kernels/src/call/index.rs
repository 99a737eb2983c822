//! Arithmetic on indices with constants known at emission.
//!
//! Indices are below 2³¹, so a division by a constant is a multiplication and a shift (Granlund
//! and Montgomery, "Division by invariant integers using multiplication", 1994): with l = ⌈log₂
//! d⌉ and μ = ⌈2^(31+l) / d⌉ < 2³², ⌊x/d⌋ = ⌊x·μ / 2^(31+l)⌋ for every x < 2³¹.

use crate::ptx::{Binary, Code, Reg, Rounding, Ternary, Type};
use wengert_core::{Diagnostic, Result};

/// Exclusive bound of a kernel's indices.
pub(super) const INDICES: usize = 1 << 31;

/// An error if an extent exceeds the range of 32-bit indices.
pub(super) fn check_extent(what: &str, extent: usize) -> Result<()> {
    if extent < INDICES - (1 << 16) {
        return Ok(());
    }
    Err(Diagnostic::new(format!("{what} is {extent}, and kernels count to 2^31"))
        .help("divide the call into several"))
}

/// ⌊x / d⌋ of an index.
pub(super) fn quotient(code: &mut Code, x: Reg, d: usize) -> Reg {
    assert!(d > 0 && d < INDICES, "a divisor is an extent that was checked");
    if d == 1 {
        return x;
    }
    if d.is_power_of_two() {
        return code.binary(Binary::Shr, Type::U32, x, d.trailing_zeros() as i64);
    }
    let log = d.next_power_of_two().trailing_zeros();
    let factor = (1u128 << (31 + log)).div_ceil(d as u128) as i64;
    let high = code.binary(Binary::MulHigh, Type::U32, x, factor);
    code.binary(Binary::Shr, Type::U32, high, log as i64 - 1)
}

/// Quotient and remainder of an index.
pub(super) fn divide(code: &mut Code, x: Reg, d: usize) -> (Reg, Reg) {
    let q = quotient(code, x, d);
    let rest = match d {
        1 => code.mov(Type::U32, 0),
        _ if d.is_power_of_two() => code.binary(Binary::And, Type::B32, x, d as i64 - 1),
        _ => code.ternary(Ternary::Mad, Type::S32, q, -(d as i64), x),
    };
    (q, rest)
}

/// The digits of an index in a mixed base, most significant first. The first digit is not
/// reduced.
pub(super) fn digits(code: &mut Code, x: Reg, extents: &[usize]) -> Vec<Reg> {
    let mut found = Vec::with_capacity(extents.len());
    let mut rest = x;
    for (n, extent) in extents.iter().enumerate().rev() {
        if n == 0 {
            found.push(rest);
        } else {
            let (q, digit) = divide(code, rest, *extent);
            found.push(digit);
            rest = q;
        }
    }
    found.reverse();
    found
}

/// `address + index · bytes`, for an index that may be negative.
pub(super) fn advance(code: &mut Code, address: Reg, index: Reg, bytes: i64) -> Reg {
    if bytes == 0 {
        address
    } else if i32::try_from(bytes).is_ok() {
        code.ternary(Ternary::MadWide, Type::S32, index, bytes, address)
    } else {
        let index = code.convert(Rounding::Exact, Type::S64, Type::S32, index);
        code.ternary(Ternary::Mad, Type::S64, index, bytes, address)
    }
}

/// The conjunction of two optional predicates.
pub(super) fn both(code: &mut Code, x: Option<Reg>, y: Option<Reg>) -> Option<Reg> {
    match (x, y) {
        (Some(x), Some(y)) => Some(code.binary(Binary::And, Type::Pred, x, y)),
        (one, None) | (None, one) => one,
    }
}
