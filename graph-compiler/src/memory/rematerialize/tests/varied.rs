//! Chains of differing steps: the optimal choice of states to keep.
//!
//! As in [`super::chain`], states are kept and recomputed by advancing. But steps differ in cost
//! and states in size, and the limit is in bytes. A stretch of steps is reversed from the state
//! before it. A stretch of one step is taped directly. A longer one is reversed by advancing to a
//! state within it, reversing the steps behind that state, and then those before it. Each stretch
//! has a list of pairs of a peak and a cost, none of which is beaten in both. The list of a
//! stretch is merged from those of its parts. The result is exact for all budgets at once, among
//! the schedules that free a checkpoint only when all steps behind it have been reversed. Time is
//! cubic in the length.
//!
//! # References
//!
//! Beaumont, Herrmann, Pallez and Shilova, *Optimal memory-aware backpropagation of deep join
//! networks*, 2020, and Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, *Optimal
//! checkpointing for heterogeneous chains: how to train deep neural networks with limited
//! memory*, 2019. The dynamic program is theirs, with lists instead of a table indexed by bytes.

use super::chain::Action;

/// A step of a chain, and the state before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Link {
    /// Cost of advancing over it.
    pub cost: u64,
    /// Bytes of the state before it. The initial state is always present, so its bytes do not
    /// count.
    pub state: u64,
    /// Bytes of the cotangent of the state before it, the result of reversing the step.
    pub cotangent: u64,
    /// Bytes to tape and reverse it, besides the state before it and the cotangents.
    pub tape: u64,
}

/// A peak and the least cost of a stretch at that peak.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Point {
    /// Bytes besides the state before the stretch and other checkpoints.
    pub peak: u64,
    /// Cost of its advances.
    pub cost: u64,
}

/// The optimal schedules of a chain for all budgets.
#[derive(Clone, Debug)]
pub struct Varied {
    links: Vec<Link>,
    /// The points of each stretch, by its first step and its length less 1, by rising peak and
    /// falling cost.
    points: Vec<Vec<Vec<Point>>>,
}

impl Varied {
    /// Solves a chain for all budgets.
    pub fn new(links: &[Link]) -> Self {
        let mut varied = Varied { links: links.to_vec(), points: vec![Vec::new(); links.len()] };
        for length in 1..=links.len() {
            for from in 0..=links.len() - length {
                let points = varied.merged(from, from + length);
                varied.points[from].push(points);
            }
        }
        varied
    }

    fn of(&self, from: usize, to: usize) -> &[Point] {
        &self.points[from][to - from - 1]
    }

    /// Bytes of the cotangent of the state behind the steps before `to`. The last step itself
    /// makes that of the last state.
    fn cotangent(&self, to: usize) -> u64 {
        self.links.get(to).map_or(0, |link| link.cotangent)
    }

    /// Bytes live while one step is reversed.
    fn leaf(&self, step: usize) -> u64 {
        self.links[step].tape + self.links[step].cotangent + self.cotangent(step + 1)
    }

    /// Peak and cost of advancing from the state before `from` to the state behind each step but
    /// the last.
    fn advance(&self, from: usize, to: usize) -> impl Iterator<Item = Point> + '_ {
        let beside = self.cotangent(to);
        let mut point = Point { peak: 0, cost: 0 };
        (from..to - 1).map(move |step| {
            let operand = if step > from { self.links[step].state } else { 0 };
            point.peak = point.peak.max(operand + self.links[step + 1].state + beside);
            point.cost += self.links[step].cost;
            point
        })
    }

    /// The points of a stretch, merged from those of its parts.
    fn merged(&self, from: usize, to: usize) -> Vec<Point> {
        if from + 1 == to {
            return vec![Point { peak: self.leaf(from), cost: 0 }];
        }
        let mut all = Vec::new();
        for (n, advance) in self.advance(from, to).enumerate() {
            let cut = from + n + 1;
            let (before, behind) = (self.of(from, cut), self.of(cut, to));
            let state = self.links[cut].state;
            // Each peak of either part, with the cheapest point of the other part at that peak.
            let (mut b, mut e) = (0, 0);
            while b < before.len() && e < behind.len() {
                let peak = advance.peak.max(before[b].peak).max(behind[e].peak + state);
                while before.get(b + 1).is_some_and(|p| p.peak <= peak) {
                    b += 1;
                }
                while behind.get(e + 1).is_some_and(|p| p.peak + state <= peak) {
                    e += 1;
                }
                all.push(Point { peak, cost: advance.cost + before[b].cost + behind[e].cost });
                // Continue at the lesser of the next peaks.
                let next =
                    [before.get(b + 1).map(|p| p.peak), behind.get(e + 1).map(|p| p.peak + state)];
                match next {
                    [None, None] => break,
                    [Some(x), Some(y)] if x <= y => b += 1,
                    [Some(_), None] => b += 1,
                    _ => e += 1,
                }
            }
        }
        all.sort_unstable_by_key(|p| (p.peak, p.cost));
        let mut points: Vec<Point> = Vec::new();
        for point in all {
            if points.last().is_none_or(|last| point.cost < last.cost) {
                points.push(point);
            }
        }
        points
    }

    /// The points of the whole chain, by rising peak and falling cost. The cost includes all
    /// advances, those of the first run too.
    pub fn frontier(&self) -> &[Point] {
        match self.links.len() {
            0 => &[],
            length => self.of(0, length),
        }
    }

    /// The cheapest actions within a budget; None if none fit.
    pub fn actions(&self, budget: u64) -> Option<Vec<Action>> {
        let mut actions = Vec::new();
        if self.links.is_empty() {
            return Some(actions);
        }
        let best = |from: usize, to: usize, budget: u64| {
            let points = self.of(from, to);
            points[..points.partition_point(|p| p.peak <= budget)].last().copied()
        };
        best(0, self.links.len(), budget)?;
        let mut stretches = vec![(0, self.links.len(), budget)];
        let mut current = 0;
        while let Some((from, to, budget)) = stretches.pop() {
            if current != from {
                actions.push(Action::Restore(from as u64));
            }
            if from + 1 == to {
                actions.push(Action::Tape(from as u64));
                if from > 0 {
                    actions.push(Action::Free(from as u64));
                }
                current = usize::MAX;
                continue;
            }
            let cuts = self.advance(from, to).enumerate().filter_map(|(n, advance)| {
                let cut = from + n + 1;
                let left = budget.checked_sub(self.links[cut].state)?;
                let (before, behind) = (best(from, cut, budget)?, best(cut, to, left)?);
                (advance.peak <= budget).then_some((
                    advance.cost + before.cost + behind.cost,
                    cut,
                    left,
                ))
            });
            let (_, cut, left) =
                cuts.min().expect("a stretch with a point within the budget has a cut within it");
            actions.extend((from..cut).map(|step| Action::Advance(step as u64)));
            actions.push(Action::Checkpoint(cut as u64));
            stretches.push((from, cut, budget));
            stretches.push((cut, to, left));
            current = cut;
        }
        Some(actions)
    }
}
