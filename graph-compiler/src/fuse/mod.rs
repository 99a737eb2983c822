//! Fusion: grouping of equations into kernels.
//!
//! 1. [`values`] decides which values are **realised**: computed once, as a root of a kernel,
//!    instead of recomputed by every reader of an element.
//! 2. [`root`] emits each root on its own to classify its reads: the same element, its row's
//!    element, or any.
//! 3. [`merge`] merges roots into groups where every access permits it and memory traffic falls;
//!    [`group`] keeps the groups free of cycles.
//! 4. [`cluster`] decides for each group the stage of each computation, what is stored, and what
//!    is kept along a row.
//!
//! Fusion decides where and when, not what: every instruction of the graph is executed as it
//! stands, and reduction trees depend on shapes alone. So the bits are the same with fusion
//! switched off.

mod cluster;
mod followed;
mod group;
mod merge;
mod root;
mod values;

use crate::cluster::{Fused, Fusion};
use crate::emit::Memory;
use crate::pass::within;
use crate::view::{View, Work};
use merge::Merging;
use root::Access;
pub(crate) use root::Root;
use std::collections::BTreeMap;
use wengert_core::Target;
use wengert_core::graph::ValueId;

/// Makes kernels of a body. Without `fuse`, each equation is a kernel of its own.
pub(crate) fn fuse(view: &View<'_>, target: &Target, fuse: bool) -> Fused {
    let memory = within("realise", || values::realise(view, fuse));
    let mut roots = Vec::new();
    let mut root_of = BTreeMap::new();
    for (equation, work) in view.work.iter().enumerate() {
        let results = &view.body.equations[equation].results;
        if matches!(work, Work::Compute(_) | Work::Call(_) | Work::Control)
            && results.iter().any(|v| memory[*v] == Some(*v))
        {
            root_of.extend(results.iter().map(|v| (*v, roots.len())));
            roots.push(Root::new(view, &memory, equation));
        }
    }
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); roots.len()];
    for (reader, root) in roots.iter().enumerate() {
        let bases = root.reads.iter().filter_map(|(v, ..)| memory[*v]);
        bases.filter_map(|v| root_of.get(&v)).for_each(|of| readers[*of].push(reader));
    }
    if fuse {
        in_parts(view, &memory, &mut roots, &root_of, &readers);
    }
    let merging = Merging { view, memory: &memory, target, roots: &roots, root_of, readers };
    let groups = within("merge", || merging.run(fuse));
    let order = groups.in_order();
    let stored = cluster::stored(&merging, &order);
    let kernels = order
        .into_iter()
        .map(|group| match group.members.as_slice() {
            [root] if matches!(view.work[roots[*root].equation], Work::Call(_) | Work::Control) => {
                Fusion::Call(roots[*root].equation)
            }
            _ => Fusion::Cluster(cluster::cluster(&merging, group, &stored)),
        })
        .collect();
    Fused { memory, kernels }
}

/// Converts concatenations into roots that iterate over a part, if other roots compute their
/// parts at the same points, and no other root could keep the whole in registers.
fn in_parts(
    view: &View<'_>,
    memory: &Memory,
    roots: &mut [Root],
    root_of: &BTreeMap<ValueId, usize>,
    readers: &[Vec<usize>],
) {
    for n in 0..roots.len() {
        if !readers[n].iter().all(|reader| roots[*reader].closed) {
            continue;
        }
        let Some(root) = Root::in_parts(view, memory, roots[n].equation) else { continue };
        let is_beside = |(value, _, access): &(ValueId, bool, Access)| {
            let of = memory[*value].and_then(|base| root_of.get(&base)).map(|of| &roots[*of]);
            *access == Access::Same && of.is_some_and(|of| !of.closed && of.space == root.space)
        };
        if root.reads.iter().any(is_beside) {
            roots[n] = root;
        }
    }
}
