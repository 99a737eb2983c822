//! `argsort`: the permutation that sorts, computed by a call.

use crate::call::{self, Call};
use crate::op::prelude::*;

/// Maximal number of keys, that of [`call::Sort`].
const MAX_KEYS: usize = 64;

attributes! {
    /// `argsort %key0, %key1 {axis=0}`: along `axis`, the positions of the elements in their
    /// order, as i32.
    ///
    /// Keys have one shape and are compared in order: the first that differs decides. Of elements
    /// with equal keys, the one with the lower position comes first, in both directions.
    ///
    /// Numbers are in ascending order, and `false < true`. −0 and +0 are equal; every NaN is
    /// equal to every other and greater than +∞: the order of `jax.lax.sort` ([`call::compare`]).
    Argsort {
        /// The sorted axis.
        axis: usize,
        /// Whether the greatest come first.
        descending: bool = false,
    }
}

/// The order of two elements of one dtype.
pub(super) fn order<R: Real>(x: &Cell<R>, y: &Cell<R>, dtype: DType) -> Ordering {
    match (x, y) {
        (Cell::Real(x), Cell::Real(y)) => x.compare(y).unwrap_or_else(|| {
            let nan = |v: &R| v.compare(v).is_none();
            nan(x).cmp(&nan(y))
        }),
        (x, y) => compare_bits(x.bits(), y.bits(), dtype),
    }
}

/// Errors: i32 cannot count the elements along the axis.
pub(super) fn check_axis(x: &TensorType, axis: usize) -> Result<()> {
    let Some(extent) = x.shape.get(axis) else {
        bail!("axis {axis} of an operand of type {x}"; help "only tensors with axes are sorted");
    };
    ensure!(
        extent.as_constant().is_none_or(|e| e <= i32::MAX.into()),
        "axis {axis} of {x} has more elements than i32 can count"
    );
    Ok(())
}

/// For each row of an array along `axis`, the flat positions of its elements.
pub(super) fn rows(shape: &[usize], axis: usize) -> impl Iterator<Item = Vec<usize>> {
    // With an extent of 0 there are no elements, but the product of the others may be huge.
    let empty = shape.contains(&0);
    let product = |extents: &[usize]| if empty { 0 } else { extents.iter().product::<usize>() };
    let (length, inner) = (shape[axis], product(&shape[axis + 1..]));
    (0..product(&shape[..axis]) * inner).map(move |row| {
        (0..length).map(|i| (row / inner * length + i) * inner + row % inner).collect()
    })
}

impl Operation for Argsort {
    named!(
        "argsort",
        "The permutation that sorts the keys along `axis`. Keys are compared in order. The sort is \
         stable, and ascending unless `descending` is set. −0 equals +0, and NaN is greater than \
         every number."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        ensure!(
            (1..=MAX_KEYS).contains(&t.operands.len()),
            "takes 1 to {MAX_KEYS} keys, found {}",
            t.operands.len()
        );
        let first = &t.operands[0];
        if let Some(other) = t.operands.iter().find(|o| o.shape != first.shape) {
            bail!("keys have types {first} and {other}"; help "all keys have one shape");
        }
        check_axis(first, self.axis)?;
        Ok(vec![first.with_dtype(DType::I32)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let shape = e.extents();
        let mut cells = Cells::filled(Cell::Bits(0), e.operands[0].cells.len())?;
        for row in rows(&shape, self.axis) {
            let mut positions: Vec<usize> = (0..row.len()).collect();
            positions.sort_by(|a, b| {
                let by_key =
                    |key: &Array<R>| order(&key.cells[row[*a]], &key.cells[row[*b]], key.dtype);
                let order =
                    e.operands.iter().map(by_key).find(|o| o.is_ne()).unwrap_or(Ordering::Equal);
                if self.descending { order.reverse() } else { order }
            });
            for (rank, position) in positions.into_iter().enumerate() {
                cells[row[rank]] = Cell::Bits(position as i64);
            }
        }
        Ok(vec![Array::new(DType::I32, shape, cells)])
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let extents = l.extents(0);
        Compute::Call(Call::Sort(call::Sort {
            outer: extents[..self.axis].iter().product(),
            length: extents[self.axis],
            inner: extents[self.axis + 1..].iter().product(),
            keys: l.operands.iter().map(|o| o.dtype).collect(),
            descending: self.descending,
        }))
    }

    const DERIVATIVE: Derivative = Derivative::Zero;

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(Argsort { axis: self.axis + 1, ..self.clone() })
    }
}
