//! Sorts and the greatest elements on GPUs, without one: every kernel is assembled by ptxas, and executed by the emulator with every check that it
//! has. There is one right result, bit for bit.
#![allow(clippy::unwrap_used)]

mod assemble;
mod cases;
mod emulate;
