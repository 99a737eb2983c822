//! Problems for tests, and the load of their orders by definition.

use super::task_graph::{Step, TaskGraph, Value};

/// A pseudo-random generator: each call returns a number below its argument.
pub(super) fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |n| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 16) as usize % n.max(1)
    }
}

impl TaskGraph {
    /// Adds the dependency of `then` on `first`.
    pub fn wait(&mut self, first: usize, then: usize) {
        if !self.steps[then].before.contains(&first) {
            self.steps[then].before.push(first);
            self.steps[first].after.push(then);
        }
    }

    /// Adds a step with results of the given bytes. Returns the results.
    pub fn step(&mut self, reads: &[usize], results: &[u64]) -> Vec<usize> {
        let k = self.steps.len();
        self.steps.push(Step { reads: reads.to_vec(), ..Step::default() });
        for read in reads {
            self.values[*read].readers.push(k);
            self.wait(self.values[*read].writer, k);
        }
        for bytes in results {
            self.steps[k].writes.push(self.values.len());
            self.values.push(Value { bytes: *bytes, writer: k, readers: Vec::new(), kept: false });
        }
        self.steps[k].writes.clone()
    }

    /// Whether each step occurs once, after all steps that it depends on.
    pub fn allows(&self, order: &[usize]) -> bool {
        let mut moment = vec![None; self.steps.len()];
        order.iter().enumerate().for_each(|(m, k)| moment[*k] = Some(m));
        let waits = |k: usize| self.steps[k].before.iter().all(|b| moment[*b] < moment[k]);
        order.len() == self.steps.len() && (0..order.len()).all(|k| moment[k].is_some() && waits(k))
    }

    /// The load of step `k` if exactly the steps that satisfy `done` have run.
    pub fn load(&self, k: usize, done: impl Fn(usize) -> bool) -> u64 {
        let is_there =
            |v: &Value| done(v.writer) && (v.kept || v.readers.iter().any(|r| !done(*r)));
        let dies = |v: &Value| !v.kept && v.readers.iter().all(|r| done(*r) || *r == k);
        let step = &self.steps[k];
        let live = self.values.iter().filter(|v| is_there(v) || v.writer == k).map(|v| v.bytes);
        let mut taken: Vec<(usize, usize)> = Vec::new();
        for (write, read) in &step.in_place {
            let is_new = taken.iter().all(|(w, r)| w != write && r != read);
            if is_new && dies(&self.values[*read]) {
                taken.push((*write, *read));
            }
        }
        let saved: u64 = taken.iter().map(|(_, read)| self.values[*read].bytes).sum();
        live.sum::<u64>() + step.workspace - saved
    }

    /// The greatest load of an order.
    pub fn peak(&self, order: &[usize]) -> u64 {
        let mut done = vec![false; order.len()];
        let loads = order.iter().map(|k| {
            let load = self.load(*k, |s| done[s]);
            done[*k] = true;
            load
        });
        loads.max().unwrap_or(0)
    }

    /// The least peak of all orders, by dynamic programming over sets of steps.
    pub fn least_peak(&self) -> u64 {
        let count = self.steps.len();
        let mut least = vec![None; 1 << count];
        least[0] = Some(0);
        for set in 0..1usize << count {
            let Some(peak) = least[set] else { continue };
            let done = |k: usize| set >> k & 1 == 1;
            for k in
                (0..count).filter(|k| !done(*k) && self.steps[*k].before.iter().all(|b| done(*b)))
            {
                let peak = self.load(k, done).max(peak);
                let with = &mut least[set | 1 << k];
                *with = Some(with.map_or(peak, |other: u64| other.min(peak)));
            }
        }
        least[(1 << count) - 1].expect("dependencies have no cycle")
    }
}

/// Random steps that read some of the values before them, with every feature of a task graph.
pub(super) fn random(seed: u64, count: usize) -> TaskGraph {
    let mut random = numbers(seed);
    let mut p = TaskGraph::default();
    for k in 0..count {
        let values = p.values.len();
        let mut reads: Vec<usize> = Vec::new();
        for _ in 0..if values == 0 { 0 } else { random(4) } {
            let back = if random(2) == 0 { values.min(4) } else { values };
            reads.push(values - 1 - random(back));
        }
        reads.sort_unstable();
        reads.dedup();
        let count = [1, 1, 1, 0, 2][random(5)];
        let results = (0..count).map(|_| {
            let most = [4, 20][random(2)];
            1 + random(most) as u64
        });
        let results: Vec<u64> = results.collect();
        for result in p.step(&reads, &results) {
            p.values[result].kept = random(12) == 0;
            for read in &reads {
                if p.values[*read].bytes == p.values[result].bytes && random(2) == 0 {
                    p.steps[k].in_place.push((result, *read));
                }
            }
        }
        if k > 0 && random(12) == 0 {
            p.wait(random(k), k);
        }
        p.steps[k].workspace = if random(5) == 0 { 1 + random(8) as u64 } else { 0 };
    }
    p
}
