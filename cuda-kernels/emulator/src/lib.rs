//! Executes PTX on the CPU, and checks its accesses and synchronisation.
//!
//! Many errors of a GPU kernel show in no result: a read past the end of a buffer that happens to
//! hit another one, a barrier that half a warp skips, a race that today's hardware decides the
//! right way. This crate executes PTX text and detects such errors. It reads the text
//! ([`Module::parse`]), runs a launch of it ([`Emulator::run`]) over a memory of its own
//! ([`Memory`]), and stops at the first error. The [`Fault`] names the kernel, the line of the
//! text, the comment above it, the block, the thread, the buffer and, for a race, the other
//! access.
//!
//! It depends on PTX only: it runs kernels of nvcc as well as those of this project, and nvcc's
//! kernels check its own semantics.
//!
//! # Structure
//!
//! - `parse`: text to a tree, names resolved.
//! - `decode`: a kernel to straight code; calls inlined, instructions bound to functions,
//!   registers packed, reconvergence points found.
//! - `semantics`: the instructions as pure functions.
//! - `execute`: warps in lockstep, 32 lanes at a time; blocks on CPU threads.
//! - [`count`]: counts of instructions, accesses and memory traffic, on request.
//! - `sanitize`: checks and reports.
//!
//! # Ordering of accesses
//!
//! Two accesses of different threads to the same byte, one of them a write and not both strong
//! (atomic, volatile, relaxed, acquire, release), are a race unless ordered. They are ordered
//!
//! - in a block: by a barrier between them that both threads take part in;
//! - in a warp: by `bar.warp.sync`, `shfl.sync`, `vote.sync`, `match.sync`, `redux.sync`,
//!   `elect.sync` that both lanes take part in. Lockstep alone orders nothing, since hardware
//!   since Volta does not guarantee it;
//! - between blocks: by a release (a fence wider than the block, then an atomic or other strong
//!   write; or `.release`) that is followed by an acquire (an atomic or other strong read of the
//!   same place), and by barriers that extend this order to other threads of the two blocks. An
//!   acquire counts for the whole block and needs no fence, so some races may be missed.
//!
//! Two writes of the same value are a race as well.
//!
//! # Hopper
//!
//! Kernels for `sm_90` and `sm_90a` may use barriers in shared memory (`mbarrier`), bulk copies
//! with and without tensor maps ([`TensorMap`]), clusters of blocks, and products of a warpgroup
//! (`wgmma`). Copies and products go on after their instruction. They take place as late as they
//! may, or at pseudo-random moments ([`Asynchrony`]), and their bytes and registers are watched
//! until they are waited for. Barriers order accesses as they order threads: an arrival releases, a
//! wait acquires. Accesses of the two proxies need a `fence.proxy.async` between them.
//! `execute::hopper` has the rules. `semantics::tensor_core` defines the bits of products, after
//! published measurements of the hardware.
//!
//! Launches run one after another, so `griddepcontrol` does nothing. Not executed, and refused when
//! the text is read: `st.async`, `red.async`, `tensormap.replace`, `wgmma.mma_async.sp`, products
//! of single bits, and the im2col modes of tensor copies.
#![forbid(unsafe_code)]
#![allow(
    clippy::needless_range_loop,
    clippy::too_many_arguments,
    clippy::precedence,
    clippy::nonminimal_bool,
    reason = "a lane is an index into many rows at once; an access is described by many things; \
              bit masks bind as in C"
)]

pub mod count;
mod decode;
mod execute;
mod launch;
mod memory;
mod module;
mod parse;
mod sanitize;
mod semantics;
mod tensor_map;

pub use execute::Emulator;
pub use launch::{Access, Approximations, Argument, Asynchrony, Launch, Options, Statistics};
pub use memory::{Memory, MemoryError};
pub use module::{Kernel, Module, NoKernel, Parameter};
pub use parse::ParseError;
pub use parse::syntax::Space;
pub use sanitize::{Fault, FaultKind, Other, Sanitize};
pub use semantics::descriptor::Swizzle;
pub use tensor_map::{ElementType, TensorMap, TensorMapError};
