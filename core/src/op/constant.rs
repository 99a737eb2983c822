//! `constant`: a literal.

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::sample::Sample;
use super::{Batch, Cost, Entry, Operation, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::Result;
use crate::graph::Region;
use crate::interpret::{Array, Real, Regions};
use crate::literal::Literal;
use crate::ty::TensorType;

attributes! {
    /// `constant {value=…}`: no operands, the literal as result.
    Constant {
        /// The values.
        value: Literal,
    }
}

impl Operation for Constant {
    named!("constant");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 0)?;
        Ok(vec![self.value.ty()])
    }

    fn evaluate<R: Real>(
        &self,
        _operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        Ok(vec![Array::from_literal(&self.value)?])
    }

    /// A constant of one repeated element becomes an instruction. Others are stored in memory, so
    /// the compiler never lowers them.
    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let splat = self
            .value
            .splat()
            .or_else(|| self.value.is_empty().then(|| crate::Scalar::zero(self.value.dtype())));
        let splat = splat.expect("the compiler puts constants with differing elements into memory");
        Compute::Element { rule: Box::new(move |c, _| c.constant(splat)), indirect: vec![] }
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
        let value = Literal::from_vec(&[2, 2], vec![1.0f32, 2.0, 3.0, 4.0])
            .expect("four elements fill 2x2");
        vec![Entry {
            name: "constant",
            doc: "A literal.",
            derivative: Derivative::Zero.kind(),
            samples: vec![
                Sample::new(Constant { value }, vec![]),
                Sample::new(Constant { value: Literal::from(1.5f64) }, vec![]),
            ],
        }]
    }
}
