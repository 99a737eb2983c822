//! The transformations of Wengert: differentiation, mapping over a batch, rewriting, fusion,
//! lowering, scheduling, memory planning. Pure and deterministic: no I/O, no clock, no address,
//! no iteration over hash maps.
#![forbid(unsafe_code)]

mod addend;
mod approximate;
pub mod autodiff;
mod calls;
pub mod catalogue;
pub mod certificate;
mod cluster;
mod emit;
mod fuse;
pub mod indices;
pub mod invariants;
pub mod kernels;
pub mod key_paths;
pub mod lora;
mod lower;
pub mod memory;
pub mod normalization;
mod pass;
pub mod pipeline;
mod pitches;
pub mod precision;
pub mod probes;
pub mod ranks;
pub mod rewrite;
#[cfg(test)]
mod samples;
pub mod schedule;
mod view;
pub mod vmap;
