//! Nests as PTX: NVIDIA's assembler checks the kernels, and the emulator runs them against the nest
//! interpreter.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not helpers.

mod approximate;
mod assemble;
mod emulate;
mod lowered;
mod sources;
