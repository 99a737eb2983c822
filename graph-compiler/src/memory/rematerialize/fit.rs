//! Inserts repetitions in the order of relief per cost, until a schedule fits.
//!
//! In each round every gap that spans an excess is weighed at several prices of memory, which
//! give several groups. Then the best groups are inserted. Each is weighed again first, since
//! earlier insertions changed the profile. When the best remaining group is much worse than the
//! first one was, the next round begins. So there are few rounds, and the result is almost that
//! of weighing every gap before each insertion.

use super::group::Grouper;
use super::timeline::{Prepared, Timeline};
use super::weigh::{Scale, Weight};

/// Most steps of a group.
const MOST: usize = 400;

/// Prices at which gaps are weighed, as multiples of the recent cost per byte of excess.
const PRICES: [f64; 10] = [0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 32.0, 128.0];

/// A gap that may be closed.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// The value that is recomputed.
    value: usize,
    /// The execution before which the repetition is inserted.
    moment: usize,
    price: f64,
    score: f64,
    /// The random factor of its score.
    luck: f64,
}

/// State shared by the solvers: scratch memory, a random generator, the effort.
pub(super) struct Workshop {
    pub grouper: Grouper,
    pub scale: Scale,
    /// The recent cost per byte of excess.
    pub price: f64,
    /// Amplitude of the random factor of scores.
    pub luck: f64,
    /// Fitting stops when repetitions cost more than this.
    pub ceiling: u64,
    /// Effort of laying out executions, and effort spent elsewhere.
    laid: u64,
    state: u64,
}

