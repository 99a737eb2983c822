//! Matrix products by cuBLASLt.
//!
//! ```text
//! Gemm ─ supports ─► Form ─┬─ problem ─ prepare ─► Prepared ─ execute ─► out
//!        (pure)            └─ left: addends for a kernel of ours
//! ```
//!
//! [`supports`] decides from the description alone which part of a GEMM cuBLASLt can do with the
//! plan's bits, or why it can do none ([`form`] has the table). A PTX kernel of this crate does
//! the rest. The reason is a value that the caller records, never a silent change.
//!
//! [`Blas::prepare`] finds the algorithm when a plan is loaded: from a tuning file if it has an
//! entry, else the first that the library's heuristic offers within the plan's workspace. Both
//! are the same for the same product, GPU and library version, and so are the bits: split sums
//! are combined out of place in the accumulator's precision, and no addition is atomic. The
//! algorithm is recorded as text. If the library has no algorithm with addends, the query is
//! repeated without them ([`Form::plain`]). Results of halves have no such form: a kernel of this
//! crate computes the whole product then.
//!
//! [`Blas::execute`] enqueues the product in the device's stream; it may be captured.

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
pub use problem::{Alignment, Layout, Operands, Problem};
pub use tuning::{Measured, Tuning};

#[cfg(test)]
mod tests;
