//! The library that users of Wengert add: data, files, sessions, training.
//!
//! Everything that touches the outside world is here: reading and writing tensors ([`data`]), atomic file
//! replacement ([`atomic`]). `unsafe` stands in one module only, the file memory map
//! ([`data::map`]); everywhere else it is denied.
#![deny(unsafe_code)]

pub mod atomic;
pub mod data;
pub mod random;

pub use wengert_core as core;
pub use wengert_core::{Binding, DType, Diagnostic, Dim, Literal, Location, Result, Scalar, TensorType};
