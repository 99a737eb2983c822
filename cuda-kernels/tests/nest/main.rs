//! Nests as PTX: what NVIDIA's assembler says of the kernels, and what they compute on the emulator, against the nest interpreter.
#![allow(clippy::unwrap_used)] // Clippy sees tests, but not the functions that serve them.

mod assemble;
mod emulate;
mod lowered;
#[path = "../../../cpu-kernels/src/nest/random.rs"]
mod random;
mod sources;
