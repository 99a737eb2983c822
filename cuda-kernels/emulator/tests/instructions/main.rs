//! Instructions against results worked out by hand from the PTX ISA manual, family by family.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod atomics;
mod control;
mod conversions;
mod floats;
mod integers;
mod memory;
mod parsing;
mod reports;
mod table;
mod warps;
