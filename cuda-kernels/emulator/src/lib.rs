//! Executes PTX on the CPU, and watches what it does.
//!
//! A GPU kernel is easy to get wrong in ways that no result shows: a read past the end of a
//! buffer that happens to hit another one, a barrier that half a warp skips, a race that the
//! hardware of today decides the right way. This crate is a machine for PTX text that has no such
//! luck. It reads the text ([`Module::parse`]), runs a launch of it ([`Emulator::run`]) over a
//! memory of its own ([`Memory`]), and stops at the first mistake with a [`Fault`] that names the
//! kernel, the line of the text, the comment above it, the block, the thread, the buffer and, for
//! a race, the other access.
//!
//! It knows PTX and nothing else: kernels of nvcc run on it as well as those of this project,
//! which is how its own semantics are checked.
//!
//! # How it is built
//!
//! - `parse`: text to a tree, names resolved.
//! - `decode`: a kernel to straight code; calls inlined, instructions bound to functions,
//!   registers packed, points of reconvergence found.
//! - `semantics`: what instructions compute, as pure functions.
//! - `execute`: warps in lockstep, 32 lanes at a time; blocks on CPU threads.
//! - `sanitize`: what is watched, and reports.
//!
//! # What orders accesses
//!
//! Two accesses of different threads to the same byte, one of them a write and not both strong
//! (atomic, volatile, relaxed, acquire, release), are a race unless ordered. They are ordered
//!
//! - in a block: by a barrier that both threads take part in between them;
//! - in a warp: by `bar.warp.sync`, `shfl.sync`, `vote.sync`, `match.sync`, `redux.sync`,
//!   `elect.sync` that both lanes take part in. Lockstep alone orders nothing, since hardware
//!   since Volta does not promise it;
//! - between blocks: by a release (a fence wider than the block, then an atomic or other strong
//!   write; or `.release`) that is followed by an acquire (an atomic or other strong read of the
//!   same place), and whatever barriers carry that on to other threads of the two blocks. An
//!   acquire counts for the whole block and needs no fence: this errs on the side of silence.
//!
//! Writing the same value twice is a race as well.
#![forbid(unsafe_code)]
#![allow(
    clippy::needless_range_loop,
    clippy::too_many_arguments,
    clippy::precedence,
    clippy::nonminimal_bool,
    reason = "a lane is an index into many rows at once; an access is described by many things; bit masks bind as in C"
)]

mod decode;
mod execute;
mod launch;
mod memory;
mod module;
mod parse;
mod sanitize;
mod semantics;

pub use execute::Emulator;
pub use launch::{Access, Argument, Launch, Options, Statistics};
pub use memory::{Memory, MemoryError};
pub use module::{Kernel, Module, NoKernel, Parameter};
pub use parse::ParseError;
pub use parse::syntax::Space;
pub use sanitize::{Fault, FaultKind, Other, Sanitize};
