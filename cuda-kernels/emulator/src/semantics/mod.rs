//! Instructions as pure functions of bits.
//!
//! Nothing here depends on threads or memory. A value is a `u64` that holds the bits of the
//! instruction's type, zero-extended; a row is such a value for each of the 32 lanes of a warp.
//! There are two forms: *scalar* functions, complete in every rounding and modifier, and *row*
//! functions for the frequent cases, which rustc vectorises. Tests compare the second with the
//! first.
//!
//! Where PTX leaves a result open, these are our choices, and hardware may differ:
//!
//! - A NaN from arithmetic is the canonical one: `0x7fff` (f16, bf16), `0x7fffffff` (f32),
//!   `0xfff8000000000000` (f64).
//! - `ex2 lg2 sin cos tanh rcp rsqrt sqrt div`, with `.approx` or `.full`, give the value of f64
//!   arithmetic, rounded once. Hardware differs from that within the bounds that the PTX ISA
//!   states. On f32, so does the emulator on request ([`crate::Approximations`]).
//! - Integer division by zero gives all ones, and so does its remainder.

pub(crate) mod approximate;
pub(crate) mod convert;
pub(crate) mod descriptor;
pub(crate) mod exact;
pub(crate) mod float;
pub(crate) mod integer;
pub(crate) mod matrix;
pub(crate) mod rows;
pub(crate) mod scalar;
pub(crate) mod tensor_core;
