//! The steps to repeat for a value: its own step, and those of operands that are cheaper to
//! recompute than to hold.
//!
//! Memory has a price per byte held through an execution whose load is above the budget. An
//! operand of a repeated step is either held from its last touch, or recomputed by its own step,
//! whose operands are decided in the same way. At price 0 the group is one step. A higher price
//! extends it further back: to values that are live anyway, to the beginning of the layer, to the
//! last moment of few live bytes.

use super::timeline::Timeline;

/// Greatest depth of recursion over operands.
const DEPTH: usize = 200;

/// Scratch memory.
pub(super) struct Grouper {
    stamp: u32,
    /// For each value the stamp of its last visit, its least cost, and whether to recompute it.
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

    /// The steps that recompute `value` before the execution at `moment`, in order. Empty if it
    /// may not be recomputed there, or if there are more than `most`.
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
        let Some(step) =
            prepared.writer[value].filter(|s| prepared.may_repeat(*s, timeline.done[moment]))
        else {
            return &self.group;
        };
        self.taken[step] = self.stamp;
        self.group.push(step);
        let mut next = 0;
        while let Some(step) = self.group.get(next).copied() {
            next += 1;
            for read in &prepared.reads[step] {
                let writer =
                    prepared.writer[*read].expect("a prepared step reads what steps write");
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

    /// The least cost of having a value before the execution at `moment`. Also records whether to
    /// recompute it.
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
        let hold =
            if hot == 0 { 0.0 } else { price * prepared.bytes(value) as f64 * f64::from(hot) };
        let step = prepared.writer[value].expect("a prepared step reads what steps write");
        let mut made = prepared.cost(step) as f64;
        let mut again =
            depth < DEPTH && made < hold && prepared.may_repeat(step, timeline.done[moment]);
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
