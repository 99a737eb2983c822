//! ONNX's own node tests: results, and derivatives.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod case;
mod derivatives;
mod exported;
mod results;
