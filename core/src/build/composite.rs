//! Methods of [`Tensor`] that emit several ops or a composite op: means, softmax, losses,
//! lookups.

use super::axes::{Axes, Axis, or_poison};
use super::operators::Operand;
use super::tensor::Tensor;
use crate::diagnostic::Diagnostic;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::{
    Cumulative, CumulativeKind, DimAsValue, Normalize, NormalizeKind, Pad, Softmax,
    SoftmaxCrossEntropy, SoftmaxKind,
};
use crate::scalar::Scalar;
use crate::ty::TensorType;

impl Tensor {
    /// `dim_as_value`: the value of a dimension as a scalar.
    #[track_caller]
    pub fn dim_as_value(dim: impl Into<Dim>, dtype: DType) -> Tensor {
        let dim = dim.into();
        if let Some(error) = dim.error() {
            return Tensor::poisoned(error.clone());
        }
        match dim.as_constant() {
            Some(value) => {
                Tensor::constant(crate::Literal::full(&[], Scalar::from_i64(dtype, value)))
            }
            None => Tensor::apply(DimAsValue { dim, dtype }, &[]),
        }
    }

    /// Mean of all elements. Halves are added and divided in f32.
    #[track_caller]
    pub fn mean(&self) -> Tensor {
        self.mean_axes(..)
    }

    /// Mean along axes, which are removed; NaN over no elements. Halves are added and divided in
    /// f32.
    #[track_caller]
    pub fn mean_axes(&self, axes: impl Axes) -> Tensor {
        let axes = &or_poison!(self.op_axes("mean", axes));
        let dtype = self.dtype().wide();
        if !dtype.is_float() {
            return self.fail(
                Diagnostic::new(format!("mean of {}, which is not of floats", self.ty()))
                    .help("convert it to a float dtype first, e.g. by `.convert(DType::F32)`"),
            );
        }
        let sum = self.convert(dtype).sum_axes(axes);
        if sum.error().is_some() {
            return sum;
        }
        // Extents are multiplied into one count while the product is linear. Every other extent
        // gets its own division.
        let mut count = Dim::constant(1);
        let mut mean = sum;
        for axis in axes {
            let extent = &self.shape()[*axis];
            match count.checked_mul(extent) {
                Some(product) => count = product,
                None => mean = &mean / Tensor::dim_as_value(extent.clone(), dtype),
            }
        }
        (mean / Tensor::dim_as_value(count, dtype)).convert(self.dtype())
    }

    /// Variance: mean squared deviation of all elements from their mean. Halves are computed in
    /// f32.
    #[track_caller]
    pub fn var(&self) -> Tensor {
        self.var_axes(..)
    }

    /// Variance along axes, which are removed. Halves are computed in f32.
    #[track_caller]
    pub fn var_axes(&self, axes: impl Axes) -> Tensor {
        let axes = &or_poison!(self.op_axes("var", axes));
        let dtype = self.dtype().wide();
        let x = self.convert(dtype);
        let mean = x.mean_axes(axes);
        if mean.error().is_some() {
            return mean;
        }
        (&x - mean.restore_axes(x.shape(), axes)).square().mean_axes(axes).convert(self.dtype())
    }

    /// Broadcasts the result of a reduction along `axes` back to `shape`.
    #[track_caller]
    pub fn restore_axes(&self, shape: &[Dim], axes: &[usize]) -> Tensor {
        let dims: Vec<usize> = (0..shape.len()).filter(|a| !axes.contains(a)).collect();
        self.broadcast_in_dim(shape.to_vec(), &dims)
    }

    /// max(x, 0), and NaN for NaN. Its derivative at 0 is 0.
    ///
    /// Emits a `select`, since `max` would split the gradient of the tie at 0.
    #[track_caller]
    pub fn relu(&self) -> Tensor {
        self.le(0.0).select(&self.zeros_like(), self)
    }

    /// x · Φ(x) with the normal distribution Φ: x/2 · (1 + erf(x/√2)).
    #[track_caller]
    pub fn gelu(&self) -> Tensor {
        self * 0.5 * ((self * std::f64::consts::FRAC_1_SQRT_2).erf() + 1.0)
    }

    /// x · logistic(x).
    #[track_caller]
    pub fn silu(&self) -> Tensor {
        self * self.logistic()
    }

    /// ln(1 + eˣ), without overflow: max(x, 0) + ln(1 + e^−|x|).
    #[track_caller]
    pub fn softplus(&self) -> Tensor {
        self.max(0.0) + (-self.abs()).exp().log1p()
    }

