//! `argsort`: the permutation that sorts, computed by a call.

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::elementwise::compare_bits;
use super::sample::{Sample, floats, values};
use super::{Cost, Entry, Operation, Traits};
use crate::build::tensor::Tensor;
use crate::call::{self, Call};
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::op::batch::Batch;
use crate::ty::TensorType;
use std::cmp::Ordering;

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
        return Err(Diagnostic::new(format!("axis {axis} of an operand of type {x}"))
            .help("only tensors with axes are sorted"));
    };
    if extent.as_constant().is_some_and(|e| e > i32::MAX.into()) {
        return Err(Diagnostic::new(format!(
            "axis {axis} of {x} has more elements than i32 can count"
        )));
    }
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
    named!("argsort");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        if !(1..=MAX_KEYS).contains(&operands.len()) {
            return Err(Diagnostic::new(format!(
                "takes 1 to {MAX_KEYS} keys, found {}",
                operands.len()
            )));
        }
        let first = &operands[0];
        if let Some(other) = operands.iter().find(|o| o.shape != first.shape) {
            return Err(Diagnostic::new(format!("keys have types {first} and {other}"))
                .help("all keys have one shape"));
        }
        check_axis(first, self.axis)?;
        Ok(vec![first.with_dtype(DType::I32)])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let shape = results[0].extents().expect("the interpreter runs bound functions only");
        let mut cells = Cells::filled(Cell::Bits(0), operands[0].cells.len())?;
        for row in rows(&shape, self.axis) {
            let mut positions: Vec<usize> = (0..row.len()).collect();
            positions.sort_by(|a, b| {
                let by_key =
                    |key: &Array<R>| order(&key.cells[row[*a]], &key.cells[row[*b]], key.dtype);
                let order =
                    operands.iter().map(by_key).find(|o| o.is_ne()).unwrap_or(Ordering::Equal);
                if self.descending { order.reverse() } else { order }
            });
            for (rank, position) in positions.into_iter().enumerate() {
                cells[row[rank]] = Cell::Bits(position as i64);
            }
        }
        Ok(vec![Array::new(DType::I32, shape, cells)])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let extents = operands[0].extents().expect("compute is asked for bound types only");
        Compute::Call(Call::Sort(call::Sort {
            outer: extents[..self.axis].iter().product(),
            length: extents[self.axis],
            inner: extents[self.axis + 1..].iter().product(),
            keys: operands.iter().map(|o| o.dtype).collect(),
            descending: self.descending,
        }))
    }

    fn derivative(&self) -> Derivative {
        Derivative::Zero
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(Argsort { axis: self.axis + 1, ..self.clone() })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let sample =
            |axis, descending, operands| Sample::new(Argsort { axis, descending }, operands);
        let nan = f32::NAN;
        vec![Entry {
            name: "argsort",
            doc: "The permutation that sorts the keys along `axis`. Keys are compared in order. \
                  The sort is stable, and ascending unless `descending` is set. −0 equals +0, and \
                  NaN is greater than every number.",
            derivative: Derivative::Zero.kind(),
            samples: vec![
                sample(0, false, vec![floats(&[7], -2.0, 2.0)]),
                sample(1, false, vec![floats(&[2, 5, 3], -2.0, 2.0)]),
                sample(0, true, vec![floats(&[5, 2], -2.0, 2.0)]),
                sample(
                    0,
                    false,
                    vec![values(&[7], [0.0f32, nan, -0.0, f32::INFINITY, -nan, -1.0, 0.0])],
                ),
                sample(0, true, vec![values(&[5], [3i32, -7, 3, i32::MIN, 9])]),
                sample(
                    0,
                    false,
                    vec![values(&[4], [true, false, true, false]), floats(&[4], -1.0, 1.0)],
                ),
                sample(
                    1,
                    false,
                    vec![
                        values(&[1, 6], [1i64, 0, 1, 0, 1, 0]),
                        values(&[1, 6], [2u8, 2, 1, 255, 2, 2]),
                        values(&[1, 6], [u64::MAX, 5, 1, 0, 3, 4]),
                    ],
                ),
                sample(1, false, vec![floats(&[3, 0], -1.0, 1.0)]),
                sample(0, false, vec![floats(&[1], -1.0, 1.0)]),
            ],
        }]
    }
}
