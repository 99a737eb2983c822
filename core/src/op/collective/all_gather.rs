//! `all_gather`: the operands of all ranks, side by side.

use super::{Collective, CollectiveKind, Group, PsumScatter, call, check_varies, count};
use crate::op::prelude::*;

attributes! {
    /// `all_gather %x {over=["data"], axis=0, size=4}`: the operands of all ranks along `over`, in
    /// the order of the ranks, stacked along a new axis `axis`; with `tiled=true` concatenated
    /// along axis `axis` of the operand.
    ///
    /// All ranks of a group get the same. The result varies nevertheless, so that its transpose is
    /// `psum_scatter`. With `invariant=true` the result is invariant over `over`, and the transpose
    /// is the rank's part of the cotangent: JAX's `all_gather_invariant`.
    AllGather {
        /// Axes of the mesh.
        over: Vec<String>,
        /// The axis of the result that runs over the ranks.
        axis: usize,
        /// Number of ranks along `over`.
        size: usize,
        /// Whether the operands are concatenated along an axis that they have.
        tiled: bool = false,
        /// Whether the type of the result says that all ranks of a group get the same.
        invariant: bool = false,
    }
}

impl AllGather {
    fn on_group<R: Real>(&self, group: &Group<'_, R>) -> Result<Vec<Array<R>>> {
        let x = group.operands[0];
        let result = Array::from_fn(group.result, |index| {
            let mut inner = index.to_vec();
            let rank = if self.tiled {
                let extent = x.shape[self.axis];
                inner[self.axis] %= extent;
                index[self.axis] / extent
            } else {
                inner.remove(self.axis)
            };
            group.operands[rank].at(&inner).clone()
        })?;
        Ok(group.same(result))
    }

    /// The rank's part of the cotangent of an invariant result.
    fn part_of_rank(&self, ct: &Tensor) -> Tensor {
        let rank = Tensor::axis_index(self.over.clone());
        if !self.tiled {
            return ct.dynamic_index_in_dim(&rank, self.axis);
        }
        let mut shape = ct.shape().to_vec();
        let size = Dim::from(self.size);
        let part = shape[self.axis].checked_exact_div(&size).expect("it is tiled by the ranks");
        shape.splice(self.axis..=self.axis, [size, part]);
        ct.reshape(shape).dynamic_index_in_dim(&rank, self.axis)
    }

    fn lowered<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (dtype, extents) = (l.operands[0].dtype.stored(), l.extents(0));
        let (outer, inner) = extents.split_at(self.axis);
        let whole = call::Collective::whole(CollectiveKind::AllGather, &self.over, dtype, 0);
        let (outer, inner) = (count(outer), count(inner));
        Compute::Call(call::Collective { parts: self.size, outer, inner, ..whole }.into())
    }
}

impl Operation for AllGather {
    named!("all_gather", "The operands of all ranks along `over`, stacked along `axis`.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        let over = check_varies(x, &self.over)?;
        let mut shape = x.shape.clone();
        if self.tiled {
            has_axis(x, self.axis)?;
            shape[self.axis] = times(&shape[self.axis], self.size)?;
        } else {
            ensure!(
                self.axis <= x.rank(),
                "the result of {x} can have no axis {} of ranks", self.axis;
                help "axes 0 to {} are possible", x.rank()
            );
            shape.insert(self.axis, self.size.into());
        }
        let gathered = x.with_shape(shape);
        Ok(vec![match self.invariant {
            true => gathered.with_varying(x.varying.without(&over)),
            false => gathered,
        }])
    }

    exchanges!();

    fn collective(&self) -> Option<Collective<'_>> {
        Some(Collective { size: Some(self.size), ..Collective::exchange(&self.over) })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::AllGather(gather) = t.op else { unreachable!("the rule of all_gather") };
        if gather.invariant {
            return vec![t.cotangents[0].as_ref().map(|ct| gather.part_of_rank(ct))];
        }
        let AllGather { over, axis, size, tiled, .. } = gather;
        let op = PsumScatter { over: over.clone(), axis: *axis, size: *size, tiled: *tiled };
        vec![t.cotangents[0].as_ref().map(|ct| Tensor::apply(op, &[ct]))]
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(AllGather { axis: self.axis + 1, ..self.clone() })
    }

    const TRAITS: Traits = Traits::movement(Cost::Loop);
}

/// `extent · size`.
pub(super) fn times(extent: &Dim, size: usize) -> Result<Dim> {
    extent.checked_mul(&size.into()).ok_or_else(|| {
        Diagnostic::new(format!("{size} parts of extent {extent} are beyond 64 bits"))
    })
}
