//! Sort and top-k for GPUs, tested without one. ptxas assembles every kernel, and the emulator
//! executes it with all of its checks. The only correct result is bit-exact.
#![allow(clippy::unwrap_used)]

mod assemble;
mod cases;
mod emulate;
