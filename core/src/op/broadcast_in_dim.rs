//! `broadcast_in_dim`: repeats a tensor along new or unit axes.

use crate::op::prelude::*;
use crate::op::reduce::{Reduce, ReduceKind};

attributes! {
    /// `broadcast_in_dim %x {dims=[…], shape=[…]}`: axis i of the operand becomes axis `dims[i]`
    /// of the result.
    BroadcastInDim {
        /// Shape of the result.
        shape: Vec<Dim>,
        /// For each axis of the operand, the axis of the result; strictly ascending. Its extent
        /// is the result's, or 1.
        dims: Vec<usize> = vec![],
    }
}

impl BroadcastInDim {
    /// Axes of the result along which the operand is repeated: those not in `dims`, and those
    /// where the operand has extent 1.
    fn repeated(&self, operand: &TensorType) -> Vec<usize> {
        (0..self.shape.len())
            .filter(|axis| match self.dims.iter().position(|d| d == axis) {
                None => true,
                Some(i) => operand.shape[i] != self.shape[*axis],
            })
            .collect()
    }
}

impl Operation for BroadcastInDim {
    named!(
        "broadcast_in_dim",
        "result[i…] = x[i[dims[0]], i[dims[1]], …]. Extents of 1 are repeated."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        ensure!(
            self.dims.len() == x.rank(),
            "dims has {} entries for an operand of type {x}",
            self.dims.len()
        );
        distinct_axes("dims", &self.dims, self.shape.len())?;
        ensure!(self.dims.is_sorted(), "dims must ascend"; help "permute the operand first");
        let result = x.with_shape(self.shape.clone());
        for (i, axis) in self.dims.iter().enumerate() {
            ensure!(
                x.shape[i] == self.shape[*axis] || x.shape[i] == Dim::constant(1),
                "axis {i} of {x} has extent {}, axis {axis} of {result} has {}",
                x.shape[i], self.shape[*axis];
                help "extents must be equal, or 1 in the operand"
            );
        }
        Ok(vec![result])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        e.build(|index| {
            let at: Vec<usize> = self
                .dims
                .iter()
                .zip(&x.shape)
                .map(|(d, e)| if *e == 1 { 0 } else { index[*d] })
                .collect();
            x.at(&at).clone()
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let unit: Vec<bool> = l.operands[0].shape.iter().map(|d| *d == Dim::constant(1)).collect();
        Compute::element(move |c, index| {
            let at: Vec<Affine> = self
                .dims
                .iter()
                .zip(&unit)
                .map(|(d, unit)| if *unit { Affine::constant(0) } else { index[*d].clone() })
                .collect();
            c.operand(0, &at)
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::BroadcastInDim(op) = t.op else { unreachable!("the rule of broadcast_in_dim") };
        let operand = t.operands[0].ty();
        let axes = op.repeated(operand);
        let summed = t.cotangents[0].as_ref().map(|ct| {
            Tensor::apply(Reduce { kind: ReduceKind::Sum, axes }, &[ct])
                .reshape(operand.shape.clone())
        });
        vec![summed]
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(BroadcastInDim { shape: b.shape(&self.shape), dims: in_front(&self.dims) })
    }

    const TRAITS: Traits = Traits::movement(Cost::Free);
}
