//! Mapping of graphs over a batch axis.
//!
//! A function of one example becomes a function of many. [`batch`] runs a body on values some of
//! which are *batched*, with one value per example along a leading axis, and the rest *shared*.
//! It works as [`jvp`](crate::autodiff::jvp()) does with tangents: equation by equation it
//! applies the op's rule ([`wengert_core::op::batch`]), and contains no code for particular ops.
//!
//! A value that does not depend on a batched value stays shared. It is emitted once, whatever the
//! number of examples. So a weight is one matrix, a mask is made once, and the square of a
//! captured value is not computed for each example. Only results are repeated, and only those
//! that are requested along an axis.
//!
//! The emitted equations are ordinary equations in the enclosing scope. Hence `vmap` nests, and
//! composes with differentiation in both orders: the gradient of a mapped function transposes the
//! batched equations, a mapped gradient is a batch of the transposed ones. Both agree, so
//! *per-example gradients* are one program without a loop:
//! `vmap(&examples, |e| grad(&model, |m| loss(m, e)))`.
//!
//! The extent of the batch may be a dimension variable. Values carry no mark of the map they
//! belong to: the inputs of a mapped closure are fresh values of its own scope, as those of a
//! differentiated one are, and its captures are shared.
//!
//! [`operators`] offers this on closures over models, [`function`] on whole functions: a function
//! in, a function out.

mod body;
pub mod function;
pub mod operators;

pub use body::{Value, batch};
