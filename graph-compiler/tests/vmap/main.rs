//! `vmap` against the loop over examples, in the graph interpreter.
// Helpers outside of `#[test]` functions use `unwrap` as well.
#![allow(clippy::unwrap_used)]

mod catalogue;
mod closures;
mod examples;
mod functions;
mod gradients;
