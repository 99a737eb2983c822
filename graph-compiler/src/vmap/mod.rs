//! Mapping of graphs over a batch axis.
//!
//! A function of one example becomes a function of many: [`batch`] runs a body on values of which some are *batched*, one for each example
//! along an axis in front, and the rest *shared*. It does what [`jvp`](crate::autodiff::jvp()) does with tangents: equation by
//! equation it asks the op's rule ([`wengert_core::op::batch`]), and knows no op itself.
//!
//! What does not depend on a batched value stays shared. It is emitted as it was, once, whatever the number of examples; so a weight is
//! one matrix, a mask is made once, and the square of a captured value is not computed for each example. Only results are
//! repeated, and only those that are asked for along an axis.
//!
//! What is emitted are ordinary equations in the enclosing scope. Hence `vmap` nests, and goes with differentiation in both orders:
//! the gradient of a mapped function transposes the batched equations, a mapped gradient is a batch of the transposed ones. That
//! both agree is what makes *per-example gradients* one program without a loop: `vmap(&examples, |e| grad(&model, |m| loss(m, e)))`.
//!
//! The extent of the batch may be a dimension variable. There is no mark on values that says to which map they belong: the inputs of a
//! mapped closure are fresh values of its own scope, as those of a differentiated one are, and what it captures is shared.
//!
//! [`operators`] offers this on closures over models, [`function`] on whole functions: a function in, a function out.

mod body;
pub mod function;
pub mod operators;

pub use body::{Value, batch};
