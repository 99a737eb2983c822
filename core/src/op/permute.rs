//! `permute`: reorders axes (`transpose` of `jax.lax`; that word is the AD operation's here).

use crate::op::prelude::*;

attributes! {
    /// `permute %x {permutation=[…]}`: axis i of the result is axis `permutation[i]` of the
    /// operand.
    Permute {
        /// Each axis of the operand once.
        permutation: Vec<usize>,
    }
}

impl Permute {
    /// The inverse permutation.
    pub fn inverse(&self) -> Permute {
        let mut permutation = vec![0; self.permutation.len()];
        self.permutation.iter().enumerate().for_each(|(i, axis)| permutation[*axis] = i);
        Permute { permutation }
    }
}

impl Operation for Permute {
    named!("permute", "result[i₀, i₁, …] = x[j…] with j[permutation[k]] = iₖ.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        ensure!(
            self.permutation.len() == x.rank(),
            "permutation {:?} of an operand of type {x}", self.permutation;
            help "name each axis once"
        );
        distinct_axes("permutation", &self.permutation, x.rank())?;
        Ok(vec![x.with_shape(self.permutation.iter().map(|a| x.shape[*a].clone()).collect())])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let mut at = vec![0; self.permutation.len()];
        e.build(|index| {
            self.permutation.iter().zip(index).for_each(|(axis, i)| at[*axis] = *i);
            e.operands[0].at(&at).clone()
        })
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::element(|c, index| {
            let mut at = vec![Affine::constant(0); index.len()];
            self.permutation.iter().zip(index).for_each(|(axis, i)| at[*axis] = i.clone());
            c.operand(0, &at)
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::Permute(op) = t.op else { unreachable!("the rule of permute") };
        vec![t.cotangents[0].as_ref().map(|ct| ct.permute(&op.inverse().permutation))]
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(Permute { permutation: in_front(&self.permutation) })
    }

    const TRAITS: Traits = Traits::movement(Cost::Free);
}
