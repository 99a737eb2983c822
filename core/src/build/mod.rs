//! The builder: symbolic tensors, and the scopes that record what is computed with them.
//!
//! [`FunctionBuilder`] opens a function and closes it. Its inputs are [`tensor::Tensor`]s.
//! Methods and operators of tensors emit equations into a [`Scope`]. Each equation records the
//! user's source line, and `Op::infer` gives its types. The result is a
//! [`Function`](crate::graph::Function).
//!
//! | files | what a user calls |
//! |---|---|
//! | `tensor`, `operators`, `movement`, `indexing`, `order`, `windows`, `random`, `composite` | methods of tensors |
//! | [`axes`], `shape`, [`slicing`], `joining`, `diagonals`, `ranges`, `statistics`, `float8`, [`einsum`] | methods of tensors that are composed of others |
//! | [`control`] | `cond`, `while_loop`, `scan` and their relatives, over closures |
//! | `collective` | methods of tensors on the ranks of a mesh |
//! | `vary` | operands that vary over different axes of a mesh, made alike |
//! | [`eager`] | evaluation while a function is built |
//! | `failure` | how a method refuses its operands |
//! | [`inline`](mod@inline) | a body's equations on given tensors |

pub mod axes;
mod collective;
pub mod composite;
pub mod control;
mod diagonals;
pub mod eager;
pub mod einsum;
mod failure;
mod float8;
mod function;
pub mod indexing;
pub mod inline;
mod joining;
mod movement;
pub mod operators;
mod order;
mod random;
mod ranges;
mod scope;
mod shape;
pub mod slicing;
mod statistics;
pub mod tensor;
mod vary;
mod windows;

pub use axes::{Axes, Axis};
pub use collective::MeshAxes;
pub use function::{BodyResult, FunctionBuilder, IntoType};
pub use inline::inline;
pub use scope::{Closure, Entered, Scope};
pub use windows::Padding;
