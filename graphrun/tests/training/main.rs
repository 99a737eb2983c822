//! `graphrun train` as a process that is killed, interrupted, damaged and run three times at once, and what it refuses.
#![allow(clippy::unwrap_used)] // Clippy sees tests, but not the functions that serve them.
#![allow(clippy::print_stdout)] // The counts, which the deep script adds up.

mod indices;
mod kills;
mod place;
mod refusals;
mod signals;
