//! cuBLASLt.
mod api;
pub use api::Lt;
