//! The ordered list of passes, and the runner.
//!
//! A function is bound (no dimension variables) before it comes here. Passes up to
//! `split_reductions` rewrite the graph and fix the computed bits. `fuse` and `lower` decide
//! where and when they are computed. The verifier runs after every pass. Each pass spends
//! **fuel**, one unit for each change it makes, and stops when its fuel is spent; this is how a
//! miscompilation is bisected.
//!
//! A pass declares how it may change results ([`Keeps`]). `tests/validation` checks this: it
//! interprets random functions before and after each pass. Each pass runs in a `tracing` span
//! called `pass`, from which `wengert-bench compile` takes its time.

use crate::kernels::Kernels;
use crate::lower;
use crate::memory::assign::problem::Problem;
use crate::memory::{self, Planned, plan_kernels};
use crate::{calls, probes, rewrite};
use std::collections::BTreeMap;
use wengert_core::graph::{Function, Program, verify};
use wengert_core::plan::{self, Plan};
use wengert_core::{Binding, Location, LocationId, LocationTable, Result, Target};

/// Options of a compilation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether equations are fused into kernels; the bits are the same either way.
    pub fuse: bool,
    /// The number of changes that a pass may make, by its name. A pass without an entry may make
    /// any number.
    pub fuel: BTreeMap<String, u64>,
    /// Whether to keep the function after each pass.
    pub keep_stages: bool,
    /// Upper bound in bytes for all memory that a plan names: variables, inputs, outputs,
    /// constants and arena. Kernels are repeated if a plan would take more.
    pub memory_budget: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options { fuse: true, fuel: BTreeMap::new(), keep_stages: false, memory_budget: None }
    }
}

/// A function as kernels, with the stages of its compilation.
#[derive(Clone, PartialEq, Debug)]
pub struct Compiled {
    /// The function after the last graph pass.
    pub function: Function,
    /// Its kernels.
    pub kernels: Kernels,
    /// The function after each run of a graph pass, if [`Options::keep_stages`] is set.
    pub stages: Vec<(&'static str, Function)>,
}

/// The inputs of a pass besides the function.
pub(crate) struct Context<'a> {
    pub target: &'a Target,
    /// Changes that the pass may still make.
    pub fuel: u64,
}

/// The part of a function's results that a pass preserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeps {
    /// Every bit, except those of NaNs.
    Bits,
    /// The value over the reals. A sum may be made in another order, and a result made of several
    /// ops may be rounded at each.
    Value,
}

