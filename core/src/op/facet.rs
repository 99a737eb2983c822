//! The interface of an op: its facets, each of which takes one context.
//!
//! An op is defined by what differs from the defaults of [`Operation`]. An elementwise op states
//! its traits, `infer`, `evaluate`, `compute` and its derivative; its batch rule follows. An op
//! that is not elementwise adds a batch rule. Name, documentation and attributes come from the
//! macros of `define.rs`.

use super::catalogue::Entry;
use super::collective::{Collective, Group};
use super::control::lockstep::Lockstep;
use super::{Attribute, Attributes, Batch, Compute, Cost, Derivative, Lookup, Op};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::ty::TensorType;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Properties of an op that passes may query, so that they need not match on it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traits {
    /// Cost of one element of the result, without the cost of its operands' elements.
    pub cost: Cost,
    /// Every operand is accessed at the index of the result's element and has the result's shape,
    /// or is a scalar (`select`, `clamp`). For `bitcast_convert_type` this holds only between
    /// dtypes of one size; passes see the other case by the differing shapes.
    pub elementwise: bool,
    /// Each element of the results is an element of the operands as it is, in general at another
    /// place. Choices by a condition or by an order are no movement.
    pub movement: bool,
    /// Swapping the operands of a binary op changes no bit of the result.
    pub commutative: bool,
}

impl Traits {
    /// An op that is not elementwise.
    pub const fn of(cost: Cost) -> Self {
        Traits { cost, elementwise: false, movement: false, commutative: false }
    }

    /// An op that moves elements.
    pub const fn movement(cost: Cost) -> Self {
        Traits { movement: true, ..Traits::of(cost) }
    }

    /// An elementwise op.
    pub const fn elementwise(cost: Cost) -> Self {
        Traits { elementwise: true, ..Traits::of(cost) }
    }
}

/// The context of `infer`.
#[derive(Clone, Copy)]
pub struct Typing<'a> {
    /// Types of the operands.
    pub operands: &'a [TensorType],
    /// The regions.
    pub regions: &'a [Region],
}

impl<'a> Typing<'a> {
    /// The operands, of which there must be `N`.
    pub fn exactly<const N: usize>(&self) -> Result<[&'a TensorType; N]> {
        all("operand", self.operands)
    }

    /// The regions, of which there must be `N`.
    pub fn exactly_regions<const N: usize>(&self) -> Result<[&'a Region; N]> {
        all("region", self.regions)
    }
}

fn all<'a, T, const N: usize>(what: &str, found: &'a [T]) -> Result<[&'a T; N]> {
    if found.len() == N {
        return Ok(std::array::from_fn(|i| &found[i]));
    }
    let (s, found) = (if N == 1 { "" } else { "s" }, found.len());
    Err(Diagnostic::new(format!("takes {N} {what}{s}, found {found}")))
}

/// The context of `evaluate`. Operands and attributes have passed `infer` and hold no dimension
/// variables.
#[derive(Clone, Copy)]
pub struct Evaluation<'a, R> {
    /// The operands.
    pub operands: &'a [Array<R>],
    /// Types of the results.
    pub results: &'a [TensorType],
    /// The regions.
    pub regions: Regions<'a>,
}

impl<R: Real> Evaluation<'_, R> {
    /// Extents of the first result.
    pub fn extents(&self) -> Vec<usize> {
        self.results[0].extents().expect("the interpreter runs bound functions only")
    }

    /// The only result, from its cells.
    pub fn result(&self, cells: Cells<R>) -> Result<Vec<Array<R>>> {
        Ok(vec![Array::new(self.results[0].dtype, self.extents(), cells)])
    }

    /// The only result, from its cell at each index.
    pub fn build(&self, cell: impl FnMut(&[usize]) -> Cell<R>) -> Result<Vec<Array<R>>> {
        Ok(vec![Array::from_fn(&self.results[0], cell)?])
    }

    /// The only result, from the cell of the only operand at the same index.
    pub fn map(&self, cell: impl FnMut(&Cell<R>) -> Result<Cell<R>>) -> Result<Vec<Array<R>>> {
        self.result(Cells::try_collect(self.operands[0].cells.iter().map(cell))?)
    }

    /// The only result, from the cells of two operands at the same index.
    pub fn zip(
        &self,
        mut cell: impl FnMut(&Cell<R>, &Cell<R>) -> Result<Cell<R>>,
    ) -> Result<Vec<Array<R>>> {
        let pairs = self.operands[0].cells.iter().zip(self.operands[1].cells.iter());
        self.result(Cells::try_collect(pairs.map(|(a, b)| cell(a, b)))?)
    }
}

