//! Hopper's asynchronous instructions: values, layouts, planted faults, and foreign kernels.
//!
//! Every text is valid PTX: ptxas assembles it for sm_90a. References are written here and share
//! no code with the emulator.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod arithmetic;
mod bench;
mod copies;
mod faults;
mod foreign;
mod kernels;
mod layouts;
mod products;
mod targets;