/// A pass over graphs.
pub struct Pass {
    /// Its name, for fuel and dumps.
    pub name: &'static str,
    /// Its description.
    pub doc: &'static str,
    /// The property of the results that it preserves.
    pub keeps: Keeps,
    /// Returns the function and the number of changes.
    run: fn(Function, &Context<'_>) -> Result<(Function, u64)>,
}

/// A step of the pipeline.
pub enum Step {
    /// A pass, once.
    Once(Pass),
    /// Passes in turn until none makes a change.
    Fixpoint(&'static [Pass]),
}

/// Passes that make graphs smaller without changing a bit.
const CLEAN: &[Pass] = &[
    Pass {
        name: "simplify",
        doc: "Applies the rewrite rules, including constant folding.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::simplify(function, context.fuel)),
    },
    Pass {
        name: "cse",
        doc: "Eliminates common subexpressions, also across the boundaries of loops and branches.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::cse(function, context.fuel)),
    },
    Pass {
        name: "dce",
        doc: "Eliminates dead code, including unused operands and results of loops and branches.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::dce(function, context.fuel)),
    },
    Pass {
        name: "trim",
        doc: "Sinks captured scalar constants, iotas and broadcasts into loops and branches, moves \
              invariant carries out of loops, and inlines regions that run exactly once.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::trim(function, context.fuel)),
    },
    Pass {
        name: "hoist",
        doc: "Hoists loop-invariant equations out of loops.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::hoist(function, context.fuel)),
    },
];

/// The steps over graphs, in their order.
pub const PIPELINE: &[Step] = &[
    Step::Once(Pass {
        name: "inline",
        doc: "Replaces each `custom_vjp` by its forward half, so that `cse` can merge it with the \
              copy that computes the residuals.",
        keeps: Keeps::Bits,
        run: |function, context| calls::inline_rules(function, context.fuel),
    }),
    Step::Fixpoint(CLEAN),
    Step::Once(Pass {
        name: "decompose",
        doc: "Replaces composites, and calls that the target does not claim, by their \
              decompositions.",
        keeps: Keeps::Value,
        run: |function, context| calls::decompose(function, context.target, context.fuel),
    }),
    Step::Once(Pass {
        name: "accumulate",
        doc: "Fuses the sum of a tensor and a `scatter_add` onto zeros into a `scatter_add` onto \
              that tensor.",
        keeps: Keeps::Value,
        run: |function, context| Ok(rewrite::accumulate(function, context.fuel)),
    }),
    Step::Once(Pass {
        name: "masks",
        doc: "Derives comparison masks from the result of a select, such as a ReLU, instead of \
              from its operand. The operand need not be kept for the mask.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::masks(function, context.fuel)),
    }),
    Step::Once(Pass {
        name: "unstack",
        doc: "Rematerialises cheap values in the steps of a loop from the values that the steps \
              read anyway, instead of loading them from a stack that an earlier loop stores.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::unstack(function, context.fuel)),
    }),
    Step::Fixpoint(CLEAN),
    Step::Once(Pass {
        name: "lay_out",
        doc: "Hoists the transposes of loop-invariant right-hand sides of products out of `scan` \
              loops.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::lay_out(function, context.target, context.fuel)),
    }),
    Step::Once(Pass {
        name: "recompute",
        doc: "On targets short of memory, rematerialises large functions of one tensor, such as \
              activations, for distant readers.",
        keeps: Keeps::Bits,
        run: |function, context| Ok(rewrite::recompute(function, context.target, context.fuel)),
    }),
    Step::Once(Pass {
        name: "split_reductions",
        doc: "Splits long reductions with few results into two stages, so that many processors \
              take part.",
        keeps: Keeps::Value,
        run: |function, context| {
            Ok(rewrite::split_reductions(function, context.target, context.fuel))
        },
    }),
];

/// The graph passes in the order of their first run, each once.
pub fn passes() -> Vec<&'static Pass> {
    let mut passes: Vec<&Pass> = Vec::new();
    for step in PIPELINE {
        let more = match step {
            Step::Once(pass) => std::slice::from_ref(pass),
            Step::Fixpoint(passes) => passes,
        };
        for pass in more {
            if !passes.iter().any(|p| p.name == pass.name) {
                passes.push(pass);
            }
        }
    }
    passes
}

/// The span of a pass, or of a part of one. Its time excludes that of spans inside it.
pub(crate) fn span(name: &'static str) -> tracing::span::EnteredSpan {
    tracing::debug_span!("pass", name).entered()
}

/// Runs `f` in a [`span`].
pub(crate) fn within<T>(name: &'static str, f: impl FnOnce() -> T) -> T {
    let _span = span(name);
    f()
}

/// Runs passes; tracks fuel and stages, and verifies.
struct Runner<'a> {
    target: &'a Target,
    options: &'a Options,
    /// Fuel spent so far by the passes of each name.
    spent: BTreeMap<&'static str, u64>,
    stages: Vec<(&'static str, Function)>,
}

impl Runner<'_> {
    /// Runs a pass. Returns the function and the number of changes.
    fn pass(&mut self, pass: &Pass, function: Function) -> Result<(Function, u64)> {
        let _span = span(pass.name);
        let spent = self.spent.entry(pass.name).or_default();
        let fuel =
            self.options.fuel.get(pass.name).map_or(u64::MAX, |fuel| fuel.saturating_sub(*spent));
        let context = Context { target: self.target, fuel };
        let (changed, changes) = (pass.run)(function, &context)?;
        *spent += changes;
        // An unchanged function has been verified before. Debug builds verify it again, to test
        // that the pass counts its changes.
        if (changes > 0 || cfg!(debug_assertions))
            && let Err(fault) = within("verify", || verify(&changed))
        {
            panic!("pass {} breaks an invariant of the graph: {fault}", pass.name);
        }
        tracing::debug!(pass = pass.name, changes, equations = changed.body.equations.len());
        if self.options.keep_stages {
            self.stages.push((pass.name, changed.clone()));
        }
        Ok((changed, changes))
    }

