//! `ppermute`: each rank sends its operand to at most one other.

use super::{Collective, CollectiveKind, Group, call, check_varies, count};
use crate::op::prelude::*;

attributes! {
    /// `ppermute %x {over=["data"], perm=[[0,1],[1,0]]}`: the operand of the rank at position s
    /// of the group, on the rank at position d, for each pair `[s,d]` of `perm`. Ranks that are no
    /// destination get zeros.
    PPermute {
        /// Axes of the mesh.
        over: Vec<String>,
        /// Pairs of source and destination. No rank is a source or a destination twice.
        perm: Vec<(usize, usize)>,
    }
}

impl PPermute {
    fn on_group<R: Real>(&self, group: &Group<'_, R>) -> Result<Vec<Array<R>>> {
        let zero = Cell::from_scalar(Scalar::zero(group.result.dtype));
        let mut results = group.each(|_, _| zero.clone())?;
        for (source, destination) in &self.perm {
            results[*destination] = group.operands[*source].clone();
        }
        Ok(results)
    }

    fn lowered<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (dtype, elements) = (l.operands[0].dtype.stored(), count(&l.extents(0)));
        let call = call::Collective::whole(CollectiveKind::Permute, &self.over, dtype, elements);
        Compute::Call(call::Collective { perm: self.perm.clone(), ..call }.into())
    }
}

impl Operation for PPermute {
    named!(
        "ppermute",
        "The operand of rank s along `over`, on rank d, for each pair `[s,d]` of `perm`; zeros \
         elsewhere."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        check_varies(x, &self.over)?;
        for (what, ranks) in [
            ("source", self.perm.iter().map(|(s, _)| *s).collect::<Vec<usize>>()),
            ("destination", self.perm.iter().map(|(_, d)| *d).collect()),
        ] {
            let mut seen = std::collections::BTreeSet::new();
            let twice = ranks.into_iter().find(|rank| !seen.insert(*rank));
            if let Some(rank) = twice {
                bail!("rank {rank} is a {what} twice";
                    help "each rank sends to at most one and receives from at most one");
            }
        }
        Ok(vec![x.clone()])
    }

    exchanges!();

    fn collective(&self) -> Option<Collective<'_>> {
        let last = self.perm.iter().map(|(s, d)| *s.max(d)).max();
        let least = last.map_or(1, |last| last.saturating_add(1));
        Some(Collective { least, ..Collective::exchange(&self.over) })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::PPermute(op) = t.op else { unreachable!("the rule of ppermute") };
        let perm = op.perm.iter().map(|(source, destination)| (*destination, *source)).collect();
        let back = PPermute { over: op.over.clone(), perm };
        vec![t.cotangents[0].as_ref().map(|ct| Tensor::apply(back, &[ct]))]
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(self.clone())
    }
}
