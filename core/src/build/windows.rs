//! Methods of [`Tensor`] that reduce windows, and reductions with a user-defined combiner.

use super::Scope;
use super::tensor::Tensor;
use crate::diagnostic::{Diagnostic, bail};
use crate::dim::Dim;
use crate::op::{ReduceWindow, ReduceWith, WindowKind, Windows};
use crate::scalar::Scalar;
use crate::ty::TensorType;

/// Padding around a tensor for sliding windows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Padding {
    /// No padding: windows lie wholly within the tensor.
    Valid,
    /// Padding for ⌈extent / stride⌉ windows. If it is odd, the high side gets one more than the
    /// low side.
    Same,
    /// (low, high) for each axis.
    Explicit(Vec<(i64, i64)>),
}

impl Padding {
    /// The padding of windows over a tensor of that shape. Error: it depends on a dimension
    /// variable.
    fn of(&self, windows: &Windows, shape: &[Dim]) -> crate::Result<Vec<(Dim, Dim)>> {
        let same = |axis: usize| {
            let one = |list: &[usize]| list.get(axis).copied().unwrap_or(1) as i64;
            let reach = (windows.window.get(axis).map_or(0, |w| *w as i64 - 1))
                .saturating_mul(one(&windows.window_dilation));
            let stride = one(&windows.stride);
            // The op's own rule refuses a stride of 0.
            let stride = stride.max(1);
            let total = match (shape[axis].as_constant(), stride) {
                // All windows but the last advance by the stride. Elements missing from the last
                // window are padding.
                (Some(extent), _) => {
                    ((extent + stride - 1) / stride - 1) * stride + reach + 1 - extent
                }
                (None, 1) => reach,
                (None, _) if reach == 0 => 0,
                _ => {
                    bail!(
                        "the padding for windows at stride {stride} over an axis of extent {}",
                        shape[axis];
                        help "give the axis a number, or say how much padding there is by \
                         `Padding::Explicit`"
                    );
                }
            };
            let total = total.max(0);
            Ok((Dim::constant(total / 2), Dim::constant(total - total / 2)))
        };
        match self {
            Padding::Valid => Ok(vec![]),
            Padding::Same => (0..shape.len()).map(same).collect(),
            Padding::Explicit(pairs) => Ok(pairs
                .iter()
                .map(|(low, high)| (Dim::constant(*low), Dim::constant(*high)))
                .collect()),
        }
    }
}

impl Tensor {
    /// `reduce_window_…` over all axes: see [`Windows`]. `padding` replaces that of `windows`.
    #[track_caller]
    pub fn reduce_window(&self, kind: WindowKind, windows: Windows, padding: &Padding) -> Tensor {
        if self.error().is_some() {
            return self.clone();
        }
        match padding.of(&windows, self.shape()) {
            Ok(padding) => {
                Tensor::apply(ReduceWindow { kind, windows: windows.padded(padding) }, &[self])
            }
            Err(error) => self.fail(error),
        }
    }

    /// Windows over the spatial axes: those between the first (batch) and the last (channels).
    fn spatial(&self, window: &[usize], stride: &[usize], padding: &Padding) -> (Windows, Padding) {
        let around = |list: &[usize]| [&[1], list, &[1]].concat();
        let padding = match padding {
            Padding::Explicit(pairs) => {
                Padding::Explicit([&[(0, 0)], pairs.as_slice(), &[(0, 0)]].concat())
            }
            other => other.clone(),
        };
        (Windows::new(&around(window), &around(stride)), padding)
    }

    /// The greatest element of each window over the spatial axes of
    /// `[batch, spatial…, channels]`. `window`, `stride` and an explicit padding have an entry
    /// for each spatial axis. Padding is ignored. The gradient goes to the first of equal
    /// elements.
    #[track_caller]
    pub fn max_pool(&self, window: &[usize], stride: &[usize], padding: &Padding) -> Tensor {
        let (windows, padding) = self.spatial(window, stride, padding);
        self.reduce_window(WindowKind::Max, windows, &padding)
    }

