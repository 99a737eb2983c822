//! The library that users of Wengert add: sessions, training, data, files.
//!
//! - [`session`] runs programs on a [`device`]; variables live in the session.
//! - [`train`] trains a program by a [`recipe`], so that runs can be killed, resumed and repeated bit for bit.
//! - [`data`] reads and writes tensors: npy, npz, safetensors, csv.
//! - [`format`] is the project's own files, `.graph` and `.plan`.
//!
//! Everything that touches the outside world is here. Files are untrusted, and replaced atomically ([`atomic`]).
//! `unsafe` stands in one module only, the file memory map ([`data::map`]); everywhere else it is denied.
#![deny(unsafe_code)]

pub mod atomic;
pub mod data;
pub mod device;
mod executable;
pub mod format;
pub mod random;
pub mod recipe;
pub mod session;
pub mod train;

pub use device::Device;
pub use format::{GraphFile, ProgramFile, Weights};
pub use recipe::Recipe;
pub use session::{Compiled, Outputs, Session};
pub use wengert_core as core;
pub use wengert_core::graph::Program;
pub use wengert_core::{Binding, DType, Diagnostic, Dim, Literal, Location, Result, Scalar, TensorType};
