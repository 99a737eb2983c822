//! Attention on GPUs, without one: every kernel is assembled by ptxas, and executed by the emulator with every check that it has, and compared with what the call means.
#![allow(clippy::unwrap_used)]

mod assemble;
mod cases;
mod emulate;
