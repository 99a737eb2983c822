//! Scatter: combines windows of updates with a tensor, at positions from data.
//!
//! All kinds share one contract. An element is combined with one update after the other, in the
//! row-major order of the scatter positions, and each step is rounded. The result is therefore
//! determined to the bit for every kind, including sums of floats and *replace*, where the last
//! update wins.

use super::contract::{Contract, fits, product};
use super::convolution::each;
use super::reference::Reference;
use crate::diagnostic::{Result, bail, ensure};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::nest::ScalarOp;
use crate::nest::evaluate::evaluate;
use crate::op::attribute::{Attribute, AttributeStruct, Attributes};
use crate::op::define::{attributes, kinds};
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::collections::BTreeMap;

kinds! {
    /// The operation of a scatter on an element x and an update u.
    ScatterKind {
        /// x + u; integers wrap.
        Add "scatter_add"
            "x plus windows of the updates at the positions in the indices, added in their order. \
             A window that does not lie within x is skipped; with `clip`, its start is clamped.",
        /// x · u; integers wrap.
        Mul "scatter_mul"
            "x times windows of the updates at the positions in the indices, multiplied in their \
             order. Windows outside x are treated as in `scatter_add`.",
        /// The smaller; NaN if one is NaN; −0 is below +0; false below true.
        Min "scatter_min"
            "The minimum of x and windows of the updates at the positions in the indices. Windows \
             outside x are treated as in `scatter_add`. The element and the updates that equal the \
             minimum share the gradient in equal parts.",
        /// The greater; NaN if one is NaN; −0 is below +0; false below true.
        Max "scatter_max"
            "The maximum of x and windows of the updates at the positions in the indices. Windows \
             outside x are treated as in `scatter_add`. The element and the updates that equal the \
             maximum share the gradient in equal parts.",
        /// u.
        Replace "scatter"
            "x with windows replaced by the updates at the positions in the indices. If several \
             updates write one element, the last in the order of the positions wins. Windows \
             outside x are treated as in `scatter_add`.",
    }
}

impl ScatterKind {
    /// Whether elements of that dtype can be combined. Bool has neither sums nor products.
    pub const fn takes(self, dtype: DType) -> bool {
        !matches!((self, dtype), (ScatterKind::Add | ScatterKind::Mul, DType::Bool))
    }

    /// The scalar instruction that combines, in f32 for halves, with the result rounded to the
    /// half; `None` for [`ScatterKind::Replace`].
    pub const fn instruction(self) -> Option<ScalarOp> {
        match self {
            ScatterKind::Add => Some(ScalarOp::Add),
            ScatterKind::Mul => Some(ScalarOp::Mul),
            ScatterKind::Min => Some(ScalarOp::Min),
            ScatterKind::Max => Some(ScalarOp::Max),
            ScatterKind::Replace => None,
        }
    }

    /// The combination of `x` and an update.
    pub fn combine(self, x: Scalar, update: Scalar) -> Scalar {
        let dtype = x.dtype();
        match (self, self.instruction()) {
            (_, None) => update,
            (ScatterKind::Min, _) if dtype == DType::Bool => {
                Scalar::from_bits(dtype, x.bits() & update.bits())
            }
            _ if dtype == DType::Bool => Scalar::from_bits(dtype, x.bits() | update.bits()),
            (_, Some(op)) if dtype.is_half() => {
                let wide = |s: Scalar| Scalar::from_f64(DType::F32, s.to_f64());
                let result = evaluate(op, &[wide(x), wide(update)], DType::F32);
                Scalar::from_f64(dtype, result.to_f64())
            }
            (_, Some(op)) => evaluate(op, &[x, update], dtype),
        }
    }
}

attributes! {
    /// `out = operand`, then `out[start(s) + w] = combine(out[start(s) + w], updates[s, w])` for
    /// each scatter position s in row-major order and each window position w. Updates of one
    /// element are applied in the order of s. A window that is not entirely in bounds is skipped;
    /// with `clip`, each component of an index vector is clamped first.
    ///
    /// Arguments: operand, indices, updates, out. Out may be the operand's buffer. Dimension
    /// numbers are those of `jax.lax.scatter_add`; batching dimensions are components of the
    /// index vector here.
    Scatter by kind: ScatterKind {
        /// Shape of operand and out.
        operand: Vec<usize>,
        /// Shape of the indices; its last axis is the index vector.
        indices: Vec<usize>,
        /// Shape of the updates.
        updates: Vec<usize>,
        /// Axes of the updates that are window axes, ascending.
        update_window_dims: Vec<usize>,
        /// Axes of the operand at which the window has extent 1 and which updates lack, ascending.
        inserted_window_dims: Vec<usize>,
        /// For each component of an index vector, the axis of the operand whose start it gives.
        scatter_dims_to_operand_dims: Vec<usize>,
        /// Dtype of operand, updates and out; halves are combined in f32 and rounded after each
        /// step.
        dtype: DType,
        /// Dtype of the indices: i32 or i64.
        index: DType,
        /// Whether each component of an index vector is clamped to the starts of windows within
        /// the operand.
        clip: bool = false,
    }
}

