//! `axis_index`: a rank's index along axes of the mesh.

use super::{Collective, CollectiveKind, Group, call, check_axes};
use crate::mesh::Varying;
use crate::op::prelude::*;

attributes! {
    /// `axis_index {over=["data"]}`: the rank's position among those along `over`, an i32. Over
    /// several axes it is the row-major index: the last axis is the fastest.
    AxisIndex {
        /// Axes of the mesh.
        over: Vec<String>,
    }
}

impl AxisIndex {
    fn on_group<R: Real>(&self, group: &Group<'_, R>) -> Result<Vec<Array<R>>> {
        group.each(|rank, _| Cell::Bits(rank as i64))
    }

    fn lowered<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        let kind = CollectiveKind::AxisIndex;
        Compute::Call(call::Collective::whole(kind, &self.over, DType::I32, 1).into())
    }
}

impl Operation for AxisIndex {
    named!("axis_index", "The rank's index along `over`, an i32.");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [] = t.exactly()?;
        check_axes(&self.over)?;
        Ok(vec![TensorType::scalar(DType::I32).with_varying(Varying::over(&self.over))])
    }

    exchanges!();

    fn collective(&self) -> Option<Collective<'_>> {
        Some(Collective { exchanges: false, ..Collective::exchange(&self.over) })
    }

    const DERIVATIVE: Derivative = Derivative::Zero;

    const TRAITS: Traits = Traits::of(Cost::Free);
}
