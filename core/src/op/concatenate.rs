//! `concatenate`: joins tensors along an axis.

use crate::op::Slice;
use crate::op::prelude::*;

attributes! {
    /// `concatenate %a, %b, … {axis=0}`: the operands one behind the other along `axis`; along
    /// the other axes they have the same extents. Linear: a cotangent is cut into the operands'
    /// parts.
    Concatenate {
        /// The axis of concatenation.
        axis: usize,
    }
}

impl Operation for Concatenate {
    named!("concatenate", "Concatenation of the operands along `axis`.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let Some(first) = t.operands.first() else {
            bail!("needs at least one operand");
        };
        ensure!(self.axis < first.rank(), "axis {} of operands of type {first}", self.axis);
        let mut extent = Dim::constant(0);
        for (i, operand) in t.operands.iter().enumerate() {
            let mut expected = first.clone();
            if operand.rank() == first.rank() {
                expected.shape[self.axis] = operand.shape[self.axis].clone();
            }
            ensure!(*operand == expected, "operand 0 has type {first}, operand {i} has {operand}";
                help "they may differ along axis {} only", self.axis);
            extent = extent
                .checked_add(&operand.shape[self.axis])
                .ok_or_else(|| Diagnostic::new("the extents overflow"))?;
        }
        let mut result = first.clone();
        result.shape[self.axis] = extent;
        Ok(vec![result])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        e.build(|index| {
            let mut at = index.to_vec();
            for operand in e.operands {
                match at[self.axis].checked_sub(operand.shape[self.axis]) {
                    None => return operand.at(&at).clone(),
                    Some(rest) => at[self.axis] = rest,
                }
            }
            unreachable!("the result's extent is the sum of the operands'")
        })
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let extent = |ty: &TensorType| {
            ty.shape[self.axis].as_constant().expect("compute is asked for bound types only")
        };
        let extents: Vec<i64> = l.operands.iter().map(extent).collect();
        let dtype = l.results[0].dtype;
        Compute::element(move |c, index| {
            let mut result = None;
            let mut start = 0;
            for (i, extent) in extents.iter().enumerate().filter(|(_, e)| **e > 0) {
                let mut at = index.to_vec();
                at[self.axis] = index[self.axis].offset(-start);
                let guard = Guard { index: at[self.axis].clone(), low: 0, high: *extent };
                result = Some(match result {
                    None if *extent == extents.iter().sum::<i64>() => c.operand(i, &at),
                    None => {
                        let zero = c.constant(Scalar::zero(dtype));
                        c.guarded(i, &at, vec![guard], zero)
                    }
                    // Where the guard fails, the fill is the element of an earlier operand.
                    Some(earlier) => c.guarded(i, &at, vec![guard], earlier),
                });
                start += extent;
            }
            result.unwrap_or_else(|| c.constant(Scalar::zero(dtype)))
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::Concatenate(op) = t.op else { unreachable!("the rule of concatenate") };
        let Some(ct) = &t.cotangents[0] else { return vec![None; t.operands.len()] };
        let mut start = Dim::constant(0);
        t.operands
            .iter()
            .map(|operand| {
                let shape = &operand.ty().shape;
                let end =
                    start.checked_add(&shape[op.axis]).expect("infer has added these extents");
                let mut from = vec![Dim::constant(0); shape.len()];
                let mut limit = shape.clone();
                from[op.axis] = std::mem::replace(&mut start, end.clone());
                limit[op.axis] = end;
                let slice = Slice { start: from, limit, stride: vec![] };
                operand.is_linear().then(|| Tensor::apply(slice, &[ct]))
            })
            .collect()
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.all(Concatenate { axis: self.axis + 1 })
    }

    const TRAITS: Traits = Traits::movement(Cost::Free);
}