impl Contract for Scatter {
    fn names() -> &'static [&'static str] {
        const NAMES: [&str; ScatterKind::ALL.len()] = {
            let mut names = [""; ScatterKind::ALL.len()];
            let mut n = 0;
            while n < names.len() {
                names[n] = ScatterKind::ALL[n].name();
                n += 1;
            }
            names
        };
        &NAMES
    }

    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn attributes(&self) -> Attributes {
        self.to_attributes()
    }

    fn parse(name: &str, map: &mut BTreeMap<String, Attribute>) -> Result<Self> {
        let kind = ScatterKind::ALL.into_iter().find(|kind| kind.name() == name);
        let kind = kind.expect("the name is one of `names`");
        Scatter::from_attributes((kind,), map)
    }

    fn operands(&self) -> Vec<TensorType> {
        vec![
            self.result_type(),
            TensorType::new(self.index, self.indices.iter().copied()),
            TensorType::new(self.dtype, self.updates.iter().copied()),
        ]
    }

    fn results(&self) -> Vec<TensorType> {
        vec![self.result_type()]
    }

    fn in_place(&self) -> Vec<usize> {
        vec![0]
    }

    fn count(&self, least: usize) -> u64 {
        product(least, &self.updates)
    }

    /// Comparisons and copies do not count.
    fn flops(&self) -> u64 {
        match self.kind {
            ScatterKind::Add | ScatterKind::Mul => self.count(0),
            ScatterKind::Min | ScatterKind::Max | ScatterKind::Replace => 0,
        }
    }

    fn verify(&self) -> Result<()> {
        fits("operand", &self.operand)?;
        fits("indices", &self.indices)?;
        fits("updates", &self.updates)?;
        self.check().map_err(|d| d.context(self.kind.name()))
    }

    fn evaluate(&self, operands: &[Literal]) -> Vec<Reference> {
        let (operand, indices, updates) = (&operands[0], &operands[1], &operands[2]);
        let mut out: Vec<Scalar> = operand.scalars().collect();
        let vector = self.scatter_dims_to_operand_dims.len();
        let scatter_dims: Vec<usize> =
            (0..self.updates.len()).filter(|a| !self.update_window_dims.contains(a)).collect();
        let window_dims: Vec<usize> =
            (0..self.operand.len()).filter(|a| !self.inserted_window_dims.contains(a)).collect();
        let extents = |dims: &[usize]| dims.iter().map(|a| self.updates[*a]).collect::<Vec<_>>();
        let (positions, window) = (extents(&scatter_dims), extents(&self.update_window_dims));
        // The extents of the window along all axes of the operand.
        let mut whole = vec![1i64; self.operand.len()];
        window_dims.iter().zip(&window).for_each(|(axis, extent)| whole[*axis] = *extent as i64);
        let mut number = 0;
        each(&positions, &mut |s| {
            let mut start = vec![0i64; self.operand.len()];
            for (component, axis) in self.scatter_dims_to_operand_dims.iter().enumerate() {
                let index = indices.get(number * vector + component);
                let mut index = index.to_i64().expect("indices are integers");
                if self.clip {
                    index = index.min(self.operand[*axis] as i64 - whole[*axis]).max(0);
                }
                start[*axis] = start[*axis].saturating_add(index);
            }
            number += 1;
            let inside = (0..start.len()).all(|a| {
                start[a] >= 0 && start[a].saturating_add(whole[a]) <= self.operand[a] as i64
            });
            if !inside {
                return;
            }
            each(&window, &mut |w| {
                let mut at = vec![0; self.updates.len()];
                scatter_dims.iter().zip(s).for_each(|(axis, i)| at[*axis] = *i);
                self.update_window_dims.iter().zip(w).for_each(|(axis, i)| at[*axis] = *i);
                let from = at.iter().zip(&self.updates).fold(0, |n, (i, e)| n * e + i);
                let mut to: Vec<usize> = start.iter().map(|i| *i as usize).collect();
                window_dims.iter().zip(w).for_each(|(axis, i)| to[*axis] += i);
                let to = to.iter().zip(&self.operand).fold(0, |n, (i, e)| n * e + i);
                out[to] = self.kind.combine(out[to], updates.get(from));
            });
        });
        let mut reference = Reference::new(self.result_type());
        out.into_iter().for_each(|value| reference.push(value, 0.0));
        vec![reference]
    }
}

impl Scatter {
    /// What [`verify`](Contract::verify) checks of tensors whose extents fit.
    fn check(&self) -> Result<()> {
        ensure!(matches!(self.index, DType::I32 | DType::I64), "indices of {}", self.index);
        ensure!(self.kind.takes(self.dtype), "{} has neither sums nor products", self.dtype);
        let ascending = |axes: &[usize], rank: usize| {
            axes.is_sorted_by(|a, b| a < b) && axes.iter().all(|a| *a < rank)
        };
        ensure!(
            ascending(&self.update_window_dims, self.updates.len())
                && ascending(&self.inserted_window_dims, self.operand.len()),
            "window axes must ascend and exist"
        );
        let Some((vector, positions)) = self.indices.split_last() else {
            bail!("indices need an index vector axis");
        };
        ensure!(
            *vector == self.scatter_dims_to_operand_dims.len()
                && self.scatter_dims_to_operand_dims.iter().all(|a| *a < self.operand.len()),
            "the index vector and scatter_dims_to_operand_dims disagree"
        );
        ensure!(
            self.update_window_dims.len() + self.inserted_window_dims.len() == self.operand.len()
                && self.updates.len() == self.update_window_dims.len() + positions.len(),
            "ranks of operand, indices and updates disagree"
        );
        let scatter: Vec<usize> = (0..self.updates.len())
            .filter(|a| !self.update_window_dims.contains(a))
            .map(|a| self.updates[a])
            .collect();
        ensure!(
            scatter == positions,
            "updates have scatter extents {scatter:?}, indices {positions:?}"
        );
        let mut window = (0..self.operand.len())
            .filter(|a| !self.inserted_window_dims.contains(a))
            .zip(&self.update_window_dims);
        ensure!(
            window.all(|(axis, update)| self.updates[*update] <= self.operand[axis]),
            "a window is larger than the operand"
        );
        Ok(())
    }

    fn result_type(&self) -> TensorType {
        TensorType::new(self.dtype, self.operand.iter().copied())
    }
}
