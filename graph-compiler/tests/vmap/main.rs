//! `vmap` gives the results of a loop over the examples, in the graph interpreter.
// Clippy exempts tests, but not their helper functions.
#![allow(clippy::unwrap_used)]

mod catalogue;
mod closures;
mod examples;
mod functions;
mod gradients;
