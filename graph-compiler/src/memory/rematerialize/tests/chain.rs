//! Chains of equal steps: binomial checkpointing.
//!
//! A chain runs forwards. Then its steps are *taped* and reversed one by one, the last one first.
//! Taping a step needs the state before it. Some states are kept as *checkpoints*, at most `s` at
//! a time, the initial one included. Other states are recomputed by *advancing* from the nearest
//! checkpoint before them. With β(s, r) = C(s + r, s) and the least r such that l ≤ β(s, r), l
//! steps take
//!
//! > t(l, s) = r·l − C(s + r, r − 1)
//!
//! advances, the first run included, and l tapings. No schedule takes fewer. The minimum is
//! reached if the first checkpoint after the initial one is placed after
//! m = min(β(s, r − 1), l − β(s − 1, r − 1)) steps: the l − m steps behind it are reversed with
//! s − 1 checkpoints, then the m steps before it with s.
//!
//! A chain of unknown length is run once to find its end, which takes l more advances.
//!
//! # References
//!
//! Griewank, *Achieving logarithmic growth of temporal and spatial complexity in reverse
//! automatic differentiation*, 1992; Griewank and Walther, *Algorithm 799: Revolve*, 2000.

/// An action on a chain. A state has the number of the step after it. There is one *current*
/// state besides the checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Runs a step without a tape: from its state to the next one.
    Advance(u64),
    /// Keeps the current state as a checkpoint.
    Checkpoint(u64),
    /// Makes a checkpoint the current state. The checkpoint stays.
    Restore(u64),
    /// Frees a checkpoint.
    Free(u64),
    /// Runs the step of the current state with a tape, and reverses it.
    Tape(u64),
}

/// Whether the length of a chain is known when it begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Length {
    /// The length is known.
    Known,
    /// The length is found by running the chain.
    Found,
}

/// C(n, k), saturating.
fn choose(n: u64, k: u64) -> u64 {
    let k = k.min(n.saturating_sub(k));
    let mut product = 1u128;
    for i in 1..=k {
        // A product of i consecutive numbers is divisible by i!, so no division has a remainder.
        product = product * u128::from(n - k + i) / u128::from(i);
        if product >= u128::from(u64::MAX) {
            return u64::MAX;
        }
    }
    product as u64
}

/// β(s, r): the number of steps that can be reversed with `checkpoints` if no step is advanced
/// over more than `runs` times.
fn reach(checkpoints: u64, runs: u64) -> u64 {
    match checkpoints.checked_add(runs) {
        Some(sum) => choose(sum, runs),
        None => u64::MAX,
    }
}

/// The least number r with l ≤ β(s, r).
fn runs(steps: u64, checkpoints: u64) -> u64 {
    // With one checkpoint, each run extends the reach by one.
    if checkpoints == 1 {
        return steps.saturating_sub(1);
    }
    let mut runs = 0;
    while reach(checkpoints, runs) < steps {
        runs += 1;
    }
    runs
}

/// Number of advances that reverse a chain: t(l, s), plus l for a length that is `Found`.
/// Saturates.
///
/// # Panics
///
/// If there are steps and no checkpoints.
pub fn advances(steps: u64, checkpoints: u64, length: Length) -> u64 {
    if steps == 0 {
        return 0;
    }
    assert!(checkpoints > 0, "the initial state is a checkpoint");
    let runs = runs(steps, checkpoints);
    let less = if runs == 0 { 0 } else { choose(checkpoints.saturating_add(runs), runs - 1) };
    let exact = match runs {
        0 => 0,
        // A sum of consecutive numbers. Both products of the general case may overflow.
        _ if checkpoints == 1 => u128::from(steps) * u128::from(steps - 1) / 2,
        _ => u128::from(runs) * u128::from(steps) - u128::from(less),
    };
    let first = if length == Length::Found { u128::from(steps) } else { 0 };
    u64::try_from(exact + first).unwrap_or(u64::MAX)
}

/// Number of steps before the next checkpoint. `steps` is at least two, and so is `checkpoints`,
/// which counts the checkpoint at the beginning.
fn stride(steps: u64, checkpoints: u64) -> u64 {
    let runs = runs(steps, checkpoints);
    reach(checkpoints, runs - 1).min(steps - reach(checkpoints - 1, runs - 1))
}

/// All actions that reverse a chain, in order. At the beginning the initial state is a checkpoint
/// and current; at the end it is a checkpoint.
///
/// # Panics
///
/// If there are steps and no checkpoints.
pub fn reverse(steps: u64, checkpoints: u64, length: Length) -> Vec<Action> {
    assert!(steps == 0 || checkpoints > 0, "the initial state is a checkpoint");
    let mut actions = Vec::new();
    if length == Length::Found && steps > 0 {
        actions.extend((0..steps).map(Action::Advance));
        actions.push(Action::Restore(0));
    }
    // Stretches (from, to, checkpoints) whose first state is a checkpoint; the next stretch is
    // last. The steps behind a stretch have been reversed.
    let mut stretches = vec![(0, steps, checkpoints)];
    let mut current = 0;
    while let Some((from, to, checkpoints)) = stretches.pop() {
        if from == to {
            continue;
        }
        if current != from {
            actions.push(Action::Restore(from));
        }
        match (to - from, checkpoints) {
            (1, _) => actions.push(Action::Tape(from)),
            (_, 1) => {
                for step in (from..to).rev() {
                    if step + 1 < to {
                        actions.push(Action::Restore(from));
                    }
                    actions.extend((from..step).map(Action::Advance));
                    actions.push(Action::Tape(step));
                }
            }
            (count, _) => {
                let next = from + stride(count, checkpoints);
                actions.extend((from..next).map(Action::Advance));
                actions.push(Action::Checkpoint(next));
                stretches.push((from, next, checkpoints));
                stretches.push((next, to, checkpoints - 1));
                current = next;
                continue;
            }
        }
        if from > 0 {
            actions.push(Action::Free(from));
        }
        // A tape leaves no current state.
        current = u64::MAX;
    }
    actions
}
