//! `scatter_add`: adds windows onto a tensor at positions from data.
//!
//! The dimension numbers are those of `jax.lax.scatter_add`; the last axis of the indices is the index vector. It is the transposed
//! op of [`Gather`], and [`Gather`] is that of its updates.

use super::attribute::{attributes, named};
use super::batch::{in_front, shifted};
use super::compute::Compute;
use super::derivative::{Derivative, Transpose};
use super::elementwise::{Domain, wrap};
use super::gather::{ascending_axes, check_indices, greatest};
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Gather, Op, Operation, Traits, operand_count};
use crate::call::{self, Call};
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::graph::Body;
use crate::graph::tensor::Tensor;
use crate::interpret::{Array, Cell, Real, Regions};
use crate::literal::Literal;
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::sync::Arc;

attributes! {
    /// `scatter_add %x, %indices, %updates {inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], update_window_dims=[1]}`.
    ///
    /// The result is the operand, to which each window of the updates is added where the index vector `v` of its position says:
    /// starting at `v[k]` along axis `scatter_dims_to_operand_dims[k]` and at 0 along others. The axes `update_window_dims` of the
    /// updates are window axes; along the operand's axes in `inserted_window_dims` the window has extent 1. Additions to one element
    /// are made in the row-major order of the positions.
    ///
    /// A window that does not lie within the operand is skipped, or, with `clip`, moved to where it does (each start is clamped).
    ScatterAdd {
        /// Axes of the updates that are window axes, ascending.
        update_window_dims: Vec<usize>,
        /// Axes of the operand that the updates lack, ascending.
        inserted_window_dims: Vec<usize>,
        /// For each component of an index vector the axis of the operand it starts.
        scatter_dims_to_operand_dims: Vec<usize>,
        /// Starts are clamped instead of windows being skipped.
        clip: bool = false,
    }
}

impl ScatterAdd {
    /// Extents of the window, one for each axis of the operand, as long as ranks agree.
    fn window(&self, operand: &TensorType, updates: &TensorType) -> Vec<Dim> {
        let mut sizes = self.update_window_dims.iter().map(|a| updates.shape[*a].clone());
        let size = |axis| match self.inserted_window_dims.contains(&axis) {
            true => Dim::constant(1),
            false => sizes.next().expect("infer has compared the ranks"),
        };
        (0..operand.rank()).map(size).collect()
    }

    fn transpose(&self, t: &Transpose<'_>) -> Vec<Option<Tensor>> {
        let Some(ct) = &t.cotangents[0] else { return vec![None; 3] };
        let (operand, updates) = (t.operands[0].ty(), t.operands[2].ty());
        let gather = Gather {
            offset_dims: self.update_window_dims.clone(),
            collapsed_slice_dims: self.inserted_window_dims.clone(),
            start_index_map: self.scatter_dims_to_operand_dims.clone(),
            slice_sizes: self.window(operand, updates),
            fill: (!self.clip).then(|| Scalar::zero(operand.dtype)),
        };
        vec![
            t.operands[0].is_linear().then(|| ct.clone()),
            None,
            t.operands[2].is_linear().then(|| Tensor::apply(gather, &[ct, t.operands[1].known()])),
        ]
    }
}

impl Operation for ScatterAdd {
    named!("scatter_add");

