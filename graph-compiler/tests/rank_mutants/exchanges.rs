//! Whether ranks meet, by a definition that shares nothing with the verifier of all ranks.
//!
//! Each plan becomes the list of its rank's exchanges, and of its waits for them: loops are
//! unrolled, and a branch is one of its arms. A call waits for its exchange at once. A
//! *communicator* is an ordered list of ranks. Waits block, so ranks meet if and only if
//!
//! 1. the members of each communicator have the same exchanges over it, in the same order, and
//! 2. no exchange waits for itself: an exchange ends when all its members have started it, and a
//!    rank starts it after the ends of the exchanges for which it has waited before. The graph of
//!    these dependencies has no cycle.
//!
//! What ranks agree on is what matters on the wire: the kind, bytes, number of parts, the dtype of
//! elements that are combined, and the set of pairs of a permutation.

use std::collections::{BTreeMap, BTreeSet};
use wengert_core::Mesh;
use wengert_core::call::{Collective, CollectiveKind};
use wengert_core::plan::{Plan, Step, TransferId};

/// Ranks in the order of their positions.
type Communicator = Vec<usize>;

/// The exchange of this number over a communicator.
type Node<'a> = (&'a Communicator, usize);

/// What the members of a communicator agree on.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Agreed {
    kind: &'static str,
    combined: Option<&'static str>,
    bytes: usize,
    parts: usize,
    pairs: BTreeSet<(usize, usize)>,
}

fn agreed(c: &Collective) -> Agreed {
    use CollectiveKind::{Max, Min, Sum, SumScatter};
    let combines = matches!(c.kind, Sum | Max | Min | SumScatter);
    Agreed {
        kind: c.kind.name(),
        combined: combines.then(|| c.dtype.name()),
        bytes: c.outer * c.inner * c.dtype.size(),
        parts: c.parts,
        pairs: c.perm.iter().copied().collect(),
    }
}

/// The ranks that differ from `rank` along `over` only, by their positions. None if the mesh lacks
/// the rank or an axis.
fn communicator(mesh: &Mesh, rank: usize, over: &[String]) -> Option<Communicator> {
    let extents: Vec<usize> = mesh.axes().iter().map(|(_, extent)| *extent).collect();
    let ranks: usize = extents.iter().product();
    let axis = |name: &String| mesh.axes().iter().position(|(axis, _)| **axis == **name);
    let over: Vec<usize> = over.iter().map(axis).collect::<Option<_>>()?;
    let coordinates = |mut rank: usize| {
        let mut all = vec![0; extents.len()];
        for (at, extent) in extents.iter().enumerate().rev() {
            all[at] = rank % extent;
            rank /= extent;
        }
        all
    };
    let own = coordinates(rank);
    let others_agree =
        |all: &[usize]| (0..all.len()).all(|a| over.contains(&a) || all[a] == own[a]);
    let position = |all: &[usize]| over.iter().map(|a| all[*a]).collect::<Vec<usize>>();
    let mut members: Vec<(Vec<usize>, usize)> = (0..ranks)
        .map(|rank| (coordinates(rank), rank))
        .filter(|(all, _)| others_agree(all))
        .map(|(all, rank)| (position(&all), rank))
        .collect();
    members.sort();
    (rank < ranks).then(|| members.into_iter().map(|(_, rank)| rank).collect())
}

/// The exchanges of a rank, in the order in which it starts them.
#[derive(Default)]
struct Listed {
    exchanges: Vec<(Communicator, Agreed)>,
    /// For each exchange those for which the rank has waited before it starts it.
    after: Vec<Vec<usize>>,
    waited: Vec<usize>,
    /// The exchange of each transfer that was started last.
    transfers: BTreeMap<TransferId, usize>,
}

impl Listed {
    /// Adds an exchange. One rank alone exchanges nothing.
    fn start(&mut self, members: Communicator, c: &Collective) -> Option<usize> {
        if members.len() == 1 {
            return None;
        }
        self.exchanges.push((members, agreed(c)));
        self.after.push(self.waited.clone());
        Some(self.exchanges.len() - 1)
    }
}

