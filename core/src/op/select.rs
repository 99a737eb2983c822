//! `select` and `clamp`: elementwise choice.

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::elementwise::Domain;
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Operation, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::nest::{Affine, ScalarOp};
use crate::ty::TensorType;
use std::cmp::Ordering;

attributes! {
    /// `select %pred, %on_true, %on_false`: element by element, the second operand's where the
    /// first is true, else the third's.
    Select {}
}

attributes! {
    /// `clamp %min, %x, %max`: `min(max(x, min), max)`. The gradient goes to the operand that the
    /// result comes from; to `x` where it equals a bound.
    Clamp {}
}

/// The index into an operand that is a scalar or has the result's shape.
fn aligned(scalar: bool, index: &[Affine]) -> &[Affine] {
    if scalar { &[] } else { index }
}

/// The element at a flat position of an operand that is a scalar or has the result's shape.
fn position<R>(array: &Array<R>, flat: usize) -> &Cell<R> {
    if array.shape.is_empty() { &array.cells[0] } else { &array.cells[flat] }
}

impl Operation for Select {
    named!("select");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 3)?;
        let (pred, x, y) = (&operands[0], &operands[1], &operands[2]);
        if pred.dtype != DType::Bool || !(pred.rank() == 0 || pred.shape == x.shape) {
            return Err(Diagnostic::new(format!("the condition has type {pred}, the choices {x}"))
                .help("a condition is bool, a scalar or of the choices' shape"));
        }
        if x != y {
            return Err(Diagnostic::new(format!("choices have types {x} and {y}"))
                .help("give them one type"));
        }
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let (x, y) = (&operands[1], &operands[2]);
        let pick = |i| if position(&operands[0], i).is_true() { &x.cells[i] } else { &y.cells[i] };
        let cells = Cells::collect((0..x.cells.len()).map(|i| pick(i).clone()))?;
        Ok(vec![Array::new(x.dtype, x.shape.clone(), cells)])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let scalar = operands[0].rank() == 0;
        Compute::Element {
            rule: Box::new(move |c, index| {
                let pred = c.operand(0, aligned(scalar, index));
                let (x, y) = (c.operand(1, index), c.operand(2, index));
                c.scalar(ScalarOp::Select, &[pred, x, y])
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Linear(|t| {
            let Some(ct) = &t.cotangents[0] else { return vec![None; 3] };
            let (pred, zero) = (t.operands[0].known(), ct.zeros_like());
            vec![
                None,
                t.operands[1].is_linear().then(|| pred.select(ct, &zero)),
                t.operands[2].is_linear().then(|| pred.select(&zero, ct)),
            ]
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.elementwise(self.clone())
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Cheap, elementwise: true, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let choices = || (floats(&[2, 3], -2.0, 2.0), floats(&[2, 3], -2.0, 2.0));
        let sample = |pred| Sample::new(Select {}, vec![pred, choices().0, choices().1]);
        vec![Entry {
            name: "select",
            doc: "x where the condition is true, else y.",
            derivative: "linear",
            samples: vec![
                sample(values(&[2, 3], [true, false, false, true, true, false])),
                sample(values(&[], [true])),
                sample(values(&[], [false])),
                Sample::new(
                    Select {},
                    vec![
                        values(&[2], [true, false]),
                        values(&[2], [3i8, 4]),
                        values(&[2], [5i8, 6]),
                    ],
                ),
            ],
        }]
    }
}

impl Operation for Clamp {
    named!("clamp");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 3)?;
        let x = &operands[1];
        Domain::Number.check(x.dtype)?;
        for bound in [&operands[0], &operands[2]] {
            if bound.dtype != x.dtype || !(bound.rank() == 0 || bound.shape == x.shape) {
                return Err(Diagnostic::new(format!(
                    "a bound of type {bound} for an operand of type {x}"
                ))
                .help("a bound is a scalar or of the operand's shape, and has its dtype"));
            }
        }
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[1];
        let extremum = |a: &Cell<R>, b: &Cell<R>, wanted: Ordering| match (a, b) {
            (Cell::Real(a), Cell::Real(b)) => Cell::Real(super::binary::extremum(a, b, wanted)),
            (a, b) => {
                let order = super::elementwise::compare_bits(a.bits(), b.bits(), x.dtype);
                if order == wanted { a.clone() } else { b.clone() }
            }
        };
        let clamp = |(i, cell): (usize, &Cell<R>)| {
            let raised = extremum(cell, position(&operands[0], i), Ordering::Greater);
            extremum(&raised, position(&operands[2], i), Ordering::Less)
        };
        let cells = Cells::collect(x.cells.iter().enumerate().map(clamp))?;
        Ok(vec![Array::new(x.dtype, x.shape.clone(), cells)])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let scalar = [operands[0].rank() == 0, operands[2].rank() == 0];
        Compute::Element {
            rule: Box::new(move |c, index| {
                let low = c.operand(0, aligned(scalar[0], index));
                let x = c.operand(1, index);
                let high = c.operand(2, aligned(scalar[1], index));
                super::elementwise::widened(c, &[low, x, high], |c, o| {
                    let raised = c.scalar(ScalarOp::Max, &[o[1], o[0]]);
                    c.scalar(ScalarOp::Min, &[raised, o[2]])
                })
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Nonlinear(|j| {
            let (low, x, high) = (&j.operands[0], &j.operands[1], &j.operands[2]);
            let above = x.max(low).gt(high);
            let below = x.lt(low);
            // A bound may be a scalar; its tangent is then repeated.
            let tangent = |i: usize| match &j.tangents[i] {
                Some(t) => t.broadcast_to(x.shape()),
                None => x.zeros_like(),
            };
            vec![Some(above.select(&tangent(2), &below.select(&tangent(0), &tangent(1))))]
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.elementwise(self.clone())
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Cheap, elementwise: true, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let sample = |bound: &[usize]| {
            let operands = vec![
                floats(bound, -0.9, -0.6),
                floats(&[3, 5], -2.0, 2.0),
                floats(bound, 0.7, 0.9),
            ];
            Sample::new(Clamp {}, operands)
        };
        vec![Entry {
            name: "clamp",
            doc: "min(max(x, min), max). The gradient goes to x where x equals a bound.",
            derivative: "nonlinear",
            samples: vec![
                sample(&[]),
                sample(&[3, 5]),
                Sample::new(
                    Clamp {},
                    vec![values(&[], [2u64]), values(&[3], [u64::MAX, 0, 5]), values(&[], [7u64])],
                ),
            ],
        }]
    }
}
