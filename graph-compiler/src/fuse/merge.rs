//! Merging of roots into kernels.
//!
//! Roots are taken in program order. Each begins as a group of its own. It is then merged with
//! the groups that compute its operands (the producer's value stays in a register), and with
//! groups that read the same tensor element by element (it is loaded once). A merge needs a
//! common space:
//!
//! - elementwise roots with equal numbers of elements;
//! - **row programs**: reductions over the trailing axes of one space, elementwise roots along
//!   it, and roots with one element per row. A root along the row may read its own element and
//!   its row's; a root with one element per row only the row's. Softmax, losses, layer norm and
//!   their gradients are of this kind;
//! - reductions over other axes (bias gradients), side by side and with elementwise roots over
//!   their results; also with those over their operands, if they have threads enough for these
//!   ([wide](Target::wide_columns));
//! - row programs and reductions over the rows of bands (the gradients of a norm's scale and
//!   bias). The latter become [totals](wengert_core::nest::Total).
//!
//! A concatenation of parts of one shape that is read only by calls and as an output is
//! elementwise in its parts. It is merged with the roots that compute them, and each point stores
//! all parts (the cotangents of an LSTM's gates, beside that of its cell).
//!
//! All other accesses need the value in memory, and so another kernel. Three merges are also
//! refused:
//!
//! - A merge that delays a value which other kernels read. An optimiser's bias correction, merged
//!   with the update of one parameter, would make all other updates wait for that parameter's
//!   gradient.
//! - A merge of a repeated computation with the first one. Equal roots remain after `cse` only
//!   where the value is not to be kept.
//! - A merge of a nest that would [follow](crate::calls::follow) a product with a reduction of what
//!   it stores (the derivative of a GELU with the gradient of a bias). Merged, the product is
//!   stored and loaded again. Apart, only the reduction's operand is loaded again.

use super::group::{Group, Groups, Space, space_of};
use super::root::{Access, Root};
use crate::cluster::Axis;
use crate::emit::Memory;
use crate::view::{View, Work};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::Target;
use wengert_core::graph::ValueId;
use wengert_core::op::Compute;

/// Maximum number of parameters of a nest.
const MAX_BUFFERS: usize = 48;
/// Maximum number of totals of a nest. Each has accumulators in shared memory.
const MAX_TOTALS: usize = 4;
/// Maximum number of equations of a nest.
const MAX_WEIGHT: usize = 512;
/// A row program with fewer rows leaves processors idle.
const MIN_ROWS: usize = 16;
/// With at most this many elements, idle processors do not matter.
const SMALL: usize = 1 << 12;
/// The number of latest readers of a value that are tried as siblings.
const SIBLINGS: usize = 4;
/// Maximum distance of siblings in program order. A merged kernel waits for all of its operands,
/// and keeps them in memory until then.
const DISTANCE: usize = 256;

/// Maximum delay of a group's values by a merge, in calls. Values that wait for them occupy
/// memory.
const WAIT: usize = 8;
/// Maximum number of a group's readers that are checked for delays.
const ASKED: usize = 64;

/// Inputs of merging.
pub(super) struct Merging<'v, 'a> {
    pub view: &'v View<'a>,
    pub memory: &'v Memory,
    pub target: &'v Target,
    pub roots: &'v [Root],
    /// The root that computes a realised value.
    pub root_of: BTreeMap<ValueId, usize>,
    /// The roots that read the result of each root.
    pub readers: Vec<Vec<usize>>,
}

/// For each root the earliest time at which it can be computed, in calls: the last of the
/// function's calls that it depends on.
struct Times(Vec<usize>);

