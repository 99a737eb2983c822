//! `reverse`: reverses axes (`rev` of `jax.lax`).

use crate::op::prelude::*;

attributes! {
    /// `reverse %x {axes=[…]}`: the last element of each of `axes` comes first.
    Reverse {
        /// The reversed axes, each once.
        axes: Vec<usize>,
    }
}

impl Operation for Reverse {
    named!("reverse", "x reversed along `axes`.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        distinct_axes("axes", &self.axes, x.rank())?;
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        e.build(|index| {
            let mut at = index.to_vec();
            self.axes.iter().for_each(|a| at[*a] = x.shape[*a] - 1 - index[*a]);
            x.at(&at).clone()
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let extents = l.extents(0);
        Compute::element(move |c, index| {
            let mut at: Vec<Affine> = index.to_vec();
            self.axes
                .iter()
                .for_each(|a| at[*a] = index[*a].scale(-1).offset(extents[*a] as i64 - 1));
            c.operand(0, &at)
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::Reverse(op) = t.op else { unreachable!("the rule of reverse") };
        vec![t.cotangents[0].as_ref().map(|ct| ct.reverse(&op.axes))]
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Reverse { axes: shifted(&self.axes) })
    }

    const TRAITS: Traits = Traits::movement(Cost::Free);
}
