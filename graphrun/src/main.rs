//! The `graphrun` command.
#![forbid(unsafe_code)]

fn main() {}
