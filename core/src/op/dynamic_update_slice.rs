//! `dynamic_update_slice`: a tensor with a box replaced, with starts from data.

use crate::call::ScatterKind;
use crate::op::dynamic_slice::{check_starts, start_vectors, starts_of};
use crate::op::prelude::*;
use crate::op::{DynamicSlice, Scatter, starts};

attributes! {
    /// `dynamic_update_slice %x, %update, %i, %j, …`: x, of which the box of the update's extents
    /// that starts at `i, j, …` is the update. There is one start for each axis, an integer
    /// scalar of any dtype, which is clamped as in `dynamic_slice`.
    DynamicUpdateSlice {}
}

impl DynamicUpdateSlice {
    /// A scatter of one window, the update, at the clamped starts. It can leave the rest of x in
    /// its place. Kind [`ScatterKind::Replace`] is this op.
    pub fn as_scatter(operands: &[Tensor], kind: ScatterKind) -> Tensor {
        let [x, update, starts @ ..] = operands else {
            unreachable!("infer admits two operands and starts")
        };
        // If the update covers an axis, its start is 0 for every operand.
        let axes: Vec<usize> =
            (0..x.rank()).filter(|a| x.shape()[*a] != update.shape()[*a]).collect();
        let starts: Vec<Tensor> =
            axes.iter().map(|a| starts::signed_tensor(&starts[*a]).reshape([1usize])).collect();
        let wide = starts.iter().any(|s| s.dtype() == DType::I64);
        let dtype = if wide { DType::I64 } else { DType::I32 };
        let starts: Vec<Tensor> = starts.iter().map(|s| s.convert(dtype)).collect();
        let scatter = Scatter {
            kind,
            update_window_dims: (0..x.rank()).collect(),
            inserted_window_dims: vec![],
            scatter_dims_to_operand_dims: axes,
            operand_batching_dims: vec![],
            scatter_indices_batching_dims: vec![],
            clip: true,
            unique_indices: true,
        };
        let index = Tensor::concatenate(&starts.iter().collect::<Vec<_>>(), 0);
        Tensor::apply(scatter, &[x, &index, update])
    }
}

impl Operation for DynamicUpdateSlice {
    named!(
        "dynamic_update_slice",
        "x with result[start + i …] = update[i…]. Each start is clamped so that the update lies \
         within x."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x, update, starts @ ..] = t.operands else {
            bail!("takes a tensor, an update and a start for each axis");
        };
        check_starts(x, starts)?;
        ensure!(
            update.dtype == x.dtype && update.rank() == x.rank(),
            "an update of type {update} for an operand of type {x}";
            help "both have one dtype and one rank"
        );
        for (axis, size) in update.shape.iter().enumerate() {
            ensure!(
                size.at_most(&x.shape[axis]),
                "an update of extent {size} along axis {axis} of {x}";
                help "an update is not larger than the operand"
            );
        }
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let [x, update, starts @ ..] = e.operands else {
            unreachable!("infer admits two operands and starts")
        };
        let start = starts_of(x, &update.shape, starts);
        e.build(|index| {
            let at = index.iter().zip(&start).zip(&update.shape);
            let at: Option<Vec<usize>> =
                at.map(|((i, s), extent)| i.checked_sub(*s).filter(|i| i < extent)).collect();
            match at {
                Some(at) => update.at(&at).clone(),
                None => x.at(index).clone(),
            }
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (x, sizes) = (l.extents(0), l.extents(1));
        Compute::indirect(vec![1], move |c, index| {
            if sizes.contains(&0) {
                return c.operand(0, index);
            }
            let (mut at, mut guards) = (index.to_vec(), vec![]);
            // If the update covers an axis, its start is 0 for every operand.
            for axis in (0..x.len()).filter(|a| sizes[*a] < x[*a]) {
                let start = c.operand(2 + axis, &[]);
                let start = starts::clamped(c, start, (x[axis] - sizes[axis]) as i64);
                at[axis] = at[axis].add(&Affine::reg(start).scale(-1));
                guards.push(Guard { index: at[axis].clone(), low: 0, high: sizes[axis] as i64 });
            }
            if guards.is_empty() {
                return c.operand(1, index);
            }
            let kept = c.operand(0, index);
            c.guarded(1, &at, guards, kept)
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let mut cotangents = vec![None; t.operands.len()];
        let Some(ct) = &t.cotangents[0] else { return cotangents };
        let update = t.operands[1].ty();
        let starts: Vec<&Tensor> = t.operands[2..].iter().map(|o| o.known()).collect();
        if t.operands[0].is_linear() {
            let zeros = Tensor::zeros(update);
            let operands: Vec<&Tensor> =
                [ct, &zeros].into_iter().chain(starts.iter().copied()).collect();
            cotangents[0] = Some(Tensor::apply(DynamicUpdateSlice {}, &operands));
        }
        if t.operands[1].is_linear() {
            let operands: Vec<&Tensor> = [ct].into_iter().chain(starts).collect();
            let slice = DynamicSlice { slice_sizes: update.shape.clone() };
            cotangents[1] = Some(Tensor::apply(slice, &operands));
        }
        cotangents
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let (x, update) = (b.operand(0), b.operand(1));
        if !b.batched[2..].contains(&true) {
            // Each update covers all examples.
            let zero = Tensor::constant(0i32);
            let starts = b.operands[2..].iter();
            let operands: Vec<&Tensor> = [&x, &update, &zero].into_iter().chain(starts).collect();
            return vec![Tensor::apply(DynamicUpdateSlice {}, &operands)];
        }
        let axes: Vec<usize> = (0..b.rank(0)).collect();
        let scatter = Scatter {
            kind: ScatterKind::Replace,
            update_window_dims: shifted(&axes),
            inserted_window_dims: vec![],
            scatter_dims_to_operand_dims: shifted(&axes),
            operand_batching_dims: vec![0],
            scatter_indices_batching_dims: vec![0],
            clip: true,
            unique_indices: true,
        };
        vec![Tensor::apply(scatter, &[&x, &start_vectors(b, 2), &update])]
    }

    const TRAITS: Traits = Traits::movement(Cost::Cheap);
}
