//! `all_to_all`: each rank sends a part of its operand to each rank.

use super::all_gather::times;
use super::psum_scatter::{divided, one_for_each_rank};
use super::{Collective, CollectiveKind, Group, call, check_varies, count};
use crate::op::prelude::*;

attributes! {
    /// `all_to_all %x {over=["data"], split_axis=0, concat_axis=1, size=4}`: the rank at position
    /// i gets part i, along `split_axis`, of the operand of each rank along `over`, stacked along
    /// `concat_axis` in the order of the ranks.
    ///
    /// `split_axis` has an extent of `size` and is removed; then `concat_axis` is inserted. With
    /// `tiled=true`, `split_axis` is divided into `size` parts, and the parts are concatenated
    /// along `concat_axis`.
    AllToAll {
        /// Axes of the mesh.
        over: Vec<String>,
        /// The axis of the operand that is distributed.
        split_axis: usize,
        /// The axis of the result along which the parts lie.
        concat_axis: usize,
        /// Number of ranks along `over`.
        size: usize,
        /// Whether the parts are slices of an axis, and are concatenated along another.
        tiled: bool = false,
    }
}

impl AllToAll {
    fn on_group<R: Real>(&self, group: &Group<'_, R>) -> Result<Vec<Array<R>>> {
        let shape = &group.operands[0].shape;
        // The extents of one part along both axes, if tiled.
        let split = shape[self.split_axis] / self.size;
        let concat = match (self.tiled, self.split_axis == self.concat_axis) {
            (false, _) => 1,
            (true, true) => split,
            (true, false) => shape[self.concat_axis],
        };
        group.each(|rank, index| {
            let mut inner = index.to_vec();
            let from = if self.tiled {
                let from = inner[self.concat_axis] / concat;
                inner[self.concat_axis] %= concat;
                inner[self.split_axis] += rank * split;
                from
            } else {
                let from = inner.remove(self.concat_axis);
                inner.insert(self.split_axis, rank);
                from
            };
            group.operands[from].at(&inner).clone()
        })
    }

    fn lowered<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (dtype, mut extents) = (l.operands[0].dtype.stored(), l.extents(0));
        let outer = count(&extents[..self.split_axis]);
        let part = extents[self.split_axis] / self.size;
        let inner = part * count(&extents[self.split_axis + 1..]);
        // The extents of one part.
        if self.tiled {
            extents[self.split_axis] = part;
        } else {
            extents.remove(self.split_axis);
        }
        let rows = count(&extents[..self.concat_axis]);
        let whole = call::Collective::whole(CollectiveKind::AllToAll, &self.over, dtype, 0);
        // A part without elements may have no rows, and may then be divided into one.
        let rows = if outer * inner == 0 { 1 } else { rows };
        Compute::Call(call::Collective { parts: self.size, outer, inner, rows, ..whole }.into())
    }
}

impl Operation for AllToAll {
    named!(
        "all_to_all",
        "Part i, along `split_axis`, of the operand of each rank along `over`, on rank i, stacked \
         along `concat_axis`."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        check_varies(x, &self.over)?;
        has_axis(x, self.split_axis)?;
        has_axis(x, self.concat_axis)?;
        let mut shape = x.shape.clone();
        if self.tiled {
            shape[self.split_axis] = divided(x, self.split_axis, self.size)?;
            shape[self.concat_axis] = times(&shape[self.concat_axis], self.size)?;
        } else {
            one_for_each_rank(x, self.split_axis, self.size)?;
            shape.remove(self.split_axis);
            shape.insert(self.concat_axis, self.size.into());
        }
        Ok(vec![x.with_shape(shape)])
    }

    exchanges!();

    fn collective(&self) -> Option<Collective<'_>> {
        Some(Collective { size: Some(self.size), ..Collective::exchange(&self.over) })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::AllToAll(op) = t.op else { unreachable!("the rule of all_to_all") };
        let (split_axis, concat_axis) = (op.concat_axis, op.split_axis);
        let back = AllToAll { split_axis, concat_axis, ..op.clone() };
        vec![t.cotangents[0].as_ref().map(|ct| Tensor::apply(back, &[ct]))]
    });

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        let (split_axis, concat_axis) = (self.split_axis + 1, self.concat_axis + 1);
        b.unary(AllToAll { split_axis, concat_axis, ..self.clone() })
    }

    const TRAITS: Traits = Traits::movement(Cost::Loop);
}
