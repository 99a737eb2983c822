//! Roots that become one kernel, and the graph of them.
//!
//! Merging must not make a cycle: if one group depends on another through a third, the two cannot
//! be merged. Each group has a **level**, greater than those of all its producers. Two groups of
//! one level never depend on each other, not even indirectly. A backward search from the higher
//! group stops at the level of the lower.

use super::Root;
use crate::cluster::Axis;
use std::collections::{BTreeSet, BinaryHeap};
use wengert_core::graph::ValueId;

/// Maximum number of groups visited in one search for a cycle; beyond it, the merge is not done.
/// A backward pass may read values of a forward pass any number of groups earlier.
const MAX_SEARCH: usize = 2_000;

/// Roots that become one kernel.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    /// Positions among the roots, ascending.
    pub members: Vec<usize>,
    /// Its space: adjacent axes of a kind are merged, unit axes are left out. Without inner axes
    /// if it is elementwise.
    pub space: Vec<Axis>,
    /// Rows of a [band](wengert_core::nest::Total) if members are totals, else 0.
    pub band: usize,
    /// Whether it takes part in no merge: a call, a scan, or an empty space.
    pub closed: bool,
    /// Realised values that it reads and does not compute.
    pub reads: BTreeSet<ValueId>,
    /// Number of equations that it computes; one that belongs to several members counts for each.
    pub weight: usize,
    pub(super) level: usize,
    /// Its producers and consumers, by their numbers at the time of recording.
    pub(super) producers: BTreeSet<usize>,
    pub(super) consumers: BTreeSet<usize>,
}

impl Group {
    /// Number of points.
    pub fn points(&self) -> usize {
        self.space.iter().map(|a| a.extent).product()
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.space.iter().filter(|a| !a.inner).map(|a| a.extent).product()
    }

    /// Whether it has axes within a row.
    pub fn has_inner(&self) -> bool {
        self.space.iter().any(|a| a.inner)
    }

    /// The rows and columns of a band, if it consists of reductions over the rows of bands.
    pub fn as_totals(&self) -> Option<[usize; 2]> {
        match self.space.as_slice() {
            [_, rows, columns] if rows.inner && !columns.inner => {
                Some([rows.extent, columns.extent])
            }
            _ => None,
        }
    }
}

/// The space of a group after a merge.
#[derive(Clone, Debug, Default)]
pub(super) struct Space {
    pub axes: Vec<Axis>,
    /// See [`Group::band`].
    pub band: usize,
}

/// The groups of a function.
#[derive(Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
    /// The group into which a group has been merged; itself if it is not merged.
    parent: Vec<usize>,
}

impl Groups {
    /// Adds a group that reads others.
    pub fn add(&mut self, mut group: Group, producers: impl IntoIterator<Item = usize>) -> usize {
        let id = self.groups.len();
        group.producers = producers.into_iter().map(|p| self.find(p)).collect();
        group.level = group.producers.iter().map(|p| self.groups[*p].level + 1).max().unwrap_or(0);
        for producer in &group.producers {
            self.groups[*producer].consumers.insert(id);
        }
        self.groups.push(group);
        self.parent.push(id);
        id
    }

    /// The group that a group is now part of.
    pub fn find(&self, mut group: usize) -> usize {
        while self.parent[group] != group {
            group = self.parent[group];
        }
        group
    }

    /// A group that has not been merged into another.
    pub fn get(&self, group: usize) -> &Group {
        &self.groups[group]
    }

    /// Whether the groups can be merged without a cycle.
    pub fn may_merge(&self, a: usize, b: usize) -> bool {
        let (low, high) =
            if self.groups[a].level <= self.groups[b].level { (a, b) } else { (b, a) };
        let floor = self.groups[low].level;
        // Searches indirect paths from `low` to `high`.
        let mut open: Vec<usize> = self.producers(high).filter(|p| *p != low).collect();
        let mut seen: BTreeSet<usize> = open.iter().copied().collect();
        while let Some(group) = open.pop() {
            if self.groups[group].level <= floor {
                continue;
            }
            if seen.len() > MAX_SEARCH {
                return false;
            }
            for producer in self.producers(group) {
                if producer == low {
                    return false;
                }
                if seen.insert(producer) {
                    open.push(producer);
                }
            }
        }
        true
    }

    fn producers(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        self.groups[group].producers.iter().map(|p| self.find(*p))
    }

    /// Merges two groups, with the given space and reads.
    pub fn merge(&mut self, a: usize, b: usize, space: Space, reads: BTreeSet<ValueId>) -> usize {
        let (kept, gone) = (a.min(b), a.max(b));
        let other = std::mem::take(&mut self.groups[gone]);
        self.parent[gone] = kept;
        let group = &mut self.groups[kept];
        group.members.extend(other.members);
        group.members.sort();
        (group.space, group.band) = (space.axes, space.band);
        group.reads = reads;
        group.weight += other.weight;
        group.producers.extend(other.producers);
        group.consumers.extend(other.consumers);
        let current = |set: &BTreeSet<usize>, groups: &Groups| {
            set.iter().map(|g| groups.find(*g)).filter(|g| *g != kept).collect::<BTreeSet<_>>()
        };
        let producers = current(&self.groups[kept].producers, self);
        let consumers = current(&self.groups[kept].consumers, self);
        let level = producers.iter().map(|p| self.groups[*p].level + 1).max().unwrap_or(0);
        let group = &mut self.groups[kept];
        (group.producers, group.consumers) = (producers, consumers);
        group.level = level.max(group.level).max(other.level);
        self.lift(kept);
        kept
    }

