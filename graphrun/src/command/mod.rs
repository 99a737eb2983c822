//! The commands, one file each.

pub mod check;
pub mod compile;
pub mod derive;
pub mod devices;
pub mod dump;
mod frontier;
pub mod memory;
pub mod ops;
mod profile;
pub mod run;
pub mod test;
pub mod train;
pub mod vmap;
