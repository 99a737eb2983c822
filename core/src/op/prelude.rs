//! The names that the file of an op needs. It imports all of them.

pub(super) use super::batch::{Batch, in_front, prepended, shifted};
pub(super) use super::compute::{Compute, ElementContext};
pub(super) use super::control::lockstep::Lockstep;
pub(super) use super::define::{attributes, kinds, named};
pub(super) use super::derivative::{Derivative, Jvp, Transpose};
pub(super) use super::elementwise::{Domain, compare_bits, widened, wrap};
pub(super) use super::facet::{Evaluation, Lowering, Operation, Traits, Typing, Varies};
pub(super) use super::{Cost, Op, advance, distinct_axes, has_axis};
pub(super) use crate::allocation::reserved;
pub(super) use crate::build::tensor::Tensor;
pub(super) use crate::diagnostic::{Diagnostic, Result, bail, ensure};
pub(super) use crate::dim::Dim;
pub(super) use crate::dtype::DType;
pub(super) use crate::graph::{Body, Region};
pub(super) use crate::interpret::{Array, Cell, Cells, Real};
pub(super) use crate::literal::Literal;
pub(super) use crate::nest::{Affine, Combine, Guard, Reg, ScalarOp};
pub(super) use crate::scalar::Scalar;
pub(super) use crate::ty::{TensorType, listed};
pub(super) use std::cmp::Ordering;
pub(super) use std::ops::RangeInclusive;
