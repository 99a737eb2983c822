//! What instructions compute, as pure functions of bits.
//!
//! Nothing here knows of threads or memory. A value is a `u64` that holds the bits of whatever
//! type the instruction names, zero-extended; a row is that for the 32 lanes of a warp. Two forms
//! exist side by side: *scalar* functions, complete in every rounding and modifier, and *row*
//! functions for what kernels do all day, which rustc turns into vector instructions. Tests hold
//! the second to the first.
//!
//! Where PTX leaves a result open, this is what we do, and hardware may do otherwise:
//!
//! - A NaN that arithmetic makes is the canonical one: `0x7fff` (f16, bf16), `0x7fffffff` (f32),
//!   `0xfff8000000000000` (f64).
//! - `ex2 lg2 sin cos tanh rcp rsqrt sqrt div`, where they say `.approx` or `.full`, give the
//!   value that f64 arithmetic gives, rounded once. Hardware differs from that within the bounds
//!   that the PTX ISA states.
//! - Integer division by zero gives all ones, and so does its remainder.

pub(crate) mod approximate;
pub(crate) mod convert;
pub(crate) mod exact;
pub(crate) mod float;
pub(crate) mod integer;
pub(crate) mod matrix;
pub(crate) mod rows;
pub(crate) mod scalar;
