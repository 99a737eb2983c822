//! The graphrun command.
fn main() {}
