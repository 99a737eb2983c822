//! Programs taken apart: faults that are planted must be found, and shrunk.
#![allow(clippy::print_stdout)] // States the figures of the planted faults.
#![allow(clippy::unwrap_used)] // Clippy exempts tests, but not their helper functions.

mod diff;
mod kernels;
mod nan;
mod passes;
mod programs;
mod reduced;
mod rules;
mod sabotage;
mod walk;