/// The context of `compute`: types without dimension variables.
#[derive(Clone, Copy)]
pub struct Lowering<'t, 'a> {
    /// Types of the operands.
    pub operands: &'t [TensorType],
    /// Types of the results.
    pub results: &'t [TensorType],
    /// The regions, which the lowering may refer to.
    pub regions: &'a [Region],
}

impl Lowering<'_, '_> {
    /// Extents of an operand.
    pub fn extents(&self, operand: usize) -> Vec<usize> {
        self.operands[operand].extents().expect("compute is asked for bound types only")
    }

    /// Extents of the first result.
    pub fn result_extents(&self) -> Vec<usize> {
        self.results[0].extents().expect("compute is asked for bound types only")
    }
}

/// How the axes of a mesh over which an op's results vary follow from its operands
/// ([`crate::mesh`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Varies {
    /// All operands vary over the same axes, and so do the results. The op does not see the axes.
    Alike,
    /// The op compares whole types, those of its operands with those of its regions.
    ByRegions,
    /// The op is a collective and has a rule of its own.
    Own,
}

/// The interface of an op: its facets.
pub trait Operation: Clone + Into<Op> {
    /// The derivative rule, for the catalogue too. An op whose rule depends on its attributes
    /// has its usual one here, and overrides [`derivative`](Operation::derivative). An op
    /// without a rule cannot be differentiated.
    const DERIVATIVE: Derivative = Derivative::Opaque;

    /// The traits, if they do not depend on attributes. The default is the costliest: no pass
    /// recomputes such an op.
    const TRAITS: Traits = Traits::of(Cost::Loop);

    /// Number of regions.
    const REGIONS: RangeInclusive<usize> = 0..=0;

    /// How the axes over which the results vary follow from the operands.
    const VARIES: Varies = Varies::Alike;

    /// Name in text and files.
    fn name(&self) -> &'static str;

    /// The types of the results. Errors: the operands do not fit the op.
    fn infer(&self, _: &Typing<'_>) -> Result<Vec<TensorType>>;

    /// The results' elements.
    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>>;

    /// The result of a collective on each rank of a group. The interpreter asks collectives only.
    fn exchange<R: Real>(&self, _: &Group<'_, R>) -> Result<Vec<Array<R>>> {
        panic!("{} is no collective that the ranks of a group run together", self.name())
    }

    /// The results of an op with regions on each of a set of ranks. The interpreter asks it where
    /// regions hold collectives.
    fn lockstep<R: Real>(&self, _: Lockstep<'_, R>) -> Result<Vec<Vec<Array<R>>>> {
        Err(Diagnostic::new(format!("{}: its regions can hold no collectives", self.name())))
    }

    /// The axes of the mesh that the op names, if it is a collective.
    fn collective(&self) -> Option<Collective<'_>> {
        None
    }

    /// The lowering.
    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a>;

    /// The derivative rule.
    fn derivative(&self) -> Derivative {
        Self::DERIVATIVE
    }

    /// The op on a batch of examples: results with the batch axis in front. Elementwise ops share
    /// this rule. An op without operands is the same for every example, so it needs none.
    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        assert!(self.traits().elementwise, "{} has no batch rule", self.name());
        b.elementwise(self.clone())
    }

    /// See [`Traits`].
    fn traits(&self) -> Traits {
        Self::TRAITS
    }

    /// The operands that hold indices, if an index out of range is a mistake of the user's: see
    /// [`Lookup`].
    fn lookup(&self, _operands: &[TensorType]) -> Option<Lookup> {
        None
    }

    /// The attributes; those equal to their default are omitted.
    fn attributes(&self) -> Attributes;

    /// The op of that name. Its attributes are taken out of the map. `None` if the name is not
    /// one of this family.
    fn parse(name: &str, attributes: &mut BTreeMap<String, Attribute>) -> Option<Result<Self>>;

    /// Visits every dimension in the attributes.
    fn visit_dims(&self, _visit: &mut dyn FnMut(&Dim)) {}

    /// Replaces every dimension in the attributes by its image.
    fn map_dims(&mut self, _map: &mut dyn FnMut(&Dim) -> Result<Dim>) -> Result<()> {
        Ok(())
    }

    /// The catalogue entries of this family.
    fn entries() -> Vec<Entry>;
}
