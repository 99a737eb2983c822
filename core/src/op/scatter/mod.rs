//! `scatter`, `scatter_add`, `scatter_mul`, `scatter_min`, `scatter_max`: windows combined with a
//! tensor at positions from data.
//!
//! The dimension numbers are those of `jax.lax.scatter_add`; the last axis of the indices is the
//! index vector. All kinds are one op and one call. The order in which updates are applied to an
//! element is fixed: so `scatter` (which replaces) keeps the last update of an element on every
//! device, and sums have one right value to the bit.

mod derivative;

use crate::call::{self, Call, ScatterKind};
use crate::op::binary::extremum;
use crate::op::prelude::*;
use crate::op::starts::{self, Batching, ascending_axes, check_indices, greatest};

attributes! {
    /// `scatter_add %x, %indices, %updates {inserted_window_dims=[0],
    /// scatter_dims_to_operand_dims=[0], update_window_dims=[1]}`.
    ///
    /// The result is the operand, into which each window of the updates is combined. The window
    /// at the position of index vector `v` starts at `v[k]` along axis
    /// `scatter_dims_to_operand_dims[k]` and at 0 along others. The axes `update_window_dims` of
    /// the updates are window axes. Along the operand's axes in `inserted_window_dims` and
    /// `operand_batching_dims` the window has extent 1. Along `operand_batching_dims` it has the
    /// index that its position has along the axes `scatter_indices_batching_dims` of the indices,
    /// pairwise. Updates of one element are applied in the row-major order of the positions, with
    /// one rounding for each; `scatter` replaces, so the last update wins.
    ///
    /// A window that does not lie within the operand is skipped (lax' mode `fill_or_drop`), or,
    /// with `clip`, moved into it (each start is clamped). Both give the result of lax'
    /// `promise_in_bounds` for indices in bounds. Indices are of any integer dtype.
    Scatter by kind: ScatterKind {
        /// Axes of the updates that are window axes, ascending.
        update_window_dims: Vec<usize>,
        /// Axes of the operand that the updates lack, ascending.
        inserted_window_dims: Vec<usize>,
        /// For each component of an index vector, the axis of the operand it is a start along.
        scatter_dims_to_operand_dims: Vec<usize>,
        /// Axes of the operand that are paired with axes of the indices, ascending.
        operand_batching_dims: Vec<usize> = vec![],
        /// Axes of the indices that are paired with those, in the same order.
        scatter_indices_batching_dims: Vec<usize> = vec![],
        /// Starts are clamped instead of windows being skipped.
        clip: bool = false,
        /// A promise that no element gets two updates. It changes no result. Derivatives are
        /// shorter with it, and wrong if it is broken.
        unique_indices: bool = false,
    }
}

impl Scatter {
    /// Extents of the window, one for each axis of the operand. The ranks must agree.
    fn window(&self, operand: &TensorType, updates: &TensorType) -> Vec<Dim> {
        let mut sizes = self.update_window_dims.iter().map(|a| updates.shape[*a].clone());
        let size = |axis| match self.lacks(axis) {
            true => Dim::constant(1),
            false => sizes.next().expect("infer has compared the ranks"),
        };
        (0..operand.rank()).map(size).collect()
    }

    /// Whether the updates lack this axis of the operand.
    fn lacks(&self, axis: usize) -> bool {
        self.inserted_window_dims.contains(&axis) || self.operand_batching_dims.contains(&axis)
    }

    /// Combines an element with one update.
    fn combine<R: Real>(&self, x: &Cell<R>, update: &Cell<R>, dtype: DType) -> Cell<R> {
        let wanted = if self.kind == ScatterKind::Min { Ordering::Less } else { Ordering::Greater };
        match (self.kind, x, update) {
            (ScatterKind::Replace, _, u) => u.clone(),
            (ScatterKind::Add, Cell::Real(x), Cell::Real(u)) => {
                Cell::Real(x.add(u).round_to(dtype))
            }
            (ScatterKind::Mul, Cell::Real(x), Cell::Real(u)) => {
                Cell::Real(x.mul(u).round_to(dtype))
            }
            (_, Cell::Real(x), Cell::Real(u)) => Cell::Real(extremum(x, u, wanted)),
            (kind, x, u) => {
                let (x, u) = (x.bits(), u.bits());
                Cell::Bits(match kind {
                    ScatterKind::Add => wrap(x.wrapping_add(u), dtype),
                    ScatterKind::Mul => wrap(x.wrapping_mul(u), dtype),
                    _ if compare_bits(x, u, dtype) == wanted => x,
                    _ => u,
                })
            }
        }
    }

