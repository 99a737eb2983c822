//! `bitcast_convert_type`: the same bits as another dtype.

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::sample::{Sample, values};
use super::{Batch, Cost, Entry, Operation, Traits, operand_count};
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::graph::Body;
use crate::graph::tensor::Tensor;
use crate::interpret::{Array, Cell, Real, Regions};
use crate::scalar::Scalar;
use crate::ty::TensorType;

attributes! {
    /// `bitcast_convert_type %x {dtype=u32}`: each element's bits, read as another dtype of the same size. Bool is none: not every
    /// byte is one. Between sizes, as lax has it with a further axis, [`Tensor::bitcast`] makes it of this op, shifts and conversions.
    BitcastConvertType {
        /// Dtype of the result.
        dtype: DType,
    }
}

impl Operation for BitcastConvertType {
    named!("bitcast_convert_type");

    fn infer(&self, operands: &[TensorType], _regions: &[Body]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        let x = &operands[0];
        if x.dtype.size() != self.dtype.size() || (x.dtype == DType::Bool) != (self.dtype == DType::Bool) {
            return Err(Diagnostic::new(format!("the bits of {} are not those of {}", x.dtype, self.dtype))
                .help("dtypes must have one size, and bool is no other's; `Tensor::bitcast` changes sizes, with an axis for the parts"));
        }
        Ok(vec![x.with_dtype(self.dtype)])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        if !R::ROUNDS && x.dtype.is_float() != self.dtype.is_float() {
            return Err(Diagnostic::new("exact numbers have no bits"));
        }
        let cast =
            |cell: &Cell<R>| Cell::from_scalar(Scalar::from_bits(self.dtype, cell.to_scalar(x.dtype).bits()));
        Ok(vec![Array::new(self.dtype, x.shape.clone(), x.cells.iter().map(cast).collect())])
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Body],
    ) -> Compute<'a> {
        Compute::Element {
            rule: Box::new(|c, index| {
                let x = c.operand(0, index);
                c.bitcast(x, self.dtype)
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
        let sample = |dtype, operand| Sample::new(BitcastConvertType { dtype }, vec![operand]);
        vec![Entry {
            name: "bitcast_convert_type",
            doc: "The bits of x read as another dtype of the same size.",
            derivative: Derivative::Zero.kind(),
            samples: vec![
                sample(DType::U32, values(&[3], [1.5f32, -0.0, f32::INFINITY])),
                sample(DType::F32, values(&[3], [0x3f80_0000u32, 0x8000_0000, 3])),
                sample(DType::I64, values(&[2], [1.5f64, -2.25])),
                sample(DType::F64, values(&[2], [0x3ff0_0000_0000_0000i64, 0])),
                sample(DType::I8, values(&[3], [255u8, 0, 7])),
                sample(DType::U8, values(&[3], [-1i8, 0, 7])),
                sample(DType::I32, values(&[2], [u32::MAX, 5])),
                sample(DType::U64, values(&[2], [-1i64, 5])),
                sample(
                    DType::BF16,
                    values(&[2], [half::f16::from_bits(0x3c00), half::f16::from_bits(0x4200)]),
                ),
            ],
        }]
    }
}
