//! Memory of training steps: bytes of a compiled step without its parameters, its optimiser's state
//! and its batch.
//!
//! Steps are compiled, not run. A compiler that plans memory knows its needs before the first step,
//! as XLA does. The count is the same for all compilers: temporary memory, which is the arena of
//! this library, plus the results that are not written over the state, that is, the loss. Other
//! memory of a running step (the state, the batch, constants, code, memory of libraries) is the
//! same for all contenders or not planned.
//!
//! This library's arena is compared with two more figures. The *bound* is a lower bound of any
//! arena for the plan's order. The *naive order* is that of lowering, forward, then backward, with
//! a separate buffer for each value from its kernel to its last reader ([`wengert::naive_peak`]).
//! It shows the benefit of scheduling and planning.
//!
//! The command of a peer is that of [`crate::process`] (`… --serve NAME`), followed by
//! `--memory CASE`. It prints one line, its compiler's figures ([`Said`]), `{"absent": "why"}` or
//! `{"error": "why"}`. It may offer several variants of a step; the one with the least memory
//! counts.

pub mod command;
mod own;
mod peer;

pub use own::footprint;
pub use peer::{Said, Way, ask};

use serde::{Deserialize, Serialize};

/// Memory of one variant of a step, compiled by one contender.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footprint {
    /// The case's name.
    pub case: String,
    /// The contender.
    pub contender: String,
    /// The device.
    pub device: String,
    /// The variant of the step, if there are several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub way: String,
    /// Number of learnt parameters.
    pub parameters: u64,
    /// Parameters, the optimiser's state, running statistics.
    pub state_bytes: u64,
    /// Temporary memory: the arena, for contenders with one.
    pub arena_bytes: u64,
    /// Results that are not written over the state.
    pub result_bytes: u64,
    /// Lower bound of any arena for the plan's order of steps, if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_bytes: Option<u64>,
    /// The peak of the naive order, if reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naive_bytes: Option<u64>,
    /// Seconds from the beginning of building the graph until it is compiled.
    pub compile_seconds: f64,
    /// The share of scheduling and memory planning in the processor time of compiling, if
    /// reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planning: Option<f64>,
}

impl Footprint {
    /// All memory of the step without state and batch.
    pub fn bytes(&self) -> u64 {
        self.arena_bytes + self.result_bytes
    }
}
