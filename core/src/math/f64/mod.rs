//! Elementary functions of f64: straight-line code like those of [`f32`](mod@super::f32), without
//! tables.
//!
//! The technique is that of f32. Where f32 computes in f64, these functions compute in pairs of
//! floats: the leading terms of a series are summed with their rounding errors, so little more
//! than the final rounding error remains. The polynomials were fitted by the Remez algorithm, in
//! arithmetic of 200 bits and more, to the relative error of the function. Each function states
//! the error of its polynomials. The bounds on the whole error were measured against arithmetic
//! of 60 digits and more, over every exponent and around the hard cases.

mod angle;
mod arctangent;
mod erf;
mod exp;
mod gamma;
mod inverse;
mod log;
mod pair;
mod polygamma;
mod pow;
mod root;

pub use angle::{cos, sin};
pub use arctangent::atan2;
pub use erf::{erf, erf_inv, erfc};
pub use exp::{cosh, exp, expm1, sinh, tanh};
pub use gamma::{digamma, lgamma};
pub use inverse::{acos, acosh, asin, asinh, atanh};
pub use log::{log, log1p, log2};
pub use polygamma::polygamma;
pub use pow::pow;
pub use root::cbrt;

/// 1.5·2⁵²: adding it to |x| < 2⁵¹ rounds x to an integer, which is then in the low bits of the
/// sum.
const ROUND: f64 = 6_755_399_441_055_744.0;
/// The first 42 bits of ln 2, whose product with an integer of 11 bits is exact.
const LN_2_HIGH: f64 = 0.693_147_180_559_890_3;
/// The rest of ln 2, with an error below 2⁻¹⁰¹.
const LN_2_LOW: f64 = 5.497_923_018_708_371e-14;
