//! The certificate of a function's precision: what is known about the error of its outputs.

mod bounded;
mod choice;
mod elements;
mod worst_case;

pub use bounded::{Bounded, Place};
pub use worst_case::{Bounds, worst_case};
