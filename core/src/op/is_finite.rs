//! `is_finite`: neither infinite nor NaN.

use crate::op::prelude::*;

attributes! {
    /// `is_finite %x`: bool; false for ±∞ and NaN.
    IsFinite {}
}

impl Operation for IsFinite {
    named!("is_finite", "True where x is neither infinite nor NaN.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        Domain::Float.check(x.dtype)?;
        Ok(vec![x.with_dtype(DType::Bool)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        // An exact number is finite, even if the nearest f64 is not.
        e.map(|x| Ok(Cell::Bits((!R::ROUNDS || x.real().to_f64().is_finite()) as i64)))
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::element(|c, index| {
            let x = c.operand(0, index);
            widened(c, &[x], |c, x| {
                let size = c.scalar(ScalarOp::Abs, x);
                let infinity = c.constant(Scalar::highest(c.dtype(size)));
                c.scalar(ScalarOp::Lt, &[size, infinity])
            })
        })
    }

    const DERIVATIVE: Derivative = Derivative::Zero;

    const TRAITS: Traits = Traits::elementwise(Cost::Cheap);
}
