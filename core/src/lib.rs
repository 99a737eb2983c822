//! The nouns of Wengert: dtypes, shapes, graphs, ops, nests, calls, plans, targets; their text, verifiers and
//! interpreters. No I/O, no `unsafe`, no policy.
#![forbid(unsafe_code)]

pub mod diagnostic;
pub mod dim;
pub mod dtype;
pub mod id;
pub mod literal;
pub mod location;
pub mod math;
pub mod nest;
pub mod scalar;
pub mod text;
pub mod ty;

pub use diagnostic::{Diagnostic, Result};
pub use dim::{Binding, Dim};
pub use dtype::DType;
pub use half;
pub use id::{Id, IdVec};
pub use literal::{Element, Literal};
pub use location::{Location, LocationId, LocationTable};
pub use ndarray;
pub use scalar::{Native, Scalar};
pub use ty::TensorType;
