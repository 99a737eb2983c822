//! Types that contain tensors: containers, derived types, tangent vectors of another type, and the
//! laws of vector spaces.
// Clippy exempts tests, but not their helper functions.
#![allow(clippy::unwrap_used)]

mod compile_errors;
mod containers;
mod derive;
mod laws;
mod manifold;
mod support;
