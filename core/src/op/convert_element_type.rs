//! `convert_element_type`: the same numbers in another dtype.

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::sample::{Sample, floats};
use super::{Cost, Entry, Operation, Traits, operand_count};
use crate::diagnostic::Result;
use crate::dtype::DType;
use crate::graph::Body;
use crate::interpret::{Array, Cell, Real};
use crate::scalar::Scalar;
use crate::ty::TensorType;

attributes! {
    /// `convert_element_type %x {dtype=f16}`: to nearest even between floats and from integers; from float to integer truncated and
    /// saturated, NaN to 0; integers wrap; to bool `x ≠ 0`.
    ConvertElementType {
        /// Dtype of the result.
        dtype: DType,
    }
}

impl Operation for ConvertElementType {
    named!("convert_element_type");

    fn infer(&self, operands: &[TensorType], _regions: &[Body]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        Ok(vec![operands[0].with_dtype(self.dtype)])
    }

    fn evaluate<R: Real>(&self, operands: &[Array<R>], _results: &[TensorType]) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        let convert = |cell: &Cell<R>| match cell {
            Cell::Real(r) if self.dtype.is_float() => Cell::Real(r.clone()),
            Cell::Real(r) => Cell::from_scalar(Scalar::from_f64(self.dtype, r.to_f64())),
            Cell::Bits(b) if self.dtype.is_float() => Cell::Real(match x.dtype {
                DType::U64 if *b < 0 => R::from_f64(*b as u64 as f64),
                _ => R::from_i64(*b),
            }),
            Cell::Bits(b) => Cell::from_scalar(Scalar::from_i64(self.dtype, *b)),
        };
        Ok(vec![Array::new(self.dtype, x.shape.clone(), x.cells.iter().map(convert).collect())])
    }

    fn compute(&self, _operands: &[TensorType], _results: &[TensorType]) -> Compute<'_> {
        Compute::Element {
            rule: Box::new(|c, index| {
                let x = c.operand(0, index);
                c.convert(x, self.dtype)
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        if !self.dtype.is_float() {
            return Derivative::Zero;
        }
        // An integer operand has no tangent, so the rule is asked between floats only.
        Derivative::Linear(|t| vec![t.cotangents[0].as_ref().map(|ct| ct.convert(t.operands[0].ty().dtype))])
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Cheap, elementwise: true, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let samples = DType::ALL
            .into_iter()
            .map(|dtype| Sample::new(ConvertElementType { dtype }, vec![floats(&[3, 5], -3.0, 3.0)]))
            .collect();
        vec![Entry {
            name: "convert_element_type",
            doc: "x in another dtype: rounded to nearest even, truncated to integers, wrapped between integers.",
            derivative: "linear",
            samples,
        }]
    }
}
