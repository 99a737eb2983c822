//! A group of roots as a cluster: axes, stages, stores.

use super::group::Group;
use super::merge::Merging;
use crate::cluster::{Axis, Cluster, Member};
use std::collections::BTreeSet;
use wengert_core::graph::ValueId;

/// The realised values that are read outside of their group: by another group, or as an output.
pub(super) fn stored(merging: &Merging<'_, '_>, groups: &[&Group]) -> BTreeSet<ValueId> {
    let base = |v: &ValueId| merging.memory[*v];
    let outputs = merging.view.body.outputs.iter().filter_map(base);
    outputs.chain(groups.iter().flat_map(|g| g.reads.iter().copied())).collect()
}

/// The members of a group with their stages and stores.
pub(super) fn cluster(
    merging: &Merging<'_, '_>,
    group: &Group,
    stored: &BTreeSet<ValueId>,
) -> Cluster {
    let (points, rows) = (group.points(), group.rows());
    let mut stages: Vec<usize> = Vec::with_capacity(group.members.len());
    let mut needed_later = vec![false; group.members.len()];
    let position = |v: ValueId| {
        let base = merging.memory[v].expect("what a root reads is in memory");
        let root = merging.root_of.get(&base)?;
        group.members.binary_search(root).ok()
    };
    for member in &group.members {
        let reads = merging.roots[*member].reads.iter().filter_map(|(v, ..)| position(*v));
        let after = |of: usize| stages[of] + usize::from(merging.roots[group.members[of]].loops);
        stages.push(reads.map(after).max().unwrap_or(0));
    }
    for (n, member) in group.members.iter().enumerate() {
        for of in merging.roots[*member].reads.iter().filter_map(|(v, ..)| position(*v)) {
            needed_later[of] |= stages[of] < stages[n];
        }
    }
    let mut storage = 0;
    let members = group.members.iter().enumerate().map(|(n, member)| {
        let root = &merging.roots[*member];
        let results = &merging.view.body.equations[root.equation].results;
        let along_row = root.loops || merging.along_row(*member, points, rows);
        let bytes =
            (points / rows.max(1)) as u64 * merging.view.body.ty(results[0]).dtype.size() as u64;
        // One load and a few instructions are recomputed instead.
        let worth_it = root.expensive || root.reads.len() > 1;
        let kept = along_row
            && !root.loops
            && needed_later[n]
            && worth_it
            && storage + bytes <= merging.target.row_storage;
        storage += if kept { bytes } else { 0 };
        Member {
            equation: root.equation,
            along_row,
            stage: stages[n],
            stored: results.iter().map(|v| stored.contains(v)).collect(),
            kept,
            total: group.band > 0 && root.is_over_rows(),
            parts: root.parts,
        }
    });
    let members = members.collect();
    let mut reads = Vec::new();
    let mut known = BTreeSet::new();
    let mut equations = BTreeSet::new();
    for member in &group.members {
        let root = &merging.roots[*member];
        equations.extend(root.equations.iter().copied());
        for (value, clamped, _) in &root.reads {
            if position(*value).is_none() && known.insert((*value, *clamped)) {
                reads.push((*value, *clamped));
            }
        }
    }
    Cluster {
        axes: axes(merging, group),
        members,
        reads,
        equations: equations.into_iter().collect(),
    }
}

/// The axes of a group's nest: its space, split where the shapes of its members have axes, as far
/// as they agree. The rows of a band are one axis, the last one of the rows.
fn axes(merging: &Merging<'_, '_>, group: &Group) -> Vec<Axis> {
    if let [root] = group.members.as_slice() {
        return merging.roots[*root].space.clone();
    }
    // Cuts are numbers of points behind an axis; each divides the next greater one.
    let mut cuts = vec![group.points()];
    for axis in &group.space {
        cuts.push(cuts[cuts.len() - 1] / axis.extent);
    }
    cuts.reverse();
    for root in
        group.members.iter().map(|m| &merging.roots[*m]).filter(|r| r.points() == group.points())
    {
        let mut cut = 1;
        for axis in root.space.iter().rev() {
            cut *= axis.extent;
            if let Err(at) = cuts.binary_search(&cut)
                && cuts[at].is_multiple_of(cut)
                && cut.is_multiple_of(cuts[at - 1])
            {
                cuts.insert(at, cut);
            }
        }
    }
    if group.band > 0 {
        let columns = group.points() / group.rows();
        let band = group.band * columns;
        cuts.retain(|cut| *cut <= columns || cut.is_multiple_of(band));
        if let Err(at) = cuts.binary_search(&band) {
            cuts.insert(at, band);
        }
    }
    cuts.reverse();
    let kind = |cut: usize| {
        let mut behind = group.points();
        let axis = group.space.iter().find(|axis| {
            behind /= axis.extent;
            cut > behind
        });
        axis.is_some_and(|a| a.inner)
    };
    cuts.windows(2).map(|pair| Axis { extent: pair[0] / pair[1], inner: kind(pair[0]) }).collect()
}
