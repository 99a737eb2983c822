//! `convert_element_type`: the same numbers in another dtype.

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::sample::{Sample, floats, values};
use super::{Batch, Cost, Entry, Operation, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::Result;
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::scalar::Scalar;
use crate::ty::TensorType;

attributes! {
    /// `convert_element_type %x {dtype=f16}`: to nearest even between floats and from integers;
    /// from float to integer truncated and saturated, NaN to 0; integers wrap; to bool `x ≠ 0`.
    ConvertElementType {
        /// Dtype of the result.
        dtype: DType,
    }
}

/// An integer of at most 65 bits rounded once to a float dtype.
fn rounded(value: i128, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => value as f64,
        DType::F32 => f64::from(value as f32),
        _ => {
            // Cuts off more bits than a half and its tie have. If any cut bit was set, sets the
            // last remaining one.
            let cut = (128 - value.unsigned_abs().leading_zeros()).saturating_sub(40);
            let sticky = (value & ((1 << cut) - 1) != 0) as i128;
            Scalar::from_f64(dtype, ((value >> cut) | sticky) as f64 * f64::from(cut).exp2())
                .to_f64()
        }
    }
}

impl Operation for ConvertElementType {
    named!("convert_element_type");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        Ok(vec![operands[0].with_dtype(self.dtype)])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        let convert = |cell: &Cell<R>| match cell {
            Cell::Real(r) if self.dtype.is_float() => Cell::Real(r.clone()),
            Cell::Real(r) => Cell::from_scalar(Scalar::from_f64(self.dtype, r.to_f64())),
            Cell::Bits(b) if self.dtype.is_float() && R::ROUNDS => {
                let value =
                    if x.dtype == DType::U64 { i128::from(*b as u64) } else { i128::from(*b) };
                Cell::Real(R::from_f64(rounded(value, self.dtype)))
            }
            Cell::Bits(b) if self.dtype.is_float() => Cell::Real(match x.dtype {
                // Converts the upper 63 bits and the lowest one, since an exact number is made
                // from an i64.
                DType::U64 => {
                    R::from_i64(b >> 1 & i64::MAX).mul(&R::from_i64(2)).add(&R::from_i64(b & 1))
                }
                _ => R::from_i64(*b),
            }),
            Cell::Bits(b) => Cell::from_scalar(Scalar::from_i64(self.dtype, *b)),
        };
        Ok(vec![Array::new(
            self.dtype,
            x.shape.clone(),
            Cells::collect(x.cells.iter().map(convert))?,
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
                c.convert(x, self.dtype)
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        if !self.dtype.is_float() {
            return Derivative::Zero;
        }
        // An integer operand has no tangent, so the rule applies between floats only.
        Derivative::Linear(|t| {
            vec![t.cotangents[0].as_ref().map(|ct| ct.convert(t.operands[0].ty().dtype))]
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.elementwise(self.clone())
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Cheap, elementwise: true, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let samples = DType::ALL
            .into_iter()
            .flat_map(|dtype| {
                let sample = |operand| Sample::new(ConvertElementType { dtype }, vec![operand]);
                let inf = f64::INFINITY;
                [
                    sample(floats(&[3, 5], -3.0, 3.0)),
                    // Saturating, NaN to 0, truncated towards 0; halves and singles overflow and
                    // round to nearest even.
                    sample(values(
                        &[9],
                        [f64::NAN, inf, -inf, -0.0, -0.9, 300.5, -1e10, 1e20, 65520.0],
                    )),
                    sample(values(&[5], [i64::MIN, -1, 255, (1 << 24) + 1, i64::MAX])),
                    sample(values(&[3], [u64::MAX, (1 << 53) + 1, 2])),
                    sample(values(&[2], [true, false])),
                    sample(values(&[0], [0.0f32; 0])),
                ]
            })
            .collect();
        vec![Entry {
            name: "convert_element_type",
            doc: "x converted to another dtype. Floats are rounded to nearest even. A conversion \
                  to integers truncates and saturates, and maps NaN to 0. A conversion between \
                  integers drops or extends bits. A conversion to bool is x ≠ 0.",
            derivative: "linear",
            samples,
        }]
    }
}
