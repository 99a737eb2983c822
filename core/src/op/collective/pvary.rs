//! `pvary`: an invariant value as one that varies.

use super::{Collective, PReduce, check_axes};
use crate::mesh::Varying;
use crate::op::prelude::*;

attributes! {
    /// `pvary %x {over=["data"]}`: x, with a type that says that it varies over the axes `over`
    /// of the mesh, over which it does not vary yet.
    ///
    /// It moves no data. It marks where an invariant value meets varying ones, so its transpose
    /// is `psum`. The builder inserts it.
    PVary {
        /// Axes of the mesh.
        over: Vec<String>,
    }
}

impl PVary {
    fn lowered<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::element(|c, index| c.operand(0, index))
    }
}

impl Operation for PVary {
    named!("pvary", "x, as a value that varies over the ranks along `over`.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        check_axes(&self.over)?;
        let over = Varying::over(&self.over);
        let known = x.varying.common(&over);
        ensure!(known.is_empty(), "its operand, {x}, varies over {known} already";
            help "name the other axes only");
        Ok(vec![x.with_varying(x.varying.union(&over))])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        Ok(e.operands.to_vec())
    }

    exchanges!(compute);

    fn collective(&self) -> Option<Collective<'_>> {
        Some(Collective { exchanges: false, ..Collective::exchange(&self.over) })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::PVary(op) = t.op else { unreachable!("the rule of pvary") };
        let sum = |ct: &Tensor| Tensor::apply(PReduce::sum(op.over.clone()), &[ct]);
        vec![t.cotangents[0].as_ref().map(sum)]
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(self.clone())
    }

    const TRAITS: Traits = Traits::movement(Cost::Free);
}