    /// The starts of a scatter with `clip`, clamped.
    fn clamped(&self, starts: &Tensor, operand: &TensorType, updates: &TensorType) -> Tensor {
        let window = self.window(operand, updates);
        let room = |axis: &usize| {
            let room =
                operand.shape[*axis].checked_sub(&window[*axis]).and_then(|d| d.as_constant());
            let room = room.expect("compute is asked for bound types only");
            Scalar::from_i64(starts.dtype(), greatest(room, starts.dtype()))
        };
        let last: Vec<Scalar> = self.scatter_dims_to_operand_dims.iter().map(room).collect();
        let last = Literal::from_scalars(starts.dtype(), &[last.len()], &last)
            .expect("the bounds were made with the indices' dtype");
        starts.max(0).min(Tensor::constant(last))
    }

    /// The index vectors with a component appended for each batching axis.
    fn with_batches(&self, starts: &Tensor) -> Tensor {
        let mut shape = starts.shape().to_vec();
        *shape.last_mut().expect("infer has found the index vector") = Dim::constant(1);
        let batch = |axis: &usize| Tensor::iota(starts.dtype(), shape.clone(), *axis);
        let batches: Vec<Tensor> = self.scatter_indices_batching_dims.iter().map(batch).collect();
        let parts: Vec<&Tensor> = std::iter::once(starts).chain(&batches).collect();
        Tensor::concatenate(&parts, starts.rank() - 1)
    }
}