    /// Restores the order of levels among the consumers of a group whose level has risen.
    fn lift(&mut self, group: usize) {
        let mut risen = vec![group];
        while let Some(group) = risen.pop() {
            let level = self.groups[group].level;
            let consumers: BTreeSet<usize> = self.groups[group]
                .consumers
                .iter()
                .map(|c| self.find(*c))
                .filter(|c| *c != group)
                .collect();
            for consumer in consumers {
                if self.groups[consumer].level <= level {
                    self.groups[consumer].level = level + 1;
                    risen.push(consumer);
                }
            }
        }
    }

    /// The groups in topological order; among those that are ready, the one with the first
    /// member.
    pub fn in_order(&self) -> Vec<&Group> {
        let alive: Vec<usize> = (0..self.groups.len()).filter(|g| self.parent[*g] == *g).collect();
        let mut waits = vec![0usize; self.groups.len()];
        let mut consumers: Vec<Vec<usize>> = vec![Vec::new(); self.groups.len()];
        for group in &alive {
            let producers: BTreeSet<usize> =
                self.producers(*group).filter(|p| p != group).collect();
            waits[*group] = producers.len();
            producers.iter().for_each(|p| consumers[*p].push(*group));
        }
        let key = |g: usize| std::cmp::Reverse((self.groups[g].members[0], g));
        let mut ready: BinaryHeap<_> =
            alive.iter().filter(|g| waits[**g] == 0).map(|g| key(*g)).collect();
        let mut order = Vec::with_capacity(alive.len());
        while let Some(std::cmp::Reverse((_, group))) = ready.pop() {
            order.push(&self.groups[group]);
            for consumer in &consumers[group] {
                waits[*consumer] -= 1;
                if waits[*consumer] == 0 {
                    ready.push(key(*consumer));
                }
            }
        }
        assert_eq!(order.len(), alive.len(), "fusion: kernels read each other in a cycle");
        order
    }
}

/// The space of a root in a group.
pub(super) fn space_of(root: &Root) -> Vec<Axis> {
    let mut space: Vec<Axis> = Vec::new();
    for axis in root.space.iter().filter(|a| a.extent != 1) {
        match space.last_mut() {
            Some(last) if last.inner == axis.inner => last.extent *= axis.extent,
            _ => space.push(*axis),
        }
    }
    space
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(n: usize) -> Group {
        Group { members: vec![n], ..Group::default() }
    }

    #[test]
    fn a_merge_around_a_third_is_refused() {
        let mut groups = Groups::default();
        let a = groups.add(group(0), []);
        let b = groups.add(group(1), [a]);
        let c = groups.add(group(2), [a, b]);
        let d = groups.add(group(3), [a]);
        assert!(!groups.may_merge(a, c) && !groups.may_merge(c, a));
        assert!(
            groups.may_merge(a, b)
                && groups.may_merge(b, c)
                && groups.may_merge(a, d)
                && groups.may_merge(c, d)
        );
        let bc = groups.merge(b, c, Space::default(), BTreeSet::new());
        assert!(groups.may_merge(a, bc));
        let abc = groups.merge(a, bc, Space::default(), BTreeSet::new());
        assert_eq!(
            groups.in_order().iter().map(|g| g.members.clone()).collect::<Vec<_>>(),
            [vec![0, 1, 2], vec![3]]
        );
        assert!(groups.may_merge(abc, d));
    }

    /// Random merges of a random graph, against a search without levels.
    #[test]
    fn levels_agree_with_plain_search() {
        let mut state = 1u64;
        let mut below = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for _ in 0..60 {
            let mut groups = Groups::default();
            let n = 14;
            let mut edges = Vec::new();
            for g in 0..n {
                let producers: Vec<usize> = (0..g.min(2)).map(|_| below(g)).collect();
                edges.extend(producers.iter().map(|p| (*p, g)));
                groups.add(group(g), producers);
            }
            for _ in 0..20 {
                let (a, b) = (groups.find(below(n)), groups.find(below(n)));
                if a == b {
                    continue;
                }
                let reaches = |from: usize, to: usize| {
                    let mut open = vec![from];
                    let mut seen = BTreeSet::new();
                    while let Some(g) = open.pop() {
                        for (p, c) in edges.iter().map(|(p, c)| (groups.find(*p), groups.find(*c)))
                        {
                            // The direct edge does not prevent a merge.
                            if p == g && c != g && !(g == from && c == to) && seen.insert(c) {
                                open.push(c);
                            }
                        }
                    }
                    seen.contains(&to)
                };
                let wanted = !reaches(a, b) && !reaches(b, a);
                assert_eq!(groups.may_merge(a, b), wanted, "{edges:?} {a} {b}");
                if wanted {
                    groups.merge(a, b, Space::default(), BTreeSet::new());
                }
            }
            groups.in_order();
        }
    }
}
