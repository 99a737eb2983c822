//! Small updates of variables are delayed until they are neighbours.
//!
//! In an order of least memory each variable is updated as soon as its new value can be computed.
//! So the updates are far apart: in a training step each follows the product that computes its
//! gradient. Where a launch takes as long as a small kernel ([`Target::shares_launches`]), the
//! updates are delayed. Neighbours can share a launch.
//!
//! A nest that only updates variables, and on which no other kernel depends, moves to the end of
//! the order. There are two exceptions:
//!
//! - A nest that reads more than [`MOST`] bytes of the arena stays where it is. Its operand was
//!   just computed and is still in the device's cache. Reading it from memory later would take
//!   longer than a launch.
//! - The operands of delayed nests are live for longer. If they would raise the load above the peak
//!   of the given order and above [`SPARE`], the nests delayed so far run first, one after another.
//!
//! **Bound.** No load exceeds the greater of the given order's peak and [`SPARE`]. The load of a
//! moment rises by at most the bytes of the operands that delayed nests hold. A nest has no
//! workspace, and an update writes no bytes of the arena. So while delayed nests run, the load is
//! at most that after the kernel before them.
//!
//! [`Target::shares_launches`]: wengert_core::Target::shares_launches

use super::donations;
use super::task_graph::TaskGraph;
use super::timeline::Timeline;
use crate::kernels::{BufferId, Kernels, Work};
use std::collections::BTreeSet;

/// Most bytes of the arena that a late update reads. In a microsecond, the time of a launch, an
/// H200 reads 4.8 MB (NVIDIA's datasheet: 4.8 TB/s).
const MOST: u64 = 4 << 20;
/// The load up to which no memory is saved, in bytes.
const SPARE: u64 = 64 << 20;

/// The order with late updates. `peak` is the greatest load of the given order.
pub(super) fn late(
    kernels: &Kernels,
    graph: &TaskGraph,
    order: Vec<usize>,
    peak: u64,
) -> Vec<usize> {
    let updates = updates(kernels, graph);
    if updates.len() < 2 {
        return order;
    }
    delay(graph, order, &updates, peak.max(SPARE))
}

/// The order in which some steps are delayed as long as no load exceeds `limit`, which is at least
/// the given order's peak. The steps have no results and no workspace, and no step depends on them.
pub(super) fn delay(
    graph: &TaskGraph,
    order: Vec<usize>,
    updates: &BTreeSet<usize>,
    limit: u64,
) -> Vec<usize> {
    let before = Timeline::new(graph, order);
    let (mut after, mut delayed) = (Vec::with_capacity(before.order.len()), Vec::new());
    // Values that delayed steps read, and their bytes. A value that has other readers as well is
    // counted twice until the last of them, so `bytes` is an upper bound of the increase.
    let (mut held, mut bytes) = (BTreeSet::new(), 0);
    for (moment, k) in before.order.iter().enumerate() {
        if updates.contains(k) {
            delayed.push(*k);
            for value in graph.steps[*k].reads.iter().filter(|v| held.insert(**v)) {
                bytes += graph.values[*value].bytes;
            }
            continue;
        }
        if before.loads[moment] + bytes > limit {
            after.append(&mut delayed);
            (held, bytes) = (BTreeSet::new(), 0);
        }
        after.push(*k);
    }
    after.append(&mut delayed);
    after
}

/// The kernels that may be delayed: no kernel depends on them, so any later moment is valid.
fn updates(kernels: &Kernels, graph: &TaskGraph) -> BTreeSet<usize> {
    let variables: BTreeSet<BufferId> =
        donations(kernels).into_iter().map(|(_, after)| after).collect();
    let numbered = kernels.kernels.iter().enumerate();
    let late = numbered.filter(|(k, kernel)| {
        let step = &graph.steps[*k];
        matches!(kernel.work, Work::Nest(_))
            && kernel.writes.iter().all(|buffer| variables.contains(buffer))
            && step.writes.is_empty()
            && step.after.is_empty()
            && graph.bytes(&step.reads) <= MOST
    });
    late.map(|(k, _)| k).collect()
}
