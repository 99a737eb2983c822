//! Tensor parallelism: the function of T ranks is near that of one device, within the bounds of
//! both certificates. For a fixed T the bits do not depend on the number of data-parallel ranks.
#![allow(clippy::unwrap_used)] // Helpers outside of `#[test]` functions unwrap too.

mod arranged;
mod mistakes;
mod networks;
mod ops;
