//! Chains of equal steps: binomial checkpointing.
//!
//! A chain is run forwards and then *taped* and reversed step by step, the last one first. To tape a step its state is needed, the one before it. Some states are kept as *checkpoints*, at most `s` at a
//! time, the initial one among them; from the nearest one before it a state is made by *advancing*. With β(s, r) = C(s + r, s) and the least r such that
//! l ≤ β(s, r), l steps take
//!
//! > t(l, s) = r·l − C(s + r, r − 1)
//!
//! advances, the first run among them, and l tapings. No schedule takes fewer. This many it takes if the first checkpoint behind the initial one is put after
//! m = min(β(s, r − 1), l − β(s − 1, r − 1)) steps: the l − m steps behind it are reversed with s − 1 checkpoints, then the m steps before it with s.
//!
//! Whose length is not known before the end has been reached is run once for that, so there are l advances more.
//!
//! # References
//!
//! Griewank, *Achieving logarithmic growth of temporal and spatial complexity in reverse automatic differentiation*, 1992; Griewank and Walther,
//! *Algorithm 799: Revolve*, 2000.

/// What is done to a chain. States are numbered as the steps that they lie before. There is one *current* state besides the checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Runs a step without a tape: from its state to the next one.
    Advance(u64),
    /// Keeps the current state.
    Checkpoint(u64),
    /// Makes a checkpoint current. It is kept.
    Restore(u64),
    /// Gives a checkpoint up.
    Free(u64),
    /// Runs the step of the current state with a tape, and reverses it.
    Tape(u64),
}

/// Whether the length of a chain is known when it begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Length {
    /// It is.
    Known,
    /// It is found by running.
    Found,
}

/// C(n, k), or the greatest number if it is above that.
fn choose(n: u64, k: u64) -> u64 {
    let k = k.min(n.saturating_sub(k));
    let mut product = 1u128;
    for i in 1..=k {
        // The product of i numbers in a row is divided by i!, so there is no remainder at any time.
        product = product * u128::from(n - k + i) / u128::from(i);
        if product >= u128::from(u64::MAX) {
            return u64::MAX;
        }
    }
    product as u64
}

/// β(s, r): how many steps can be reversed with `checkpoints` if none is advanced over more than `runs` times.
fn reach(checkpoints: u64, runs: u64) -> u64 {
    match checkpoints.checked_add(runs) {
        Some(sum) => choose(sum, runs),
        None => u64::MAX,
    }
}

/// The least number r with l ≤ β(s, r).
fn runs(steps: u64, checkpoints: u64) -> u64 {
    // With one checkpoint the reach grows by one at a time.
    if checkpoints == 1 {
        return steps.saturating_sub(1);
    }
    let mut runs = 0;
    while reach(checkpoints, runs) < steps {
        runs += 1;
    }
    runs
}

/// How many advances it takes to reverse a chain: t(l, s), for a length that is `Found` l more. The greatest number if it is above that.
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
        // A sum of the first numbers, of which both products may be too large.
        _ if checkpoints == 1 => u128::from(steps) * u128::from(steps - 1) / 2,
        _ => u128::from(runs) * u128::from(steps) - u128::from(less),
    };
    let first = if length == Length::Found { u128::from(steps) } else { 0 };
    u64::try_from(exact + first).unwrap_or(u64::MAX)
}

/// After how many of `steps` steps, two at least, the next of `checkpoints` is put, which are two at least with the one at the beginning.
fn stride(steps: u64, checkpoints: u64) -> u64 {
    let runs = runs(steps, checkpoints);
    reach(checkpoints, runs - 1).min(steps - reach(checkpoints - 1, runs - 1))
}

/// Everything that is done to reverse a chain, in order. The initial state is a checkpoint and current when it begins, and a checkpoint when it ends.
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
    // Stretches (from, to) whose first state is a checkpoint, the next one last; the steps behind them have been reversed. For each its checkpoints.
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
        // A tape leaves no state behind.
        current = u64::MAX;
    }
    actions
}
