//! The loops of a nest after [merging](wengert_core::nest::merge), and what they cost.

use super::element::{VECTOR_BYTES, element, is_aligned};
use crate::scalar;
use wengert_core::nest::merge::{MergedAxis, merge_axes};
use wengert_core::nest::{
    Access, Affine, AxisId, BufferRole, Combine, Instr, Nest, Phase, Prefix, Term,
};
use wengert_core::{DType, Id};

/// Maximum number of lanes of a vector access.
const VECTOR: usize = 8;

/// Every expression of a phase; accesses are given as element indices.
fn expressions(nest: &Nest, phase: &Phase) -> Vec<Affine> {
    let mut all = Vec::new();
    for instr in &phase.body {
        match instr {
            Instr::Index { value, .. } => all.push(value.clone()),
            Instr::Test { guards, .. } => all.extend(guards.iter().map(|g| g.index.clone())),
            Instr::Load { access, .. } | Instr::Store { access, .. } => {
                all.extend(access.guards.iter().map(|g| g.index.clone()));
                if access.clamp {
                    all.extend(access.indices.iter().cloned());
                } else {
                    all.push(element(nest, access));
                }
            }
            Instr::Scalar { .. } | Instr::Const { .. } | Instr::Prefix(_) => {}
        }
    }
    all
}

/// The prefix instructions of a phase.
pub(super) fn prefixes(phase: &Phase) -> impl Iterator<Item = &Prefix> {
    phase.body.iter().filter_map(|instr| match instr {
        Instr::Prefix(prefix) => Some(prefix),
        _ => None,
    })
}

/// Maximum vector width of the usable accesses of instructions along the last axis of `along`;
/// `fits` says which widths the caller takes.
pub(super) fn widest<'a>(
    nest: &Nest,
    body: impl IntoIterator<Item = &'a Instr>,
    along: &MergedAxis,
    usable: impl Fn(&Access, AxisId) -> bool,
    fits: impl Fn(usize) -> bool,
) -> usize {
    let axis = *along.axes.last().expect("no group is empty");
    let mut vector = 1;
    for instr in body {
        let (Instr::Load { access, .. } | Instr::Store { access, .. }) = instr else { continue };
        let element = element(nest, access);
        if !usable(access, axis) || element.coefficient(axis) != 1 || !is_plain(&element, axis) {
            continue;
        }
        let mut width = (VECTOR_BYTES / nest.buffers[access.buffer].dtype.size()).min(VECTOR);
        while width > 1 && !(is_aligned(&element, &along.axes, width) && fits(width)) {
            width /= 2;
        }
        vector = vector.max(width);
    }
    vector
}

/// Whether the axis occurs only in the sum itself.
pub(super) fn is_plain(expression: &Affine, axis: AxisId) -> bool {
    let inside = |inner: &Affine| {
        let mut found = false;
        inner.visit_terms(&mut |t| found |= *t == Term::Axis(axis));
        found
    };
    expression.terms.iter().all(|(term, _)| match term {
        Term::FloorDiv(inner, _) | Term::Mod(inner, _) => !inside(inner),
        _ => true,
    })
}

/// These axes, which are nested in this order, merged.
fn group(nest: &Nest, order: &[AxisId], expressions: &[Affine]) -> Vec<MergedAxis> {
    merge_axes(
        order,
        |axis| nest.axes[axis].extent,
        |pair| expressions.iter().all(|e| pair.merge(e).is_some()),
    )
}

/// The parallel axes in the order of threads, the last one going from thread to thread.
pub(super) fn rows(nest: &Nest) -> Vec<MergedAxis> {
    let all: Vec<Affine> = nest.phases.iter().flat_map(|p| expressions(nest, p)).collect();
    let mut order = nest.parallel.clone();
    if let Some(fastest) = contiguous(nest, &order) {
        order.retain(|a| *a != fastest);
        order.push(fastest);
    }
    group(nest, &order, &all)
}

/// The inner axes of a phase. The last one is not merged if there are prefixes along it.
pub(super) fn inner(nest: &Nest, phase: &Phase) -> Vec<MergedAxis> {
    let all = expressions(nest, phase);
    if prefixes(phase).next().is_some()
        && let Some((last, others)) = phase.axes.split_last()
    {
        let mut groups = group(nest, others, &all);
        groups.push(MergedAxis { axes: vec![*last], extent: nest.axes[*last].extent });
        return groups;
    }
    group(nest, &phase.axes, &all)
}

/// Bytes accessed contiguously along an axis minus bytes accessed with a stride, over one row.
pub(super) fn affinity(nest: &Nest, axis: AxisId) -> i128 {
    let mut sum = 0i128;
    for phase in &nest.phases {
        for instr in &phase.body {
            let (Instr::Load { access, .. } | Instr::Store { access, .. }) = instr else {
                continue;
            };
            let buffer = &nest.buffers[access.buffer];
            if buffer.role == BufferRole::Row {
                continue;
            }
            let bytes = phase.iterations(nest) as i128 * buffer.dtype.size() as i128;
            let element = element(nest, access);
            // Caches do not combine stores.
            let weight = if matches!(instr, Instr::Store { .. }) { 2 } else { 1 };
            sum += match element.coefficient(axis) {
                _ if !is_plain(&element, axis) => 0,
                0 => 0,
                1 | -1 => bytes * weight,
                _ => -bytes * weight,
            };
        }
    }
    sum
}

/// The axis along which most accesses are contiguous; on a tie the last.
pub(super) fn contiguous(nest: &Nest, axes: &[AxisId]) -> Option<AxisId> {
    let long = axes.iter().copied().filter(|a| nest.axes[*a].extent > 1);
    long.max_by_key(|a| (affinity(nest, *a), a.index()))
}

/// Estimated machine instructions of an iteration of a phase.
pub(super) fn cost(nest: &Nest, phase: &Phase) -> usize {
    let of =
        |instr: &Instr, dtypes: &wengert_core::IdVec<wengert_core::nest::Reg, DType>| match instr {
            Instr::Scalar { op, operands, .. } => {
                scalar::cost(*op, operands.last().map_or(DType::F32, |r| dtypes[*r]))
            }
            Instr::Const { .. } => 0,
            // A load, an addition and a store.
            Instr::Store { total: Some(_), .. } => 3,
            _ => 1,
        };
    let body: usize = phase.body.iter().map(|i| of(i, &nest.registers)).sum();
    let combine = phase
        .reductions
        .iter()
        .flat_map(|r| r.combine.body.iter().map(|i| of(i, &r.combine.registers)));
    body + combine.sum::<usize>()
}

/// True if the combiner gives the same result in any order, up to the bits of NaNs.
pub(super) fn is_exact(combine: &Combine) -> bool {
    let whole = combine.identity.first().is_some_and(|s| !s.dtype().is_float());
    match combine.name() {
        Some("max" | "min" | "and" | "or") => true,
        Some("sum" | "prod") => whole,
        _ => false,
    }
}
