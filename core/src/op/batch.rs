//! The `batch` facet: how an op is mapped over an axis that it knows nothing of.
//!
//! `vmap` turns a function of one example into a function of many. Run example by example it
//! would be a loop; but nearly every op has an axis to spare, and the loop disappears into it.
//! `tanh` of a batch is `tanh`; a sum along axis 1 of one example is the sum along axis 2 of the
//! batch; the product of a batch of vectors with one matrix is one matrix product. The rule of an
//! op says which ordinary ops, once, do what the op, once for each example, would have done.
//! Since it gives ordinary ops, what it gives can be differentiated, mapped again, and fused; and
//! what is differentiated can be mapped.
//!
//! # What a rule is asked
//!
//! A rule sees the operands of an equation, of which some are *batched*: they hold one value for
//! each example, along a new axis in front. The others are *shared*: all examples have the same.
//! At least one is batched, since an equation of shared operands is computed once and no rule is
//! asked. It gives the results with the batch axis in front, whatever was batched. There is at
//! least one example.
//!
//! # What a good rule does
//!
//! - It gives, example by example, the bits of the op itself: it changes what runs together, not
//!   what is computed.
//! - It repeats a shared operand only where repeating is free, as `broadcast_in_dim` beside an
//!   elementwise op is. A shared weight stays one matrix, and the batch becomes rows of the other
//!   operand.
//! - It needs no number for the extent: the batch may be a dimension variable. Where an extent
//!   would have to be the product of two variables, the error says so.

use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::graph::tensor::Tensor;
use crate::graph::{Body, Region};
use crate::op::Op;
use crate::ty::TensorType;

/// What an output of a region shall be when the region runs on a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionOutput {
    /// One for each example, with the batch axis in front.
    Batched,
    /// The sum over all examples.
    Summed,
    /// Batched if it depends on what is batched, else shared.
    AsItIs,
}

/// Makes a region that runs on a batch: its inputs have the batch axis in front where the flags
/// say so. It tells which of the outputs have it.
pub type RegionMap<'a> = &'a dyn Fn(&Body, &[bool], &[RegionOutput]) -> Result<(Region, Vec<bool>)>;

/// What a batching rule sees.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// Operands; batched ones with the batch axis in front.
    pub operands: &'a [Tensor],
    /// Which operands are batched; at least one.
    pub batched: &'a [bool],
    /// How many examples there are.
    pub size: &'a Dim,
    /// Types of the results for one example.
    pub results: &'a [TensorType],
    /// What the op runs for one example.
    pub regions: &'a [Region],
    /// How a region is mapped.
    pub map_region: RegionMap<'a>,
}

/// Axes of one example as axes of a batch.
pub(super) fn shifted(axes: &[usize]) -> Vec<usize> {
    axes.iter().map(|axis| axis + 1).collect()
}

/// The batch axis, then axes of one example as axes of a batch.
pub(super) fn in_front(axes: &[usize]) -> Vec<usize> {
    std::iter::once(0).chain(shifted(axes)).collect()
}

/// `entry` for the batch axis before the entries for the axes of one example; a list that is
/// empty by default remains so.
pub(super) fn prepended<T: Clone>(entry: T, entries: &[T], default: bool) -> Vec<T> {
    if default && entries.is_empty() {
        return vec![];
    }
    std::iter::once(entry).chain(entries.iter().cloned()).collect()
}

/// `x` with axis `axis` in front.
pub(super) fn to_front(x: &Tensor, axis: usize) -> Tensor {
    moved(x, axis, 0)
}

/// `x` with axis `from` at position `to`, the others in order.
pub(super) fn moved(x: &Tensor, from: usize, to: usize) -> Tensor {
    if x.error().is_some() {
        return x.clone();
    }
    let mut order: Vec<usize> = (0..x.rank()).filter(|axis| *axis != from).collect();
    order.insert(to, from);
    x.permute(&order)
}

impl Batch<'_> {
    /// The shape of a batch of a shape.
    pub fn shape(&self, example: &[Dim]) -> Vec<Dim> {
        prepended(self.size.clone(), example, false)
    }

    /// Operand `i` with the batch axis; a shared one is repeated.
    pub fn operand(&self, i: usize) -> Tensor {
        if self.batched[i] { self.operands[i].clone() } else { self.repeat(&self.operands[i]) }
    }

    /// A value of one example, once for each.
    pub fn repeat(&self, x: &Tensor) -> Tensor {
        let dims: Vec<usize> = (1..=x.rank()).collect();
        x.broadcast_in_dim(self.shape(x.shape()), &dims)
    }

    /// The rank of operand `i` for one example.
    pub fn rank(&self, i: usize) -> usize {
        self.operands[i].rank() - usize::from(self.batched[i])
    }

    /// `op` on the only operand.
    pub fn unary(&self, op: impl Into<Op>) -> Vec<Tensor> {
        Tensor::apply_many(op, &[&self.operands[0]])
    }

    /// `op` on all operands with the batch axis.
    pub fn all(&self, op: impl Into<Op>) -> Vec<Tensor> {
        let operands: Vec<Tensor> = (0..self.operands.len()).map(|i| self.operand(i)).collect();
        Tensor::apply_many(op, &operands.iter().collect::<Vec<_>>())
    }

    /// An elementwise op, which takes a batch as it takes an example. Where an operand may be a
    /// scalar beside others that are not, one that all examples share stays a scalar, and a batch
    /// of them is repeated along the axes of the example.
    pub fn elementwise(&self, op: impl Into<Op>) -> Vec<Tensor> {
        let example = &self.results[0].shape;
        let operand = |i: usize| match (self.rank(i) == example.len(), self.batched[i]) {
            (true, _) => self.operand(i),
            (false, true) => self.operands[i].broadcast_in_dim(self.shape(example), &[0]),
            (false, false) => self.operands[i].clone(),
        };
        let operands: Vec<Tensor> = (0..self.operands.len()).map(operand).collect();
        Tensor::apply_many(op, &operands.iter().collect::<Vec<_>>())
    }

    /// `op` on the operands as they are, with regions that were mapped; all its results are
    /// batched.
    pub(super) fn with_regions(&self, op: impl Into<Op>, regions: Result<Vec<Region>>) -> Vec<Tensor> {
        match regions {
            Ok(regions) => Tensor::apply_with(op, &self.operands.iter().collect::<Vec<_>>(), regions),
            Err(error) => self.fail(error),
        }
    }

    /// Poison for every result: what cannot be mapped, and why. The driver adds where.
    pub fn fail(&self, error: Diagnostic) -> Vec<Tensor> {
        vec![Tensor::poisoned(error); self.results.len()]
    }
}
