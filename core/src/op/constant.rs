//! `constant`: a literal.

use crate::op::prelude::*;

attributes! {
    /// `constant {value=…}`: no operands, the literal as result.
    Constant {
        /// The values.
        value: Literal,
    }
}

impl Operation for Constant {
    named!("constant", "A literal.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [] = t.exactly()?;
        Ok(vec![self.value.ty()])
    }

    fn evaluate<R: Real>(&self, _: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        Ok(vec![Array::from_literal(&self.value)?])
    }

    /// A constant of one repeated element becomes an instruction. Others are stored in memory, so
    /// the compiler never lowers them.
    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        let splat = self
            .value
            .splat()
            .or_else(|| self.value.is_empty().then(|| Scalar::zero(self.value.dtype())));
        let splat = splat.expect("the compiler puts constants with differing elements into memory");
        Compute::element(move |c, _| c.constant(splat))
    }

    const DERIVATIVE: Derivative = Derivative::Zero;

    const TRAITS: Traits = Traits::of(Cost::Free);
}
