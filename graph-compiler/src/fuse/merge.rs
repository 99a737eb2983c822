//! Which roots are merged into one kernel.
//!
//! Roots are taken in the order of the program. Each begins as a group of its own and is then merged with the groups that compute what it
//! reads (a producer's value stays in a register), and with groups that read the same tensor element by element (it is loaded
//! once). A merge needs a common space:
//!
//! - elementwise roots of as many elements;
//! - **row programs**: reductions over the trailing axes of one space, what is elementwise along it, and what has one element a row. A root along the row may read
//!   its own element and its row's; one of the row only the row's. Softmax, losses, layer norm and their gradients
//!   are of this kind;
//! - reductions over other axes (bias gradients), side by side and with what is elementwise in their results.
//!
//! A concatenation of parts of one shape that only calls and other functions read is elementwise in its parts: it is merged with what computes them, and each
//! point stores all parts (the cotangents of an LSTM's gates, beside that of its cell).
//!
//! All other accesses need the value in memory, and so another kernel. So does what other kernels read that would have to wait: an optimiser's bias correction, merged with the update of one parameter, would make all
//! others wait for that one's gradient, and nothing could be updated before the last gradient is there. And what is made again for later readers is not merged with what makes it first: equal roots are left after `cse`
//! only where a value is not to be kept.

use super::group::{Group, Groups, space_of};
use super::root::{Access, Root};
use crate::lower::{Axis, Memory};
use crate::view::View;
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::Target;
use wengert_core::graph::ValueId;

/// Parameters of a nest.
const MAX_BUFFERS: usize = 48;
/// Equations of a nest.
const MAX_WEIGHT: usize = 512;
/// A row program with fewer rows leaves processors idle…
const MIN_ROWS: usize = 16;
/// …which does not matter for so few elements.
const SMALL: usize = 1 << 12;
/// How many of the latest readers of a value are tried as siblings.
const SIBLINGS: usize = 4;
/// How far apart in the program siblings may be: what is merged must wait for all it reads, and holds it in memory so long.
const DISTANCE: usize = 256;

/// How many calls later than by itself what a group computes may be there because it is merged. What waits for it holds memory.
const WAIT: usize = 8;
/// Readers of a group that are asked whether they would wait.
const ASKED: usize = 64;

/// What merging needs to know.
pub(super) struct Merging<'v, 'a> {
    pub view: &'v View<'a>,
    pub memory: &'v Memory,
    pub target: &'v Target,
    pub roots: &'v [Root],
    /// The root that computes a realised value.
    pub root_of: BTreeMap<ValueId, usize>,
    /// The roots that read what each root computes.
    pub readers: Vec<Vec<usize>>,
}

/// For each root when it can be computed, in calls: the last of the function's calls that it needs.
struct Times(Vec<usize>);

impl Times {
    fn new(merging: &Merging<'_, '_>) -> Times {
        // For each root the call that it is, or the last one it needs.
        let mut last: Vec<usize> = Vec::with_capacity(merging.roots.len());
        let mut times = Vec::with_capacity(merging.roots.len());
        let mut calls = 0;
        for root in merging.roots {
            let producers = root.reads.iter().filter_map(|r| merging.root_of.get(&merging.base(r.0)));
            let time = producers.map(|producer| last[*producer]).max().unwrap_or(0);
            calls += usize::from(root.closed);
            last.push(if root.closed { calls } else { time });
            times.push(time);
        }
        Times(times)
    }
}

