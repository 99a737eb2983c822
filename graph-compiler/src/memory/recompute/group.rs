//! Which steps to repeat for a value: those of its inputs that are cheaper to make again than to hold.
//!
//! Memory has a price: so much for a byte that is held through an execution whose load is above the budget. An input of a repeated step is held from its last
//! touch, or made again by its own step, out of inputs of which the same is asked. At price 0 the group is one step; the higher the price, the farther back
//! it reaches: to what is alive anyway, to the beginning of the layer, to the last narrow place.

use super::timeline::Timeline;

/// How far a chain of inputs is followed.
const DEPTH: usize = 200;

/// Scratch memory.
pub(super) struct Grouper {
    stamp: u32,
    /// For each value when it was last looked at, and what making it again costs at most.
    seen: Vec<(u32, f64, bool)>,
    taken: Vec<u32>,
    pub group: Vec<usize>,
    pub effort: u64,
}

impl Grouper {
    pub fn new(steps: usize, values: usize) -> Self {
        Grouper {
            stamp: 0,
            seen: vec![(0, 0.0, false); values],
            taken: vec![0; steps],
            group: Vec::new(),
            effort: 0,
        }
    }

    /// The steps that make `value` before the execution at `moment`, in order; none if it may not be made again there.
    pub fn of(
        &mut self,
        timeline: &Timeline<'_>,
        value: usize,
        moment: usize,
        price: f64,
        most: usize,
    ) -> &[usize] {
        self.stamp += 1;
        self.group.clear();
        let prepared = timeline.prepared;
        let Some(step) = prepared.writer[value].filter(|s| prepared.may_repeat(*s, timeline.done[moment]))
        else {
            return &self.group;
        };
        self.taken[step] = self.stamp;
        self.group.push(step);
        let mut next = 0;
        while let Some(step) = self.group.get(next).copied() {
            next += 1;
            for read in &prepared.reads[step] {
                let writer = prepared.writer[*read].expect("a prepared step reads what steps write");
                if self.taken[writer] == self.stamp {
                    continue;
                }
                self.price_of(timeline, *read, moment, price, 0);
                if self.seen[*read].2 {
                    self.taken[writer] = self.stamp;
                    self.group.push(writer);
                }
            }
            if self.group.len() > most {
                self.group.clear();
                return &self.group;
            }
        }
        self.group.sort_unstable();
        &self.group
    }

    /// What it takes to have a value before the execution at `moment`, and whether it is to be made again.
    fn price_of(
        &mut self,
        timeline: &Timeline<'_>,
        value: usize,
        moment: usize,
        price: f64,
        depth: usize,
    ) -> f64 {
        let prepared = timeline.prepared;
        if self.seen[value].0 == self.stamp {
            return self.seen[value].1;
        }
        self.effort += 8;
        let last = timeline.around(value, moment).0.map_or(0, |t| t.moment + 1);
        let hot = timeline.hot_between(last, moment);
        let hold = if hot == 0 { 0.0 } else { price * prepared.bytes(value) as f64 * f64::from(hot) };
        let step = prepared.writer[value].expect("a prepared step reads what steps write");
        let mut made = prepared.cost(step) as f64;
        let mut again = depth < DEPTH && made < hold && prepared.may_repeat(step, timeline.done[moment]);
        if again {
            for read in &prepared.reads[step] {
                if self.taken[prepared.writer[*read].expect("a step writes it")] != self.stamp {
                    made += self.price_of(timeline, *read, moment, price, depth + 1);
                }
                if made >= hold {
                    again = false;
                    break;
                }
            }
        }
        let least = if again { made } else { hold };
        self.seen[value] = (self.stamp, least, again);
        least
    }
}
