//! Runs Wengert plans on CPU threads with SIMD.

pub mod pool;

pub use pool::Pool;
