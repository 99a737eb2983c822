//! Lowering: a cluster of equations as one nest.
//!
//! The parallel axes of the nest are the cluster's row axes. Members are computed stage by stage.
//! Each stage has a phase without inner axes for values with one element per row, then a phase
//! with the inner axes for values along the row and the reductions over it. An element that a
//! later stage needs is kept in row storage or recomputed.
//!
//! A concatenation of [parts](crate::emit::Parts) of one shape may be computed at the points of a
//! part. Values that a loop step produces for several [`destinations`] are stored to all of them.
//!
//! After emission the nest is simplified, with the same results: [`pieces`] splits axes where the
//! parts of concatenations meet, [`hoist`] moves row-invariant instructions out of the inner
//! loops, [`spans`] splits those loops as `pieces` does, [`collapse`] merges adjacent axes where
//! every access permits, so that executors see long vectors. Both `pieces` and `spans` copy a body
//! to a part of an axis with [`restrict`].

mod assemble;
mod collapse;
mod destinations;
mod hoist;
mod name;
mod pieces;
mod regions;
mod restrict;
mod spans;

pub(crate) use assemble::{Body, assemble};
pub(crate) use name::Names;
pub(crate) use regions::regions;

use crate::cluster::{Cluster, Member};
use crate::emit::{Emitter, Held, Memory, Parameter};
use crate::view::{View, Work, reindex};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::graph::ValueId;
use wengert_core::id::IdVec;
use wengert_core::nest::{Affine, AxisId, BufferId, BufferRole, Instr, Nest, Reg, Total};
use wengert_core::op::Compute;
use wengert_core::{Result, Target, Verified};

/// The shape under which a value of `extents` is stored from loops over `space`: its own if its
/// axes are products of the loop axes, else `space`. Buffers are dense, so only the description
/// changes. An index made of axes alone writes each element once, which the verifier can prove;
/// for quotients and remainders it may not.
fn stored_shape(extents: &[usize], space: &[usize]) -> Vec<usize> {
    let behind = |shape: &[usize]| -> BTreeSet<usize> {
        let product = |n: &mut usize, e: &usize| {
            *n *= e;
            Some(*n)
        };
        shape.iter().rev().scan(1, product).collect()
    };
    let (own, loops) = (behind(extents), behind(space));
    if own.iter().all(|n| *n <= 1 || loops.contains(n)) { extents.to_vec() } else { space.to_vec() }
}

/// A nest with the values of its parameters.
pub(crate) struct LoweredNest {
    pub nest: Verified<Nest>,
    /// Values read, for the In parameters in order.
    pub reads: Vec<ValueId>,
    /// Values written, for the Out parameters in order.
    pub writes: Vec<ValueId>,
}

/// Conventional names of axes.
const AXES: [&str; 8] = ["i", "j", "k", "l", "m", "n", "p", "q"];

/// Lowers a cluster to a nest.
///
/// Errors: the cluster violates an invariant of fusion, which is a compiler bug.
pub(crate) fn lower(
    view: &View<'_>,
    memory: &Memory,
    cluster: &Cluster,
    target: &Target,
    name: &str,
) -> Result<LoweredNest> {
    let mut lowering = Lowering::new(view, memory, cluster, target, name);
    let last = cluster.members.iter().map(|m| m.stage).max().unwrap_or(0);
    // Results of the last stage's reductions are stored in a stage of their own.
    for stage in 0..=last + 1 {
        lowering.row_stage(stage);
        lowering.inner_stage(stage);
    }
    let Lowering { emitter, reads, writes, .. } = lowering;
    let nest = pieces::pieces(emitter.builder.finish_unverified()?);
    let nest = collapse::collapse(&spans::spans(hoist::hoist(&nest)));
    let (nest, reads) = without_unused(nest, reads);
    Ok(LoweredNest { nest: Verified::new(nest.renumber())?, reads, writes })
}

