//! `top_k`: the greatest elements and their positions. It decomposes into `top_k_indices`, which
//! becomes a call.

use crate::call::{self, Call};
use crate::op::TakeAlongAxis;
use crate::op::argsort::{check_axis, order, rows};
use crate::op::prelude::*;

attributes! {
    /// `top_k %x {axis=1, k=3}`: along `axis`, the k greatest elements, the greatest first, and
    /// their positions, as i32.
    ///
    /// The order is that of [`super::Argsort`], so a NaN is greater than every number. Of equal
    /// elements, the one with the lower position comes first.
    TopK {
        /// The axis along which elements are compared.
        axis: usize,
        /// Number of elements; at most the extent of the axis.
        k: usize,
    }
}

attributes! {
    /// `top_k_indices %x {k=3}`: along the last axis, the positions of the k greatest elements, the
    /// greatest first, as i32. This is the beginning of a descending `argsort`, computed without a
    /// full sort.
    TopKIndices {
        /// Number of elements; at most the extent of the last axis.
        k: usize,
    }
}

/// The type of `x` with k elements along the axis.
fn infer(x: &TensorType, axis: usize, k: usize) -> Result<TensorType> {
    check_axis(x, axis)?;
    ensure!(Dim::from(k).at_most(&x.shape[axis]), "cannot take {k} elements of axis {axis} of {x}";
        help "k is at most the extent of the axis");
    let mut shape = x.shape.clone();
    shape[axis] = Dim::from(k);
    Ok(x.with_shape(shape))
}

/// The selected elements, row by row in the order of `rows(result, axis)`. For each its flat
/// position in `x`, and its position in the row of `x`.
fn greatest<R: Real>(x: &Array<R>, axis: usize, k: usize) -> Result<Vec<(usize, usize)>> {
    if k == 0 {
        return Ok(vec![]);
    }
    let rows_in_all = x.cells.len().checked_div(x.shape[axis]).unwrap_or(0);
    let mut greatest = reserved(rows_in_all * k)?;
    for row in rows(&x.shape, axis) {
        let mut positions: Vec<usize> = (0..row.len()).collect();
        positions.sort_by(|a, b| order(&x.cells[row[*b]], &x.cells[row[*a]], x.dtype));
        greatest.extend(positions.into_iter().take(k).map(|p| (row[p], p)));
    }
    Ok(greatest)
}

impl Operation for TopKIndices {
    named!(
        "top_k_indices",
        "The positions of the `k` greatest elements along the last axis, in descending order of \
         the elements. Of equal elements, the lower position comes first. NaN is greater than \
         every number."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        Ok(vec![infer(x, x.rank().saturating_sub(1), self.k)?.with_dtype(DType::I32)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        let shape = e.extents();
        let top = greatest(x, x.shape.len() - 1, self.k)?;
        let cells =
            Cells::collect(top.into_iter().map(|(_, position)| Cell::Bits(position as i64)))?;
        Ok(vec![Array::new(DType::I32, shape, cells)])
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let extents = l.extents(0);
        let (length, outer) = extents.split_last().expect("`infer` requires an axis");
        Compute::Call(Call::TopK(call::TopK {
            outer: outer.iter().product(),
            length: *length,
            k: self.k,
            dtype: l.operands[0].dtype,
        }))
    }

    const DERIVATIVE: Derivative = Derivative::Zero;

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(self.clone())
    }
}

impl Operation for TopK {
    named!(
        "top_k",
        "The `k` greatest elements along `axis` in descending order, and their positions as i32. \
         Of equal elements, the lower position comes first. NaN is greater than every number. The \
         gradient goes to the selected elements."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        let values = infer(x, self.axis, self.k)?;
        let indices = values.with_dtype(DType::I32);
        Ok(vec![values, indices])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        let shape = e.extents();
        let count = shape.iter().product();
        let (mut found, mut indices) =
            (Cells::filled(Cell::Bits(0), count)?, Cells::filled(Cell::Bits(0), count)?);
        let places = rows(&shape, self.axis).flatten();
        for (to, (from, position)) in places.zip(greatest(x, self.axis, self.k)?) {
            found[to] = x.cells[from].clone();
            indices[to] = Cell::Bits(position as i64);
        }
        Ok(vec![Array::new(x.dtype, shape.clone(), found), Array::new(DType::I32, shape, indices)])
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::Decompose(Box::new(move |tensors| {
            let x = &tensors[0];
            // The call takes the last axis.
            let last = x.rank() - 1;
            let mut order: Vec<usize> = (0..x.rank()).collect();
            order.swap(self.axis, last);
            let swapped =
                |t: &Tensor| if self.axis == last { t.clone() } else { t.permute(&order) };
            let indices = swapped(&Tensor::apply(TopKIndices { k: self.k }, &[&swapped(x)]));
            let take = TakeAlongAxis { axis: self.axis, permutation: false };
            vec![Tensor::apply(take, &[x, &indices]), indices]
        }))
    }

    const DERIVATIVE: Derivative = Derivative::Composite;

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(TopK { axis: self.axis + 1, ..self.clone() })
    }
}
