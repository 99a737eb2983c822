//! What the tests of several crates share. Only tests depend on this crate.
//!
//! - [`skipped`] reports a test that this machine cannot run.
//! - [`Random`] and [`random`]: random numbers and literals.
//! - Generators: [`programs`] of many functions for text and files, `functions` for passes,
//!   [`smooth`] functions for derivatives, [`nests`], [`nested`] loops and branches, and
//!   [`mutants`] of samples.
//! - [`targets`]: a target like a GPU's.
//! - Oracles: [`derivative`] has finite differences, [`naive`] executes calls one scalar after
//!   another. Over [`Rational`] numbers the interpreter is exact.
//! - [`calls`]: suites of calls, which every device runs.
//! - [`layout`]: literals in memory whose rows have a pitch.
//! - [`ranks`]: functions for tests of ranks, and literals in parts.
//! - [`samples`]: operands for every op.
//! - [`digits`]: the repository's data.
//! - [`transcript`]: documents whose commands are run and compared with what they show.
//!
//! Unit tests of a crate see another copy of its types than this crate does. So only integration
//! tests exchange types of a crate with a module that uses this crate's types.
#![forbid(unsafe_code)]

pub mod calls;
pub mod derivative;
pub mod digits;
#[cfg(feature = "compiler")]
pub mod functions;
pub mod layout;
pub mod mutants;
pub mod naive;
pub mod nested;
pub mod nests;
pub mod programs;
pub mod random;
pub mod ranks;
mod rational;
pub mod samples;
mod skip;
pub mod smooth;
pub mod targets;
pub mod transcript;

pub use random::Random;
pub use rational::Rational;
pub use skip::{VARIABLE, skipped};
