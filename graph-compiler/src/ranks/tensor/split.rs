//! Divisions of a value along an axis.

use super::super::axes::{Along, Fate, Typed, extents};
use crate::ranks::rewrite::{part_of, part_of_rank};
use std::fmt;
use std::str::FromStr;
use wengert_core::{Diagnostic, Dim, Op, Result, Tensor, TensorType};

/// The division of a value along an axis.
///
/// The axis consists of `blocks` equal blocks. A rank has its part of each of them, side by side.
/// One block is the usual case, where ranks have consecutive parts. Three blocks divide matrices
/// of queries, keys and values that lie side by side: each rank has columns of all three.
///
/// It is made from the number of the axis, or parsed from a text: `1`, or `1/3` for three blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Split {
    /// The axis.
    pub axis: usize,
    /// The number of blocks, at least 1.
    pub blocks: usize,
}

impl From<usize> for Split {
    fn from(axis: usize) -> Self {
        Split { axis, blocks: 1 }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.blocks {
            1 => write!(f, "{}", self.axis),
            blocks => write!(f, "{}/{blocks}", self.axis),
        }
    }
}

impl FromStr for Split {
    type Err = Diagnostic;

    fn from_str(text: &str) -> Result<Self> {
        let (axis, blocks) = text.split_once('/').unwrap_or((text, "1"));
        match (axis.parse(), blocks.parse()) {
            (Ok(axis), Ok(blocks)) if blocks > 0 => Ok(Split { axis, blocks }),
            _ => Err(Diagnostic::new(format!("`{text}` is no division of a variable")).help(
                "give the number of an axis, such as 1, or with the number of matrices that lie \
                 side by side in it, such as 1/3",
            )),
        }
    }
}

impl Split {
    /// This many blocks.
    #[must_use]
    pub fn blocks(self, blocks: usize) -> Self {
        Split { blocks, ..self }
    }

    /// Whether each block of the axis falls into as many equal parts as there are ranks.
    pub(super) fn divides(&self, ty: &TensorType, ranks: usize) -> bool {
        let extent = ty.shape.get(self.axis).and_then(Dim::as_extent);
        let parts = self.blocks.checked_mul(ranks);
        extent.is_some_and(|n| n > 0 && parts.is_some_and(|p| p > 0 && n.is_multiple_of(p)))
    }

    /// The type of a rank's part.
    pub(super) fn part_of(&self, ty: &TensorType, ranks: usize) -> TensorType {
        part_of(ty, self.axis, ranks)
    }

    /// The rank's part of a whole tensor.
    pub(super) fn slice(&self, x: &Tensor, over: &str, ranks: usize) -> Tensor {
        self.in_blocks(x, |x, axis| part_of_rank(x, axis, &[over], ranks))
    }

    /// The whole tensor of which each rank has a part.
    pub(super) fn gather(&self, x: &Tensor, over: &str) -> Tensor {
        self.in_blocks(x, |x, axis| x.all_gather_invariant(over, axis))
    }

    /// A change of the extent of each block. `change` is given a tensor and the axis within blocks.
    fn in_blocks(&self, x: &Tensor, change: impl FnOnce(&Tensor, usize) -> Tensor) -> Tensor {
        let axis = self.axis;
        if self.blocks == 1 {
            return change(x, axis);
        }
        let mut shape = x.shape().to_vec();
        let extent = |dim: &Dim| dim.as_extent().expect("the function is bound");
        let inner = extent(&shape[axis]) / self.blocks;
        shape.splice(axis..=axis, [Dim::from(self.blocks), Dim::from(inner)]);
        let changed = change(&x.reshape(shape), axis + 1);
        if changed.error().is_some() {
            return changed;
        }
        let mut shape = changed.shape().to_vec();
        let joined = self.blocks * extent(&shape[axis + 1]);
        shape.splice(axis..=axis + 1, [Dim::from(joined)]);
        changed.reshape(shape)
    }

