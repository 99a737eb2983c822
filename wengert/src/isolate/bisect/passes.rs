//! The search for a faulty pass.

use super::{Case, Fault, PassFault, interpret, wrong_output};
use crate::isolate::diff;
use crate::pipeline;
use std::collections::BTreeMap;
use wengert_core::graph::Function;
use wengert_core::{Result, Target};

/// A function after a pass.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The pass.
    pub pass: String,
    /// The function after it.
    pub function: Function,
}

/// Passes over functions, with fuel.
pub trait Passes {
    /// The function after each run of a pass, in order. A pass makes at most as many changes as
    /// `fuel` says for its name, and any number without an entry.
    ///
    /// Errors: the target lacks something that the function needs.
    fn stages(&self, function: &Function, fuel: &BTreeMap<String, u64>) -> Result<Vec<Stage>>;
}

/// The compiler's graph passes for a target.
impl Passes for Target {
    fn stages(&self, function: &Function, fuel: &BTreeMap<String, u64>) -> Result<Vec<Stage>> {
        let options =
            pipeline::Options { fuel: fuel.clone(), keep_stages: true, ..Default::default() };
        let compiled = pipeline::compile_kernels(function, self, &options)?;
        let stages = compiled.stages.into_iter();
        Ok(stages.map(|(pass, function)| Stage { pass: pass.into(), function }).collect())
    }
}

/// The pass that changes the result beyond the tolerance, and its change. `None` if the function
/// after all passes is right.
///
/// Errors: those of the passes and the interpreter.
pub fn pass(case: &Case, passes: &dyn Passes) -> Result<Option<Fault>> {
    let expected = interpret(&case.function, &case.inputs)?;
    let wrong =
        |function: &Function| wrong_output(case, &expected, &interpret(function, &case.inputs)?);
    let stages = passes.stages(&case.function, &BTreeMap::new())?;
    let Some(last) = stages.last() else { return Ok(None) };
    let Some(mut worst) = wrong(&last.function)? else { return Ok(None) };
    // The stages below `right` are right, that of `bad` is wrong.
    let (mut right, mut bad) = (0, stages.len() - 1);
    while right < bad {
        let middle = (right + bad) / 2;
        match wrong(&stages[middle].function)? {
            Some(deviation) => (bad, worst) = (middle, deviation),
            None => right = middle + 1,
        }
    }
    let name = stages[bad].pass.clone();
    let with_fuel = |fuel: u64| passes.stages(&case.function, &[(name.clone(), fuel)].into());
    let is_wrong = |fuel: u64| -> Result<bool> {
        match with_fuel(fuel)?.last() {
            Some(stage) => Ok(wrong(&stage.function)?.is_some()),
            None => Ok(false),
        }
    };
    let fault =
        |change, changes| PassFault { pass: name.clone(), change, deviation: worst, changes };
    const MOST_FUEL: u64 = 1 << 24;
    let (mut right, mut bad) = (0, 1);
    while !is_wrong(bad)? {
        (right, bad) = (bad, bad * 2);
        if bad > MOST_FUEL {
            return Ok(Some(Fault::Pass(fault(None, vec![]))));
        }
    }
    while right + 1 < bad {
        let middle = right + (bad - right) / 2;
        match is_wrong(middle)? {
            true => bad = middle,
            false => right = middle,
        }
    }
    let (before, after) = (with_fuel(bad - 1)?, with_fuel(bad)?);
    let pairs = before.iter().zip(&after);
    let changes = pairs
        .filter(|(a, b)| a.function.body != b.function.body)
        .map(|(a, b)| diff::functions(&a.function, &b.function))
        .find(|changes| !changes.is_empty())
        .unwrap_or_default();
    Ok(Some(Fault::Pass(fault(Some(bad), changes))))
}
