//! The user-facing library of Wengert: programs and models, sessions, training, data, files.
//!
//! - [`program`] builds functions of tensors; [`control`] has loops and branches; [`operators`]
//!   has derivatives of closures; [`nn`] has layers, [`optim`] optimisers.
//! - [`list`] turns closures into values, Wengert lists; [`eager`] computes immediately and
//!   differentiates the computation.
//! - [`session`] runs programs on a [`device`]; variables live in the session. Plans are compiled
//!   for a [`target`].
//! - [`train`] trains a program by a [`recipe`], and its runs can be killed, resumed and repeated
//!   bit for bit.
//! - [`check`] compares derivatives with differences, and devices with the interpreter.
//! - [`linalg`] has linear algebra, [`fft`] has Fourier transforms.
//! - [`data`] reads and writes tensors: npy, npz, safetensors, csv.
//! - [`mod@format`] is the project's own files, `.graph` and `.plan`.
//!
//! All access to files and devices is here. Files are untrusted, and replaced atomically
//! ([`atomic`]). `unsafe` is denied except in one module, the file memory map ([`data::map`]).
#![deny(unsafe_code)]

pub mod atomic;
pub mod available_memory;
pub mod check;
pub mod command;
pub mod data;
pub mod device;
pub mod eager;
mod executable;
pub mod fft;
pub mod format;
pub mod linalg;
pub mod list;
pub mod memory;
pub mod models;
pub mod nn;
pub mod operators;
pub mod optim;
pub mod os_text;
mod outputs;
pub mod prelude;
pub mod program;
pub mod random;
pub mod recipe;
pub mod session;
pub mod signature;
mod store;
pub mod train;
pub mod types;
pub mod weight_names;

pub use device::{Device, DeviceOptions, Survey, ptx, target};
pub use executable::KernelTime;
/// Lets `#[derive(Differentiable)]` name this crate from within.
extern crate self as wengert;

pub use format::{GraphFile, ProgramFile, Weights};
pub use outputs::{Outputs, Probed};
pub use program::Program;
pub use recipe::Recipe;
pub use session::{Compiled, Session};
pub use weight_names::NameDifferences;
pub use wengert_compiler::memory::naive_peak;
pub use wengert_compiler::{autodiff, indices, kernels, pipeline, probes, vmap};
pub use wengert_core as core;
pub use wengert_core::build::control;
pub use wengert_core::diagnostic;
pub use wengert_core::{
    Binding, DType, Diagnostic, Differentiable, Dim, Initializer, Literal, Location, NoDerivative,
    Result, Scalar, Tensor, TensorType, VectorSpace,
};