    /// The same division of the elements of a reshaped value. None if no axis falls into parts for
    /// the ranks as this one does.
    pub(super) fn reshaped(
        &self,
        from: &TensorType,
        to: &TensorType,
        ranks: usize,
    ) -> Option<Split> {
        let (from, to) = (extents(from), extents(to));
        let outer = from[..self.axis].iter().product::<usize>() * self.blocks;
        (0..to.len()).find_map(|axis| {
            let before: usize = to[..axis].iter().product();
            if before == 0 || !outer.is_multiple_of(before) {
                return None;
            }
            let blocks = outer / before;
            let parts = blocks.checked_mul(ranks)?;
            let falls = to[axis] > 0 && parts > 0 && to[axis].is_multiple_of(parts);
            falls.then_some(Split { axis, blocks })
        })
    }
}

/// An op on parts: the division of each operand, and of each result.
#[derive(Clone, Debug)]
pub(super) struct Follow {
    /// The op along the axis, which gives its attributes.
    pub along: Along,
    /// The number of blocks.
    pub blocks: usize,
    /// The division of the only operand of a reshape, which has blocks of its own.
    pub reshaped: Option<Split>,
}

impl Follow {
    /// The division of an operand; none if it is whole.
    pub fn operand(&self, number: usize) -> Option<Split> {
        self.reshaped
            .or_else(|| self.along.operands[number].map(|axis| Split { axis, blocks: self.blocks }))
    }

    /// The division of a result that is kept along an axis.
    pub fn kept(&self, axis: usize) -> Split {
        Split { axis, blocks: self.blocks }
    }

    /// A reshape from one division to another.
    fn of_reshape(from: Split, to: Split) -> Self {
        let along = Along::new(vec![Some(from.axis)], Fate::Kept(to.axis));
        Follow { along, blocks: to.blocks, reshaped: Some(from) }
    }
}

/// The best way of computing an op by part: the one that keeps the most elements of divided
/// operands in place. None if each would be gathered.
pub(super) fn follow(typed: &Typed<'_>, of: &[Option<Split>], ranks: usize) -> Option<Follow> {
    if let (Op::Reshape(_), [Some(from)]) = (typed.op, of) {
        let to = from.reshaped(&typed.operands[0], &typed.results[0], ranks)?;
        return Some(Follow::of_reshape(*from, to));
    }
    let mut best: Option<(usize, Follow)> = None;
    for along in typed.axes(ranks) {
        if along.zero.is_some() {
            continue;
        }
        let matches =
            |i: &usize| of[*i].is_some_and(|split| along.operands[*i] == Some(split.axis));
        let elements = |i: usize| extents(&typed.operands[i]).iter().product::<usize>();
        let matching = (0..of.len()).filter(matches);
        let Some(greatest) = matching.clone().max_by_key(|i| (elements(*i), usize::MAX - i)) else {
            continue;
        };
        let blocks = of[greatest].map_or(1, |split| split.blocks);
        let kept = matching.filter(|i| of[*i].is_some_and(|split| split.blocks == blocks));
        let kept = kept.map(elements).sum();
        let found = Follow { along, blocks, reshaped: None };
        let better = best.as_ref().is_none_or(|(most, _)| kept > *most);
        if better && fits(typed, &found, ranks) {
            best = Some((kept, found));
        }
    }
    best.map(|(_, found)| found)
}

/// How the only result of an op is computed for a part.
pub(super) fn computes(typed: &Typed<'_>, split: Split, ranks: usize) -> Option<Follow> {
    if let Op::Reshape(_) = typed.op {
        let from = split.reshaped(&typed.results[0], &typed.operands[0], ranks)?;
        return Some(Follow::of_reshape(from, split));
    }
    let along = typed.computes(split.axis, ranks)?;
    let found = Follow { along, blocks: split.blocks, reshaped: None };
    fits(typed, &found, ranks).then_some(found)
}

/// Whether all operands fall into parts, and parts of one rank belong together: where heads share
/// keys, only consecutive heads do.
fn fits(typed: &Typed<'_>, found: &Follow, ranks: usize) -> bool {
    let places = || (0..typed.operands.len()).filter_map(|i| Some((i, found.operand(i)?)));
    let divides = |(i, split): (usize, Split)| split.divides(&typed.operands[i], ranks);
    let extent = |(i, split): (usize, Split)| typed.operands[i].shape[split.axis].clone();
    let same = places().all(|place| places().next().is_none_or(|f| extent(f) == extent(place)));
    places().all(divides) && (same || found.blocks == 1)
}
