//! `iota`: the index along an axis.

use crate::op::prelude::*;

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
    named!("iota", "result[i…] = i[axis].");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [] = t.exactly()?;
        let result = TensorType::of(self.dtype, self.shape.clone());
        ensure!(self.dtype != DType::Bool, "bool does not count"; help "use an integer dtype");
        ensure!(self.axis < result.rank(), "axis {} of a result of type {result}", self.axis);
        Ok(vec![result])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let float = self.dtype.is_float();
        e.build(|index| {
            let i = index[self.axis] as i64;
            if float { Cell::Real(R::from_i64(i)) } else { Cell::Bits(wrap(i, self.dtype)) }
        })
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::element(|c, index| {
            if !self.dtype.is_float() {
                return c.index(&index[self.axis], self.dtype);
            }
            let i = c.index(&index[self.axis], DType::I64);
            c.convert(i, self.dtype)
        })
    }

    const DERIVATIVE: Derivative = Derivative::Zero;

    const TRAITS: Traits = Traits::of(Cost::Free);
}
