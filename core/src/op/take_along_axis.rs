//! `take_along_axis`: one element of a row for each element of a tensor of indices.
//!
//! `sort` and `top_k` are made of indices and of this op, which moves the values to their sorted
//! positions. The name is `jax.numpy`'s; `jax.lax` expresses it as a `gather` whose index vectors
//! have a component for every axis.

use crate::call::ScatterKind;
use crate::op::prelude::*;
use crate::op::{Lookup, Scatter, starts};

attributes! {
    /// `take_along_axis %x, %indices {axis=1}`: `result[…, i, …] = x[…, indices[…, i, …], …]`.
    ///
    /// The indices, of any integer dtype, have the operand's shape but along `axis`. An index out
    /// of bounds is clamped.
    TakeAlongAxis {
        /// The indexed axis.
        axis: usize,
        /// A promise that along `axis` the indices are a permutation of all positions. The
        /// transpose is then a `take_along_axis` by the inverse permutation instead of a scatter.
        /// It is not checked.
        permutation: bool = false,
    }
}

impl TakeAlongAxis {
    fn transpose(&self, t: &Transpose<'_>) -> Vec<Option<Tensor>> {
        let Some(ct) = &t.cotangents[0] else { return vec![None, None] };
        let indices = t.operands[1].known();
        if self.permutation {
            // Sorting the targets gives the source of each position.
            let inverse = indices.argsort(self.axis);
            return vec![Some(Tensor::apply(self.clone(), &[ct, &inverse])), None];
        }
        let operand = t.operands[0].ty();
        let rank = operand.rank();
        let mut shape = indices.shape().to_vec();
        shape.push(1i64.into());
        let others: Vec<usize> = (0..rank).filter(|axis| *axis != self.axis).collect();
        let scatter = Scatter {
            kind: ScatterKind::Add,
            update_window_dims: vec![],
            inserted_window_dims: vec![self.axis],
            scatter_dims_to_operand_dims: vec![self.axis],
            operand_batching_dims: others.clone(),
            scatter_indices_batching_dims: others,
            clip: true,
            unique_indices: false,
        };
        let vectors = indices.reshape(shape);
        vec![Some(Tensor::apply(scatter, &[&Tensor::zeros(operand), &vectors, ct])), None]
    }
}

impl Operation for TakeAlongAxis {
    named!(
        "take_along_axis",
        "result[…, i, …] = x[…, indices[…, i, …], …] along `axis`. An index out of bounds is \
         clamped. `permutation` promises that the indices are a permutation."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x, indices] = t.exactly()?;
        has_axis(x, self.axis)?;
        starts::check_dtype(indices)?;
        let fits = indices.rank() == x.rank()
            && (0..x.rank()).all(|a| {
                if a == self.axis && !self.permutation {
                    true
                } else {
                    indices.shape[a] == x.shape[a]
                }
            });
        ensure!(
            fits,
            "indices of type {indices} for an operand of type {x} along axis {}", self.axis;
            help "the indices have the operand's shape but along the axis"
        );
        ensure!(
            x.shape[self.axis].as_constant() != Some(0)
                || indices.shape[self.axis].as_constant() == Some(0),
            "axis {} of {x} is empty", self.axis;
            help "nothing can be taken from it"
        );
        Ok(vec![x.with_shape(indices.shape.clone())])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (x, indices) = (&e.operands[0], &e.operands[1]);
        let last = x.shape[self.axis] as i64 - 1;
        e.build(|index| {
            let mut at = index.to_vec();
            at[self.axis] =
                starts::number(indices.at(index).bits(), indices.dtype).clamp(0, last) as usize;
            x.at(&at).clone()
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (dtype, empty) = (l.operands[0].dtype, l.operands[0].elements() == Some(0));
        Compute::indirect(vec![0], move |c, index| {
            if empty {
                // The operand is empty, and so is the result.
                return c.constant(Scalar::zero(dtype));
            }
            let mut at: Vec<Affine> = index.to_vec();
            let start = c.operand(1, index);
            at[self.axis] = Affine::reg(starts::signed(c, start));
            c.clamped(0, &at)
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::TakeAlongAxis(op) = t.op else { unreachable!("the rule of take_along_axis") };
        op.transpose(t)
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(TakeAlongAxis { axis: self.axis + 1, ..self.clone() })
    }

    const TRAITS: Traits = Traits::movement(Cost::Cheap);

    /// Permutations come from the op itself or from a sort, so their indices are in range.
    fn lookup(&self, operands: &[TensorType]) -> Option<Lookup> {
        (!self.permutation).then(|| Lookup::elements(1, &operands[0].shape[self.axis]))
    }
}