    /// `softmax` along an axis.
    #[track_caller]
    pub fn softmax(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("softmax", axis));
        Tensor::apply(Softmax { kind: SoftmaxKind::Softmax, axis }, &[self])
    }

    /// `log_softmax` along an axis.
    #[track_caller]
    pub fn log_softmax(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("log_softmax", axis));
        Tensor::apply(Softmax { kind: SoftmaxKind::LogSoftmax, axis }, &[self])
    }

    /// `logsumexp` along an axis, which is removed.
    #[track_caller]
    pub fn logsumexp(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("logsumexp", axis));
        Tensor::apply(Softmax { kind: SoftmaxKind::LogSumExp, axis }, &[self])
    }

    /// `standardize` along an axis: (x − mean x) / √(mean (x − mean x)² + ε): a layer norm before
    /// scale and bias.
    #[track_caller]
    pub fn standardize(&self, axis: impl Axis, epsilon: f64) -> Tensor {
        let axis = or_poison!(self.op_axis("standardize", axis));
        let epsilon = Scalar::of(epsilon);
        Tensor::apply(Normalize { kind: NormalizeKind::Standardize, axis, epsilon }, &[self])
    }

    /// `rms_normalize` along an axis: x / √(mean x² + ε): an RMS norm before its scale.
    #[track_caller]
    pub fn rms_normalize(&self, axis: impl Axis, epsilon: f64) -> Tensor {
        let axis = or_poison!(self.op_axis("rms_normalize", axis));
        let epsilon = Scalar::of(epsilon);
        Tensor::apply(Normalize { kind: NormalizeKind::Rms, axis, epsilon }, &[self])
    }

    /// `softmax_cross_entropy`: the loss of each row of logits (`self`) against its label. The
    /// last axis is removed.
    #[track_caller]
    pub fn softmax_cross_entropy(&self, labels: &Tensor) -> Tensor {
        Tensor::apply(SoftmaxCrossEntropy {}, &[self, labels])
    }

    /// `cumsum` along an axis.
    #[track_caller]
    pub fn cumsum(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("cumsum", axis));
        Tensor::apply(Cumulative { kind: CumulativeKind::Sum, axis, reverse: false }, &[self])
    }

    /// `cumprod` along an axis.
    #[track_caller]
    pub fn cumprod(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("cumprod", axis));
        Tensor::apply(Cumulative { kind: CumulativeKind::Prod, axis, reverse: false }, &[self])
    }

    /// `cummax` along an axis.
    #[track_caller]
    pub fn cummax(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("cummax", axis));
        Tensor::apply(Cumulative { kind: CumulativeKind::Max, axis, reverse: false }, &[self])
    }

    /// `cummin` along an axis.
    #[track_caller]
    pub fn cummin(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("cummin", axis));
        Tensor::apply(Cumulative { kind: CumulativeKind::Min, axis, reverse: false }, &[self])
    }

    /// One-hot rows along a new last axis: for each integer of `self`, one at that class and
    /// zeros elsewhere. A number outside the classes gives a row of zeros.
    #[track_caller]
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Tensor {
        if self.error().is_some() {
            return self.clone();
        }
        if !self.dtype().is_integer() {
            return self.fail(
                Diagnostic::new(format!("one_hot of {}, which is not of integers", self.ty()))
                    .help("classes are integers: convert it, e.g. by `.convert(DType::I32)`"),
            );
        }
        let wide =
            if matches!(self.dtype(), DType::I8 | DType::U8) { DType::I32 } else { self.dtype() };
        let shape: Vec<Dim> = self.shape().iter().cloned().chain([Dim::from(classes)]).collect();
        let labels = self.convert(wide).restore_axes(&shape, &[self.rank()]);
        Tensor::iota(wide, shape, self.rank()).eq(labels).convert(dtype)
    }

    /// Rows of a table: `result[i…] = self[indices[i…]]`. Indices out of bounds are clamped.
    #[track_caller]
    pub fn gather_rows(&self, indices: &Tensor) -> Tensor {
        if self.error().is_none() && self.rank() == 0 {
            return self.fail(
                Diagnostic::new(format!("gather_rows: {} has no rows", self.ty()))
                    .help("a table has at least one axis"),
            );
        }
        self.index_select(0, indices)
    }

    /// `pad` with `value` around each axis: `padding` holds (before, behind). Negative numbers
    /// crop.
    #[track_caller]
    pub fn pad(&self, padding: &[(i64, i64)], value: impl Operand) -> Tensor {
        let (low, high) =
            padding.iter().map(|(l, h)| (Dim::constant(*l), Dim::constant(*h))).unzip();
        let value = value.beside(&Tensor::zeros(&TensorType::scalar(self.dtype())));
        Tensor::apply(Pad { low, high, interior: vec![] }, &[self, &value])
    }

    /// `cumlogsumexp` along an axis.
    #[track_caller]
    pub fn cumlogsumexp(&self, axis: impl Axis) -> Tensor {
        let axis = or_poison!(self.op_axis("cumlogsumexp", axis));
        Tensor::apply(Cumulative { kind: CumulativeKind::LogSumExp, axis, reverse: false }, &[self])
    }
}

/// Mean cross-entropy of logits `[…, classes]` against integer labels `[…]`.
#[track_caller]
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Tensor {
    logits.softmax_cross_entropy(labels).mean()
}
