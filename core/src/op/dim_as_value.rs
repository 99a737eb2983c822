//! `dim_as_value`: a dimension as a number, used by means over variable extents.

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
use crate::scalar::Scalar;
use crate::ty::TensorType;

attributes! {
    /// `dim_as_value {dim=2*B+1, dtype=f32}`: no operands; the dimension as a scalar, rounded to
    /// a float dtype, wrapped to an integer one. Binding the variables makes it a constant.
    DimAsValue {
        /// The dimension.
        dim: Dim,
        /// Dtype of the result; any but bool.
        dtype: DType,
    }
}

impl Operation for DimAsValue {
    named!("dim_as_value");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 0)?;
        if self.dtype == DType::Bool {
            return Err(
                Diagnostic::new("bool does not count").help("use an integer or float dtype")
            );
        }
        Ok(vec![TensorType::scalar(self.dtype)])
    }

    fn evaluate<R: Real>(
        &self,
        _operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let value = self.dim.as_constant().expect("the interpreter runs bound functions only");
        Ok(vec![Array::from_fn(&results[0], |_| match self.dtype.is_float() {
            true => Cell::Real(R::from_i64(value)),
            false => Cell::Bits(super::elementwise::wrap(value, self.dtype)),
        })?])
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let value = self.dim.as_constant().expect("compute is asked for bound ops only");
        let value = Scalar::from_i64(self.dtype, value);
        Compute::Element { rule: Box::new(move |c, _| c.constant(value)), indirect: vec![] }
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
        let sample = |dtype| Sample::new(DimAsValue { dim: Dim::constant(300), dtype }, vec![]);
        vec![Entry {
            name: "dim_as_value",
            doc: "A dimension as a scalar.",
            derivative: Derivative::Zero.kind(),
            samples: DType::ALL.into_iter().filter(|d| *d != DType::Bool).map(sample).collect(),
        }]
    }
}
