//! What a user of Wengert writes. The programs are in `examples/`, the data they train on in `data/`; what is more than a screenful of a
//! program stands here, so that tests can compare it with something else.
//!
//! - [`crf`]: a linear-chain conditional random field, all of it derivatives of one sum over paths.
//! - [`digits`]: the images of handwritten digits that several examples learn to read.
//! - [`kfac`]: natural gradient descent with Kronecker factors of the curvature.
//! - [`neural_ode`]: differential equations learnt through a solver that chooses its steps, a loop with a condition.
#![forbid(unsafe_code)]

pub mod crf;
pub mod digits;
pub mod kfac;
pub mod neural_ode;