impl Merging<'_, '_> {
    /// The groups of all roots.
    pub fn run(&self, fuse: bool) -> Groups {
        let mut groups = Groups::default();
        let times = Times::new(self);
        // Root number n makes group number n.
        let mut readers: BTreeMap<ValueId, Vec<usize>> = BTreeMap::new();
        for (n, root) in self.roots.iter().enumerate() {
            let reads: BTreeSet<ValueId> = root.reads.iter().map(|r| self.base(r.0)).collect();
            let producers: Vec<usize> = reads.iter().filter_map(|v| self.root_of.get(v).copied()).collect();
            let space = space_of(root);
            let group = Group {
                members: vec![n],
                closed: root.closed
                    || space.iter().any(|a| a.extent == 0)
                    || (root.loops && !space.iter().any(|a| a.inner)),
                weight: root.equations.len(),
                space,
                reads: reads.clone(),
                ..Group::default()
            };
            groups.add(group, producers.iter().copied());
            if !fuse {
                continue;
            }
            for producer in producers {
                self.try_merge(&mut groups, &times, producer, n);
            }
            for read in &reads {
                let known = readers.entry(*read).or_default();
                for sibling in known.iter().rev().take(SIBLINGS) {
                    if n - sibling <= DISTANCE && self.share(root, &self.roots[*sibling], *read) {
                        self.try_merge(&mut groups, &times, *sibling, n);
                    }
                }
                known.push(n);
            }
        }
        groups
    }

    fn base(&self, value: ValueId) -> ValueId {
        self.memory[value].expect("what a root reads is in memory")
    }

    /// True if both roots run through a value element by element.
    fn share(&self, a: &Root, b: &Root, value: ValueId) -> bool {
        let through = |root: &Root| {
            root.reads.iter().any(|(v, _, access)| *access == Access::Same && self.base(*v) == value)
        };
        through(a) && through(b)
    }

    fn try_merge(&self, groups: &mut Groups, times: &Times, a: usize, b: usize) {
        let (a, b) = (groups.find(a), groups.find(b));
        if a == b {
            return;
        }
        let (first, second) = (groups.get(a), groups.get(b));
        if first.closed || second.closed || first.weight + second.weight > MAX_WEIGHT {
            return;
        }
        let Some(space) = self.common_space(first, second) else { return };
        let members: Vec<usize> = first.members.iter().chain(&second.members).copied().collect();
        let mut reads: BTreeSet<ValueId> = first.reads.union(&second.reads).copied().collect();
        if reads.len() + members.len() > MAX_BUFFERS || !self.permitted(&space, &members) {
            return;
        }
        if first.members.iter().any(|a| second.members.iter().any(|b| self.repeats(*a, *b))) {
            return;
        }
        if [(first, second), (second, first)].into_iter().any(|(a, b)| self.holds_up(&times.0, a, b)) {
            return;
        }
        reads.retain(|v| self.root_of.get(v).is_none_or(|root| !members.contains(root)));
        if groups.may_merge(a, b) {
            groups.merge(a, b, space, reads);
        }
    }

    /// True if others read a group too, and would have to wait for what the group itself does not need: for several calls, or, for a number, at all.
    fn holds_up(&self, times: &[usize], group: &Group, with: &Group) -> bool {
        let is_member = |root: usize| {
            group.members.binary_search(&root).is_ok() || with.members.binary_search(&root).is_ok()
        };
        let mut others = group
            .members
            .iter()
            .flat_map(|m| &self.readers[*m])
            .copied()
            .filter(|reader| !is_member(*reader))
            .take(ASKED);
        if group.points() == 1 && with.points() > 1 {
            let of_both = |value: &ValueId| {
                with.reads.contains(value) || self.root_of.get(value).is_some_and(|r| is_member(*r))
            };
            return others.next().is_some() && !group.reads.iter().any(of_both);
        }
        let time = |group: &Group| group.members.iter().map(|m| times[*m]).max().unwrap_or(0);
        let late = time(with);
        late > time(group) + WAIT && others.any(|reader| times[reader] + WAIT < late)
    }

