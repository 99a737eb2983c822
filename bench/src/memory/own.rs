//! Memory of this library's steps.

use super::Footprint;
use crate::case::Case;
use crate::compile::passes::{Clock, processor_time};
use crate::resident::FUNCTION;
use std::sync::Arc;
use std::time::Instant;
use wengert::pipeline::{Bound, Options, compile, compile_kernels};
use wengert::{Binding, Program, Result, naive_peak, target};

/// The passes that determine the order of kernels and the offsets of buffers, and their checks.
const PLANNING: [&str; 9] =
    ["schedule", "nests", "homes", "moves", "slots", "offsets", "emit", "account", "verify plan"];

/// Compiles a training step for the CPU with the default settings.
///
/// Error: it cannot be made or compiled.
pub fn footprint(case: &Case) -> Result<Footprint> {
    let (binding, target, options) = (Binding::new(), target("cpu")?, Options::default());
    let begin = Instant::now();
    let program = case.program()?;
    let clock = Arc::new(Clock::default());
    let began = processor_time();
    let plan = tracing::subscriber::with_default(clock.clone(), || {
        compile(&program, FUNCTION, &binding, &target, &options)
    })?;
    let (compiled, compile_seconds) = (processor_time() - began, begin.elapsed().as_secs_f64());
    let passes = clock.total();
    let planning: f64 =
        PLANNING.iter().filter_map(|name| passes.get(*name)).map(|took| took.as_secs_f64()).sum();
    let bytes = |value| plan.values[value].bytes();
    // Inputs that are only read are the batch.
    let state = plan.variables.iter().filter_map(|v| v.before.filter(|before| *before != v.after));
    let made = plan.variables.iter().filter(|v| v.before.is_none()).map(|v| v.after);
    let results = made.chain(plan.outputs.iter().map(|output| output.value));
    Ok(Footprint {
        case: case.id.clone(),
        contender: "wengert".into(),
        device: "cpu".into(),
        way: String::new(),
        parameters: case.work.elements,
        state_bytes: state.map(bytes).sum(),
        arena_bytes: plan.arena,
        result_bytes: results.map(bytes).sum(),
        bound_bytes: Some(plan.lower_bound),
        naive_bytes: Some(naive(&program, &binding)?),
        compile_seconds,
        planning: Some(planning / compiled.as_secs_f64().max(f64::MIN_POSITIVE)),
    })
}

/// The peak of the naive order.
fn naive(program: &Program, binding: &Binding) -> Result<u64> {
    let function = Bound::new(program.get(FUNCTION)?, binding)?.function;
    let target = target("cpu")?;
    Ok(naive_peak(&compile_kernels(&function, &target, &Options::default())?.kernels, &target))
}
