//! Derivatives against independent oracles: finite differences, truncated power series over exact
//! rationals, and the identity of forward and reverse mode.
// Helpers outside of `#[test]` functions use `unwrap` as well.
#![allow(clippy::unwrap_used)]

mod attention;
mod calls;
mod catalogue;
mod checkpoint;
mod closures;
mod control;
mod cost;
mod custom;
mod diagnostics;
mod eager;
mod exact;
mod functions;
mod halves;
mod implicit;
mod jacobians;
mod jet;
mod known;
mod laws;
mod list;
mod parts;
mod regions;
mod signs;
mod taylor;
mod ties;
