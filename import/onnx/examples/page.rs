//! Prints `docs/onnx.md`.
#![allow(clippy::print_stdout)]

fn main() {
    print!("{}", wengert_onnx::page());
}
