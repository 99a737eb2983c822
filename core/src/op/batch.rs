//! The `batch` facet: how an op is mapped over an additional axis.
//!
//! `vmap` turns a function of one example into a function of many. A loop over examples would do,
//! but nearly every op can take the batch as one more axis instead. `tanh` of a batch is `tanh`;
//! a sum along axis 1 of one example is the sum along axis 2 of the batch; the product of a batch
//! of vectors with one matrix is one matrix product. The rule of an op emits ordinary ops that
//! compute, in one application, the op's results for all examples. Its output can therefore be
//! differentiated, mapped again and fused; and derivatives can be mapped.
//!
//! # The input and output of a rule
//!
//! A rule gets the operands of an equation, some of which are *batched*: they hold one value for
//! each example, along a new axis in front. The others are *shared*: all examples have the same.
//! At least one is batched, since an equation of shared operands is computed once, without a
//! rule. All results have the batch axis in front, whichever operands are batched. There is at
//! least one example.
//!
//! # Requirements on a rule
//!
//! - For each example it gives the bits of the op itself. It changes only which elements are
//!   computed together.
//! - It repeats a shared operand only where that is free, as `broadcast_in_dim` beside an
//!   elementwise op is. A shared weight stays one matrix, and the batch becomes rows of the other
//!   operand.
//! - It works for an extent that is a dimension variable. Where an extent would be the product of
//!   two variables, it gives an error that says so.

use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::graph::{Body, Region};
use crate::op::Op;
use crate::ty::TensorType;

/// The form of a region's output when the region runs on a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RegionOutput {
    /// One for each example, with the batch axis in front.
    Batched,
    /// The sum over all examples.
    Summed,
    /// Batched if it depends on a batched input, else shared.
    AsItIs,
}

/// Makes a region that runs on a batch: inputs whose flag is set have the batch axis in front.
/// Also returns which outputs have it.
pub type RegionMap<'a> = &'a dyn Fn(&Body, &[bool], &[RegionOutput]) -> Result<(Region, Vec<bool>)>;

/// The arguments of a batching rule.
#[derive(Clone, Copy)]
pub struct Batch<'a> {
    /// Operands; batched ones with the batch axis in front.
    pub operands: &'a [Tensor],
    /// Which operands are batched; at least one.
    pub batched: &'a [bool],
    /// Number of examples.
    pub size: &'a Dim,
    /// Types of the results for one example.
    pub results: &'a [TensorType],
    /// The regions of the op for one example.
    pub regions: &'a [Region],
    /// Maps a region over the batch.
    pub map_region: RegionMap<'a>,
}

/// The axes of one example, renumbered for the batch.
pub(super) fn shifted(axes: &[usize]) -> Vec<usize> {
    axes.iter().map(|axis| axis + 1).collect()
}

/// The batch axis, then the axes of one example, renumbered for the batch.
pub(super) fn in_front(axes: &[usize]) -> Vec<usize> {
    std::iter::once(0).chain(shifted(axes)).collect()
}

/// `entry` for the batch axis, then the entries for the axes of one example. With `default`, an
/// empty list stays empty.
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

/// `x` with axis `from` at position `to` and the others in order.
pub(super) fn moved(x: &Tensor, from: usize, to: usize) -> Tensor {
    if x.error().is_some() {
        return x.clone();
    }
    let mut order: Vec<usize> = (0..x.rank()).filter(|axis| *axis != from).collect();
    order.insert(to, from);
    x.permute(&order)
}

impl Batch<'_> {
    /// The batched shape of an example's shape.
    pub fn shape(&self, example: &[Dim]) -> Vec<Dim> {
        prepended(self.size.clone(), example, false)
    }

    /// Operand `i` with the batch axis; a shared operand is repeated.
    pub fn operand(&self, i: usize) -> Tensor {
        if self.batched[i] { self.operands[i].clone() } else { self.repeat(&self.operands[i]) }
    }

    /// A shared value, repeated for each example.
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

    /// `op` on all operands, each with the batch axis.
    pub fn all(&self, op: impl Into<Op>) -> Vec<Tensor> {
        let operands: Vec<Tensor> = (0..self.operands.len()).map(|i| self.operand(i)).collect();
        Tensor::apply_many(op, &operands.iter().collect::<Vec<_>>())
    }

    /// An elementwise op, applied to the batch as to an example. Some ops take a scalar beside
    /// operands that are not scalar. A shared scalar stays a scalar; a batch of scalars is
    /// repeated along the axes of the example.
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

    /// `op` on the operands as they are, with mapped regions; all its results are batched.
    pub(super) fn with_regions(
        &self,
        op: impl Into<Op>,
        regions: Result<Vec<Region>>,
    ) -> Vec<Tensor> {
        match regions {
            Ok(regions) => {
                Tensor::apply_with(op, &self.operands.iter().collect::<Vec<_>>(), regions)
            }
            Err(error) => self.fail(error),
        }
    }

    /// Poisons every result with an error: what cannot be mapped, and why. The driver adds the
    /// location.
    pub fn fail(&self, error: Diagnostic) -> Vec<Tensor> {
        vec![Tensor::poisoned(error); self.results.len()]
    }
}