struct Lowering<'v, 'a> {
    view: &'v View<'a>,
    cluster: &'v Cluster,
    target: &'v Target,
    emitter: Emitter<'v, 'a>,
    /// Counters of the row axes, with their extents.
    rows: Vec<(usize, Affine)>,
    reads: Vec<ValueId>,
    writes: Vec<ValueId>,
    outputs: BTreeMap<ValueId, BufferId>,
    /// Results of reductions, stored to memory after the phase.
    pending: Vec<(ValueId, Reg)>,
}

impl<'v, 'a> Lowering<'v, 'a> {
    fn new(
        view: &'v View<'a>,
        memory: &'v Memory,
        cluster: &'v Cluster,
        target: &'v Target,
        name: &str,
    ) -> Self {
        let mut emitter = Emitter::new(view, memory, name);
        let reads = declare_reads(&mut emitter, cluster);
        let mut writes = Vec::new();
        let mut outputs = BTreeMap::new();
        for member in &cluster.members {
            for (value, stored) in
                view.body.equations[member.equation].results.iter().zip(&member.stored)
            {
                if *stored {
                    let dtype = view.stored(*value);
                    let extents = &view.extents[*value];
                    let shape = match member.parts {
                        Some(_) => extents.clone(),
                        None if member.total => stored_shape(extents, &cluster.space_of_totals()),
                        None => stored_shape(extents, &cluster.space_of(view, *value)),
                    };
                    outputs.insert(*value, emitter.builder.output("y", dtype, &shape));
                    writes.push(*value);
                }
            }
        }
        let mut rows = Vec::new();
        for (n, axis) in cluster.axes.iter().enumerate().filter(|(_, a)| !a.inner) {
            let id = emitter.builder.parallel(AXES[n % AXES.len()], axis.extent);
            rows.push((axis.extent, Affine::axis(id)));
        }
        Lowering {
            view,
            cluster,
            target,
            emitter,
            rows,
            reads,
            writes,
            outputs,
            pending: Vec::new(),
        }
    }

    /// The row's index in a value of these extents with one element per row.
    fn row_index(&self, extents: &[usize]) -> Vec<Affine> {
        let (rows, index): (Vec<usize>, Vec<Affine>) = self.rows.iter().cloned().unzip();
        reindex(&rows, &index, extents)
    }

    /// The point's index in a value of these extents with one element per point.
    fn full_index(&self, inner: &[AxisId], extents: &[usize]) -> Vec<Affine> {
        let (mut rows, mut inner) = (self.rows.iter(), inner.iter());
        let axes: Vec<usize> = self.cluster.axes.iter().map(|a| a.extent).collect();
        let index: Vec<Affine> = self
            .cluster
            .axes
            .iter()
            .map(|axis| match axis.inner {
                true => Affine::axis(*inner.next().expect("a phase has all inner axes")),
                false => rows.next().expect("a nest has all row axes").1.clone(),
            })
            .collect();
        reindex(&axes, &index, extents)
    }