    /// The least element of each window, with the arguments of [`max_pool`](Self::max_pool).
    #[track_caller]
    pub fn min_pool(&self, window: &[usize], stride: &[usize], padding: &Padding) -> Tensor {
        let (windows, padding) = self.spatial(window, stride, padding);
        self.reduce_window(WindowKind::Min, windows, &padding)
    }

    /// The mean of each window over the spatial axes of `[batch, spatial…, channels]`, with the
    /// arguments of [`max_pool`](Self::max_pool). The mean is over the elements in the window
    /// without padding, and NaN for a window without elements. Halves are added and divided in
    /// f32.
    #[track_caller]
    pub fn avg_pool(&self, window: &[usize], stride: &[usize], padding: &Padding) -> Tensor {
        if self.error().is_some() {
            return self.clone();
        }
        if !self.dtype().is_float() {
            let error =
                Diagnostic::new(format!("avg_pool of {}, which is not of floats", self.ty()));
            return self.fail(
                error.help("convert it to a float dtype first, e.g. by `.convert(DType::F32)`"),
            );
        }
        let x = self.convert(self.dtype().wide());
        let (windows, around) = self.spatial(window, stride, padding);
        let sum = x.reduce_window(WindowKind::Sum, windows.clone(), &around);
        if sum.error().is_some() {
            return sum;
        }
        if *padding == Padding::Valid {
            let count = window.iter().map(|w| *w as f64).product::<f64>();
            return (sum / count).convert(self.dtype());
        }
        // One example with one channel is enough to count the elements of each window.
        let mut shape = self.shape().to_vec();
        let last = shape.len() - 1;
        (shape[0], shape[last]) = (Dim::constant(1), Dim::constant(1));
        let ones = Tensor::full(&TensorType::of(x.dtype(), shape), Scalar::one(x.dtype()));
        let count = ones.reduce_window(WindowKind::Sum, windows, &around);
        (sum / count).convert(self.dtype())
    }

    /// `reduce` with a combiner: reduces tuples of elements of the operands along axes, which are
    /// removed.
    ///
    /// `combine` takes two tuples of scalars and combines them by elementwise operations. It must
    /// be associative and commutative, and `init`, an element for each operand, must be its
    /// identity. See [`ReduceWith`]. On an error there is one result, which is poisoned.
    #[track_caller]
    pub fn reduce_with(
        operands: &[&Tensor],
        init: &[Scalar],
        axes: &[usize],
        combine: impl FnOnce(&[Tensor], &[Tensor]) -> Vec<Tensor>,
    ) -> Vec<Tensor> {
        if let Some(poisoned) = operands.iter().find(|t| t.error().is_some()) {
            return vec![(*poisoned).clone()];
        }
        let Some(outer) = operands.iter().find_map(|t| t.scope()).cloned().or_else(Scope::current)
        else {
            return vec![Tensor::fail_of(
                operands,
                Diagnostic::new("reduce: there is no function to put it in")
                    .help("operate on tensors inside `Program::function`"),
            )];
        };
        let scope = outer.region();
        let scalars = operands.iter().chain(operands).map(|t| TensorType::scalar(t.dtype()));
        let inputs: Vec<Tensor> = scalars.map(|ty| scope.input(ty)).collect();
        let (left, right) = inputs.split_at(operands.len());
        let outputs = scope.enter(|| combine(left, right));
        if let Some(poisoned) = outputs.iter().find(|t| t.error().is_some()) {
            return vec![poisoned.clone()];
        }
        let region = match scope.close(&outputs) {
            Ok(closure) if closure.captures.is_empty() => closure.body,
            Ok(closure) => {
                let error = Diagnostic::new(format!(
                    "a combiner uses {} of its surroundings",
                    closure.captures[0].ty()
                ));
                return vec![
                    operands[0].fail(error.help("a combiner sees its own tuples and numbers only")),
                ];
            }
            Err(error) => return vec![operands[0].fail(error)],
        };
        let mut axes = axes.to_vec();
        axes.sort();
        Tensor::apply_with(ReduceWith { axes, init: init.to_vec() }, operands, vec![region.into()])
    }
}