impl Workshop {
    pub fn new(prepared: &Prepared<'_>) -> Self {
        let (steps, values) = (prepared.computation.steps.len(), prepared.computation.values.len());
        Workshop {
            grouper: Grouper::new(steps, values),
            scale: Scale::new(values),
            price: 0.0,
            luck: 0.0,
            ceiling: u64::MAX,
            laid: 0,
            state: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Effort so far.
    pub fn effort(&self) -> u64 {
        self.grouper.effort + self.scale.effort + self.laid
    }

    /// Counts effort that was spent elsewhere.
    pub fn spend(&mut self, effort: u64) {
        self.laid += effort;
    }

    /// A number below `n`, by xorshift (Marsaglia 2003).
    pub fn random(&mut self, n: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 16) as usize % n.max(1)
    }

    /// Updates a timeline, and counts the effort.
    pub fn update(&mut self, timeline: &mut Timeline<'_>) {
        timeline.update();
        self.laid += 8 * timeline.executions.len() as u64;
    }

    /// Inserts groups until the excess is 0, no group gives relief, or the effort reaches its
    /// limit.
    pub fn fit(&mut self, timeline: &mut Timeline<'_>, limit: u64) {
        self.price = 0.0;
        while timeline.excess > 0 && self.effort() < limit && timeline.added <= self.ceiling {
            let mut candidates = self.candidates(timeline);
            if !self.insert_best(timeline, &mut candidates, limit) {
                break;
            }
        }
    }

    fn weigh(
        &mut self,
        timeline: &Timeline<'_>,
        value: usize,
        moment: usize,
        price: f64,
    ) -> Weight {
        let group = self.grouper.of(timeline, value, moment, price, MOST);
        match group.is_empty() {
            true => Weight::default(),
            false => self.scale.weigh(timeline, group, moment, self.price),
        }
    }

    /// All gaps that span an excess, each with the price of the best relief per cost.
    fn candidates(&mut self, timeline: &Timeline<'_>) -> Vec<Candidate> {
        let prepared = timeline.prepared;
        let mut gaps = Vec::new();
        let mut least = f64::INFINITY;
        for (value, writer) in prepared.writer.iter().enumerate() {
            let (Some(step), true) = (writer, prepared.bytes(value) > 0) else { continue };
            for pair in timeline.touches(value).windows(2) {
                // A step that may not be repeated before the reader may still be repeated before
                // its barrier.
                let moment = timeline.latest(*step, pair[1].moment);
                let hot = timeline.hot_between(pair[0].moment + 1, moment);
                if pair[1].makes || hot == 0 || !prepared.may_repeat(*step, timeline.done[moment]) {
                    continue;
                }
                gaps.push((value, moment));
                let held = prepared.bytes(value) as f64 * f64::from(hot);
                least = least.min(prepared.cost(*step).max(1) as f64 / held);
            }
        }
        if self.price == 0.0 {
            self.price = 2.0 * least;
        }
        let mut candidates = Vec::new();
        for (value, moment) in gaps {
            let luck = match self.luck > 0.0 {
                true => 1.0 + self.luck * self.random(1024) as f64 / 1024.0,
                false => 1.0,
            };
            let mut best: Option<Candidate> = None;
            let mut length = 0;
            for multiple in PRICES {
                let price = multiple * self.price;
                self.grouper.of(timeline, value, moment, price, MOST);
                // A group of the same length is the same group.
                if self.grouper.group.len() == length {
                    continue;
                }
                length = self.grouper.group.len();
                let score = luck
                    * self.scale.weigh(timeline, &self.grouper.group, moment, self.price).score();
                if score > best.map_or(0.0, |b| b.score) {
                    best = Some(Candidate { value, moment, price, score, luck });
                }
                if length == 0 {
                    break;
                }
            }
            candidates.extend(best);
        }
        candidates
    }

    /// Inserts the groups of the best candidates. False if none gives relief.
    fn insert_best(
        &mut self,
        timeline: &mut Timeline<'_>,
        candidates: &mut Vec<Candidate>,
        limit: u64,
    ) -> bool {
        let mut inserted = false;
        let mut top = 0.0;
        while timeline.excess > 0 && self.effort() < limit && timeline.added <= self.ceiling {
            let better =
                |a: &usize, b: &usize| candidates[*a].score.total_cmp(&candidates[*b].score);
            let Some(n) = (0..candidates.len()).max_by(better) else { break };
            self.laid += candidates.len() as u64 / 4;
            let candidate = candidates[n];
            if candidate.score <= 0.5 * top {
                break;
            }
            let weight = self.weigh(timeline, candidate.value, candidate.moment, candidate.price);
            let now = candidate.luck * weight.score();
            if now < 0.9 * candidate.score {
                // A useless candidate has score 0, which is below every top.
                candidates[n].score = now.max(0.0);
                if now <= 0.0 {
                    candidates.swap_remove(n);
                }
                continue;
            }
            candidates.swap_remove(n);
            let group = self.grouper.group.clone();
            if self.put(timeline, &group, candidate.moment, candidates) {
                self.price =
                    (weight.cost.max(1) as f64 / weight.relief as f64).max(f64::MIN_POSITIVE);
                top = if inserted { top } else { candidate.score };
                inserted = true;
            }
        }
        inserted
    }

    /// Inserts a group before an execution, and removes the repetitions that this makes needless.
    /// If that gives no relief, undoes it and returns false.
    fn put(
        &mut self,
        timeline: &mut Timeline<'_>,
        group: &[usize],
        moment: usize,
        candidates: &mut [Candidate],
    ) -> bool {
        let (excess, before) = (timeline.excess, timeline.executions.clone());
        timeline.executions.splice(moment..moment, group.iter().copied());
        self.update(timeline);
        let mut neighbours = Vec::new();
        for (n, step) in group.iter().enumerate() {
            let (last, _) = timeline.executions_around(*step, moment + n);
            let (_, next) = timeline.executions_around(*step, moment + n + 1);
            neighbours.extend(last.into_iter().chain(next).filter(|m| timeline.repeats(*m)));
        }
        neighbours.sort_unstable();
        let mut removed = Vec::new();
        while let Some(neighbour) = neighbours.pop() {
            let growth = self.scale.remove(timeline, neighbour);
            let worth = timeline.prepared.cost(timeline.executions[neighbour]) as f64;
            let relieved = excess - timeline.excess;
            if growth <= 0 || (growth as f64 * self.price < worth && growth < relieved) {
                timeline.executions.remove(neighbour);
                self.update(timeline);
                removed.push(neighbour);
            }
        }
        if timeline.excess >= excess {
            timeline.executions = before;
            self.update(timeline);
            return false;
        }
        for candidate in candidates {
            if candidate.moment >= moment {
                candidate.moment += group.len();
            }
            // In the order of removal: from the last to the first.
            for gone in &removed {
                candidate.moment -= usize::from(candidate.moment > *gone);
            }
        }
        true
    }
}
