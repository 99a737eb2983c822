//! `gather`: windows of a tensor at positions from data.
//!
//! The dimension numbers are those of `jax.lax.gather`; the last axis of the indices is the index
//! vector.

use crate::call::ScatterKind;
use crate::op::prelude::*;
use crate::op::starts::{self, Batching, ascending_axes, check_indices};
use crate::op::{Lookup, Scatter};

attributes! {
    /// `gather %x, %indices {collapsed_slice_dims=[0], offset_dims=[1], slice_sizes=[1,8],
    /// start_index_map=[0]}`.
    ///
    /// For each index vector `v` a window of `slice_sizes` is taken out of the operand. It starts
    /// at `v[k]` along axis `start_index_map[k]` and at 0 along others. Axes in
    /// `collapsed_slice_dims` (of window extent 1) are dropped; the others become the axes
    /// `offset_dims` of the result, in order. The remaining axes of the result are those of the
    /// indices. Axes in `operand_batching_dims` (of window extent 1) are dropped, too: along them
    /// the window has the index that the index vector has along the axes
    /// `start_indices_batching_dims` of the indices, pairwise.
    ///
    /// A window that does not lie within the operand is moved into it (each start is clamped:
    /// lax' mode `clip`), or, if `fill` is given, yields `fill` throughout (`fill`). Lax'
    /// `promise_in_bounds` has no mode of its own: `clip` gives the same result for indices in
    /// bounds, and is defined for all others. Indices are of any integer dtype.
    Gather {
        /// Axes of the result that are window axes, ascending.
        offset_dims: Vec<usize>,
        /// Axes of the operand that are dropped, ascending.
        collapsed_slice_dims: Vec<usize>,
        /// For each component of an index vector, the axis of the operand it is a start along.
        start_index_map: Vec<usize>,
        /// Extents of the window, one for each axis of the operand.
        slice_sizes: Vec<Dim>,
        /// Axes of the operand that are paired with axes of the indices, ascending.
        operand_batching_dims: Vec<usize> = vec![],
        /// Axes of the indices that are paired with those, in the same order.
        start_indices_batching_dims: Vec<usize> = vec![],
        /// The elements of a window out of bounds; absent: starts are clamped.
        fill: Option<Scalar> = None,
    }
}

impl Gather {
    /// Rows of a table: [`along`](Self::along) axis 0.
    pub fn rows(table: &TensorType, rank: usize) -> Self {
        Gather::along(table, 0, rank)
    }

    /// Entries of a table: an axis of an operand of type `table` is looked up by each element of
    /// indices of rank `rank` (without the index vector axis). The axes of the indices take the
    /// place of that axis.
    pub fn along(table: &TensorType, axis: usize, rank: usize) -> Self {
        let mut slice_sizes = table.shape.clone();
        if let Some(extent) = slice_sizes.get_mut(axis) {
            *extent = Dim::constant(1);
        }
        let last = rank + table.rank().saturating_sub(1);
        Gather {
            offset_dims: (0..axis).chain(axis + rank..last).collect(),
            collapsed_slice_dims: vec![axis],
            start_index_map: vec![axis],
            slice_sizes,
            operand_batching_dims: vec![],
            start_indices_batching_dims: vec![],
            fill: None,
        }
    }

    /// Whether the result lacks this axis of the operand.
    fn drops(&self, axis: usize) -> bool {
        self.collapsed_slice_dims.contains(&axis) || self.operand_batching_dims.contains(&axis)
    }

    /// Axes of the operand that remain in a window.
    fn kept(&self) -> Vec<usize> {
        (0..self.slice_sizes.len()).filter(|a| !self.drops(*a)).collect()
    }

    /// Splits a result's index into that of the index vector, and that in the operand of a window
    /// that starts at 0.
    fn split<T: Clone>(&self, index: &[T], zero: T) -> (Vec<T>, Vec<T>) {
        let mut window = vec![zero; self.slice_sizes.len()];
        for (axis, offset) in self.kept().into_iter().zip(&self.offset_dims) {
            window[axis] = index[*offset].clone();
        }
        let outside = |axis: &usize| !self.offset_dims.contains(axis);
        let position: Vec<T> =
            (0..index.len()).filter(outside).map(|axis| index[axis].clone()).collect();
        for (axis, batch) in
            self.operand_batching_dims.iter().zip(&self.start_indices_batching_dims)
        {
            window[*axis] = position[*batch].clone();
        }
        (position, window)
    }

