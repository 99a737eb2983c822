//! `dynamic_update_slice`: a tensor with a box replaced, with starts from data.

use super::attribute::{attributes, named};
use super::batch::shifted;
use super::compute::Compute;
use super::derivative::Derivative;
use super::dynamic_slice::{check_starts, start_vectors, starts_of};
use super::sample::{Sample, SampleOperand, floats, values};
use super::starts;
use super::{Batch, DynamicSlice, Entry, Operation, Scatter, Traits};
use crate::build::tensor::Tensor;
use crate::call::ScatterKind;
use crate::diagnostic::{Diagnostic, Result};
use crate::graph::Region;
use crate::interpret::{Array, Real, Regions};
use crate::nest::{Affine, Guard};
use crate::ty::TensorType;

attributes! {
    /// `dynamic_update_slice %x, %update, %i, %j, …`: x, of which the box of the update's extents
    /// that starts at `i, j, …` is the update. There is one start for each axis, an integer
    /// scalar of any dtype, which is clamped as in `dynamic_slice`.
    DynamicUpdateSlice {}
}

impl Operation for DynamicUpdateSlice {
    named!("dynamic_update_slice");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        let [x, update, starts @ ..] = operands else {
            return Err(Diagnostic::new("takes a tensor, an update and a start for each axis"));
        };
        check_starts(x, starts)?;
        if update.dtype != x.dtype || update.rank() != x.rank() {
            return Err(Diagnostic::new(format!(
                "an update of type {update} for an operand of type {x}"
            ))
            .help("both have one dtype and one rank"));
        }
        for (axis, size) in update.shape.iter().enumerate() {
            if !size.at_most(&x.shape[axis]) {
                return Err(Diagnostic::new(format!(
                    "an update of extent {size} along axis {axis} of {x}"
                ))
                .help("an update is not larger than the operand"));
            }
        }
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let [x, update, starts @ ..] = operands else {
            unreachable!("infer admits two operands and starts")
        };
        let start = starts_of(x, &update.shape, starts);
        Ok(vec![Array::from_fn(&results[0], |index| {
            let at = index.iter().zip(&start).zip(&update.shape);
            let at: Option<Vec<usize>> =
                at.map(|((i, s), extent)| i.checked_sub(*s).filter(|i| i < extent)).collect();
            match at {
                Some(at) => update.at(&at).clone(),
                None => x.at(index).clone(),
            }
        })?])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let extents =
            |ty: &TensorType| ty.extents().expect("compute is asked for bound types only");
        let (x, sizes) = (extents(&operands[0]), extents(&operands[1]));
        Compute::Element {
            rule: Box::new(move |c, index| {
                if sizes.contains(&0) {
                    return c.operand(0, index);
                }
                let (mut at, mut guards) = (index.to_vec(), vec![]);
                // If the update covers an axis, its start is 0 for every operand.
                for axis in (0..x.len()).filter(|a| sizes[*a] < x[*a]) {
                    let start = c.operand(2 + axis, &[]);
                    let start = starts::clamped(c, start, (x[axis] - sizes[axis]) as i64);
                    at[axis] = at[axis].add(&Affine::reg(start).scale(-1));
                    guards.push(Guard {
                        index: at[axis].clone(),
                        low: 0,
                        high: sizes[axis] as i64,
                    });
                }
                if guards.is_empty() {
                    return c.operand(1, index);
                }
                let kept = c.operand(0, index);
                c.guarded(1, &at, guards, kept)
            }),
            indirect: vec![1],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Linear(|t| {
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
        })
    }

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

    fn traits(&self) -> Traits {
        starts::LOOKUP
    }

    fn entries() -> Vec<Entry> {
        let sample = |operands: Vec<SampleOperand>| Sample::new(DynamicUpdateSlice {}, operands);
        let x = || floats(&[5, 7], -2.0, 2.0);
        let update = |shape: &[usize]| floats(shape, -2.0, 2.0);
        vec![Entry {
            name: "dynamic_update_slice",
            doc: "x with result[start + i …] = update[i…]. Each start is clamped so that the \
                  update lies within x.",
            derivative: "linear",
            samples: vec![
                sample(vec![x(), update(&[2, 3]), values(&[], [1i32]), values(&[], [4i32])]),
                sample(vec![x(), update(&[2, 3]), values(&[], [-1i64]), values(&[], [5i64])]),
                sample(vec![x(), update(&[5, 1]), values(&[], [3i32]), values(&[], [i32::MAX])]),
                sample(vec![x(), update(&[1, 7]), values(&[], [u64::MAX]), values(&[], [0u8])]),
                sample(vec![x(), update(&[1, 2]), values(&[], [i8::MIN]), values(&[], [3u32])]),
                sample(vec![x(), update(&[0, 2]), values(&[], [9i32]), values(&[], [3i32])]),
                sample(vec![x(), update(&[5, 7]), values(&[], [9i32]), values(&[], [3i32])]),
                sample(vec![update(&[]), update(&[])]),
                sample(vec![
                    values(&[4], [3i8, -5, 9, 1]),
                    values(&[2], [7i8, 8]),
                    values(&[], [1i32]),
                ]),
                sample(vec![
                    values(&[3], [true, false, true]),
                    values(&[1], [true]),
                    values(&[], [i64::MIN]),
                ]),
            ],
        }]
    }
}
