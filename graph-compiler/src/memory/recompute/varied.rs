//! Chains whose steps differ: which states to keep, exactly.
//!
//! As in [`super::chain`], states are kept and made again by advancing; but steps differ in cost and states in size, and what is limited is bytes. A stretch of steps is reversed from the state before it either at once, if
//! it is one step, or by advancing to a state in it, reversing what lies behind that, and then what lies before. For each stretch there is a list of what can be had: pairs of a peak and a cost,
//! of which no other is better in both. The list of a stretch is merged from those of its parts, so the result is exact for all budgets at once, among the schedules that
//! give up a checkpoint only when all steps behind it have been reversed. It takes time with the cube of the length.
//!
//! # References
//!
//! Beaumont, Herrmann, Pallez and Shilova, *Optimal memory-aware backpropagation of deep join networks*, 2020, and Beaumont, Eyraud-Dubois, Herrmann, Joly and Shilova, *Optimal checkpointing for
//! heterogeneous chains: how to train deep neural networks with limited memory*, 2019, whose program this is, with lists instead of a table by bytes.

use super::chain::Action;

/// A step of a chain, and the state before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Link {
    /// What it costs to advance over it.
    pub cost: u64,
    /// Bytes of the state before it. That of the first one always counts nothing: it is there.
    pub state: u64,
    /// Bytes of the cotangent of the state before it, which reversing it makes.
    pub cotangent: u64,
    /// Bytes that it takes to tape and reverse it, besides the state before it and the cotangents.
    pub tape: u64,
}

/// What can be had of a stretch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Point {
    /// Bytes beside the state before the stretch and other checkpoints.
    pub peak: u64,
    /// What its advances cost.
    pub cost: u64,
}

/// Everything that can be had of a chain.
#[derive(Clone, Debug)]
pub struct Varied {
    links: Vec<Link>,
    /// For each stretch, by its first step and its length less 1, points by rising peak and falling cost.
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

    /// The cotangent of the state behind the steps before `to`. That of the last state is made by the last step itself.
    fn cotangent(&self, to: usize) -> u64 {
        self.links.get(to).map_or(0, |link| link.cotangent)
    }

    /// The bytes while one step is reversed.
    fn leaf(&self, step: usize) -> u64 {
        self.links[step].tape + self.links[step].cotangent + self.cotangent(step + 1)
    }

    /// Peak and cost of advancing from one state to each one before `to`: for the state behind each step.
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

    /// The points of a stretch, from those of its parts.
    fn merged(&self, from: usize, to: usize) -> Vec<Point> {
        if from + 1 == to {
            return vec![Point { peak: self.leaf(from), cost: 0 }];
        }
        let mut all = Vec::new();
        for (n, advance) in self.advance(from, to).enumerate() {
            let cut = from + n + 1;
            let (before, behind) = (self.of(from, cut), self.of(cut, to));
            let state = self.links[cut].state;
            // Each peak that one of the parts has, and what the other has for it.
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
                // The next peak is the lesser of those that come.
                let next = [before.get(b + 1).map(|p| p.peak), behind.get(e + 1).map(|p| p.peak + state)];
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

    /// Everything that can be had, by rising peak and falling cost. The cost is that of all advances, those of the first run among them.
    pub fn frontier(&self) -> &[Point] {
        match self.links.len() {
            0 => &[],
            length => self.of(0, length),
        }
    }

    /// The cheapest actions within a budget; nothing if there are none.
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
                (advance.peak <= budget).then_some((advance.cost + before.cost + behind.cost, cut, left))
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
