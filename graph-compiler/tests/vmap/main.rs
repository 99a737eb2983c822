//! `vmap` against the loop over examples, in the graph interpreter.
// Helpers outside of `#[test]` functions unwrap too.
#![allow(clippy::unwrap_used)]

mod catalogue;
mod closures;
mod examples;
mod functions;
#[allow(dead_code)]
#[path = "../../../core/tests/programs/mod.rs"]
mod programs;
#[allow(dead_code)]
#[path = "../derivatives/support.rs"]
mod support;
