//! Lowers a nest to the executor's form: accesses with flat offsets, over as few axes as
//! possible.
//!
//! Buffers are dense, so an access is one offset: the sum of its indices times the strides. Axes
//! of extent 1 are dropped, and adjacent axes that all offsets have as one are merged
//! ([`wengert_core::nest::merge`]). An elementwise nest of any rank often becomes a single axis.

use super::group::Group;
use super::sum::{Sum, Term};
use crate::kernels::chain::Link;
use std::ops::Range;
use wengert_core::nest::bounds::Ranges;
use wengert_core::nest::merge::{AxisPair, MergedAxis, merge_axes};
use wengert_core::nest::{Access, AxisId, Instr, Nest, Prefix, Reduction, Reg, ScalarOp};
use wengert_core::{Id, Scalar, nest};

/// A nest with flat accesses and merged axes.
#[derive(Clone)]
pub(super) struct FlatNest<'n> {
    pub nest: &'n Nest,
    /// By axis; a merged axis keeps the id of the innermost one.
    pub extents: Vec<usize>,
    pub parallel: Vec<AxisId>,
    pub phases: Vec<Phase<'n>>,
}

#[derive(Clone)]
pub(super) struct Phase<'n> {
    pub axes: Vec<AxisId>,
    pub body: Vec<Op<'n>>,
    pub reductions: &'n [Reduction],
    /// Whether there are prefixes, along the last axis, which is then not merged.
    pub prefix: bool,
    /// Whether the last axis runs backwards.
    pub reverse: bool,
}

#[derive(Clone)]
pub(super) enum Op<'n> {
    Scalar {
        result: Reg,
        op: ScalarOp,
        operands: &'n [Reg],
    },
    /// `links[0]` on the first two operands, then each link on the previous value and its own
    /// operand.
    Chain {
        result: Reg,
        links: Vec<Link>,
        operands: Vec<Reg>,
    },
    /// 0 where the first operand is 0, else the product of the other two.
    Product {
        result: Reg,
        operands: [Reg; 3],
    },
    Const {
        result: Reg,
        value: Scalar,
    },
    Index {
        result: Reg,
        value: Sum,
    },
    Test {
        result: Reg,
        guards: Vec<Guard>,
    },
    Load {
        result: Reg,
        place: Place,
        fill: Option<Reg>,
    },
    Store {
        place: Place,
        value: Reg,
    },
    Prefix(&'n Prefix),
    /// Several other ops, as native code.
    Group(Box<Group>),
}

/// An element of a buffer, under conditions.
#[derive(Clone)]
pub(super) struct Place {
    pub buffer: nest::BufferId,
    /// Elements from the start of the buffer.
    pub offset: Sum,
    pub guards: Vec<Guard>,
}

/// `low <= value < high`.
#[derive(Clone)]
pub(super) struct Guard {
    pub value: Sum,
    pub low: i64,
    pub high: i64,
}

impl<'n> FlatNest<'n> {
    pub fn new(nest: &'n Nest) -> Self {
        let phases = nest.phases.iter().map(|phase| {
            let prefixes = phase.body.iter().filter_map(|i| match i {
                Instr::Prefix(prefix) => Some(prefix.reverse),
                _ => None,
            });
            let mut prefixes = prefixes.peekable();
            Phase {
                axes: phase.axes.clone(),
                reductions: &phase.reductions,
                prefix: prefixes.peek().is_some(),
                reverse: prefixes.any(|reverse| reverse),
                body: phase.body.iter().map(|instr| lower(nest, instr)).collect(),
            }
        });
        let mut lowered = FlatNest {
            nest,
            extents: nest.axes.iter().map(|(_, axis)| axis.extent).collect(),
            parallel: nest.parallel.clone(),
            phases: phases.collect(),
        };
        lowered.drop_single();
        lowered.merge();
        lowered
    }

    /// Extent of an axis.
    pub fn extent(&self, axis: AxisId) -> usize {
        self.extents[axis.index()]
    }

