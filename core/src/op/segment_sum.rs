//! `segment_sum`: rows of a tensor with sorted ids, added up by id.

use super::starts::{self, check_dtype};
use crate::call::{self, first_row};
use crate::op::Gather;
use crate::op::prelude::*;

attributes! {
    /// `segment_sum %data, %ids {num_segments=3}`: `result[s, …] = Σ data[r, …]` over the rows r
    /// whose id is s, as `jax.ops.segment_sum` with `indices_are_sorted=True`.
    ///
    /// The ids, one for each row, of any integer dtype, must ascend. Rows with an id below 0 or
    /// from `num_segments` on count nowhere. If the ids do not ascend, a row belongs to the
    /// segment where [a binary search](crate::call::first_row) finds it, on every device; the
    /// derivative and the batched op are those of ascending ids. Sums by ids in any order are a
    /// `scatter_add`.
    SegmentSum {
        /// Number of segments: the first extent of the result.
        num_segments: Dim,
    }
}

impl Tensor {
    /// `segment_sum`: the sums of the rows with equal ids, which ascend, for the ids below
    /// `num_segments`. Rows with other ids count nowhere.
    #[track_caller]
    pub fn segment_sum(&self, ids: &Tensor, num_segments: impl Into<Dim>) -> Tensor {
        Tensor::apply(SegmentSum { num_segments: num_segments.into() }, &[self, ids])
    }
}

/// Each row's cotangent is that of its segment.
fn transpose(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
    let data = t.operands[0].ty();
    if ct.shape()[0].as_constant() == Some(0) {
        return vec![Some(Tensor::zeros(data)), None];
    }
    let fill = Some(Scalar::zero(ct.dtype()));
    let rows = Gather { fill, ..Gather::rows(ct.ty(), 1) };
    let ids = t.operands[1].known().reshape([data.shape[0].clone(), Dim::constant(1)]);
    vec![Some(Tensor::apply(rows, &[ct, &ids])), None]
}

impl Operation for SegmentSum {
    named!(
        "segment_sum",
        "The sums of the rows of x with equal ids, which must ascend, for the ids from 0 to \
         `num_segments` − 1. Rows with other ids count nowhere. Halves are added in f32."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [data, ids] = t.exactly()?;
        check_dtype(ids)?;
        ensure!(data.dtype != DType::Bool, "sums of {data}"; help "convert it first");
        if data.rank() == 0 || ids.shape != data.shape[..1] {
            bail!("ids of type {ids} for rows of {data}";
                help "there is one id for each index along axis 0");
        }
        ensure!(self.num_segments.at_least(0), "{} segments", self.num_segments);
        let mut shape = data.shape.clone();
        shape[0] = self.num_segments.clone();
        Ok(vec![data.with_shape(shape)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (data, ids) = (&e.operands[0], &e.operands[1]);
        let shape = e.extents();
        let id = |row: usize| starts::number(ids.cells[row].bits(), ids.dtype);
        let zero = match data.dtype.is_float() {
            true => Cell::Real(R::from_i64(0)),
            false => Cell::Bits(0),
        };
        let mut sums = Cells::filled(zero, shape.iter().product())?;
        let columns: usize = shape[1..].iter().product();
        // Without columns the number of segments is unbounded, so the loop must not run.
        for segment in 0..sums.len().checked_div(columns).unwrap_or(0) {
            let [first, end] = [0, 1].map(|n| first_row(ids.cells.len(), id, segment as i64 + n));
            for (row, column) in (first..end).flat_map(|row| (0..columns).map(move |c| (row, c))) {
                let sum = &mut sums[segment * columns + column];
                *sum = match (&*sum, &data.cells[row * columns + column]) {
                    (Cell::Real(x), Cell::Real(y)) => Cell::Real(x.add(y)),
                    (x, y) => Cell::Bits(wrap(x.bits().wrapping_add(y.bits()), data.dtype)),
                };
            }
        }
        e.result(sums)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let index = l.operands[1].dtype;
        if !matches!(index, DType::I32 | DType::I64) {
            // The call takes signed ids.
            return Compute::Decompose(Box::new(move |tensors| {
                let ids = starts::signed_tensor(&tensors[1]);
                vec![Tensor::apply(self.clone(), &[&tensors[0], &ids])]
            }));
        }
        let data = l.extents(0);
        Compute::Call(
            call::SegmentSum {
                rows: data[0],
                columns: data[1..].iter().product(),
                segments: l.result_extents()[0],
                dtype: l.operands[0].dtype,
                index,
            }
            .into(),
        )
    }

    const DERIVATIVE: Derivative = Derivative::Linear(transpose);

    /// With ids in common, the examples are columns. Otherwise they are rows one after the other,
    /// each example with segments of its own. A first and a last segment of each, which are
    /// dropped, take the rows whose ids are out of range, so that all ids ascend.
    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let data = b.operand(0);
        let segments = &self.num_segments;
        if !b.batched[1] {
            let mut order: Vec<usize> = (0..data.rank()).collect();
            order.swap(0, 1);
            // Swapping is its own inverse.
            let sums = data.permute(&order).segment_sum(&b.operands[1], segments.clone());
            return vec![sums.permute(&order)];
        }
        let (size, rows) = (b.size, &data.shape()[1]);
        let of_example = segments.checked_add(&Dim::constant(2));
        let merged = of_example.and_then(|of_example| {
            Some((size.checked_mul(rows)?, size.checked_mul(&of_example)?, of_example))
        });
        let Some((all_rows, all_segments, of_example)) = merged else {
            let message = format!("{size} examples of {rows} rows and {segments} segments");
            return b.fail(
                Diagnostic::new(message)
                    .help("numbers in place of dimension variables decide the extents"),
            );
        };
        let number = |dim: &Dim| Tensor::dim_as_value(dim.clone(), DType::I64);
        let ids = starts::signed_tensor(&b.operands[1]).convert(DType::I64);
        let example = Tensor::iota(DType::I64, ids.shape().to_vec(), 0);
        let ids = ids.clamp(-1, number(segments)) + 1 + example * number(&of_example);
        let with = |first: &[&Dim]| {
            let rest = data.shape()[2..].iter();
            first.iter().copied().chain(rest).cloned().collect::<Vec<Dim>>()
        };
        let sums = data.reshape(with(&[&all_rows])).segment_sum(&ids.flatten(0), all_segments);
        let last = segments.checked_add(&Dim::constant(1)).expect("one more than it fits");
        vec![sums.reshape(with(&[size, &of_example])).slice_axis(1, 1, last)]
    }
}
