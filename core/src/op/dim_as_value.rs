//! `dim_as_value`: a dimension as a number, used by means over variable extents.

use crate::op::prelude::*;

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
    named!("dim_as_value", "A dimension as a scalar.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [] = t.exactly()?;
        ensure!(self.dtype != DType::Bool, "bool does not count";
            help "use an integer or float dtype");
        Ok(vec![TensorType::scalar(self.dtype)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let value = self.dim.as_constant().expect("the interpreter runs bound functions only");
        e.build(|_| match self.dtype.is_float() {
            true => Cell::Real(R::from_i64(value)),
            false => Cell::Bits(wrap(value, self.dtype)),
        })
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        let value = self.dim.as_constant().expect("compute is asked for bound ops only");
        let value = Scalar::from_i64(self.dtype, value);
        Compute::element(move |c, _| c.constant(value))
    }

    const DERIVATIVE: Derivative = Derivative::Zero;

    const TRAITS: Traits = Traits::of(Cost::Free);
}
