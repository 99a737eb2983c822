//! The data types of Wengert: dtypes, shapes, graphs, ops, nests, calls, plans, targets; their
//! text, verifiers and interpreters. No I/O, no `unsafe`, no policy.
#![forbid(unsafe_code)]

mod allocation;
pub mod build;
pub mod call;
pub mod diagnostic;
pub mod differentiable;
pub mod dim;
pub mod dtype;
pub mod float8;
pub mod graph;
pub mod halves;
pub mod id;
pub mod interpret;
pub mod literal;
pub mod location;
pub mod math;
pub mod mesh;
pub mod nearest;
pub mod nest;
pub mod op;
pub mod pitch;
pub mod plan;
pub mod scalar;
pub mod target;
pub mod text;
pub mod ty;
mod verified;

pub use build::composite::cross_entropy;
pub use build::tensor::{Initializer, Tensor};
pub use call::Call;
pub use diagnostic::{Diagnostic, Result};
pub use differentiable::{Differentiable, KeyPath, NoDerivative, VectorSpace};
pub use dim::{Binding, Dim};
pub use dtype::DType;
pub use half;
pub use id::{Id, IdVec};
pub use literal::{Element, Literal};
pub use location::{Location, LocationId, LocationTable};
pub use mesh::{Mesh, Varying};
pub use ndarray;
pub use op::Op;
pub use scalar::{Native, Scalar};
pub use target::Target;
pub use ty::TensorType;
pub use verified::{Verified, Verify};
/// Derives the trait [`trait@Differentiable`].
pub use wengert_derive::Differentiable;
