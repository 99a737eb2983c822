//! `dynamic_slice`: a box of a tensor, with starts from data.

use crate::op::prelude::*;
use crate::op::{DynamicUpdateSlice, Gather, starts};

attributes! {
    /// `dynamic_slice %x, %i, %j, … {slice_sizes=[…]}`: the elements `i, i + 1, …` of each axis,
    /// as many as `slice_sizes` says. There is one start for each axis, an integer scalar of any
    /// dtype.
    ///
    /// A start at which the box does not lie within x is clamped to 0 or to the last one at which
    /// it does. So a negative start is 0; it does not count from the end.
    DynamicSlice {
        /// Extents of the result.
        slice_sizes: Vec<Dim>,
    }
}

/// Checks that there is an integer scalar for each axis of `x`.
pub(super) fn check_starts(x: &TensorType, starts: &[TensorType]) -> Result<()> {
    ensure!(starts.len() == x.rank(), "takes {} starts for {x}, found {}", x.rank(), starts.len();
        help "there is one start for each axis");
    for start in starts {
        starts::check_dtype(start)?;
        ensure!(start.rank() == 0, "a start of type {start}"; help "each start is a scalar");
    }
    Ok(())
}

/// The start of a box of extents `sizes` in `x`, clamped.
pub(super) fn starts_of<R: Real>(x: &Array<R>, sizes: &[usize], starts: &[Array<R>]) -> Vec<usize> {
    let start = |axis: usize| {
        let start = starts::number(starts[axis].cells[0].bits(), starts[axis].dtype);
        start.clamp(0, (x.shape[axis] - sizes[axis]) as i64) as usize
    };
    (0..x.shape.len()).map(start).collect()
}

/// The starts of a batch, the operands from `first` on, as index vectors `[size, rank]`.
pub(super) fn start_vectors(b: &Batch<'_>, first: usize) -> Tensor {
    let component = |i: usize| {
        let start = starts::signed_tensor(&b.operand(i)).convert(DType::I64);
        start.reshape([b.size.clone(), Dim::constant(1)])
    };
    let components: Vec<Tensor> = (first..b.operands.len()).map(component).collect();
    Tensor::concatenate(&components.iter().collect::<Vec<_>>(), 1)
}

impl Operation for DynamicSlice {
    named!(
        "dynamic_slice",
        "result[i…] = x[start + i …]. Each start is clamped so that the slice lies within x."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let Some((x, starts)) = t.operands.split_first() else {
            bail!("takes a tensor and a start for each of its axes");
        };
        check_starts(x, starts)?;
        ensure!(
            self.slice_sizes.len() == x.rank(),
            "slice_sizes has {} entries for an operand of type {x}",
            self.slice_sizes.len()
        );
        for (axis, size) in self.slice_sizes.iter().enumerate() {
            ensure!(
                size.at_least(0) && size.at_most(&x.shape[axis]),
                "a slice of extent {size} along axis {axis} of {x}";
                help "a slice is not larger than the operand"
            );
        }
        Ok(vec![x.with_shape(self.slice_sizes.clone())])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let sizes = e.extents();
        let start = starts_of(&e.operands[0], &sizes, &e.operands[1..]);
        e.build(|index| {
            let at: Vec<usize> = index.iter().zip(&start).map(|(i, s)| i + s).collect();
            e.operands[0].at(&at).clone()
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (x, sizes) = (l.extents(0), l.result_extents());
        let zero = Scalar::zero(l.operands[0].dtype);
        Compute::indirect(vec![0], move |c, index| {
            if x.contains(&0) {
                // The operand has no element to load.
                return c.constant(zero);
            }
            let mut at = index.to_vec();
            // If the slice covers an axis, its start is 0 for every operand.
            for axis in (0..x.len()).filter(|a| sizes[*a] < x[*a]) {
                let start = c.operand(1 + axis, &[]);
                let start = starts::clamped(c, start, (x[axis] - sizes[axis]) as i64);
                at[axis] = at[axis].add(&Affine::reg(start));
            }
            c.clamped(0, &at)
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let mut cotangents = vec![None; t.operands.len()];
        if let Some(ct) = &t.cotangents[0] {
            let zeros = Tensor::zeros(t.operands[0].ty());
            let starts = t.operands[1..].iter().map(|o| o.known());
            let operands: Vec<&Tensor> = [&zeros, ct].into_iter().chain(starts).collect();
            cotangents[0] = Some(Tensor::apply(DynamicUpdateSlice {}, &operands));
        }
        cotangents
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let rank = self.slice_sizes.len();
        if !b.batched[1..].contains(&true) {
            // Each slice covers all examples.
            let zero = Tensor::constant(0i32);
            let starts = b.operands[1..].iter();
            let operands: Vec<&Tensor> =
                [&b.operands[0], &zero].into_iter().chain(starts).collect();
            let slice_sizes = prepended(b.size.clone(), &self.slice_sizes, false);
            return vec![Tensor::apply(DynamicSlice { slice_sizes }, &operands)];
        }
        let axes: Vec<usize> = (0..rank).collect();
        let gather = Gather {
            offset_dims: shifted(&axes),
            collapsed_slice_dims: vec![],
            start_index_map: axes.clone(),
            slice_sizes: self.slice_sizes.clone(),
            operand_batching_dims: vec![],
            start_indices_batching_dims: vec![],
            fill: None,
        };
        let gather = match b.batched[0] {
            false => gather,
            true => Gather {
                start_index_map: shifted(&axes),
                slice_sizes: prepended(Dim::constant(1), &self.slice_sizes, false),
                operand_batching_dims: vec![0],
                start_indices_batching_dims: vec![0],
                ..gather
            },
        };
        vec![Tensor::apply(gather, &[&b.operands[0], &start_vectors(b, 1)])]
    }

    const TRAITS: Traits = Traits::movement(Cost::Cheap);
}