/// The exchanges of a rank. Branches take the arm of this number, or their last.
fn exchanges(plan: &Plan, rank: usize, arm: usize) -> Option<Listed> {
    fn block(steps: &[Step], of: (&Plan, usize, usize), all: &mut Listed) -> Option<()> {
        let (plan, rank, arm) = of;
        for step in steps {
            match step {
                Step::Call { call, .. } => {
                    let exchange =
                        call.collective().filter(|c| c.kind != CollectiveKind::AxisIndex);
                    if let Some(c) = exchange {
                        let members = communicator(&plan.mesh, rank, &c.over)?;
                        let started = all.start(members, c);
                        all.waited.extend(started);
                    }
                }
                Step::Start { transfer, call } => {
                    let members = communicator(&plan.mesh, rank, &call.over)?;
                    if let Some(started) = all.start(members, call) {
                        all.transfers.insert(transfer.id, started);
                    }
                }
                Step::Wait(transfer) => all.waited.extend(all.transfers.remove(&transfer.id)),
                Step::Loop(l) => (0..l.trip.limit()).try_for_each(|_| block(&l.body, of, all))?,
                Step::If { then, otherwise, .. } => {
                    block(if arm == 0 { then } else { otherwise }, of, all)?;
                }
                Step::Switch { arms, .. } => block(&arms[arm.min(arms.len() - 1)], of, all)?,
                Step::Nest { .. } | Step::Copy { .. } => {}
            }
        }
        Some(())
    }
    let mut all = Listed::default();
    block(&plan.steps, (plan, rank, arm), &mut all)?;
    Some(all)
}

/// Whether the ranks, each with its plan, deadlock or exchange what the others do not expect.
pub fn do_not_meet(plans: &[&Plan]) -> bool {
    let ranks = |plan: &Plan| plan.mesh.axes().iter().map(|(_, n)| n).product::<usize>();
    plans.iter().any(|plan| ranks(plan) != plans.len())
        || (0..2).any(|arm| {
            let of_rank = |(rank, plan): (usize, &&Plan)| exchanges(plan, rank, arm);
            let lists: Option<Vec<_>> = plans.iter().enumerate().map(of_rank).collect();
            lists.is_none_or(|lists| differ(&lists) || wait_for_themselves(&lists))
        })
}

/// Condition 1 is broken.
fn differ(lists: &[Listed]) -> bool {
    let over = |rank: usize, communicator: &Communicator| {
        let all = lists[rank].exchanges.iter().filter(|(of, _)| of == communicator);
        all.map(|(_, agreed)| agreed.clone()).collect::<Vec<Agreed>>()
    };
    let all = lists.iter().flat_map(|list| &list.exchanges);
    let communicators: BTreeSet<&Communicator> = all.map(|(c, _)| c).collect();
    communicators.into_iter().any(|communicator| {
        let first = over(communicator[0], communicator);
        communicator.iter().any(|rank| over(*rank, communicator) != first)
    })
}

/// Condition 2 is broken, where condition 1 holds.
fn wait_for_themselves(lists: &[Listed]) -> bool {
    let mut after: BTreeMap<Node<'_>, BTreeSet<Node<'_>>> = BTreeMap::new();
    for list in lists {
        let mut counts: BTreeMap<&Communicator, usize> = BTreeMap::new();
        let mut nodes: Vec<Node<'_>> = Vec::new();
        for ((communicator, _), before) in list.exchanges.iter().zip(&list.after) {
            let count = counts.entry(communicator).or_default();
            let node = (communicator, *count);
            *count += 1;
            after.entry(node).or_default().extend(before.iter().map(|n| nodes[*n]));
            nodes.push(node);
        }
    }
    // Removes nodes that wait for none of those left.
    loop {
        let free: BTreeSet<Node<'_>> =
            after.iter().filter(|(_, before)| before.is_empty()).map(|(node, _)| *node).collect();
        if free.is_empty() {
            return !after.is_empty();
        }
        after.retain(|node, _| !free.contains(node));
        after.values_mut().for_each(|before| before.retain(|node| !free.contains(node)));
    }
}
