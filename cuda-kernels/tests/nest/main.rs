//! Nests as PTX: NVIDIA's assembler checks the kernels, and the emulator runs them against the nest
//! interpreter. Kernels that share a launch are compared with those that do not.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not helpers.

mod approximate;
mod assemble;
mod emulate;
mod lowered;
mod shared;
mod sources;
