//! A GPU, through NVIDIA's driver: the only part of this crate that calls a driver, and the only
//! one with `unsafe`.
//!
//! ```text
//! probe ─► Device ─┬─ allocate ─► Memory            one for state, one for the arena
//!                  ├─ load_module ─► Module ─► Function
//!                  ├─ launch, copy, fill, read, write
//!                  ├─ begin_capture ─► Graph         a straight step as one launch
//!                  ├─ begin_control_capture ─► Graph  a step with loops and branches
//!                  ├─ Upload, Download               inputs and outputs, two buffers each
//!                  ├─ exchanges ─► Exchanges      with the GPUs of other ranks, by NCCL
//!                  └─ event, synchronise
//! ```
//!
//! **Libraries** are opened at run time, so the same binary runs with and without CUDA. cudarc
//! provides the types, the constants and the signatures; the functions are looked up here
//! ([`probe`] reports missing ones, and nothing panics). A planned program needs few objects: one
//! context for each GPU and process, one stream for each session, memory that is allocated once.
//!
//! **Order.** All kernels and copies on the device go into the one stream of the [`Device`] and run
//! in that order, while the host goes on. Copies of inputs and outputs have streams of their own,
//! which events order ([`Upload`], [`Download`]), and so have exchanges with other ranks
//! ([`nccl`]). Only [`Device::synchronise`], [`Device::read`], [`Device::write`], [`Event::wait`]
//! and [`Received::wait`] wait; so does [`Upload::begin`], if the host is two runs ahead. Objects
//! that the stream may still use are freed when it is done with them.
//!
//! **Errors** name the call, its code and the operation ([`DeviceError`]); the executor of a plan
//! adds the step and the source line with [`DeviceError::context`]. Faults of kernels surface at
//! the next call that waits, and lose the context; the first is remembered and added to every
//! later error. There is no retry, and no fallback to another device.
//!
//! **Memory** is requested with its size known in advance, so that a lack of memory is reported
//! before anything runs. Copies are checked against the allocations; kernels rely on the plan's
//! proof.
//!
//! **Capture** records a step into a CUDA graph, which is replayed as one launch and gives the
//! same bits. Operations that a capture cannot hold are refused before they invalidate it. Copies
//! from and to the host stay outside, in [`Upload`] and [`Download`].
//!
//! **Tests** run everything here on a driver made of Rust functions (`fake`), which is stricter
//! than the real one about order, handles and leaks. Tests that need a GPU run where there is
//! one.
#![allow(unsafe_code)]

mod allocation;
mod api;
pub mod blas;
mod conditional;
mod context;
mod copies;
mod error;
mod graph;
mod launch;
mod library;
mod module;
pub mod nccl;
mod primary;
pub mod probe;
mod staging;

pub use allocation::{Address, Memory};
pub(crate) use conditional::{Condition, Conditional, Conditionals, ControlCapture};
pub use context::{Device, Event};
pub use error::{Cause, DeviceError, Result, size_text};
pub use graph::{Capture, Graph};
pub use module::{Function, Module, Resources};
pub use staging::{Download, Filling, Part, Received, Upload};

#[cfg(test)]
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) mod fake;
