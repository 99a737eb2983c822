//! A GPU, through NVIDIA's driver: the only part of this crate that talks to a machine, and the only one with `unsafe`.
//!
//! ```text
//! probe ─► Device ─┬─ allocate ─► Memory            one for state, one for the arena
//!                  ├─ load_module ─► Module ─► Function
//!                  ├─ launch, copy, fill, read, write
//!                  ├─ begin_capture ─► Graph         a step as one launch
//!                  ├─ Upload, Download               inputs and outputs, two buffers each
//!                  └─ event, synchronise
//! ```
//!
//! **Libraries** are opened at run time, so the same binary runs with and without CUDA. cudarc gives the types, the constants and the
//! signatures; the functions are looked up by ourselves ([`probe`] says what is missing, and nothing panics). What is built from them is as
//! small as a planned program needs: one context for each GPU and process, one stream for each session, memory that is allocated once.
//!
//! **Order.** Everything goes into the one stream of the [`Device`] and happens in that order, while the host goes on. Only
//! [`Device::synchronise`], [`Device::read`], [`Device::write`], [`Event::wait`] and [`Received::wait`] wait; so does [`Upload::begin`], where the host is
//! two runs ahead. What the stream may still use is freed when it is done with it.
//!
//! **Errors** name the call, its code and what was being done ([`DeviceError`]); whoever runs a plan adds the step and the source line with
//! [`DeviceError::context`]. Faults of kernels show late, at whatever waits next, and lose the context; the first is remembered and told
//! with every error after it. There is no retry, and no other device instead.
//!
//! **Memory** is asked for with its size known beforehand, so that "not enough" is told before anything runs. Copies are checked against
//! the allocations; kernels are held by the plan's proof.
//!
//! **Capture** collects a step into a CUDA graph, which is replayed as one launch and gives the same bits. What a capture cannot hold is
//! refused before it spoils it. Copies from and to the host stay outside, in [`Upload`] and [`Download`].
//!
//! **Tests** run everything here on a driver made of Rust functions (`fake`), which is stricter than the real one about order, handles and
//! leaks. What only a GPU can tell is tested where one is.
#![allow(unsafe_code)]

mod api;
pub mod blas;
mod context;
mod error;
mod graph;
mod launch;
mod library;
mod memory;
mod module;
mod primary;
pub mod probe;
mod staging;

pub use context::{Device, Event};
pub use error::{Cause, DeviceError, Result, size_text};
pub use graph::{Capture, Graph};
pub use memory::{Address, Memory};
pub use module::{Function, Module, Resources};
pub use staging::{Download, Filling, Part, Received, Upload};

#[cfg(test)]
#[allow(non_snake_case, clippy::too_many_arguments)]
pub(crate) mod fake;