    fn size(&self, axis: usize) -> i64 {
        self.slice_sizes[axis].as_constant().expect("the dimension is bound")
    }

    /// The transposed op.
    fn scatter(&self) -> Scatter {
        Scatter {
            kind: ScatterKind::Add,
            update_window_dims: self.offset_dims.clone(),
            inserted_window_dims: self.collapsed_slice_dims.clone(),
            scatter_dims_to_operand_dims: self.start_index_map.clone(),
            operand_batching_dims: self.operand_batching_dims.clone(),
            scatter_indices_batching_dims: self.start_indices_batching_dims.clone(),
            clip: self.fill.is_none(),
            unique_indices: false,
        }
    }
}

/// The gather of the tangent with a fill of 0, since the fill is a constant.
fn jvp(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let Op::Gather(op) = j.op else { unreachable!("the rule of gather") };
    let fill = op.fill.map(|f| Scalar::zero(f.dtype()));
    vec![
        j.tangents[0]
            .as_ref()
            .map(|t| Tensor::apply(Gather { fill, ..op.clone() }, &[t, &j.operands[1]])),
    ]
}

fn transpose(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Op::Gather(op) = t.op else { unreachable!("the rule of gather") };
    let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
    let zeros = Tensor::zeros(t.operands[0].ty());
    vec![Some(Tensor::apply(op.scatter(), &[&zeros, t.operands[1].known(), ct])), None]
}

