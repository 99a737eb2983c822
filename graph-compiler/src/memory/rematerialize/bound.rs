//! A lower bound of the peak of all schedules.

use super::computation::{Computation, NEVER};

/// The bytes in memory at each first execution whatever is repeated: its operands, results and
/// workspace, and all values that were computed, are still to be read, and can no longer be
/// recomputed.
pub fn bound(computation: &Computation) -> u64 {
    let steps = computation.steps.len();
    let mut writer = vec![None; computation.values.len()];
    let mut read = vec![0; computation.values.len()];
    for (number, step) in computation.steps.iter().enumerate() {
        step.reads.iter().for_each(|v| read[*v] = number);
        step.writes.iter().for_each(|v| writer[*v] = Some(number));
    }
    // Bytes of values that must stay live, at the steps where this begins and ends; and the range
    // of these steps for each value.
    let mut comes = vec![0u64; steps + 1];
    let mut goes = vec![0u64; steps + 1];
    let mut tied = vec![(0, 0); computation.values.len()];
    for (value, about) in computation.values.iter().enumerate() {
        let Some(made) = writer[value] else { continue };
        let barrier = computation.steps[made].barrier;
        let from = if barrier == NEVER { made } else { barrier.max(made + 1) };
        let to = if about.output { steps } else { read[value] };
        if from <= to && from < steps {
            comes[from] += about.bytes;
            goes[to] += about.bytes;
            tied[value] = (from, to + 1);
        }
    }
    let mut bound = 0;
    let mut load = 0;
    let mut counted = vec![usize::MAX; computation.values.len()];
    for (number, step) in computation.steps.iter().enumerate() {
        load += comes[number];
        let mut own = step.workspace;
        for value in step.reads.iter().chain(&step.writes).filter(|v| writer[**v].is_some()) {
            let (from, to) = tied[*value];
            if !(from..to).contains(&number)
                && std::mem::replace(&mut counted[*value], number) != number
            {
                own += computation.values[*value].bytes;
            }
        }
        bound = bound.max(load + own);
        load -= goes[number];
    }
    bound
}