impl Times {
    fn new(merging: &Merging<'_, '_>) -> Times {
        // For each root the call that it is, or the last call it depends on.
        let mut last: Vec<usize> = Vec::with_capacity(merging.roots.len());
        let mut times = Vec::with_capacity(merging.roots.len());
        let mut calls = 0;
        for root in merging.roots {
            let producers =
                root.reads.iter().filter_map(|r| merging.root_of.get(&merging.base(r.0)));
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
            let producers: Vec<usize> =
                reads.iter().filter_map(|v| self.root_of.get(v).copied()).collect();
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

    /// Whether both roots read a value element by element.
    fn share(&self, a: &Root, b: &Root, value: ValueId) -> bool {
        let through = |root: &Root| {
            root.reads
                .iter()
                .any(|(v, _, access)| *access == Access::Same && self.base(*v) == value)
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
        let members: Vec<usize> = first.members.iter().chain(&second.members).copied().collect();
        let mut reads: BTreeSet<ValueId> = first.reads.union(&second.reads).copied().collect();
        if reads.len() + members.len() > MAX_BUFFERS {
            return;
        }
        let spaces = [self.common_space(first, second), self.banded_space(first, second)];
        let Some(space) =
            spaces.into_iter().flatten().find(|space| self.permitted(space, &members))
        else {
            return;
        };
        if first.members.iter().any(|a| second.members.iter().any(|b| self.repeats(*a, *b))) {
            return;
        }
        let both = [(first, second), (second, first)];
        if both.into_iter().any(|(a, b)| self.holds_up(&times.0, a, b) || self.follows(a, b)) {
            return;
        }
        reads.retain(|v| self.root_of.get(v).is_none_or(|root| !members.contains(root)));
        if groups.may_merge(a, b) {
            groups.merge(a, b, space, reads);
        }
    }

    /// Whether a merge delays other readers of `group` by operations that the group itself does
    /// not depend on: by several calls, or, for a scalar, at all.
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

    /// Whether two roots compute the same op on the same operands.
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
    fn common_space(&self, a: &Group, b: &Group) -> Option<Space> {
        let band = a.band.max(b.band);
        let one = [a, b].iter().all(|g| g.band == 0 || g.band == band);
        let axes = self.common_axes(a, b).filter(|_| one)?;
        Some(Space { axes, band })
    }

    fn common_axes(&self, a: &Group, b: &Group) -> Option<Vec<Axis>> {
        // The second has inner axes if either has; otherwise it has more points.
        let rank = |g: &Group| (g.has_inner(), g.points());
        let (small, large) = if rank(a) <= rank(b) { (a, b) } else { (b, a) };
        match (small.has_inner(), large.has_inner()) {
            (true, true) => (small.space == large.space).then(|| large.space.clone()),
            (false, true) if small.points() == large.rows() || small.points() == large.points() => {
                Some(large.space.clone())
            }
            (false, false) if small.points() == large.points() => Some(large.space.clone()),
            // One group has one element per row, and the other runs along the rows and reads it.
            (false, false)
                if small.points() > 0 && large.points().is_multiple_of(small.points()) =>
            {
                let length = large.points() / small.points();
                let reads_row = |reader: &usize| {
                    self.roots[*reader].reads.iter().any(|(v, _, access)| {
                        let root = self.root_of.get(&self.base(*v));
                        *access == Access::Row(length)
                            && root.is_some_and(|r| small.members.contains(r))
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

    /// The space of two groups together, if one consists of reductions over the rows of bands, and
    /// the other one computes these rows.
    fn banded_space(&self, a: &Group, b: &Group) -> Option<Space> {
        let space = |totals: &Group, other: &Group| {
            let [band, columns] = totals.as_totals()?;
            let is_row = match other.space.as_slice() {
                [.., last] if last.inner => last.extent == columns,
                _ => !other.has_inner(),
            };
            let rows = totals.points() / columns;
            let fits = is_row
                && (other.band == 0 || other.band == band)
                && other.points() == totals.points()
                && self.target.is_band(&[rows / band, band, columns], &[1])
                && totals.members.iter().all(|member| self.may_be_total(*member));
            let axes = [(rows, false), (columns, true)];
            let axes = axes.map(|(extent, inner)| Axis { extent, inner }).to_vec();
            fits.then_some(Space { axes, band })
        };
        space(a, b).or_else(|| space(b, a))
    }

    /// Whether a root reduces one value, whose dtype is that of the result.
    fn may_be_total(&self, root: usize) -> bool {
        let equation = self.roots[root].equation;
        let Work::Compute(Compute::Reduce { combine, .. }) = &self.view.work[equation] else {
            return false;
        };
        let result = self.view.body.equations[equation].results[0];
        combine.dtypes() == [self.view.stored(result)]
    }

    /// Whether the members may run in one nest over the space.
    fn permitted(&self, space: &Space, members: &[usize]) -> bool {
        let Space { axes: space, band } = space;
        let is_total = |root: usize| *band > 0 && self.roots[root].is_over_rows();
        if members.iter().filter(|member| is_total(**member)).count() > MAX_TOTALS {
            return false;
        }
        let points: usize = space.iter().map(|a| a.extent).product();
        let rows: usize = space.iter().filter(|a| !a.inner).map(|a| a.extent).product();
        let has_inner = space.iter().any(|a| a.inner);
        // The inner axes are the trailing part.
        let rows_first =
            space.iter().filter(|a| a.inner).count() == 1 && space.last().is_some_and(|a| a.inner);
        let length = points / rows.max(1);
        // The stores of parts are indexed by the axes of the space, so all members must have the
        // same axes.
        if let Some(parted) =
            members.iter().map(|m| &self.roots[*m]).find(|root| root.parts.is_some())
            && (*band > 0 || members.iter().any(|m| self.roots[*m].space != parted.space))
        {
            return false;
        }
        let along = |root: usize| self.along_row(root, points, rows);
        let mut passes = *band > 0;
        for member in members {
            let root = &self.roots[*member];
            passes |= has_inner && !root.loops && along(*member);
            for (value, _, access) in &root.reads {
                let Some(of) = self.root_of.get(&self.base(*value)).filter(|r| members.contains(r))
                else {
                    continue;
                };
                // A total is complete after the last row of its band.
                if is_total(*of) {
                    return false;
                }
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
        // A nest that passes over its rows more than once, or writes along them, needs contiguous
        // rows that stay in the cache, and enough rows for all processors. If its rows are not
        // contiguous, it passes over them once.
        !passes
            || (!rows_first && self.target.is_wide(rows))
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

    /// Whether a root runs over every point of a space, and not only once per row.
    pub fn along_row(&self, root: usize, points: usize, rows: usize) -> bool {
        points != rows && (self.roots[root].loops || self.roots[root].points() == points)
    }
}
