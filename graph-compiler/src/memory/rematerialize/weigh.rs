//! The effect of a change of a timeline on the excess.

use super::timeline::Timeline;

/// Scratch memory: the values that a change has touched, and whether they are live then.
pub(super) struct Scale {
    stamp: u32,
    stamps: Vec<u32>,
    alive: Vec<bool>,
    touched: Vec<usize>,
    changes: Vec<(usize, i64)>,
    /// Effort so far, in approximate inspected parts of the profile and values.
    pub effort: u64,
}

/// The effect of a group of repetitions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Weight {
    /// Decrease of the excess.
    pub relief: i64,
    /// Its cost, less the cost of other repetitions that it makes needless.
    pub cost: i64,
}

impl Weight {
    /// Relief per cost.
    pub fn score(self) -> f64 {
        self.relief as f64 / self.cost.max(1) as f64
    }
}

impl Scale {
    pub fn new(values: usize) -> Self {
        Scale {
            stamp: 0,
            stamps: vec![0; values],
            alive: vec![false; values],
            touched: Vec::new(),
            changes: Vec::new(),
            effort: 0,
        }
    }

    fn begin(&mut self, timeline: &Timeline<'_>) {
        self.stamp += 1;
        self.touched.clear();
        self.changes.clear();
        self.effort += (timeline.load.len() / 16) as u64;
    }

    fn is_alive(&mut self, timeline: &Timeline<'_>, value: usize, moment: usize) -> bool {
        if self.stamps[value] != self.stamp {
            self.stamps[value] = self.stamp;
            self.alive[value] = timeline.around(value, moment).1.is_some_and(|t| !t.makes);
            self.touched.push(value);
        }
        self.alive[value]
    }

    /// Growth of the excess if a group of repetitions is inserted before an execution.
    pub fn insert(&mut self, timeline: &Timeline<'_>, group: &[usize], moment: usize) -> i64 {
        let prepared = timeline.prepared;
        self.begin(timeline);
        let mut live = timeline.before[moment];
        let mut growth = 0;
        for step in group.iter().rev() {
            let about = &prepared.computation.steps[*step];
            let mut load = live + about.workspace as i64;
            for value in &about.writes {
                match self.is_alive(timeline, *value, moment) {
                    true => live -= prepared.bytes(*value),
                    false => load += prepared.bytes(*value),
                }
                self.alive[*value] = false;
            }
            for value in &prepared.reads[*step] {
                if !self.is_alive(timeline, *value, moment) {
                    live += prepared.bytes(*value);
                    load += prepared.bytes(*value);
                    self.alive[*value] = true;
                }
            }
            growth += (load - timeline.budget).max(0);
        }
        self.intervals(timeline, moment);
        self.effort += 16 * self.touched.len() as u64;
        growth + timeline.growth(&mut self.changes)
    }

    /// Weighs a group of repetitions before an execution, with an estimate of the repetitions
    /// that it makes needless. `price` is the value of a byte of excess.
    pub fn weigh(
        &mut self,
        timeline: &Timeline<'_>,
        group: &[usize],
        moment: usize,
        price: f64,
    ) -> Weight {
        let cost = group.iter().map(|s| timeline.prepared.cost(*s) as i64).sum();
        let mut weight = Weight { relief: -self.insert(timeline, group, moment), cost };
        for step in group {
            self.credit(timeline, *step, moment, price, &mut weight);
        }
        weight
    }

    /// Adds intervals from the last touch of each value whose liveness before `moment` changed.
    fn intervals(&mut self, timeline: &Timeline<'_>, moment: usize) {
        for value in &self.touched {
            let (last, next) = timeline.around(*value, moment);
            let was = next.is_some_and(|t| !t.makes);
            if was == self.alive[*value] {
                continue;
            }
            let bytes = timeline.prepared.bytes(*value);
            let bytes = if was { -bytes } else { bytes };
            let from = last.map_or(0, |t| t.moment + 1);
            if from < moment && bytes != 0 {
                self.changes.extend([(from, bytes), (moment, -bytes)]);
            }
        }
    }

    /// Credits the repetitions that a repetition makes needless: the next one, if its results can
    /// be held until then, and the last one, if its results are no longer read.
    fn credit(
        &mut self,
        timeline: &Timeline<'_>,
        step: usize,
        moment: usize,
        price: f64,
        weight: &mut Weight,
    ) {
        let prepared = timeline.prepared;
        let about = &prepared.computation.steps[step];
        let (last, next) = timeline.executions_around(step, moment);
        if let Some(next) = next {
            let mut growth = 0;
            for value in &about.writes {
                let needed = timeline.around(*value, next + 1).1.is_some_and(|t| !t.makes);
                let from = timeline.around(*value, next).0.map_or(0, |t| t.moment + 1).max(moment);
                if needed && from < next {
                    growth += timeline.shift(from, next, prepared.bytes(*value));
                    self.effort += (timeline.load.len() / 32) as u64;
                }
            }
            if growth as f64 * price < about.cost as f64 {
                weight.relief -= growth;
                weight.cost -= about.cost as i64;
            }
        }
        let unread = |last: usize| {
            let touches = about.writes.iter().map(|v| timeline.around(*v, moment).0);
            touches.flatten().all(|t| t.moment == last)
        };
        if last.is_some_and(|last| timeline.repeats(last) && unread(last)) {
            weight.cost -= about.cost as i64;
        }
    }

    /// Growth of the excess if a repetition is removed.
    pub fn remove(&mut self, timeline: &Timeline<'_>, moment: usize) -> i64 {
        let prepared = timeline.prepared;
        self.begin(timeline);
        let step = timeline.executions[moment];
        let mut change = |value: usize, made: bool| {
            let needed = timeline.around(value, moment + 1).1.is_some_and(|t| !t.makes);
            let from = timeline.around(value, moment).0.map_or(0, |t| t.moment + 1);
            let bytes = prepared.bytes(value);
            // Its results are held from their last touch on; operands that only it reads are not.
            let bytes = if made { bytes } else { -bytes };
            if needed == made && from < moment && bytes != 0 {
                self.changes.extend([(from, bytes), (moment, -bytes)]);
            }
        };
        prepared.computation.steps[step].writes.iter().for_each(|v| change(*v, true));
        prepared.reads[step].iter().for_each(|v| change(*v, false));
        self.effort += 32;
        let own = (timeline.load[moment] - timeline.budget).max(0);
        timeline.growth(&mut self.changes) - own * timeline.counts[moment]
    }
}
