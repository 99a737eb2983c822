//! The certificate of a function's precision: what is known about the error of its outputs.

pub mod bounded;