    fn members(&self, stage: usize, inner: bool) -> Vec<&'v Member> {
        self.cluster.members.iter().filter(|m| m.stage == stage && m.along_row == inner).collect()
    }

    /// Computes the per-row members of a stage, and stores the reductions of the stage before.
    fn row_stage(&mut self, stage: usize) {
        let members = self.members(stage, false);
        if members.is_empty() && self.pending.is_empty() {
            return;
        }
        self.emitter.phase(&[]);
        for (value, reg) in std::mem::take(&mut self.pending) {
            self.store(value, reg, None);
        }
        for member in members {
            let equation = &self.view.body.equations[member.equation];
            let value = equation.results[0];
            if let Some(parts) = member.parts {
                let index = self.row_index(&self.view.extents[equation.operands[0]]);
                for part in 0..parts.count {
                    let at = parts.shifted(&index, part);
                    let reg = self.emitter.rule(member.equation, &at);
                    self.store_at(value, &at, reg);
                }
                continue;
            }
            let index = self.row_index(&self.view.extents[value]);
            let reg = self.emitter.rule(member.equation, &index);
            self.emitter.held.insert(value, Held::Register(reg));
            if member.stored[0] {
                self.store(value, reg, None);
            }
        }
    }

    /// Stores a value at the row, or at a point of it.
    fn store(&mut self, value: ValueId, reg: Reg, point: Option<&[AxisId]>) {
        let shape =
            stored_shape(&self.view.extents[value], &self.cluster.space_of(self.view, value));
        let index = match point {
            Some(inner) => self.full_index(inner, &shape),
            None => self.row_index(&shape),
        };
        self.store_at(value, &index, reg);
    }

    /// Stores an element of a value.
    fn store_at(&mut self, value: ValueId, index: &[Affine], reg: Reg) {
        let index: Vec<Affine> = index.iter().map(|i| self.emitter.simplify(i)).collect();
        let reg = self.emitter.builder.convert(reg, self.view.stored(value));
        self.emitter.builder.store(self.outputs[&value], &index, reg);
    }

    /// Stores the total of a register over the rows of a band.
    fn store_total(&mut self, value: ValueId, inner: &[AxisId], reg: Reg, total: Total) {
        let space = self.cluster.space_of_totals();
        let bands = self.rows[..self.rows.len() - 1].iter().map(|(_, row)| row.clone());
        let index: Vec<Affine> = bands.chain(inner.iter().map(|a| Affine::axis(*a))).collect();
        let shape = stored_shape(&self.view.extents[value], &space);
        let index = reindex(&space, &index, &shape);
        let index: Vec<Affine> = index.iter().map(|i| self.emitter.simplify(i)).collect();
        self.emitter.builder.store_total(self.outputs[&value], &index, reg, total);
    }

    /// Computes the members along the row.
    fn inner_stage(&mut self, stage: usize) {
        let members = self.members(stage, true);
        if members.is_empty() {
            return;
        }
        let axes: Vec<(&str, usize)> = self
            .cluster
            .axes
            .iter()
            .enumerate()
            .filter(|(_, a)| a.inner)
            .map(|(n, a)| (AXES[n % AXES.len()], a.extent))
            .collect();
        let inner = self.emitter.phase(&axes);
        let mut along: Vec<(ValueId, Option<BufferId>)> = Vec::new();
        let mut reductions: Vec<(&Member, Vec<Reg>)> = Vec::new();
        for member in members {
            let equation = &self.view.body.equations[member.equation];
            let Work::Compute(compute) = &self.view.work[member.equation] else {
                panic!("lower: a literal is no member of a cluster")
            };
            match compute {
                Compute::Reduce { extents, .. } => {
                    let index = self.full_index(&inner, extents);
                    reductions.push((member, self.emitter.tuple(member.equation, &index)));
                }
                Compute::Element { .. } => {
                    let value = equation.results[0];
                    let index = self.full_index(&inner, &self.view.extents[value]);
                    let reg = self.emitter.rule(member.equation, &index);
                    along.push(self.point(member, value, reg, &inner));
                }
                Compute::Prefix { combine, reverse, .. } => {
                    let value = equation.results[0];
                    let index = self.full_index(&inner, &self.view.extents[value]);
                    let element = self.emitter.element(equation.operands[0], &index);
                    let carried = combine.dtypes()[0];
                    let element = self.emitter.builder.convert(element, carried);
                    let reg = self.emitter.builder.prefix(&[element], combine.clone(), *reverse)[0];
                    let reg = self.emitter.builder.convert(reg, self.view.stored(value));
                    along.push(self.point(member, value, reg, &inner));
                }
                Compute::Call(_)
                | Compute::CallOrDecompose(..)
                | Compute::Control
                | Compute::Decompose(_) => {
                    panic!("lower: a call is no member of a cluster")
                }
            }
        }
        for (member, values) in reductions {
            let equation = &self.view.body.equations[member.equation];
            let Work::Compute(Compute::Reduce { extents, axes, combine, project, .. }) =
                &self.view.work[member.equation]
            else {
                unreachable!("only reductions were put aside")
            };
            let operand = equation.operands[0];
            let tree = self.target.reduction_tree(self.view.stored(operand), extents, axes);
            if member.total {
                let total = Total { combine: combine.clone(), tree };
                self.store_total(equation.results[0], &inner, values[0], total);
                continue;
            }
            let tuple = self.emitter.builder.reduce(&values, combine.clone(), tree);
            for ((value, part), stored) in equation.results.iter().zip(project).zip(&member.stored)
            {
                self.emitter.held.insert(*value, Held::Register(tuple[*part]));
                if *stored {
                    self.pending.push((*value, tuple[*part]));
                }
            }
        }
        // Registers of the body are not valid after the phase.
        for (value, storage) in along {
            self.emitter.held.insert(value, storage.map_or(Held::Again, Held::Row));
        }
    }

    /// Records and stores the element of a member at a point of the row.
    fn point(
        &mut self,
        member: &Member,
        value: ValueId,
        reg: Reg,
        inner: &[AxisId],
    ) -> (ValueId, Option<BufferId>) {
        self.emitter.held.insert(value, Held::Register(reg));
        if member.stored[0] {
            self.store(value, reg, Some(inner));
        }
        if !member.kept {
            return (value, None);
        }
        let extents: Vec<usize> =
            self.cluster.axes.iter().filter(|a| a.inner).map(|a| a.extent).collect();
        let buffer = self.emitter.builder.row("r", self.view.stored(value), &extents);
        let point: Vec<Affine> = inner.iter().map(|a| Affine::axis(*a)).collect();
        self.emitter.builder.store(buffer, &point, reg);
        (value, Some(buffer))
    }
}