    /// True if two roots compute the same of the same.
    fn repeats(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.roots[a], &self.roots[b]);
        let same = |(a, b): (&usize, &usize)| {
            let [a, b] = [a, b].map(|n| &self.view.body.equations[*n]);
            a.op == b.op
        };
        a.reads == b.reads
            && a.equations.len() == b.equations.len()
            && a.equations.iter().zip(&b.equations).all(same)
    }

    /// The space of two groups together.
    fn common_space(&self, a: &Group, b: &Group) -> Option<Vec<Axis>> {
        // The second has inner axes if one has, and else the more points.
        let rank = |g: &Group| (g.has_inner(), g.points());
        let (small, large) = if rank(a) <= rank(b) { (a, b) } else { (b, a) };
        match (small.has_inner(), large.has_inner()) {
            (true, true) => (small.space == large.space).then(|| large.space.clone()),
            (false, true) if small.points() == large.rows() || small.points() == large.points() => {
                Some(large.space.clone())
            }
            (false, false) if small.points() == large.points() => Some(large.space.clone()),
            // What has one element a row, and what runs along the rows and reads it.
            (false, false) if small.points() > 0 && large.points().is_multiple_of(small.points()) => {
                let length = large.points() / small.points();
                let reads_row = |reader: &usize| {
                    self.roots[*reader].reads.iter().any(|(v, _, access)| {
                        let root = self.root_of.get(&self.base(*v));
                        *access == Access::Row(length) && root.is_some_and(|r| small.members.contains(r))
                    })
                };
                if !large.members.iter().any(reads_row) {
                    return None;
                }
                let rows = Axis { extent: small.points(), inner: false };
                Some(
                    [rows, Axis { extent: length, inner: true }]
                        .into_iter()
                        .filter(|a| a.extent != 1)
                        .collect(),
                )
            }
            _ => None,
        }
    }

    /// True if the members may run in one nest over the space.
    fn permitted(&self, space: &[Axis], members: &[usize]) -> bool {
        let points: usize = space.iter().map(|a| a.extent).product();
        let rows: usize = space.iter().filter(|a| !a.inner).map(|a| a.extent).product();
        let has_inner = space.iter().any(|a| a.inner);
        // The inner axes are the trailing part.
        let rows_first =
            space.iter().filter(|a| a.inner).count() == 1 && space.last().is_some_and(|a| a.inner);
        let length = points / rows.max(1);
        // Parts are stored where the axes of the space say, so nobody may cut these otherwise.
        if let Some(parted) = members.iter().map(|m| &self.roots[*m]).find(|root| root.parts.is_some())
            && members.iter().any(|m| self.roots[*m].space != parted.space)
        {
            return false;
        }
        let along = |root: usize| self.along_row(root, points, rows);
        let mut passes = false;
        for member in members {
            let root = &self.roots[*member];
            passes |= has_inner && !root.loops && along(*member);
            for (value, _, access) in &root.reads {
                let Some(of) = self.root_of.get(&self.base(*value)).filter(|r| members.contains(r)) else {
                    continue;
                };
                let point = !self.roots[*of].loops && along(*of);
                let fine = match (along(*member), point) {
                    (true, true) | (false, false) => *access == Access::Same,
                    (true, false) => {
                        passes = true;
                        rows_first && *access == Access::Row(length)
                    }
                    (false, true) => false,
                };
                if !fine {
                    return false;
                }
            }
        }
        // A nest that goes through its rows more than once, or writes along them, wants rows that lie together and stay in the cache,
        // and enough of them for all processors.
        !passes
            || (rows_first
                && self.row_bytes(length, members) <= self.target.row_bytes
                && (rows >= MIN_ROWS || points <= SMALL))
    }

    /// Bytes of the longest row of a member.
    fn row_bytes(&self, length: usize, members: &[usize]) -> u64 {
        let size = |root: &Root| {
            let equation = &self.view.body.equations[root.equation];
            let values = equation.results.iter().chain(&equation.operands);
            values.map(|v| self.view.body.ty(*v).dtype.size()).max().unwrap_or(1)
        };
        let size = members.iter().map(|m| size(&self.roots[*m])).max().unwrap_or(1);
        (length as u64).saturating_mul(size as u64)
    }

    /// True if a root runs through every point of a space, and not only once for each row.
    pub fn along_row(&self, root: usize, points: usize, rows: usize) -> bool {
        points != rows && (self.roots[root].loops || self.roots[root].points() == points)
    }
}