impl Operation for Scatter {
    named!(kind: ScatterKind, derivative::rule);

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x, indices, updates] = t.exactly()?;
        ensure!(self.kind.takes(x.dtype), "takes floats and integers, found {}", x.dtype;
            help "convert the operand with `convert_element_type`");
        ensure!(updates.dtype == x.dtype, "updates of type {updates} for an operand of type {x}";
            help "give them one dtype");
        check_indices(
            "scatter_dims_to_operand_dims",
            indices,
            &self.scatter_dims_to_operand_dims,
            x.rank(),
        )?;
        ascending_axes("update_window_dims", &self.update_window_dims, updates.rank())?;
        ascending_axes("inserted_window_dims", &self.inserted_window_dims, x.rank())?;
        Batching {
            operand: &self.operand_batching_dims,
            indices: ("scatter_indices_batching_dims", &self.scatter_indices_batching_dims),
            others: [
                ("scatter_dims_to_operand_dims", &self.scatter_dims_to_operand_dims),
                ("inserted_window_dims", &self.inserted_window_dims),
            ],
        }
        .check(x, indices)?;
        let positions = &indices.shape[..indices.rank() - 1];
        let lacking = self.inserted_window_dims.len() + self.operand_batching_dims.len();
        ensure!(
            self.update_window_dims.len() + lacking == x.rank()
                && updates.rank() == self.update_window_dims.len() + positions.len(),
            "updates of type {updates} for an operand of type {x} and indices of type {indices}";
            help "updates have an axis for each axis of the operand that is neither inserted nor \
             for batching, and for each position axis"
        );
        let outside = |axis: &usize| !self.update_window_dims.contains(axis);
        let scattered: Vec<&Dim> =
            (0..updates.rank()).filter(outside).map(|a| &updates.shape[a]).collect();
        ensure!(
            scattered.iter().zip(positions).all(|(a, b)| *a == b),
            "updates of type {updates} for indices of type {indices}";
            help "the updates' axes outside the window are those of the indices, in order"
        );
        for (axis, size) in self.window(x, updates).iter().enumerate() {
            ensure!(
                size.at_most(&x.shape[axis]),
                "a window of extent {size} along axis {axis} of {x}";
                help "a window is not larger than the operand"
            );
        }
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (x, indices, updates) = (&e.operands[0], &e.operands[1], &e.operands[2]);
        let window: Vec<i64> = self
            .window(&x.ty(), &updates.ty())
            .iter()
            .map(|d| d.as_constant().expect("the interpreter runs bound functions only"))
            .collect();
        let kept: Vec<usize> = (0..x.shape.len()).filter(|a| !self.lacks(*a)).collect();
        let mut cells = Cells::copied(&x.cells)?;
        // One window after the other: positions are the outer loops, wherever the window axes are
        // in the updates.
        let outside = |axis: &usize| !self.update_window_dims.contains(axis);
        let positions = (0..updates.shape.len()).filter(outside);
        let order: Vec<usize> = positions.chain(self.update_window_dims.iter().copied()).collect();
        let extents: Vec<usize> = order.iter().map(|a| updates.shape[*a]).collect();
        let mut counter = vec![0usize; order.len()];
        let mut index = counter.clone();
        for _ in 0..updates.cells.len() {
            order.iter().zip(&counter).for_each(|(axis, i)| index[*axis] = *i);
            let update = updates.at(&index);
            let mut at = vec![0i64; x.shape.len()];
            kept.iter()
                .zip(&self.update_window_dims)
                .for_each(|(axis, w)| at[*axis] = index[*w] as i64);
            let mut position: Vec<usize> =
                (0..index.len()).filter(outside).map(|a| index[a]).collect();
            for (axis, batch) in
                self.operand_batching_dims.iter().zip(&self.scatter_indices_batching_dims)
            {
                at[*axis] = position[*batch] as i64;
            }
            position.push(0);
            let mut inside = true;
            for (k, axis) in self.scatter_dims_to_operand_dims.iter().enumerate() {
                *position.last_mut().expect("the index vector axis was pushed") = k;
                let start = starts::number(indices.at(&position).bits(), indices.dtype);
                let last = x.shape[*axis] as i64 - window[*axis];
                inside &= self.clip || (0..=last).contains(&start);
                at[*axis] += start.clamp(0, last);
            }
            if inside {
                // Without rounding, a float is an f64 whatever its dtype.
                let exact = x.dtype.is_float() && !e.regions.rounds;
                let dtype = if exact { DType::F64 } else { x.dtype };
                let at: Vec<usize> = at.iter().map(|i| *i as usize).collect();
                let cell = &mut cells[x.flat(&at)];
                *cell = self.combine(cell, update, dtype);
            }
            advance(&mut counter, &extents);
        }
        e.result(cells)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (operand, updates) = (l.operands[0].clone(), l.operands[2].clone());
        let index = l.operands[1].dtype;
        let unbatched = self.operand_batching_dims.is_empty();
        if unbatched && matches!(index, DType::I32 | DType::I64) {
            return Compute::Call(Call::Scatter(call::Scatter {
                kind: self.kind,
                operand: l.extents(0),
                indices: l.extents(1),
                updates: l.extents(2),
                update_window_dims: self.update_window_dims.clone(),
                inserted_window_dims: self.inserted_window_dims.clone(),
                scatter_dims_to_operand_dims: self.scatter_dims_to_operand_dims.clone(),
                dtype: operand.dtype.stored(),
                index,
                clip: self.clip,
            }));
        }
        // The call takes signed indices, skips windows that are outside, and has no batching
        // axes: these become components of the index vector.
        Compute::Decompose(Box::new(move |tensors| {
            let mut starts = starts::signed_tensor(&tensors[1]);
            if self.clip && !unbatched {
                // The components for paired axes, which follow, are within bounds.
                starts = self.clamped(&starts, &operand, &updates);
            }
            starts = self.with_batches(&starts);
            let join = |a: &[usize]| {
                a.iter().chain(&self.operand_batching_dims).copied().collect::<Vec<_>>()
            };
            let mut inserted_window_dims = join(&self.inserted_window_dims);
            inserted_window_dims.sort();
            let scatter = Scatter {
                inserted_window_dims,
                scatter_dims_to_operand_dims: join(&self.scatter_dims_to_operand_dims),
                operand_batching_dims: vec![],
                scatter_indices_batching_dims: vec![],
                clip: self.clip && unbatched,
                ..self.clone()
            };
            vec![Tensor::apply(scatter, &[&tensors[0], &starts, &tensors[2]])]
        }))
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let (operand, updates) = (b.operand(0), b.operand(2));
        let op = if b.batched[1] {
            // The batch axes of operand, indices and updates are paired.
            Scatter {
                update_window_dims: shifted(&self.update_window_dims),
                operand_batching_dims: in_front(&self.operand_batching_dims),
                scatter_indices_batching_dims: in_front(&self.scatter_indices_batching_dims),
                ..self.clone()
            }
        } else {
            // Each window covers all examples.
            Scatter {
                update_window_dims: in_front(&self.update_window_dims),
                operand_batching_dims: shifted(&self.operand_batching_dims),
                ..self.clone()
            }
        };
        let op = Scatter {
            inserted_window_dims: shifted(&self.inserted_window_dims),
            scatter_dims_to_operand_dims: shifted(&self.scatter_dims_to_operand_dims),
            ..op
        };
        vec![Tensor::apply(op, &[&operand, &b.operands[1], &updates])]
    }
}
