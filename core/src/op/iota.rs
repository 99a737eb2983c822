//! `iota`: the index along an axis.

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::sample::Sample;
use super::{Batch, Cost, Entry, Operation, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Real, Regions};
use crate::ty::TensorType;

attributes! {
    /// `iota {axis=0, dtype=i32, shape=[…]}`: no operands; the element's index along `axis`.
    Iota {
        /// Dtype of the result; any but bool. Integers wrap, floats are rounded.
        dtype: DType,
        /// Shape of the result.
        shape: Vec<Dim>,
        /// The axis of the index.
        axis: usize = 0,
    }
}

impl Operation for Iota {
    named!("iota");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 0)?;
        let result = TensorType { dtype: self.dtype, shape: self.shape.clone() };
        if self.dtype == DType::Bool {
            return Err(Diagnostic::new("bool does not count").help("use an integer dtype"));
        }
        if self.axis >= result.rank() {
            return Err(Diagnostic::new(format!(
                "axis {} of a result of type {result}",
                self.axis
            )));
        }
        Ok(vec![result])
    }

    fn evaluate<R: Real>(
        &self,
        _operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let float = self.dtype.is_float();
        Ok(vec![Array::from_fn(&results[0], |index| {
            let i = index[self.axis] as i64;
            if float {
                Cell::Real(R::from_i64(i))
            } else {
                Cell::Bits(super::elementwise::wrap(i, self.dtype))
            }
        })?])
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        Compute::Element {
            rule: Box::new(|c, index| {
                if !self.dtype.is_float() {
                    return c.index(&index[self.axis], self.dtype);
                }
                let i = c.index(&index[self.axis], DType::I64);
                c.convert(i, self.dtype)
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Zero
    }

    fn batch(&self, _b: &Batch<'_>) -> Vec<Tensor> {
        unreachable!("an op without operands is the same for every example")
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Free, elementwise: false, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let sample = |dtype, shape: &[usize], axis| {
            Sample::new(
                Iota { dtype, shape: shape.iter().map(|e| Dim::from(*e)).collect(), axis },
                vec![],
            )
        };
        let mut samples: Vec<Sample> = DType::ALL
            .into_iter()
            .filter(|d| *d != DType::Bool)
            .map(|d| sample(d, &[3, 4], 1))
            .collect();
        samples.extend([
            sample(DType::I32, &[2, 3, 2], 0),
            sample(DType::I8, &[300], 0),
            sample(DType::F16, &[2, 5000], 1),
            sample(DType::F32, &[0, 3], 1),
        ]);
        vec![Entry {
            name: "iota",
            doc: "result[i…] = i[axis].",
            derivative: Derivative::Zero.kind(),
            samples,
        }]
    }
}
