//! Counts of instructions, accesses and traffic: against values worked out by hand, and against
//! models that share no code with the emulator.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod accesses;
mod caches;
mod instructions;
mod kernel;
mod order;
mod random;
mod samples;
