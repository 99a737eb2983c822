//! Types that hold tensors: containers, derived types, tangent vectors of another type, and the laws of vector spaces.
// Clippy sees tests, but not the functions that serve them.
#![allow(clippy::unwrap_used)]

mod compile_errors;
mod containers;
mod derive;
mod laws;
mod manifold;
mod support;
