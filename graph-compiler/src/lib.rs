//! The verbs of Wengert: differentiation, rewriting, fusion, lowering, scheduling, memory planning. Pure and deterministic:
//! no I/O, no clock, no address, no iteration over hash maps.
#![forbid(unsafe_code)]

pub mod autodiff;
pub mod kernels;
pub mod memory;
#[cfg(test)]
mod samples;
pub mod schedule;