    fn step(&mut self, step: &Step, mut function: Function) -> Result<Function> {
        match step {
            Step::Once(pass) => Ok(self.pass(pass, function)?.0),
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

/// Compiles a bound function to kernels.
pub fn compile_kernels(
    function: &Function,
    target: &Target,
    options: &Options,
) -> Result<Compiled> {
    kernels_of(function.clone(), target, options)
}

fn kernels_of(mut function: Function, target: &Target, options: &Options) -> Result<Compiled> {
    let mut runner = Runner { target, options, spent: BTreeMap::new(), stages: Vec::new() };
    for step in PIPELINE {
        function = runner.step(step, function)?;
    }
    let stages = runner.stages;
    let kernels = lower::kernels(&function, target, options.fuse)?;
    if let Err(fault) = within("verify kernels", || kernels.verify()) {
        panic!("pass lower breaks an invariant of kernels: {fault}");
    }
    Ok(Compiled { function, kernels, stages })
}

/// The equations from which each step of a plan was made. Kept beside the plan, for messages.
#[derive(Clone, PartialEq, Debug)]
pub struct Sources {
    table: LocationTable,
    steps: Vec<Vec<LocationId>>,
}

impl Sources {
    /// The source locations of a step: the user's source lines, each with the rules that derived
    /// code from it.
    pub fn of_step(&self, step: usize) -> Vec<(Location, String)> {
        let ids = self.steps.get(step).into_iter().flatten();
        ids.map(|id| (self.table.origin(*id).clone(), self.table.describe(*id))).collect()
    }
}

/// Compiles a function of a program to a plan.
///
/// Errors: there is no such function, a dimension variable is not bound, or the target lacks
/// something that the function needs.
pub fn compile(
    program: &Program,
    function: &str,
    binding: &Binding,
    target: &Target,
    options: &Options,
) -> Result<Plan> {
    Ok(compile_traced(program, function, binding, target, options)?.0)
}

/// [`compile`], with the sources of the plan's steps.
pub fn compile_traced(
    program: &Program,
    function: &str,
    binding: &Binding,
    target: &Target,
    options: &Options,
) -> Result<(Plan, Sources)> {
    let compiled = compile_bound(program, function, binding, target, options)?;
    let Planned { plan, sources: steps, .. } =
        plan_kernels(&compiled.kernels, target, binding, options.memory_budget)?;
    verified(&plan);
    let sources = Sources { table: compiled.function.locations, steps };
    Ok((plan, sources))
}

/// Compiles a function of a program to plans that take different amounts of memory, in order of
/// increasing memory and decreasing cost. The first takes the least memory that was found, by
/// kernels that run more than once; the last is the plan without repetitions. At most `points`
/// plans have repetitions.
///
/// Errors: those of [`compile`].
pub fn frontier(
    program: &Program,
    function: &str,
    binding: &Binding,
    target: &Target,
    options: &Options,
    points: u64,
) -> Result<Vec<Planned>> {
    let compiled = compile_bound(program, function, binding, target, options)?;
    let plans = memory::frontier(&compiled.kernels, target, binding, points)?;
    plans.iter().for_each(|planned| verified(&planned.plan));
    Ok(plans)
}

/// Compiles a function of a program up to the buffers of its arena: an assignment problem, with a
/// description of each buffer.
///
/// Errors: those of [`compile`].
pub fn buffers(
    program: &Program,
    function: &str,
    binding: &Binding,
    target: &Target,
    options: &Options,
) -> Result<(Problem, Vec<String>)> {
    let compiled = compile_bound(program, function, binding, target, options)?;
    memory::problem(&compiled.kernels, target, binding)
}

fn compile_bound(
    program: &Program,
    function: &str,
    binding: &Binding,
    target: &Target,
    options: &Options,
) -> Result<Compiled> {
    let bound = program.get(function)?.bind(binding)?;
    within("verify", || verify(&bound))?;
    let (bound, _) = probes::expose(bound)?;
    kernels_of(bound, target, options)
}

/// Verifies a plan. A plan that fails is a compiler bug.
fn verified(plan: &Plan) {
    if let Err(fault) = within("verify plan", || plan::verify(plan)) {
        panic!("pass plan breaks an invariant of plans: {fault}");
    }
}