/// Declares a parameter for each value that is read. Returns the value of each parameter. A value
/// read under several shapes is one flat parameter. A value read at indices from data has a
/// parameter of its own shape.
fn declare_reads(emitter: &mut Emitter<'_, '_>, cluster: &Cluster) -> Vec<ValueId> {
    let view = emitter.view;
    let base = |value: ValueId| emitter.memory[value].expect("what a cluster reads is in memory");
    let mut shapes: BTreeMap<ValueId, BTreeSet<&[usize]>> = BTreeMap::new();
    for (value, _) in cluster.reads.iter().filter(|(_, clamped)| !clamped) {
        shapes.entry(base(*value)).or_default().insert(&view.extents[*value]);
    }
    let mut declared: BTreeMap<(ValueId, Option<&[usize]>), BufferId> = BTreeMap::new();
    let mut reads = Vec::new();
    let mut parameters = Vec::new();
    for (value, clamped) in &cluster.reads {
        let of = base(*value);
        let flat = !clamped && shapes[&of].len() > 1;
        let shape = (!flat).then_some(view.extents[*value].as_slice());
        let buffer = *declared.entry((of, shape)).or_insert_with(|| {
            reads.push(of);
            let count = [view.count(of)];
            emitter.builder.input("x", view.stored(of), shape.unwrap_or(&count))
        });
        parameters.push(((*value, *clamped), Parameter { buffer, flat }));
    }
    emitter.parameters.extend(parameters);
    reads
}

/// Removes In parameters without loads.
fn without_unused(mut nest: Nest, reads: Vec<ValueId>) -> (Nest, Vec<ValueId>) {
    let mut loaded = BTreeSet::new();
    for instr in nest.phases.iter().flat_map(|p| &p.body) {
        if let Instr::Load { access, .. } = instr {
            loaded.insert(access.buffer);
        }
    }
    let mut reads = reads.into_iter();
    let mut kept_reads = Vec::new();
    let mut new_ids = BTreeMap::new();
    let mut buffers = IdVec::new();
    for (id, buffer) in nest.buffers.iter() {
        let read = if buffer.role == BufferRole::In { reads.next() } else { None };
        if buffer.role != BufferRole::In || loaded.contains(&id) {
            kept_reads.extend(read);
            new_ids.insert(id, buffers.push(buffer.clone()));
        }
    }
    nest.buffers = buffers;
    for instr in nest.phases.iter_mut().flat_map(|p| &mut p.body) {
        if let Instr::Load { access, .. } | Instr::Store { access, .. } = instr {
            access.buffer = new_ids[&access.buffer];
        }
    }
    (nest, kept_reads)
}