impl Operation for Gather {
    named!(
        "gather",
        "Windows of x at the positions in the indices. Starts are clamped so that a window lies \
         within x. With `fill`, a window that does not lie within x gives the fill value instead."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x, indices] = t.exactly()?;
        check_indices("start_index_map", indices, &self.start_index_map, x.rank())?;
        ascending_axes("collapsed_slice_dims", &self.collapsed_slice_dims, x.rank())?;
        Batching {
            operand: &self.operand_batching_dims,
            indices: ("start_indices_batching_dims", &self.start_indices_batching_dims),
            others: [
                ("start_index_map", &self.start_index_map),
                ("collapsed_slice_dims", &self.collapsed_slice_dims),
            ],
        }
        .check(x, indices)?;
        ensure!(
            self.slice_sizes.len() == x.rank(),
            "slice_sizes has {} entries for an operand of type {x}",
            self.slice_sizes.len()
        );
        for (axis, size) in self.slice_sizes.iter().enumerate() {
            ensure!(
                size.at_least(0) && size.at_most(&x.shape[axis]),
                "a window of extent {size} along axis {axis} of {x}";
                help "a window lies within the operand"
            );
            ensure!(
                !self.drops(axis) || *size == Dim::constant(1),
                "axis {axis}, which is dropped, has window extent {size}";
                help "only axes of window extent 1 can be dropped"
            );
        }
        let kept = self.kept();
        let rank = indices.rank() - 1 + kept.len();
        ascending_axes("offset_dims", &self.offset_dims, rank)?;
        ensure!(
            self.offset_dims.len() == kept.len(),
            "offset_dims has {} entries for windows of {} axes",
            self.offset_dims.len(),
            kept.len()
        );
        if let Some(fill) = self.fill.filter(|f| f.dtype() != x.dtype) {
            bail!("fill {fill:?} for an operand of type {x}");
        }
        let mut windows = kept.iter().map(|a| self.slice_sizes[*a].clone());
        let mut positions = indices.shape.iter().cloned();
        let extent = |axis| match self.offset_dims.contains(&axis) {
            true => windows.next().expect("there is an offset axis for each window axis"),
            false => positions.next().expect("the other axes are those of the indices"),
        };
        Ok(vec![x.with_shape((0..rank).map(extent).collect())])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (x, indices) = (&e.operands[0], &e.operands[1]);
        e.build(|index| {
            let (mut position, mut at) = self.split(index, 0);
            position.push(0);
            for (k, axis) in self.start_index_map.iter().enumerate() {
                *position.last_mut().expect("the index vector axis was pushed") = k;
                let start = starts::number(indices.at(&position).bits(), indices.dtype);
                let last = x.shape[*axis] as i64 - self.size(*axis);
                match self.fill {
                    Some(fill) if !(0..=last).contains(&start) => return Cell::from_scalar(fill),
                    _ => at[*axis] += start.clamp(0, last) as usize,
                }
            }
            x.at(&at).clone()
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let extents = l.extents(0);
        let zero = Scalar::zero(l.operands[0].dtype);
        Compute::indirect(vec![0], move |c, index| {
            if extents.contains(&0) {
                // An operand without elements: there is none to load.
                return c.constant(zero);
            }
            let (mut position, mut at) = self.split(index, Affine::constant(0));
            position.push(Affine::constant(0));
            let mut guards = Vec::new();
            for (k, axis) in self.start_index_map.iter().enumerate() {
                *position.last_mut().expect("the index vector axis was pushed") =
                    Affine::constant(k as i64);
                let start = c.operand(1, &position);
                let last = extents[*axis] as i64 - self.size(*axis);
                let start = if self.fill.is_some() {
                    let start = starts::signed(c, start);
                    guards.push(Guard { index: Affine::reg(start), low: 0, high: last + 1 });
                    start
                } else if self.size(*axis) != 1 {
                    // The access clamps each index; the window as a whole is clamped here.
                    starts::clamped(c, start, last)
                } else {
                    starts::signed(c, start)
                };
                at[*axis] = at[*axis].add(&Affine::reg(start));
            }
            match self.fill {
                Some(fill) => {
                    let fill = c.constant(fill);
                    c.guarded(0, &at, guards, fill)
                }
                None => c.clamped(0, &at),
            }
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(transpose);

    fn derivative(&self) -> Derivative {
        match self.fill {
            // With a fill other than 0 it is affine, not linear.
            Some(fill) if fill != Scalar::zero(fill.dtype()) => Derivative::Nonlinear(jvp),
            _ => Self::DERIVATIVE,
        }
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let full = |first: Dim| prepended(first, &self.slice_sizes, false);
        let op = match (b.batched[0], b.batched[1]) {
            // Each window covers all examples.
            (true, false) => Gather {
                offset_dims: in_front(&self.offset_dims),
                collapsed_slice_dims: shifted(&self.collapsed_slice_dims),
                start_index_map: shifted(&self.start_index_map),
                slice_sizes: full(b.size.clone()),
                operand_batching_dims: shifted(&self.operand_batching_dims),
                start_indices_batching_dims: self.start_indices_batching_dims.clone(),
                fill: self.fill,
            },
            // The examples are more positions.
            (false, _) => Gather {
                offset_dims: shifted(&self.offset_dims),
                start_indices_batching_dims: shifted(&self.start_indices_batching_dims),
                ..self.clone()
            },
            // The batch axes of operand and indices are paired.
            (true, true) => Gather {
                offset_dims: shifted(&self.offset_dims),
                collapsed_slice_dims: shifted(&self.collapsed_slice_dims),
                start_index_map: shifted(&self.start_index_map),
                slice_sizes: full(Dim::constant(1)),
                operand_batching_dims: in_front(&self.operand_batching_dims),
                start_indices_batching_dims: in_front(&self.start_indices_batching_dims),
                fill: self.fill,
            },
        };
        vec![Tensor::apply(op, &[&b.operands[0], &b.operands[1]])]
    }

    const TRAITS: Traits = Traits::movement(Cost::Cheap);

    /// The starts at which the window lies within the operand. With a `fill`, others are not a
    /// mistake.
    fn lookup(&self, operands: &[TensorType]) -> Option<Lookup> {
        if self.fill.is_some() {
            return None;
        }
        let count = |axis: &usize| {
            let room = operands[0].shape[*axis].checked_sub(&self.slice_sizes[*axis])?;
            room.checked_add(&Dim::constant(1))
        };
        let counts = self.start_index_map.iter().map(count).collect::<Option<_>>()?;
        Some(Lookup { operand: 1, counts, vectors: true })
    }
}
