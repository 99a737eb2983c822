//! Cotangents of values that are cut into parts.
//!
//! The transpose of a slice is a cotangent padded with zeros. If a value is sliced several times,
//! these are added. For parts that cover the value without overlap, that takes one pass over the
//! whole value per part, to add zeros. A later pass cannot remove these additions (−0.0 + 0.0 is
//! 0.0). But differentiation can emit the sum directly: the concatenation of the parts.

use super::cotangent::{Cotangent, Sums};
use super::emit_one;
use std::collections::BTreeMap;
use wengert_core::build::Scope;
use wengert_core::graph::{Body, ValueId};
use wengert_core::op::Concatenate;
use wengert_core::{Dim, IdVec, Result, Tensor};

/// The values of a linear program that are only used in parts which cover them, and the known
/// cotangents of those parts.
pub(super) struct Parts {
    cut: BTreeMap<ValueId, Cut>,
}

/// A value cut along an axis.
struct Cut {
    axis: usize,
    /// The equations that take the parts, in the order of the axis, and their operands'
    /// cotangents.
    parts: Vec<(usize, Option<Tensor>)>,
}

impl Parts {
    /// The values of a body that are cut into parts.
    pub fn new(body: &Body, is_linear: &IdVec<ValueId, bool>) -> Self {
        let mut takers: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for (position, equation) in body.equations.iter().enumerate() {
            if equation.op.part().is_some() && is_linear[equation.operands[0]] {
                takers.entry(equation.operands[0]).or_default().push(position);
            }
        }
        let cut =
            |(value, takers): (ValueId, Vec<usize>)| Some((value, Cut::new(body, value, &takers)?));
        Parts { cut: takers.into_iter().filter_map(cut).collect() }
    }

    /// Records the cotangent that the equation at `position` gives to its operand, if that is a
    /// part. Returns whether it is.
    pub fn keep(&mut self, of: ValueId, position: usize, cotangent: &Tensor) -> bool {
        let part = self
            .cut
            .get_mut(&of)
            .and_then(|cut| cut.parts.iter_mut().find(|part| part.0 == position));
        if let Some((_, kept)) = part {
            *kept = Some(cotangent.clone());
            return true;
        }
        false
    }

    /// Gives a value the final cotangent that its parts make up. If some parts have no cotangent,
    /// the others are transposed one by one by `apart`.
    pub fn settle(
        &mut self,
        body: &Body,
        scope: &Scope,
        sums: &mut Sums<'_>,
        value: ValueId,
        apart: impl Fn(usize, Tensor) -> Result<Option<Cotangent>>,
    ) -> Result<()> {
        let Some(cut) = self.cut.remove(&value) else { return Ok(()) };
        let first = body.equations[cut.parts[0].0].location;
        let all: Option<Vec<Tensor>> = cut.parts.iter().map(|(_, kept)| kept.clone()).collect();
        if let Some(all) = all {
            let concatenate = || emit_one(Concatenate { axis: cut.axis }.into(), &all);
            let whole = scope.derived(first, "transpose(slice)", concatenate)?;
            return sums.give(scope, value, Cotangent::plus(whole), first);
        }
        for (position, kept) in cut.parts.into_iter().rev() {
            let Some(cotangent) = kept.map(|kept| apart(position, kept)).transpose()?.flatten()
            else {
                continue;
            };
            sums.give(scope, value, cotangent, body.equations[position].location)?;
        }
        Ok(())
    }
}

impl Cut {
    /// A cut, if several takers cut the value along one axis, with no overlap and no gap.
    fn new(body: &Body, value: ValueId, takers: &[usize]) -> Option<Cut> {
        if takers.len() < 2 {
            return None;
        }
        let (shape, zero) = (&body.ty(value).shape, Dim::constant(0));
        let part = |position: usize| body.equations[position].op.part().expect("it takes a part");
        let is_cut = |position: usize, axis: usize| {
            part(position).start[axis] != zero || part(position).limit[axis] != shape[axis]
        };
        let axis = (0..shape.len()).find(|axis| is_cut(takers[0], *axis))?;
        let mut by_start: BTreeMap<&Dim, usize> = BTreeMap::new();
        for position in takers {
            if (0..shape.len()).any(|other| other != axis && is_cut(*position, other)) {
                return None;
            }
            by_start.insert(&part(*position).start[axis], *position);
        }
        let (mut parts, mut at) = (Vec::with_capacity(takers.len()), &zero);
        while at != &shape[axis] {
            let position = by_start.remove(at)?;
            parts.push((position, None));
            at = &part(position).limit[axis];
        }
        (parts.len() == takers.len()).then_some(Cut { axis, parts })
    }
}
