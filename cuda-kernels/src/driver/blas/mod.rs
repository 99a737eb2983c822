//! Matrix products by cuBLASLt.
//!
//! ```text
//! Gemm ─ supports ─► Form ─┬─ problem ─ prepare ─► Prepared ─ execute ─► out
//!        (pure)            └─ left: steps of the epilogue for a kernel of ours
//! ```
//!
//! [`supports`] says from the description alone what cuBLASLt can do of a GEMM with the plan's
//! bits, or why nothing ([`form`] has the table). What it cannot do, our own PTX kernel does; the
//! reason is a value that the caller records, never a silent change.
//!
//! [`Blas::prepare`] finds the algorithm when a plan is loaded: from a tuning file if it has an
//! entry, else the first that the library's heuristic offers within the plan's workspace. Both
//! are the same for the same product, GPU and library version, and so are the bits: split sums
//! are put together out of place in the accumulator's precision, and nothing is added atomically.
//! The algorithm is recorded as text. A library that has none for an epilogue is asked again
//! without it ([`Form::plain`]).
//!
//! [`Blas::execute`] puts the product into the device's stream; it may be captured.

mod algorithm;
mod api;
mod descriptor;
pub mod form;
mod prepare;
mod problem;
pub mod tuning;

pub use algorithm::Algorithm;
pub use api::Lt;
#[cfg(test)]
pub(in crate::driver) use api::LtApi;
pub use form::{Difference, Form, Rules, Why, supports};
pub use prepare::{Blas, Prepared};
pub use problem::{Alignment, Aux, Layout, LtEpilogue, Operands, Problem};
pub use tuning::Tuning;

#[cfg(test)]
mod tests;
