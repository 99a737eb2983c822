//! Elementary functions: *the* definition of the approximated scalar instructions.
//!
//! A nest determines every bit of its result, so `exp` cannot be whatever the machine's C library has. The functions of
//! [`f32`](mod@f32) and [`f64`](mod@f64) are what [`ScalarOp::Exp`] and its like mean: the nest interpreter calls them element by element,
//! the CPU executor calls the same functions in loops over blocks, and both get the same bits on every machine. Nothing
//! here depends on how it is compiled: additions and multiplications are IEEE 754, a fused multiply-add is spelt
//! `mul_add` (one instruction where the target has it, a call with the same result where not), and Rust never contracts.
//! The sign and the payload of a NaN are the one thing that is not fixed.
//!
//! The f32 functions are straight-line code without tables, calls and branches, so that a loop over them
//! vectorises. The hard ones (`sin`, `cos`, `pow`, `atan2`) work in f64 inside; the frequent ones stay in f32. The f64 functions are
//! those of the `libm` crate, which is pure Rust.
//!
//! [`ulp_bound`] is the contract about accuracy. The bounds were measured (f32: over all 2³² arguments of the functions of one
//! argument), and the tests hold a sample of every exponent against them.

pub mod f32;
pub mod f64;

use crate::dtype::DType;
use crate::nest::ScalarOp;

/// The largest error of `op` on `dtype`, in units in the last place of the exact result (`2^(max(e, e_min) − p + 1)` for a
/// result in `2^e..2^(e+1)` and a significand of p bits; an infinity counts as the next power of two beyond the largest
/// finite number).
///
/// 0.5 for what is correctly rounded, 0 for what is exact or only moves bits. Nothing for a dtype on which the instruction
/// is not defined.
pub fn ulp_bound(op: ScalarOp, dtype: DType) -> Option<core::primitive::f64> {
    use ScalarOp::*;
    if !op.class().contains(dtype) {
        return None;
    }
    if !dtype.is_float() {
        return Some(0.0);
    }
    let single = dtype == DType::F32;
    Some(match op {
        Tanh if !single => 2.0,
        _ if op.is_approximate() && !single => 1.0,
        Exp => 1.1,
        Expm1 | Log1p | Tanh => 1.5,
        Log => 0.9,
        Erf => 1.2,
        Sin | Cos | Pow | Atan2 => 0.51,
        Sqrt | Add | Sub | Mul | Div | Fma | Convert => 0.5,
        _ => 0.0,
    })
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