    fn drop_single(&mut self) {
        let extents = &self.extents;
        self.parallel.retain(|a| extents[a.index()] != 1);
        for phase in &mut self.phases {
            let last = phase.axes.last().copied().filter(|_| phase.prefix);
            phase.axes.retain(|a| extents[a.index()] != 1 || Some(*a) == last);
            for sum in phase.body.iter_mut().flat_map(Op::sums_mut) {
                sum.visit_mut(&mut |s| s.axes.retain(|(a, _)| extents[a.index()] != 1));
            }
        }
    }

    fn merge(&mut self) {
        let parallel = self.merged(&self.parallel, &self.phases);
        self.parallel = self.adopt(parallel, 0..self.phases.len());
        for at in 0..self.phases.len() {
            let phase = &self.phases[at];
            let end = phase.axes.len() - usize::from(phase.prefix);
            let merged = self.merged(&phase.axes[..end], std::slice::from_ref(phase));
            let last = self.phases[at].axes.split_off(end);
            let merged = self.adopt(merged, at..at + 1);
            self.phases[at].axes = merged.into_iter().chain(last).collect();
        }
    }

    /// Axes as they can be merged in these phases.
    fn merged(&self, axes: &[AxisId], phases: &[Phase<'n>]) -> Vec<MergedAxis> {
        let are_one = |pair: AxisPair| {
            let mut all = true;
            for sum in phases.iter().flat_map(|phase| &phase.body).flat_map(Op::sums) {
                sum.visit(&mut |s| {
                    let step = s.coefficient(pair.inner).wrapping_mul(pair.extent);
                    all &= s.coefficient(pair.outer) == step;
                });
            }
            all
        };
        merge_axes(axes, |axis| self.extent(axis), are_one)
    }

    /// Replaces merged axes by the innermost one of each, in these phases.
    fn adopt(&mut self, merged: Vec<MergedAxis>, phases: Range<usize>) -> Vec<AxisId> {
        let adopt = |axis: MergedAxis| {
            let (inner, outer) = axis.axes.split_last().expect("no merged axis is empty");
            self.extents[inner.index()] = axis.extent;
            for phase in &mut self.phases[phases.clone()] {
                outer.iter().for_each(|axis| phase.forget(*axis));
            }
            *inner
        };
        merged.into_iter().map(adopt).collect()
    }
}

impl Phase<'_> {
    fn forget(&mut self, axis: AxisId) {
        for sum in self.body.iter_mut().flat_map(Op::sums_mut) {
            sum.visit_mut(&mut |s| s.axes.retain(|(a, _)| *a != axis));
        }
    }
}

