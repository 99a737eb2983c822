//! Concatenations that are computed at the points of a part.
//!
//! Where every part has one shape, a point of it can compute and store its element of each. So a concatenation is elementwise in its parts, and a kernel
//! that computes something they are made of can compute them as well. (A concatenation that is a kernel by itself is cut likewise, when it is a
//! [nest](super::pieces).)

use super::pieces::{LEAST, MOST};
use crate::view::View;
use wengert_core::Op;
use wengert_core::nest::Affine;

/// The parts of a concatenation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Parts {
    pub count: usize,
    /// Along which axis they lie behind each other.
    axis: usize,
    /// The extent of each along it.
    length: usize,
}

impl Parts {
    /// The parts of an equation's result; nothing if it is no concatenation of a few parts of one shape, or if they are so short along the last axis that
    /// vectors would have no room.
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

    /// The index in the whole of the element at an index in a part.
    pub fn shifted(&self, index: &[Affine], part: usize) -> Vec<Affine> {
        let mut index = index.to_vec();
        index[self.axis] = index[self.axis].clone().offset((part * self.length) as i64);
        index
    }
}
