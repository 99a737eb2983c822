//! `sort`: sorts several operands along an axis by the first of them.
//!
//! A composite: [`Argsort`] of the keys gives the permutation, and every operand is permuted by
//! it. So its derivative permutes the tangents in the same way. Elements with equal keys are
//! ordered by position, in the derivative too.

use crate::op::argsort::{check_axis, order, rows};
use crate::op::prelude::*;
use crate::op::{Argsort, TakeAlongAxis};

attributes! {
    /// `sort %a, %b {axis=0, num_keys=2}`: all operands in the order of the first `num_keys`,
    /// ascending and stable, in the order that [`Argsort`] describes.
    Sort {
        /// The sorted axis.
        axis: usize,
        /// Number of operands, from the first on, that are keys.
        num_keys: usize = 1,
    }
}

impl Operation for Sort {
    named!(
        "sort",
        "All operands sorted along `axis` by the first `num_keys`. The sort is ascending and \
         stable; −0 equals +0, and NaN is last. Tangents are permuted like the elements. Equal \
         elements keep their order."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let Some(first) = t.operands.first() else {
            bail!("takes at least one operand");
        };
        if let Some(other) = t.operands.iter().find(|o| o.shape != first.shape) {
            bail!("operands have types {first} and {other}"; help "all operands have one shape");
        }
        check_axis(first, self.axis)?;
        ensure!(
            (1..=t.operands.len()).contains(&self.num_keys),
            "{} keys among {} operands", self.num_keys, t.operands.len();
            help "the keys are the first operands, at least one"
        );
        // Checks the number of keys, as the call does.
        let argsort = Argsort { axis: self.axis, descending: false };
        argsort.infer(&Typing { operands: &t.operands[..self.num_keys], regions: &[] })?;
        Ok(t.operands.to_vec())
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let mut sorted =
            e.operands.iter().map(|o| Cells::copied(&o.cells)).collect::<Result<Vec<_>>>()?;
        for row in rows(&e.operands[0].shape, self.axis) {
            let mut from = row.clone();
            from.sort_by(|a, b| {
                let by_key = |key: &Array<R>| order(&key.cells[*a], &key.cells[*b], key.dtype);
                let keys = e.operands[..self.num_keys].iter();
                keys.map(by_key).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
            });
            for (cells, operand) in sorted.iter_mut().zip(e.operands) {
                from.iter()
                    .zip(&row)
                    .for_each(|(from, to)| cells[*to] = operand.cells[*from].clone());
            }
        }
        let arrays = e.operands.iter().zip(sorted);
        Ok(arrays.map(|(o, cells)| Array::new(o.dtype, o.shape.clone(), cells)).collect())
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::Decompose(Box::new(move |tensors| {
            let keys: Vec<&Tensor> = tensors[..self.num_keys].iter().collect();
            let order = Tensor::apply(Argsort { axis: self.axis, descending: false }, &keys);
            let take = TakeAlongAxis { axis: self.axis, permutation: true };
            tensors.iter().map(|x| Tensor::apply(take.clone(), &[x, &order])).collect()
        }))
    }

    const DERIVATIVE: Derivative = Derivative::Composite;

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(Sort { axis: self.axis + 1, ..self.clone() })
    }
}
