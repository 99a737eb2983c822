//! Concatenations computed at the points of a part.
//!
//! If all parts have one shape, each point of it can compute and store its element of every part.
//! So a concatenation is elementwise in its parts, and a kernel that computes operands of the
//! parts can compute the concatenation as well. (A concatenation that is a kernel of its own is
//! cut in the same way after lowering, by `lower::pieces`.)

use crate::view::View;
use wengert_core::Op;
use wengert_core::nest::Affine;

/// Maximum number of parts of an axis.
const MOST: usize = 8;
/// Minimum length of a part of the last axis, along which executors vectorize.
pub(crate) const LEAST: usize = 16;

/// The parts of a concatenation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Parts {
    pub count: usize,
    /// The axis of concatenation.
    axis: usize,
    /// The extent of each part along it.
    length: usize,
}

impl Parts {
    /// The parts of an equation's result. `None` if it is not a concatenation of a few parts of
    /// one shape, or if they are too short along the last axis to vectorize.
    pub fn of(view: &View<'_>, equation: usize) -> Option<Parts> {
        let equation = &view.body.equations[equation];
        let Op::Concatenate(op) = &equation.op else { return None };
        let extents = &view.extents[*equation.operands.first()?];
        let (count, length) = (equation.operands.len(), extents[op.axis]);
        let alike = equation.operands.iter().all(|operand| &view.extents[*operand] == extents);
        let last = extents[op.axis + 1..].iter().all(|extent| *extent == 1);
        let fits = (2..=MOST).contains(&count) && length >= if last { LEAST } else { 1 };
        (alike && fits && !extents.contains(&0)).then_some(Parts { count, axis: op.axis, length })
    }

    /// The index in the whole, from an index in a part.
    pub fn shifted(&self, index: &[Affine], part: usize) -> Vec<Affine> {
        let mut index = index.to_vec();
        index[self.axis] = index[self.axis].clone().offset((part * self.length) as i64);
        index
    }
}
