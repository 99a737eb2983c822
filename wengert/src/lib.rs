//! The user-facing library of Wengert: programs and models, sessions, training, data, files.
//!
//! - [`program`] builds functions of tensors; [`einsum`] is one of their methods, [`slicing`]
//!   another, and [`axes`] how they count axes; [`control`] has loops and branches; [`operators`]
//!   has derivatives of closures; [`nn`] has layers, [`optim`] optimisers.
//! - [`list`] turns closures into values, Wengert lists; [`eager`] computes immediately and
//!   differentiates the computation.
//! - [`session`] runs programs on a [`device`]; variables live in the session. Plans are compiled
//!   for a [`target`].
//! - [`train`] trains a program by a [`recipe`], and its runs can be killed, resumed and repeated
//!   bit for bit. [`tune`] makes both for a model that predicts, such as an [imported](onnx) one,
//!   and [`lora`] adapts its weights by updates of low rank.
//! - [`anatomy`] describes what a function becomes: its equations, kernels and memory.
//! - [`check`] compares derivatives with differences, and devices with the interpreter.
//!   [`isolate`] finds the equation, rule or pass at fault.
//! - [`measure`] times functions, compares them in turns, and relates them to the machine.
//! - [`linalg`] has linear algebra, [`fft`] has Fourier transforms.
//! - [`data`] reads and writes tensors: npy, npz, safetensors, csv. A [source](data::source) of
//!   examples may be larger than memory; [`transform`] has what happens to a batch of them.
//! - [`transport`] joins the ranks that run functions with a mesh: [`Session::join`]. [`scale`]
//!   plans a step for ranks that are not here, and predicts its time.
//! - [`mod@format`] is the project's own files, `.graph` and `.plan`.
//!
//! # An example
//!
//! Self-attention with two heads, and what surrounds it, in the methods of
//! [`Tensor`]. Axes count from either end; B and T are bound when the
//! function is compiled.
//!
//! ```
//! use wengert::core::ndarray::{Array, Array2};
//! use wengert::prelude::*;
//! # fn main() -> Result<()> {
//! let mut program = Program::new();
//! program.function("attend", |f| {
//!     let x = f.input("x", f32("B,T,8"));
//!     let weight = Array::from_shape_fn((8, 24), |(i, j)| ((i * 24 + j) as f32).sin());
//!     let projected = x.matmul(&Tensor::constant(weight));
//!     // [B,T,8] to [B,2,T,4].
//!     let heads = |t: &Tensor| t.unflatten(-1, [2, 4]).permute([0, 2, 1, 3]);
//!     let parts: Vec<Tensor> = projected.chunk(3, -1).iter().map(heads).collect();
//!     let scores = Tensor::einsum("bhqd,bhkd->bhqk", &parts[..2]) / 2.0;
//!     let hidden = scores.ones_like().triu(1).gt(0.0);
//!     let attention = scores.masked_fill(&hidden, f32::NEG_INFINITY).softmax(-1);
//!     let mixed = attention.matmul(&parts[2]).permute([0, 2, 1, 3]).flatten(-2);
//!     let deviation = &mixed - mixed.mean_keepdims(-1);
//!     let normal = deviation / (mixed.var_keepdims(-1) + 1e-5).sqrt();
//!     f.output("rows", normal.reshape([-1, 8])); // [B*T,8]
//!     f.output("last", normal.slice(s![.., -1, ..]));
//!     f.output("norms", Tensor::stack(&[normal.norm_axes(-1, 2.0), normal.std_axes(-1)], 0));
//!     f.output("finite", (1.0 - &normal).is_finite().all());
//!     Ok(())
//! })?;
//! let mut session = Session::open(Device::Interpreter)?;
//! let mut attend = session.compile(&program, "attend", bind!(B = 2, T = 3))?;
//! let x = Literal::from(Array::from_shape_fn((2, 3, 8), |(b, t, i)| (b + 2 * t + 3 * i) as f32));
//! let results = attend.run(&[("x", x)])?;
//! let rows = Array2::<f32>::try_from(results.get("rows")?.clone())?;
//! let last = Array2::<f32>::try_from(results.get("last")?.clone())?;
//! assert_eq!(rows.row(5), last.row(1)); // the last of three, in the second of two
//! assert!(rows.sum().abs() < 1e-3);
//! assert_eq!(results.get("norms")?.shape(), [2, 2, 3]);
//! assert_eq!(results.get("finite")?, &Literal::from(true));
//! # Ok(())
//! # }
//! ```
//!
//! All access to files and devices is here. Files are untrusted, and replaced atomically
//! ([`atomic`]). `unsafe` is denied except in one module, the file memory map ([`data::map`]).
#![deny(unsafe_code)]

pub mod anatomy;
pub mod atomic;
pub mod available_memory;
pub mod certificate;
pub mod check;
pub mod command;
pub mod data;
pub mod device;
pub mod eager;
pub mod evaluation;
mod executable;
pub mod fft;
pub mod format;
pub mod isolate;
pub mod linalg;
pub mod list;
pub mod lora;
pub mod measure;
pub mod memory;
pub mod models;
pub mod nn;
pub mod onnx;
pub mod operators;
pub mod optim;
pub mod os_text;
mod outputs;
pub mod precision;
pub mod prelude;
pub mod program;
pub mod random;
pub mod recipe;
pub mod scale;
pub mod session;
pub mod signature;
mod store;
pub mod tensorboard;
pub mod train;
pub mod transform;
pub mod tune;
pub mod types;
pub mod weight_names;

/// The programs in README are tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

pub use device::{Device, DeviceOptions, Survey, products, ptx, target};
pub use evaluation::Evaluation;
pub use executable::{KernelTime, StepTime};
/// Lets `#[derive(Differentiable)]` name this crate from within.
extern crate self as wengert;

pub use format::{GraphFile, ProgramFile, Weights};
pub use outputs::{Outputs, Probed};
pub use program::Program;
pub use recipe::Recipe;
pub use session::{Compiled, Session};
pub use weight_names::NameDifferences;
pub use wengert_compiler::memory::naive_peak;
pub use wengert_compiler::{autodiff, indices, kernels, pipeline, probes, ranks, vmap};
pub use wengert_core as core;
pub use wengert_core::build::{axes, control, einsum, slicing};
pub use wengert_core::diagnostic;
pub use wengert_core::{
    Binding, DType, Diagnostic, Differentiable, Dim, Initializer, Literal, Location, NoDerivative,
    Result, Scalar, Tensor, TensorType, VectorSpace, s,
};
pub use wengert_transport as transport;
