//! Lower bounds of the height.

use super::problem::Problem;

/// The max load: the greatest total size of the buffers live at one moment. If a buffer with a
/// fixed offset ends above that, its end.
pub fn max_load(problem: &Problem) -> u64 {
    let loads = load(problem).into_iter().map(|(_, load)| load);
    let fixed = problem.buffers.iter().filter_map(|b| b.fixed?.checked_add(b.size));
    loads.chain(fixed).max().unwrap_or(0)
}

/// The moments at which the load changes, in order, each with the load from then on. Saturates.
pub fn load(problem: &Problem) -> Vec<(u64, u64)> {
    let mut changes: Vec<(u64, u64, bool)> = Vec::with_capacity(2 * problem.buffers.len());
    for buffer in problem.buffers.iter().filter(|b| b.lives()) {
        changes.push((buffer.lower, buffer.size, true));
        changes.push((buffer.upper, buffer.size, false));
    }
    changes.sort_unstable();
    let mut steps: Vec<(u64, u64)> = Vec::new();
    let mut sum: u128 = 0;
    for (moment, size, birth) in changes {
        sum = if birth { sum + u128::from(size) } else { sum - u128::from(size) };
        let load = u64::try_from(sum).unwrap_or(u64::MAX);
        match steps.last_mut() {
            Some((last, now)) if *last == moment => *now = load,
            _ => steps.push((moment, load)),
        }
    }
    steps
}
