//! `reduce_window_argmax`, `reduce_window_argmin`: the position of the extremum in each window.

use super::super::attribute::{Attribute, AttributeStruct, Attributes};
use super::super::compute::Compute;
use super::super::derivative::Derivative;
use super::super::elementwise::{Domain, compare_bits};
use super::super::{Batch, Cost, Entry, Extremum, Operation, Traits, operand_count};
use super::{Terms, Windows, for_each, samples, widened};
use crate::build::tensor::Tensor;
use crate::diagnostic::Result;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Real, Regions};
use crate::nest::{Combine, ScalarOp};
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// `reduce_window_argmax %x {window=[2]}`: for each window the position of its extremum among the
/// elements of the window in row-major order, as i32: the first of equals, the first NaN if there
/// is one, and the greatest i32 if the window has no element. See [`Windows`].
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct WindowArgument {
    /// Maximum or minimum.
    pub extremum: Extremum,
    /// The geometry of the windows.
    pub windows: Windows,
}

const fn name(extremum: Extremum) -> &'static str {
    match extremum {
        Extremum::Max => "reduce_window_argmax",
        Extremum::Min => "reduce_window_argmin",
    }
}

impl WindowArgument {
    /// The value that every element is at least as good as.
    fn worst(&self, dtype: DType) -> Scalar {
        match self.extremum {
            Extremum::Max => Scalar::lowest(dtype),
            Extremum::Min => Scalar::highest(dtype),
        }
    }
}

impl Operation for WindowArgument {
    fn name(&self) -> &'static str {
        name(self.extremum)
    }

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        let x = &operands[0];
        Domain::Number.check(x.dtype)?;
        Ok(vec![TensorType { dtype: DType::I32, shape: self.windows.infer(&x.shape)? }])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        let shape = results[0].extents().expect("the interpreter runs bound functions only");
        let axes = self.windows.axes(&x.shape, &shape);
        let wanted = match self.extremum {
            Extremum::Max => Ordering::Greater,
            Extremum::Min => Ordering::Less,
        };
        let better = |new: &Cell<R>, best: &Cell<R>| match (new, best) {
            (Cell::Real(n), Cell::Real(b)) => match n.compare(b) {
                Some(order) => order == wanted,
                None => b.compare(b).is_some(),
            },
            (n, b) => compare_bits(n.bits(), b.bits(), x.dtype) == wanted,
        };
        Ok(vec![Array::from_fn(&results[0], |window| {
            let mut best: Option<(usize, &Cell<R>)> = None;
            for_each(&axes, window, |number, at| {
                let cell = x.at(at);
                if best.is_none_or(|(_, b)| better(cell, b)) {
                    best = Some((number, cell));
                }
            });
            Cell::Bits(best.map_or(i32::MAX.into(), |(number, _)| number as i64))
        })?])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        use ScalarOp::*;
        let extents =
            |ty: &TensorType| ty.extents().expect("compute is asked for bound types only");
        let (dtype, shape) = (operands[0].dtype, extents(&results[0]));
        let terms = Terms::of_windows(self.windows.axes(&extents(&operands[0]), &shape));
        let carried = if dtype.is_half() { DType::F32 } else { dtype };
        let worst = self.worst(dtype);
        if terms.is_written_out() {
            return Compute::Element {
                rule: Box::new(move |c, index| {
                    let (fill, none) = (c.constant(worst), c.constant(Scalar::of(i32::MAX)));
                    let (mut best, mut position) = (widened(c, fill), none);
                    for term in terms.written_out(index) {
                        let counts = c.test(term.guards.clone());
                        let number = c.index(&term.number, DType::I32);
                        let element = c.guarded(0, &term.index, term.guards, fill);
                        let element = widened(c, element);
                        // The element is better than the best so far, or the first.
                        let (low, high) = match self.extremum {
                            Extremum::Max => (best, element),
                            Extremum::Min => (element, best),
                        };
                        let mut better = c.scalar(Lt, &[low, high]);
                        if carried.is_float() {
                            let nan = c.scalar(Ne, &[element, element]);
                            let number = c.scalar(Eq, &[best, best]);
                            let first_nan = c.scalar(And, &[nan, number]);
                            better = c.scalar(Or, &[better, first_nan]);
                        }
                        let first = c.scalar(Eq, &[position, none]);
                        let better = c.scalar(Or, &[better, first]);
                        let wins = c.scalar(And, &[better, counts]);
                        best = c.scalar(Select, &[wins, element, best]);
                        position = c.scalar(Select, &[wins, number, position]);
                    }
                    position
                }),
                indirect: vec![],
            };
        }
        let rank = shape.len();
        Compute::Reduce {
            extents: shape.iter().chain(&terms.counts).copied().collect(),
            axes: (rank..2 * rank).collect(),
            values: Box::new(move |c, index| {
                let (fill, none) = (c.constant(worst), c.constant(Scalar::of(i32::MAX)));
                let term = terms.find(&index[..rank], &index[rank..]);
                let counts = c.test(term.guards.clone());
                let number = c.index(&term.number, DType::I32);
                let element = c.guarded(0, &term.index, term.guards, fill);
                vec![widened(c, element), c.scalar(Select, &[counts, number, none])]
            }),
            combine: match self.extremum {
                Extremum::Max => Combine::argmax(carried, DType::I32),
                Extremum::Min => Combine::argmin(carried, DType::I32),
            },
            project: vec![1],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Zero
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(WindowArgument { windows: self.windows.batched(), ..self.clone() })
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Loop, elementwise: false, commutative: false }
    }

    fn attributes(&self) -> Attributes {
        self.windows.to_attributes()
    }

    fn parse(op: &str, attributes: &mut BTreeMap<String, Attribute>) -> Option<Result<Self>> {
        let extremum = Extremum::ALL.into_iter().find(|e| name(*e) == op)?;
        Some(
            Windows::from_attributes(attributes)
                .map(|windows| WindowArgument { extremum, windows }),
        )
    }

    fn visit_dims(&self, visit: &mut dyn FnMut(&Dim)) {
        AttributeStruct::visit_dims(&self.windows, visit);
    }

    fn map_dims(&mut self, map: &mut dyn FnMut(&Dim) -> Result<Dim>) -> Result<()> {
        AttributeStruct::map_dims(&mut self.windows, map)
    }

    fn entries() -> Vec<Entry> {
        let entry = |extremum: Extremum| Entry {
            name: name(extremum),
            doc: match extremum {
                Extremum::Max => {
                    "The position of each window's greatest element in the window, as i32. The \
                     first NaN wins, else the first of equal elements. A window without elements \
                     gives the greatest i32."
                }
                Extremum::Min => {
                    "The position of each window's least element in the window, as i32. The first \
                     NaN wins, else the first of equal elements. A window without elements gives \
                     the greatest i32."
                }
            },
            derivative: Derivative::Zero.kind(),
            samples: samples::of(|windows| WindowArgument { extremum, windows }.into()),
        };
        Extremum::ALL.into_iter().map(entry).collect()
    }
}
