//! `is_finite`: neither infinite nor NaN.

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::elementwise::{Domain, widened};
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Operation, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::Result;
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::nest::ScalarOp;
use crate::scalar::Scalar;
use crate::ty::TensorType;

attributes! {
    /// `is_finite %x`: bool; false for ±∞ and NaN.
    IsFinite {}
}

impl Operation for IsFinite {
    named!("is_finite");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        Domain::Float.check(operands[0].dtype)?;
        Ok(vec![operands[0].with_dtype(DType::Bool)])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        // An exact number is finite, even if the nearest f64 is not.
        let finite = |c: &Cell<R>| Cell::Bits((!R::ROUNDS || c.real().to_f64().is_finite()) as i64);
        Ok(vec![Array::new(
            DType::Bool,
            x.shape.clone(),
            Cells::collect(x.cells.iter().map(finite))?,
        )])
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        Compute::Element {
            rule: Box::new(|c, index| {
                let x = c.operand(0, index);
                widened(c, &[x], |c, x| {
                    let size = c.scalar(ScalarOp::Abs, x);
                    let infinity = c.constant(Scalar::highest(c.dtype(size)));
                    c.scalar(ScalarOp::Lt, &[size, infinity])
                })
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Zero
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.elementwise(self.clone())
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Cheap, elementwise: true, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let special = values(&[4], [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX]);
        vec![Entry {
            name: "is_finite",
            doc: "True where x is neither infinite nor NaN.",
            derivative: Derivative::Zero.kind(),
            samples: vec![
                Sample::new(IsFinite {}, vec![floats(&[3, 5], -2.0, 2.0)]),
                Sample::new(IsFinite {}, vec![special]),
            ],
        }]
    }
}
