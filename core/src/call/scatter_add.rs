//! Scatter with addition.

use super::convolution::each;
use super::fits;
use super::reference::Reference;
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::literal::Literal;
use crate::op::attribute::attributes;
use crate::scalar::Scalar;
use crate::ty::TensorType;

attributes! {
    /// `out = operand`, then `out[start(s) + w] += updates[s, w]` for each scatter position s in row-major order and each window position
    /// w: additions to one element happen in the order of s. A window of which any part is out of bounds is skipped.
    ///
    /// Arguments: operand, indices, updates, out; out may be the operand's buffer. Dimension numbers are those of `jax.lax.scatter_add`.
    ScatterAdd {
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
        /// For each component of an index vector the axis of the operand it starts.
        scatter_dims_to_operand_dims: Vec<usize>,
        /// Dtype of operand, updates and out; halves are added in their own dtype, one rounding per addition.
        dtype: DType,
        /// Dtype of the indices: i32 or i64.
        index: DType,
    }
}

impl ScatterAdd {
    pub(super) fn operands(&self) -> Vec<TensorType> {
        vec![
            self.result_type(),
            TensorType::new(self.index, self.indices.iter().copied()),
            TensorType::new(self.dtype, self.updates.iter().copied()),
        ]
    }

    pub(super) fn result_type(&self) -> TensorType {
        TensorType::new(self.dtype, self.operand.iter().copied())
    }

    pub(super) fn verify(&self) -> Result<()> {
        fits("operand", &self.operand)?;
        fits("indices", &self.indices)?;
        fits("updates", &self.updates)?;
        let wrong = |what: String| Err(Diagnostic::new(format!("scatter_add: {what}")));
        if !matches!(self.index, DType::I32 | DType::I64) {
            return wrong(format!("indices of {}", self.index));
        }
        if self.dtype == DType::Bool {
            return wrong("bool cannot be added".into());
        }
        let ascending =
            |axes: &[usize], rank: usize| axes.is_sorted_by(|a, b| a < b) && axes.iter().all(|a| *a < rank);
        if !ascending(&self.update_window_dims, self.updates.len())
            || !ascending(&self.inserted_window_dims, self.operand.len())
        {
            return wrong("window axes must ascend and exist".into());
        }
        let Some((vector, positions)) = self.indices.split_last() else {
            return wrong("indices need an index vector axis".into());
        };
        if *vector != self.scatter_dims_to_operand_dims.len()
            || self.scatter_dims_to_operand_dims.iter().any(|a| *a >= self.operand.len())
        {
            return wrong("the index vector and scatter_dims_to_operand_dims disagree".into());
        }
        if self.update_window_dims.len() + self.inserted_window_dims.len() != self.operand.len()
            || self.updates.len() != self.update_window_dims.len() + positions.len()
        {
            return wrong("ranks of operand, indices and updates disagree".into());
        }
        let scatter: Vec<usize> = (0..self.updates.len())
            .filter(|a| !self.update_window_dims.contains(a))
            .map(|a| self.updates[a])
            .collect();
        if scatter != positions {
            return wrong(format!("updates have scatter extents {scatter:?}, indices {positions:?}"));
        }
        let window = (0..self.operand.len()).filter(|a| !self.inserted_window_dims.contains(a));
        for (axis, update) in window.zip(&self.update_window_dims) {
            if self.updates[*update] > self.operand[axis] {
                return wrong("a window is larger than the operand".into());
            }
        }
        Ok(())
    }

    pub(super) fn reference(&self, operands: &[Literal]) -> Reference {
        let (operand, indices, updates) = (&operands[0], &operands[1], &operands[2]);
        let mut out: Vec<Scalar> = operand.scalars().collect();
        let vector = self.scatter_dims_to_operand_dims.len();
        let scatter_dims: Vec<usize> =
            (0..self.updates.len()).filter(|a| !self.update_window_dims.contains(a)).collect();
        let window_dims: Vec<usize> =
            (0..self.operand.len()).filter(|a| !self.inserted_window_dims.contains(a)).collect();
        let extents = |dims: &[usize]| dims.iter().map(|a| self.updates[*a]).collect::<Vec<_>>();
        let (positions, window) = (extents(&scatter_dims), extents(&self.update_window_dims));
        let mut number = 0;
        each(&positions, &mut |s| {
            let mut start = vec![0i64; self.operand.len()];
            for (component, axis) in self.scatter_dims_to_operand_dims.iter().enumerate() {
                let index = indices.get(number * vector + component);
                start[*axis] = start[*axis].saturating_add(index.to_i64().expect("indices are integers"));
            }
            number += 1;
            // The extents of the window in all axes of the operand.
            let mut whole = vec![1i64; self.operand.len()];
            window_dims.iter().zip(&window).for_each(|(axis, extent)| whole[*axis] = *extent as i64);
            let inside = (0..start.len())
                .all(|a| start[a] >= 0 && start[a].saturating_add(whole[a]) <= self.operand[a] as i64);
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
                out[to] = sum(out[to], updates.get(from));
            });
        });
        let mut reference = Reference::new(self.result_type());
        out.into_iter().for_each(|value| reference.push(value, 0.0));
        reference
    }
}

/// x + y, rounded once to their dtype. In f64 the sum of two numbers of fewer bits is rounded so finely that rounding again
/// does not differ from rounding once.
fn sum(x: Scalar, y: Scalar) -> Scalar {
    match (x.to_i64(), y.to_i64()) {
        (Some(a), Some(b)) => Scalar::from_i64(x.dtype(), a.wrapping_add(b)),
        _ => Scalar::from_f64(x.dtype(), x.to_f64() + y.to_f64()),
    }
}
