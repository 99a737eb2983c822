//! Checks that a schedule computes what the steps compute, and returns its cost.
//!
//! This shares no code with the solvers. It replays a schedule forwards with instances of values:
//! one for each execution that writes a value.

use super::computation::{Computation, Cost, Schedule};

/// An instance of a value: the execution that writes it, and the last that reads it.
struct Instance {
    value: usize,
    made: usize,
    read: usize,
}

/// Checks a schedule: every step runs, the first executions in the given order; every value read
/// was written before; repetitions come before their barriers; outputs are live at the end.
///
/// # Errors
///
/// The fault, in a sentence.
pub fn check(computation: &Computation, schedule: &Schedule) -> Result<Cost, String> {
    let written: Vec<Option<usize>> = writers(computation)?;
    let end = schedule.executions.len();
    let mut current: Vec<Option<usize>> = vec![None; computation.values.len()];
    let mut instances: Vec<Instance> = Vec::new();
    let mut first = 0;
    let mut cost = Cost::default();
    for (moment, step) in schedule.executions.iter().enumerate() {
        let Some(what) = computation.steps.get(*step) else {
            return Err(format!("execution {moment} is of step {step}, which does not exist"));
        };
        if *step > first {
            return Err(format!("step {step} runs before step {first} has run"));
        }
        if *step == first {
            first += 1;
        } else {
            if first > what.barrier {
                return Err(format!("execution {moment} repeats step {step} behind its barrier"));
            }
            cost.added += what.cost;
            cost.repetitions += 1;
        }
        for value in &what.reads {
            match (written[*value], current[*value]) {
                (None, _) => {}
                (Some(_), Some(instance)) => instances[instance].read = moment,
                (Some(writer), None) => {
                    return Err(format!(
                        "execution {moment} reads value {value} before step {writer} has made it"
                    ));
                }
            }
        }
        for value in &what.writes {
            current[*value] = Some(instances.len());
            instances.push(Instance { value: *value, made: moment, read: moment });
        }
    }
    if first < computation.steps.len() {
        return Err(format!("step {first} does not run"));
    }
    for (value, about) in computation.values.iter().enumerate().filter(|(_, about)| about.output) {
        match current[value] {
            Some(instance) => instances[instance].read = end,
            None if written[value].is_none() => {}
            None => return Err(format!("output {value}, of {} bytes, is not made", about.bytes)),
        }
    }
    // Bytes that become live and die at each moment.
    let mut comes = vec![0u64; end + 1];
    let mut goes = vec![0u64; end + 1];
    for instance in &instances {
        comes[instance.made] += computation.values[instance.value].bytes;
        goes[instance.read] += computation.values[instance.value].bytes;
    }
    let mut load = 0;
    for (moment, step) in schedule.executions.iter().enumerate() {
        load += comes[moment];
        cost.peak = cost.peak.max(load + computation.steps[*step].workspace);
        load -= goes[moment];
    }
    Ok(cost)
}

/// For each value the step that writes it.
fn writers(computation: &Computation) -> Result<Vec<Option<usize>>, String> {
    let mut written = vec![None; computation.values.len()];
    for (step, what) in computation.steps.iter().enumerate() {
        if let Some(value) =
            what.reads.iter().chain(&what.writes).find(|v| **v >= computation.values.len())
        {
            return Err(format!("step {step} names value {value}, which does not exist"));
        }
        for value in &what.writes {
            if let Some(other) = written[*value].replace(step) {
                return Err(format!("steps {other} and {step} both write value {value}"));
            }
        }
    }
    Ok(written)
}
