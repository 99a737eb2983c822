//! Attention for GPUs, tested without one. ptxas assembles every kernel. The emulator executes it
//! with all of its checks, and the results are compared with the call's reference.
#![allow(clippy::unwrap_used)]

mod assemble;
mod cases;
mod emulate;
