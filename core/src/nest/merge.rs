//! Merging of adjacent axes that are only used together.
//!
//! Two axes `i: m`, `j: n`, one directly inside the other, are one axis of extent m·n if every
//! expression has them as a multiple of `n·i + j`. So an elementwise nest over `[64, 768]` is one
//! loop over 49152 elements, unless one of its accesses is broadcast.
//!
//! The condition on a pair does not depend on other pairs, so the merged axes are the maximal
//! runs of adjacent axes in which each pair meets it.

use super::{Affine, AxisId, Term};

/// Two axes, one directly inside the other.
#[derive(Clone, Copy, Debug)]
pub struct AxisPair {
    /// The outer axis.
    pub outer: AxisId,
    /// The inner axis.
    pub inner: AxisId,
    /// Extent of the inner axis.
    pub extent: i64,
}

impl AxisPair {
    /// The expression over the merged axis, which keeps the id of the outer one. `None` if it
    /// does not have the two as one, or if the coefficients overflow.
    pub fn merge(self, expression: &Affine) -> Option<Affine> {
        let step = expression.coefficient(self.inner);
        if step.checked_mul(self.extent)? != expression.coefficient(self.outer) {
            return None;
        }
        let mut sum = Affine::constant(expression.constant);
        for (term, factor) in &expression.terms {
            let value = match term {
                Term::Axis(axis) if *axis == self.outer => continue,
                Term::Axis(axis) if *axis == self.inner => Affine::axis(self.outer),
                Term::Axis(_) | Term::Reg(_) => {
                    Affine { constant: 0, terms: vec![(term.clone(), 1)] }
                }
                Term::FloorDiv(inner, divisor) => self.merge(inner)?.floor_div(*divisor),
                Term::Mod(inner, divisor) => self.merge(inner)?.modulo(*divisor),
            };
            sum = sum.add(&value.scale(*factor));
        }
        Some(sum)
    }
}

/// Adjacent axes that are one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergedAxis {
    /// The axes, outermost first.
    pub axes: Vec<AxisId>,
    /// Product of their extents.
    pub extent: usize,
}

/// Merges axes that are nested in this order. `are_one` says whether every expression has a pair
/// as one. Axes of extent 1 are dropped.
pub fn merge_axes(
    order: &[AxisId],
    extent: impl Fn(AxisId) -> usize,
    are_one: impl Fn(AxisPair) -> bool,
) -> Vec<MergedAxis> {
    let mut merged: Vec<MergedAxis> = Vec::new();
    for outer in order.iter().copied().filter(|axis| extent(*axis) != 1).rev() {
        if let Some(last) = merged.last_mut() {
            let inner = *last.axes.last().expect("no merged axis is empty");
            if are_one(AxisPair { outer, inner, extent: last.extent as i64 }) {
                last.axes.insert(0, outer);
                last.extent *= extent(outer);
                continue;
            }
        }
        merged.push(MergedAxis { axes: vec![outer], extent: extent(outer) });
    }
    merged.reverse();
    merged
}
