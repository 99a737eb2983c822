//! `graphrun train` as a process: kills, interrupts, damaged checkpoints, three runs at once, and
//! the inputs that it refuses.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.
#![allow(clippy::print_stdout)] // Prints the counts, which the deep script adds up.

mod indices;
mod kills;
mod large;
mod monitoring;
mod place;
mod precision;
mod ranks;
mod refusals;
mod reports;
mod signals;
mod streams;
mod terminal;
