//! Prints `docs/passes.md`.
#![allow(clippy::print_stdout)]

fn main() {
    print!("{}", wengert_compiler::catalogue::page());
}
