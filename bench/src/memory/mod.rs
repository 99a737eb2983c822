//! Memory of training steps: what a compiled step needs beside its parameters, its optimiser's state and its batch.
//!
//! Nothing is run. A compiler that plans memory knows before the first step what it will need, and so does XLA; both are asked, and what they say is
//! counted alike: temporary memory, which is the arena here, and of the results what is not written over the state, which is the loss. What whoever runs a
//! step holds besides (the state, the batch, constants, code, what libraries keep for themselves) is the same for all or nobody's plan.
//!
//! This library's arena stands beside two more figures. The *bound* is the least that any arena for the plan's order needs. The *naive order* is that of lowering,
//! forward, then backward, with every buffer in bytes of its own from its kernel to its last reader ([`wengert::naive_peak`]): what scheduling and planning are worth.
//!
//! A peer is the command that answers requests elsewhere (`… --serve NAME`), with `--memory CASE` behind it. Its only line is what its compiler says
//! ([`Said`]), `{"absent": "why"}` or `{"error": "why"}`. It may write a step in several ways; the one that needs least counts.

pub mod command;
mod own;
mod peer;

pub use own::footprint;
pub use peer::{Said, Way, ask};

use serde::{Deserialize, Serialize};

/// What one contender's compiled step needs, written in one way.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Footprint {
    /// The case's name.
    pub case: String,
    /// Who.
    pub contender: String,
    /// For what.
    pub device: String,
    /// How the step is written, where there are several ways.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub way: String,
    /// Numbers that are learnt.
    pub parameters: u64,
    /// Parameters, the optimiser's state, running statistics.
    pub state_bytes: u64,
    /// Temporary memory: the arena of those who plan one.
    pub arena_bytes: u64,
    /// Results that are not written over the state.
    pub result_bytes: u64,
    /// The least that any arena for the plan's steps needs, of those who say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound_bytes: Option<u64>,
    /// The peak of the naive order, of those who say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naive_bytes: Option<u64>,
    /// Seconds from the beginning of building the graph until it is compiled.
    pub compile_seconds: f64,
    /// The share of scheduling and planning memory in the processor time of compiling, of those who say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planning: Option<f64>,
}

impl Footprint {
    /// All that the step needs beside state and batch.
    pub fn bytes(&self) -> u64 {
        self.arena_bytes + self.result_bytes
    }
}
