//! Fewer repetitions for the same budget.
//!
//! *Trimming* removes repetitions that the budget does not need. *Polishing* removes some related
//! repetitions, fits the schedule again, and keeps it if it is cheaper (ruin and recreate:
//! Schrimpf, Schneider, Stamm-Wilbrandt and Dueck 2000).

use super::fit::Workshop;
use super::timeline::Timeline;

/// The repetitions that are tried first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum First {
    /// Those of the greatest cost.
    Dearest,
    /// Those of the greatest cost per byte of their results.
    DearestForBytes,
}

impl Workshop {
    /// Removes repetitions whose removal does not increase the excess, until the effort reaches
    /// its limit.
    pub fn trim(&mut self, timeline: &mut Timeline<'_>, first: First, limit: u64) {
        let prepared = timeline.prepared;
        loop {
            let mut repetitions: Vec<(u128, usize)> = (0..timeline.executions.len())
                .filter(|m| timeline.repeats(*m))
                .map(|m| {
                    let step = &prepared.computation.steps[timeline.executions[m]];
                    let bytes: i64 = step.writes.iter().map(|v| prepared.bytes(*v)).sum();
                    let per = if first == First::Dearest { 1 } else { bytes as u128 + 1 };
                    ((u128::from(step.cost) << 44) / per, m)
                })
                .collect();
            repetitions.sort_unstable_by(|a, b| b.cmp(a));
            let mut gone: Vec<usize> = Vec::new();
            for (_, at) in repetitions {
                let moment = at - gone.iter().filter(|g| **g < at).count();
                if self.effort() < limit && self.scale.remove(timeline, moment) <= 0 {
                    timeline.executions.remove(moment);
                    self.update(timeline);
                    gone.push(at);
                }
            }
            if gone.is_empty() {
                return;
            }
        }
    }

    /// Searches from the timeline's schedule for one closer to the budget, or for a cheaper one
    /// if it fits, until the effort reaches its limit.
    pub fn polish(&mut self, timeline: &mut Timeline<'_>, limit: u64) {
        let value =
            |timeline: &Timeline<'_>| ((timeline.peak - timeline.budget).max(0), timeline.added);
        let mut best = (value(timeline), timeline.executions.clone());
        while self.effort() < limit && best.0 > (0, 0) {
            timeline.executions.clone_from(&best.1);
            self.update(timeline);
            self.ruin(timeline);
            self.update(timeline);
            // Some paths lead through schedules without relief.
            if best.0.0 > 0 || self.random(4) == 0 {
                for _ in 0..=self.random(3) {
                    self.kick(timeline);
                }
            }
            timeline.original = [1, 1, 4, 16][self.random(4)];
            self.luck = [0.0, 0.3, 1.0, 3.0][self.random(4)];
            let (above, added) = best.0;
            self.ceiling = if above == 0 { added + added / 4 } else { u64::MAX };
            self.update(timeline);
            self.fit(timeline, limit);
            if timeline.excess == 0 {
                let first = [First::Dearest, First::DearestForBytes][self.random(2)];
                self.trim(timeline, first, limit);
            }
            if value(timeline) <= best.0 {
                best = (value(timeline), timeline.executions.clone());
            }
        }
        (timeline.original, self.luck, self.ceiling) = (1, 0.0, u64::MAX);
        timeline.executions = best.1;
        self.update(timeline);
    }

    /// Removes repetitions of one of three kinds: a contiguous range, those of neighbouring
    /// steps, or random ones.
    fn ruin(&mut self, timeline: &mut Timeline<'_>) {
        let repetitions: Vec<usize> =
            (0..timeline.executions.len()).filter(|m| timeline.repeats(*m)).collect();
        let steps = timeline.prepared.computation.steps.len();
        if repetitions.is_empty() {
            return;
        }
        let one = repetitions[self.random(repetitions.len())];
        let gone: Vec<bool> = match self.random(3) {
            0 => {
                let from = self.random(repetitions.len());
                let some = 1 + self.random(repetitions.len().min(40));
                let to = (from + some).min(repetitions.len());
                let (from, to) = (repetitions[from], repetitions[to - 1]);
                (0..timeline.executions.len()).map(|m| from <= m && m <= to).collect()
            }
            1 => {
                let step = timeline.executions[one];
                let width = self.random(1 + (steps / 6).min(40));
                timeline.executions.iter().map(|s| s.abs_diff(step) <= width).collect()
            }
            _ => {
                let one_in = [1, 2, 4, 8][self.random(4)].max(repetitions.len() / 32);
                (0..timeline.executions.len())
                    .map(|m| m == one || self.random(one_in) == 0)
                    .collect()
            }
        };
        let mut moment = 0;
        let done = &timeline.done;
        timeline.executions.retain(|step| {
            moment += 1;
            !(gone[moment - 1] && *step < done[moment - 1])
        });
    }

    /// Recomputes a random value before one of its readers, or elsewhere, regardless of the
    /// relief.
    fn kick(&mut self, timeline: &mut Timeline<'_>) {
        let value = self.random(timeline.prepared.writer.len());
        let touches = timeline.touches(value);
        let Some(touch) = touches.get(1 + self.random(touches.len().saturating_sub(1))) else {
            return;
        };
        let moment = [touch.moment, self.random(timeline.executions.len())][self.random(2)];
        let price = [0.0, 1.0, f64::INFINITY][self.random(3)];
        let price = if price == 1.0 { self.price } else { price };
        self.grouper.of(timeline, value, moment, price, 40);
        timeline.executions.splice(moment..moment, self.grouper.group.iter().copied());
        self.update(timeline);
    }
}