impl Op<'_> {
    /// All expressions in it.
    pub fn sums(&self) -> Box<dyn Iterator<Item = &Sum> + '_> {
        match self {
            Op::Index { value, .. } => Box::new(std::iter::once(value)),
            Op::Test { guards, .. } => Box::new(guards.iter().map(|g| &g.value)),
            Op::Load { place, .. } | Op::Store { place, .. } => Box::new(
                std::iter::once(&place.offset).chain(place.guards.iter().map(|g| &g.value)),
            ),
            Op::Group(group) => Box::new(group.places().flat_map(|(place, _)| {
                std::iter::once(&place.offset).chain(place.guards.iter().map(|g| &g.value))
            })),
            _ => Box::new(std::iter::empty()),
        }
    }

    fn sums_mut(&mut self) -> Box<dyn Iterator<Item = &mut Sum> + '_> {
        match self {
            Op::Index { value, .. } => Box::new(std::iter::once(value)),
            Op::Test { guards, .. } => Box::new(guards.iter_mut().map(|g| &mut g.value)),
            Op::Load { place, .. } | Op::Store { place, .. } => Box::new(
                std::iter::once(&mut place.offset)
                    .chain(place.guards.iter_mut().map(|g| &mut g.value)),
            ),
            Op::Group(group) => Box::new(group.places_mut().flat_map(|place| {
                std::iter::once(&mut place.offset)
                    .chain(place.guards.iter_mut().map(|g| &mut g.value))
            })),
            _ => Box::new(std::iter::empty()),
        }
    }

    /// The elements that it loads.
    pub fn loaded(&self) -> impl Iterator<Item = &Place> {
        self.touched(false)
    }

    /// Where it stores.
    pub fn stored(&self) -> impl Iterator<Item = &Place> {
        self.touched(true)
    }

    fn touched(&self, stores: bool) -> impl Iterator<Item = &Place> {
        let (own, group) = match self {
            Op::Load { place, .. } if !stores => (Some(place), None),
            Op::Store { place, .. } if stores => (Some(place), None),
            Op::Group(group) => (None, Some(group)),
            _ => (None, None),
        };
        let grouped = group.into_iter().flat_map(|group| group.places());
        let grouped = grouped.filter(move |(_, written)| *written == stores);
        own.into_iter().chain(grouped.map(|(place, _)| place))
    }

    /// Registers that it defines.
    pub fn results(&self) -> &[Reg] {
        match self {
            Op::Scalar { result, .. }
            | Op::Chain { result, .. }
            | Op::Product { result, .. }
            | Op::Const { result, .. }
            | Op::Index { result, .. }
            | Op::Test { result, .. }
            | Op::Load { result, .. } => std::slice::from_ref(result),
            Op::Store { .. } => &[],
            Op::Prefix(prefix) => &prefix.results,
            Op::Group(group) => &group.results,
        }
    }

    /// True for an instruction that computes lane by lane, and reads all operands before it
    /// writes the result.
    pub fn is_arithmetic(&self) -> bool {
        matches!(self, Op::Scalar { .. } | Op::Chain { .. } | Op::Product { .. })
    }

    /// The registers whose blocks it reads as elements: operands, fills, stored and scanned
    /// values.
    pub fn operands(&self) -> &[Reg] {
        match self {
            Op::Scalar { operands, .. } => operands,
            Op::Chain { operands, .. } => operands,
            Op::Product { operands, .. } => operands,
            Op::Load { fill, .. } => fill.as_slice(),
            Op::Store { value, .. } => std::slice::from_ref(value),
            Op::Prefix(prefix) => &prefix.values,
            Op::Group(group) => &group.inputs,
            Op::Const { .. } | Op::Index { .. } | Op::Test { .. } => &[],
        }
    }

    /// Calls `f` for every register that it reads: its operands, and those of its sums.
    pub fn visit_registers(&self, f: &mut impl FnMut(Reg)) {
        self.operands().iter().for_each(|reg| f(*reg));
        self.sums().for_each(|sum| sum.visit_registers(f));
    }
}

fn lower<'n>(nest: &'n Nest, instr: &'n Instr) -> Op<'n> {
    match instr {
        // An approximate instruction is computed as the exact one.
        Instr::Scalar { result, op, operands } => {
            Op::Scalar { result: *result, op: op.exact(), operands }
        }
        Instr::Const { result, value } => Op::Const { result: *result, value: *value },
        Instr::Index { result, value } => match value.as_constant() {
            Some(constant) => {
                let value = Scalar::from_i64(nest.registers[*result], constant);
                Op::Const { result: *result, value }
            }
            None => Op::Index { result: *result, value: rejoined(value.into()) },
        },
        Instr::Test { result, guards } => {
            Op::Test { result: *result, guards: guards.iter().map(guard).collect() }
        }
        Instr::Load { result, access, fill } => {
            Op::Load { result: *result, place: place(nest, access), fill: *fill }
        }
        Instr::Store { access, value, .. } => {
            Op::Store { place: place(nest, access), value: *value }
        }
        Instr::Prefix(prefix) => Op::Prefix(prefix),
    }
}

fn rejoined(mut sum: Sum) -> Sum {
    sum.rejoin();
    sum
}

fn guard(guard: &nest::Guard) -> Guard {
    Guard { value: rejoined((&guard.index).into()), low: guard.low, high: guard.high }
}

fn place(nest: &Nest, access: &Access) -> Place {
    let buffer = &nest.buffers[access.buffer];
    let ranges = Ranges::new(nest, &access.guards);
    let mut offset = Sum::default();
    let strides = buffer.strides();
    for ((index, extent), stride) in access.indices.iter().zip(&buffer.shape).zip(strides).rev() {
        let extent = *extent as i64;
        let inside = !access.clamp || ranges.of(index).within(0, extent.into());
        let index = rejoined(index.into());
        let index = if inside { index } else { Sum::term(Term::Clamp(index, extent - 1)) };
        offset.add(&index, stride);
    }
    Place {
        buffer: access.buffer,
        offset: rejoined(offset),
        guards: access.guards.iter().map(guard).collect(),
    }
}
