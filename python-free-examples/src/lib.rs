//! What a user of Wengert writes. The programs are in `examples/`, the data they train on in `data/`; what is more than a screenful of a
//! program stands here, so that tests can compare it with something else.
//!
//! - [`crf`]: a linear-chain conditional random field, all of it derivatives of one sum over paths.
//! - [`neural_ode`]: differential equations learnt through a solver that chooses its steps, a loop with a condition.
#![forbid(unsafe_code)]

pub mod crf;
pub mod neural_ode;
