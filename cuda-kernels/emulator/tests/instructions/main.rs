//! Instructions against results worked out by hand from the PTX ISA manual, family by family.

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
