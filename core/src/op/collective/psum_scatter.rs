//! `psum_scatter`: a sum over ranks, of which each rank gets its part.

use super::{AllGather, Collective, CollectiveKind, Group, call, check_varies, count};
use crate::op::prelude::*;
use crate::op::reduce::ReduceKind;

attributes! {
    /// `psum_scatter %x {over=["data"], axis=0, size=4}`: part i of Σ x over the ranks along
    /// `over`, on the rank at position i. The parts lie along axis `axis`, which has an extent of
    /// `size` and is removed; with `tiled=true` it is divided into `size` parts.
    PsumScatter {
        /// Axes of the mesh.
        over: Vec<String>,
        /// The axis of the operand along which the parts lie.
        axis: usize,
        /// Number of ranks along `over`.
        size: usize,
        /// Whether the axis stays, with the extent of a part.
        tiled: bool = false,
    }
}

impl PsumScatter {
    fn on_group<R: Real>(&self, group: &Group<'_, R>) -> Result<Vec<Array<R>>> {
        let dtype = group.result.dtype;
        let sum = group.tree(|a, b| ReduceKind::Sum.combine(a, b, dtype))?;
        let part = sum.shape[self.axis] / self.size;
        group.each(|rank, index| {
            let mut outer = index.to_vec();
            if self.tiled {
                outer[self.axis] += rank * part;
            } else {
                outer.insert(self.axis, rank);
            }
            sum.at(&outer).clone()
        })
    }

    fn lowered<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (ty, extents) = (&l.operands[0], l.extents(0));
        let (outer, inner) = extents.split_at(self.axis);
        let whole = call::Collective::whole(CollectiveKind::SumScatter, &self.over, ty.dtype, 0);
        let call = call::Collective {
            parts: self.size,
            outer: count(outer),
            // The parts lie along the first of these axes.
            inner: inner[0] / self.size * count(&inner[1..]),
            ..whole
        };
        Compute::Call(call.into())
    }
}

impl Operation for PsumScatter {
    named!(
        "psum_scatter",
        "Σ x over the ranks along `over`, of which each gets its part along `axis`."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        Domain::Number.check(x.dtype)?;
        check_varies(x, &self.over)?;
        has_axis(x, self.axis)?;
        let mut shape = x.shape.clone();
        if self.tiled {
            shape[self.axis] = divided(x, self.axis, self.size)?;
        } else {
            one_for_each_rank(x, self.axis, self.size)?;
            shape.remove(self.axis);
        }
        Ok(vec![x.with_shape(shape)])
    }

    exchanges!();

    fn collective(&self) -> Option<Collective<'_>> {
        Some(Collective { size: Some(self.size), ..Collective::exchange(&self.over) })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::PsumScatter(PsumScatter { over, axis, size, tiled }) = t.op else {
            unreachable!("the rule of psum_scatter")
        };
        let op = AllGather {
            over: over.clone(),
            axis: *axis,
            size: *size,
            tiled: *tiled,
            invariant: false,
        };
        vec![t.cotangents[0].as_ref().map(|ct| Tensor::apply(op, &[ct]))]
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.unary(PsumScatter { axis: self.axis + 1, ..self.clone() })
    }
}

/// The extent of one of `size` equal parts of an axis.
pub(super) fn divided(x: &TensorType, axis: usize, size: usize) -> Result<Dim> {
    let part = x.shape[axis].checked_exact_div(&size.into()).filter(|_| size > 0);
    part.ok_or_else(|| {
        Diagnostic::new(format!("axis {axis} of {x} cannot be divided into {size} equal parts"))
            .help("pad it to a multiple of the number of ranks")
    })
}

/// Checks that an axis has one part for each of `size` ranks.
pub(super) fn one_for_each_rank(x: &TensorType, axis: usize, size: usize) -> Result<()> {
    ensure!(
        x.shape[axis] == Dim::from(size),
        "axis {axis} of {x} has extent {}, not one part for each of {size} ranks", x.shape[axis];
        help "with `tiled=true` the axis is divided into parts"
    );
    Ok(())
}
