//! Types of values: an element type, a shape, and the axes of a mesh over which the value varies.

use crate::diagnostic::{Diagnostic, Result};
use crate::dim::{Binding, Dim};
use crate::dtype::DType;
use crate::mesh::Varying;
use crate::text::joined;
use std::fmt;

/// The type of a tensor: `f32[B,784]`, or `f32[B,784]{data}` in a function with a mesh.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct TensorType {
    /// Type of the elements.
    pub dtype: DType,
    /// Extent of every axis, outermost first; empty for a scalar.
    pub shape: Vec<Dim>,
    /// The axes of the function's mesh over which the value varies; empty if it is invariant.
    pub varying: Varying,
}

impl TensorType {
    /// `dtype[shape]`. Extents may be integers, names of variables, or [`Dim`]s.
    pub fn new<D: Into<Dim>>(dtype: DType, shape: impl IntoIterator<Item = D>) -> Self {
        TensorType::of(dtype, shape.into_iter().map(Into::into).collect())
    }

    /// `dtype[shape]`, from the dimensions.
    pub fn of(dtype: DType, shape: Vec<Dim>) -> Self {
        TensorType { dtype, shape, varying: Varying::default() }
    }

    /// A scalar.
    pub fn scalar(dtype: DType) -> Self {
        TensorType::of(dtype, Vec::new())
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The error of the first poisoned dimension.
    pub fn error(&self) -> Option<&Diagnostic> {
        self.shape.iter().find_map(Dim::error)
    }

    /// The same shape with another element type. It varies over the same axes.
    #[must_use]
    pub fn with_dtype(&self, dtype: DType) -> Self {
        TensorType { dtype, ..self.clone() }
    }

    /// The same element type with another shape. It varies over the same axes.
    #[must_use]
    pub fn with_shape(&self, shape: Vec<Dim>) -> Self {
        TensorType { dtype: self.dtype, shape, varying: self.varying.clone() }
    }

    /// The same dtype and shape, varying over the axes of these names.
    #[must_use]
    pub fn varying_over<N: AsRef<str>>(&self, axes: &[N]) -> Self {
        self.with_varying(Varying::over(axes))
    }

    /// The same dtype and shape, varying over these axes.
    #[must_use]
    pub fn with_varying(&self, varying: Varying) -> Self {
        TensorType { dtype: self.dtype, shape: self.shape.clone(), varying }
    }

    /// The same dtype and shape, varying over no axis: the type of the value's array on one rank.
    #[must_use]
    pub fn invariant(&self) -> Self {
        self.with_varying(Varying::default())
    }

    /// Whether dtype and shape are the same, whatever the axes over which the values vary.
    pub fn has_elements_of(&self, other: &TensorType) -> bool {
        self.dtype == other.dtype && self.shape == other.shape
    }

    /// The extents as numbers, if no variable is left.
    pub fn extents(&self) -> Option<Vec<usize>> {
        self.shape.iter().map(Dim::as_extent).collect()
    }

    /// Number of elements, if no variable is left and it does not overflow.
    pub fn elements(&self) -> Option<usize> {
        self.extents()?.into_iter().try_fold(1usize, usize::checked_mul)
    }

    /// Bytes, if no variable is left and it does not overflow.
    pub fn bytes(&self) -> Option<usize> {
        self.elements()?.checked_mul(self.dtype.size())
    }

    /// Replaces variables by their values. Every extent must become a number of at least 0.
    pub fn bind(&self, binding: &Binding) -> Result<TensorType> {
        let shape = self
            .shape
            .iter()
            .map(|d| {
                let bound = d.bind(binding)?;
                match bound.as_constant() {
                    Some(c) if c >= 0 => Ok(bound),
                    Some(c) => Err(Diagnostic::new(format!(
                        "dimension `{d}` of {self} is {c} with {binding}"
                    ))
                    .help("extents must be 0 or more")),
                    None => Err(Diagnostic::new(format!("dimension `{d}` of {self} is not bound"))
                        .help(format!("bind `{}` to a number", bound.terms()[0].0.factors()[0]))),
                }
            })
            .collect::<Result<_>>()?;
        Ok(self.with_shape(shape))
    }
}

/// Types as a list for messages.
pub(crate) fn listed(types: &[TensorType]) -> String {
    joined(types, ", ")
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]{}", self.dtype, joined(&self.shape, ","), self.varying)
    }
}
