//! Runs the passes over graphs.

use crate::pass::{Pass, within};
use crate::rewrite;
use std::collections::BTreeMap;
use wengert_core::graph::{Function, verify};
use wengert_core::{Result, Target};

/// The inputs of a pass over graphs besides the function.
pub struct Context<'a> {
    /// The target.
    pub target: &'a Target,
    /// Changes that the pass may still make.
    pub fuel: u64,
}

/// A pass over graphs. Its function returns the new function and the number of changes.
pub type GraphPass = Pass<fn(Function, &Context<'_>) -> Result<(Function, u64)>>;

/// A step of the passes over graphs.
pub(crate) enum Step {
    /// A pass, once.
    Once(GraphPass),
    /// Passes in turn until none makes a change.
    Fixpoint(&'static [GraphPass]),
    /// A pass, once, whose result is used only if its plan takes no more memory
    /// ([`trial`](super::trial)). It is the last step.
    Trial(GraphPass),
}

/// Runs passes; tracks fuel and stages, and verifies.
pub(super) struct Runner<'a> {
    target: &'a Target,
    /// Fuel by the names of passes. A pass without an entry may make any number of changes.
    fuel: &'a BTreeMap<String, u64>,
    /// Whether to keep the function after each pass.
    keep_stages: bool,
    /// Fuel spent so far by the passes of each name.
    spent: BTreeMap<&'static str, u64>,
    /// The function after each run of a pass, if `keep_stages` is set.
    pub stages: Vec<(&'static str, Function)>,
    /// The function before the pass on trial, if that has made a change.
    pub plain: Option<Function>,
}

impl<'a> Runner<'a> {
    pub fn new(target: &'a Target, fuel: &'a BTreeMap<String, u64>, keep_stages: bool) -> Self {
        let (spent, stages) = (BTreeMap::new(), Vec::new());
        Runner { target, fuel, keep_stages, spent, stages, plain: None }
    }

    /// Runs a pass. Returns the function and the number of changes.
    fn pass(&mut self, pass: &GraphPass, function: Function) -> Result<(Function, u64)> {
        let spent = self.spent.entry(pass.name).or_default();
        let fuel = self.fuel.get(pass.name).map_or(u64::MAX, |fuel| fuel.saturating_sub(*spent));
        let context = Context { target: self.target, fuel };
        let (changed, changes) = pass.within(|run| run(function, &context))?;
        *spent += changes;
        // An unchanged function has been verified before. Debug builds verify it again, to test
        // that the pass counts its changes.
        if (changes > 0 || cfg!(debug_assertions))
            && let Err(fault) = within("verify", || verify(&changed))
        {
            panic!("pass {} breaks an invariant of the graph: {fault}", pass.name);
        }
        tracing::debug!(pass = pass.name, changes, equations = changed.body.equations.len());
        if self.keep_stages {
            self.stages.push((pass.name, changed.clone()));
        }
        Ok((changed, changes))
    }

    /// Runs a step of the pipeline.
    pub fn step(&mut self, step: &Step, mut function: Function) -> Result<Function> {
        match step {
            Step::Once(pass) => Ok(self.pass(pass, function)?.0),
            Step::Trial(pass) => {
                let plain = function.clone();
                let (changed, changes) = self.pass(pass, function)?;
                self.plain = (changes > 0).then_some(plain);
                Ok(changed)
            }
            Step::Fixpoint(passes) => {
                let mut seen = rewrite::Seen::default();
                // Number of consecutive passes without a change. The fixpoint ends when it
                // reaches all of them. For termination see `rewrite`.
                let mut quiet = 0;
                while quiet < passes.len() {
                    if !seen.is_new(&function.body) {
                        debug_assert!(
                            false,
                            "passes undo each other's changes to @{}",
                            function.name
                        );
                        break;
                    }
                    for pass in *passes {
                        if quiet == passes.len() {
                            break;
                        }
                        let (changed, changes) = self.pass(pass, function)?;
                        function = changed;
                        quiet = if changes == 0 { quiet + 1 } else { 0 };
                    }
                }
                Ok(function)
            }
        }
    }
}