    fn infer(&self, operands: &[TensorType], _regions: &[Body]) -> Result<Vec<TensorType>> {
        operand_count(operands, 3)?;
        let (x, indices, updates) = (&operands[0], &operands[1], &operands[2]);
        Domain::Number.check(x.dtype)?;
        if updates.dtype != x.dtype {
            return Err(Diagnostic::new(format!("updates of type {updates} for an operand of type {x}"))
                .help("give them one dtype"));
        }
        check_indices("scatter_dims_to_operand_dims", indices, &self.scatter_dims_to_operand_dims, x.rank())?;
        ascending_axes("update_window_dims", &self.update_window_dims, updates.rank())?;
        ascending_axes("inserted_window_dims", &self.inserted_window_dims, x.rank())?;
        let positions = &indices.shape[..indices.rank() - 1];
        if self.update_window_dims.len() + self.inserted_window_dims.len() != x.rank()
            || updates.rank() != self.update_window_dims.len() + positions.len()
        {
            return Err(Diagnostic::new(format!(
                "updates of type {updates} for an operand of type {x} and indices of type {indices}"
            ))
            .help("updates have an axis for each axis of the window that is not inserted and for each position axis"));
        }
        let outside = |axis: &usize| !self.update_window_dims.contains(axis);
        let scattered: Vec<&Dim> = (0..updates.rank()).filter(outside).map(|a| &updates.shape[a]).collect();
        if scattered.iter().zip(positions).any(|(a, b)| *a != b) {
            return Err(Diagnostic::new(format!("updates of type {updates} for indices of type {indices}"))
                .help("the updates' axes outside the window are those of the indices, in order"));
        }
        for (axis, size) in self.window(x, updates).iter().enumerate() {
            if !size.at_most(&x.shape[axis]) {
                return Err(Diagnostic::new(format!("a window of extent {size} along axis {axis} of {x}"))
                    .help("a window is not larger than the operand"));
            }
        }
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let (x, indices, updates) = (&operands[0], &operands[1], &operands[2]);
        let window: Vec<i64> = self
            .window(&x.ty(), &updates.ty())
            .iter()
            .map(|d| d.as_constant().expect("the interpreter runs bound functions only"))
            .collect();
        let kept: Vec<usize> =
            (0..x.shape.len()).filter(|a| !self.inserted_window_dims.contains(a)).collect();
        let mut result = x.clone();
        let cells = Arc::make_mut(&mut result.cells);
        // Row-major order of positions for every element: that of the updates themselves serves, as a window adds to an element once.
        let mut index = vec![0usize; updates.shape.len()];
        for update in updates.cells.iter() {
            let mut at = vec![0i64; x.shape.len()];
            kept.iter().zip(&self.update_window_dims).for_each(|(axis, w)| at[*axis] = index[*w] as i64);
            let outside = |axis: &usize| !self.update_window_dims.contains(axis);
            let mut position: Vec<usize> = (0..index.len()).filter(outside).map(|a| index[a]).collect();
            position.push(0);
            let mut inside = true;
            for (k, axis) in self.scatter_dims_to_operand_dims.iter().enumerate() {
                *position.last_mut().expect("the index vector axis was pushed") = k;
                let (start, last) = (indices.at(&position).bits(), x.shape[*axis] as i64 - window[*axis]);
                inside &= self.clip || (0..=last).contains(&start);
                at[*axis] += start.clamp(0, last);
            }
            if inside {
                let at: Vec<usize> = at.iter().map(|i| *i as usize).collect();
                let cell = &mut cells[x.flat(&at)];
                *cell = match (&*cell, update) {
                    (Cell::Real(a), Cell::Real(b)) => Cell::Real(a.add(b).round_to(x.dtype)),
                    (a, b) => Cell::Bits(wrap(a.bits().wrapping_add(b.bits()), x.dtype)),
                };
            }
            super::advance(&mut index, &updates.shape);
        }
        Ok(vec![result])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Body],
    ) -> Compute<'a> {
        let extents = |ty: &TensorType| ty.extents().expect("compute is asked for bound types only");
        let (operand, updates) = (operands[0].clone(), operands[2].clone());
        if !self.clip {
            return Compute::Call(Call::ScatterAdd(call::ScatterAdd {
                operand: extents(&operand),
                indices: extents(&operands[1]),
                updates: extents(&updates),
                update_window_dims: self.update_window_dims.clone(),
                inserted_window_dims: self.inserted_window_dims.clone(),
                scatter_dims_to_operand_dims: self.scatter_dims_to_operand_dims.clone(),
                dtype: operand.dtype,
                index: operands[1].dtype,
            }));
        }
        // Clamp the starts, after which every window lies within the operand.
        Compute::Decompose(Box::new(move |tensors| {
            let indices = &tensors[1];
            let window = self.window(&operand, &updates);
            let last: Vec<Scalar> = self
                .scatter_dims_to_operand_dims
                .iter()
                .map(|a| {
                    let room = operand.shape[*a].checked_sub(&window[*a]).and_then(|d| d.as_constant());
                    let room = room.expect("compute is asked for bound types only");
                    Scalar::from_i64(indices.dtype(), greatest(room, indices.dtype()))
                })
                .collect();
            let last = Literal::from_scalars(indices.dtype(), &[last.len()], &last)
                .expect("the bounds were made with the indices' dtype");
            let starts = indices.max(0).min(Tensor::constant(last));
            vec![Tensor::apply(
                ScatterAdd { clip: false, ..self.clone() },
                &[&tensors[0], &starts, &tensors[2]],
            )]
        }))
    }

    fn derivative(&self) -> Derivative {
        Derivative::Linear(|t| {
            let Op::ScatterAdd(op) = t.op else { unreachable!("the rule of scatter_add") };
            op.transpose(t)
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let (operand, updates) = (b.operand(0), b.operand(2));
        if !b.batched[1] {
            // The windows reach over all examples.
            let op = ScatterAdd {
                update_window_dims: in_front(&self.update_window_dims),
                inserted_window_dims: shifted(&self.inserted_window_dims),
                scatter_dims_to_operand_dims: shifted(&self.scatter_dims_to_operand_dims),
                clip: self.clip,
            };
            return vec![Tensor::apply(op, &[&operand, &b.operands[1], &updates])];
        }
        // Each position has the number of its example.
        let op = ScatterAdd {
            update_window_dims: shifted(&self.update_window_dims),
            inserted_window_dims: in_front(&self.inserted_window_dims),
            scatter_dims_to_operand_dims: in_front(&self.scatter_dims_to_operand_dims),
            clip: self.clip,
        };
        vec![Tensor::apply(op, &[&operand, &b.numbered(&b.operands[1]), &updates])]
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let rows = |clip| ScatterAdd {
            update_window_dims: vec![1],
            inserted_window_dims: vec![0],
            scatter_dims_to_operand_dims: vec![0],
            clip,
        };
        let windows = |clip| ScatterAdd {
            update_window_dims: vec![0, 2],
            inserted_window_dims: vec![],
            scatter_dims_to_operand_dims: vec![1, 0],
            clip,
        };
        let mixed = |clip| ScatterAdd {
            update_window_dims: vec![1],
            inserted_window_dims: vec![0, 2],
            scatter_dims_to_operand_dims: vec![2, 0],
            clip,
        };
        let samples = [false, true].into_iter().flat_map(|clip| {
            [
                Sample::new(
                    rows(clip),
                    vec![
                        floats(&[6, 3], -2.0, 2.0),
                        values(&[5, 1], [0i32, 5, 2, 2, 9]),
                        floats(&[5, 3], -2.0, 2.0),
                    ],
                ),
                Sample::new(
                    rows(clip),
                    vec![
                        values(&[2, 2], [1i32, 2, 3, i32::MAX]),
                        values(&[3, 1], [1i64, 1, -1]),
                        values(&[3, 2], [1i32, 2, 3, 4, 5, 6]),
                    ],
                ),
                Sample::new(
                    windows(clip),
                    vec![
                        floats(&[5, 4], -2.0, 2.0),
                        values(&[4, 2], [0i64, 0, 2, 4, -3, 7, 1, 3]),
                        floats(&[2, 4, 2], -2.0, 2.0),
                    ],
                ),
                Sample::new(
                    mixed(clip),
                    vec![
                        floats(&[2, 2, 3], -2.0, 2.0),
                        values(&[2, 2, 2], [0i32, 1, 2, 0, -1, 1, 9, 9]),
                        floats(&[2, 2, 2], -2.0, 2.0),
                    ],
                ),
            ]
        });
        vec![Entry {
            name: "scatter_add",
            doc: "x, to which windows of the updates are added at positions from the indices. A window that does not lie within x is \
                  skipped; with `clip`, its start is clamped.",
            derivative: "linear",
            samples: samples.collect(),
        }]
    }
}
