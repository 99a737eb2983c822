//! What the compiler makes, on every device: the CPU, the emulated GPU with all its sanitizers, and
//! the one that `WENGERT_TEST_DEVICE` names, such as `cuda:0`. One program, since it goes to
//! machines with a GPU in one archive (`ci/gpu/pack`).
#![allow(clippy::unwrap_used)] // Clippy sees tests, but not the functions that serve them.

mod attention;
#[path = "../inputs/mod.rs"]
mod inputs;
mod ops;
mod plans;
mod smoke;
