//! The compiler's output on every device: the CPU, the emulated GPU with all its sanitizers, and
//! the device that `WENGERT_TEST_DEVICE` names, such as `cuda:0`. These tests are one program,
//! because one archive takes them to machines with a GPU (`ci/gpu/pack`).
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod approximate;
mod attention;
mod batch_invariance;
mod followers;
mod invariants;
mod mixed;
mod ops;
mod pitches;
mod plans;
mod smoke;
