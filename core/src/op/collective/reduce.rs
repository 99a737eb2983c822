//! `psum`, `pmax`, `pmin`: reductions over ranks.

use super::{Collective, CollectiveKind, Group, call, check_varies, count, pvary};
use crate::mesh::Varying;
use crate::op::prelude::*;
use crate::op::reduce::ReduceKind;

kinds! {
    /// The kind of a reduction over ranks.
    PReduceKind {
        /// Sum, in the tree that the [module](super) defines.
        Sum "psum" "Σ x over the ranks along `over`, in one order. The result is invariant over \
            them. Halves are added in f32 and rounded once.",
        /// Greatest element; NaN if one is NaN. All ranks whose element equals the maximum share
        /// the gradient in equal parts.
        Max "pmax" "max x over the ranks along `over`. Ties share the gradient in equal parts.",
        /// Least element; NaN if one is NaN. All ranks whose element equals the minimum share the
        /// gradient in equal parts.
        Min "pmin" "min x over the ranks along `over`. Ties share the gradient in equal parts.",
    }
}

attributes! {
    /// `psum %x {over=["data"]}` and its like: combines the elements at each index on all ranks
    /// along `over`.
    PReduce by kind: PReduceKind {
        /// Axes of the mesh.
        over: Vec<String>,
    }
}

impl PReduceKind {
    const fn rule(self) -> Derivative {
        match self {
            PReduceKind::Sum => Derivative::Linear(transpose_sum),
            PReduceKind::Max | PReduceKind::Min => Derivative::Nonlinear(jvp_extremum),
        }
    }

    const fn of_elements(self) -> ReduceKind {
        match self {
            PReduceKind::Sum => ReduceKind::Sum,
            PReduceKind::Max => ReduceKind::Max,
            PReduceKind::Min => ReduceKind::Min,
        }
    }
}

impl PReduce {
    /// `psum` over these axes.
    pub fn sum(over: Vec<String>) -> Self {
        PReduce { kind: PReduceKind::Sum, over }
    }

    fn on_group<R: Real>(&self, group: &Group<'_, R>) -> Result<Vec<Array<R>>> {
        let (kind, dtype) = (self.kind.of_elements(), group.result.dtype);
        Ok(group.same(group.tree(|a, b| kind.combine(a, b, dtype))?))
    }

    fn lowered<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let kind = match self.kind {
            PReduceKind::Sum => CollectiveKind::Sum,
            PReduceKind::Max => CollectiveKind::Max,
            PReduceKind::Min => CollectiveKind::Min,
        };
        let (ty, elements) = (&l.operands[0], count(&l.extents(0)));
        let call = call::Collective::whole(kind, &self.over, ty.dtype, elements);
        Compute::Call(call.into())
    }
}

fn transpose_sum(t: &Transpose<'_>) -> Vec<Option<Tensor>> {
    let Op::PReduce(op) = t.op else { unreachable!("the rule of psum") };
    vec![t.cotangents[0].as_ref().map(|ct| pvary(ct, &Varying::over(&op.over)))]
}

/// The mean of the tangents of the ranks whose element equals the extremum.
fn jvp_extremum(j: &Jvp<'_>) -> Vec<Option<Tensor>> {
    let Op::PReduce(op) = j.op else { unreachable!("the rule of pmax") };
    let Some(tangent) = &j.tangents[0] else { return vec![None] };
    let x = &j.operands[0];
    let chosen = x.eq(&j.results[0]);
    let sum = |t: &Tensor| Tensor::apply(PReduce::sum(op.over.clone()), &[t]);
    // A half holds consecutive integers only up to a small bound, so counts are f32.
    let share = sum(&chosen.convert(x.dtype().wide())).reciprocal().convert(x.dtype());
    vec![Some(sum(&chosen.select(tangent, &tangent.zeros_like())).scaled_by(&share))]
}

impl Operation for PReduce {
    named!(kind: PReduceKind, PReduceKind::rule);

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        Domain::Number.check(x.dtype)?;
        let over = check_varies(x, &self.over)?;
        Ok(vec![x.with_varying(x.varying.without(&over))])
    }

    exchanges!();

    fn collective(&self) -> Option<Collective<'_>> {
        Some(Collective::exchange(&self.over))
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(self.clone())
    }
}
