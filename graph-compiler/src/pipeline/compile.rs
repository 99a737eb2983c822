//! Compilation: from a function to kernels, plans, or the buffers of an arena.

use super::graph::Runner;
use super::kernels::kernels;
use super::list::PIPELINE;
use super::trial::Optimized;
use crate::invariants::{Divided, divide};
use crate::kernels::Kernels;
use crate::memory::assign::problem::Problem;
use crate::memory::{self, Planned};
use crate::pass::within;
use crate::{probes, ranks};
use std::collections::BTreeMap;
use wengert_core::graph::{Function, Program, verify};
use wengert_core::plan::Plan;
use wengert_core::{Binding, Location, LocationId, LocationTable, Result, Target, Verified};

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

/// A plan, with the sources of its steps.
pub type Traced = (Verified<Plan>, Sources);

/// A function without dimension variables, whose probes are outputs.
#[derive(Clone, Debug)]
pub struct Bound {
    /// The function.
    pub function: Function,
    /// The extents of its dimension variables. A plan records them.
    pub binding: Binding,
    /// The source location of each probe, by the output that it has become.
    pub probes: BTreeMap<String, Location>,
}

impl Bound {
    /// Binds a function.
    ///
    /// Errors: a dimension variable is not bound; a probe cannot become an output.
    pub fn new(function: &Function, binding: &Binding) -> Result<Bound> {
        let bound = function.bind(binding)?;
        within("verify", || verify(&bound))?;
        let (function, probes) = probes::expose(bound)?;
        Ok(Bound { function, binding: binding.clone(), probes })
    }

    /// Its plan, with the sources of the plan's steps.
    ///
    /// Errors: the target lacks something that the function needs; no plan within the budget was
    /// found.
    pub fn compile(&self, target: &Target, options: &Options) -> Result<(Verified<Plan>, Sources)> {
        let optimized = optimized(&self.function, target, options)?;
        let plan = |function: &Function| Ok([self.planned(function, target, options)?]);
        let (function, [planned]) = optimized.chosen(options, plan)?;
        let Planned { plan, sources: steps, .. } = verified(planned);
        Ok((plan, Sources { table: function.locations, steps }))
    }

    /// The plan of a function after the graph passes.
    pub(super) fn planned(
        &self,
        function: &Function,
        target: &Target,
        options: &Options,
    ) -> Result<Planned<Plan>> {
        let kernels = verified_kernels(function, target, options)?;
        let (binding, budget) = (&self.binding, options.memory_budget);
        memory::plan_kernels(&kernels, target, binding, budget, PIPELINE.memory)
    }

    /// Its plan, and the plan of its [invariants](crate::invariants), if there are any. `name_of`
    /// gives the names of their variables by their number.
    ///
    /// Errors: those of [`compile`](Self::compile).
    pub fn compile_divided(
        &self,
        target: &Target,
        options: &Options,
        name_of: impl Fn(usize) -> String,
    ) -> Result<(Option<Traced>, Traced)> {
        let optimized = optimized(&self.function, target, options)?;
        let plan = |function: &Function| {
            let planned = |part: &Function| self.planned(part, target, options);
            let Some(Divided { invariants, run }) = divide(function, &name_of) else {
                return Ok(vec![planned(function)?]);
            };
            Ok(vec![planned(&invariants)?, planned(&run)?])
        };
        let (function, plans) = optimized.chosen(options, plan)?;
        let traced = |planned: Planned<Plan>| {
            let Planned { plan, sources: steps, .. } = verified(planned);
            (plan, Sources { table: function.locations.clone(), steps })
        };
        let mut plans = plans.into_iter().map(traced).rev();
        let run = plans.next().expect("a function has a plan");
        Ok((plans.next(), run))
    }

    /// Plans that take different amounts of memory, in order of increasing memory and decreasing
    /// cost. The first takes the least memory that was found, by kernels that run more than once;
    /// the last is the plan without repetitions. At most `points` plans have repetitions.
    ///
    /// Errors: those of [`compile`](Self::compile).
    pub fn frontier(
        &self,
        target: &Target,
        options: &Options,
        points: u64,
    ) -> Result<Vec<Planned>> {
        let compiled = compile_kernels(&self.function, target, options)?;
        let kernels = &compiled.kernels;
        let plans = memory::frontier(kernels, target, &self.binding, points, PIPELINE.memory)?;
        Ok(plans.into_iter().map(verified).collect())
    }

    /// The buffers of its arena: an assignment problem, with a description of each buffer.
    ///
    /// Errors: those of [`compile`](Self::compile).
    pub fn buffers(&self, target: &Target, options: &Options) -> Result<(Problem, Vec<String>)> {
        let compiled = compile_kernels(&self.function, target, options)?;
        memory::problem(&compiled.kernels, target, &self.binding, PIPELINE.memory)
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

/// Compiles a bound function, whose probes are outputs, to kernels.
///
/// Error: the target lacks something that the function needs.
pub fn compile_kernels(
    function: &Function,
    target: &Target,
    options: &Options,
) -> Result<Compiled> {
    let Optimized { function, stages, .. } = optimized(function, target, options)?;
    let kernels = verified_kernels(&function, target, options)?;
    Ok(Compiled { function, kernels, stages })
}

fn optimized(function: &Function, target: &Target, options: &Options) -> Result<Optimized> {
    ranks::check(function, target)?;
    let mut runner = Runner::new(target, &options.fuel, options.keep_stages);
    let mut function = function.clone();
    for step in PIPELINE.graph {
        function = runner.step(step, function)?;
    }
    Ok(Optimized { function, plain: runner.plain, stages: runner.stages })
}

/// The kernels of a function after the graph passes.
pub(super) fn verified_kernels(
    function: &Function,
    target: &Target,
    options: &Options,
) -> Result<Kernels> {
    let kernels = kernels(function, target, options.fuse, PIPELINE.kernels)?;
    if let Err(fault) = within("verify kernels", || kernels.verify()) {
        panic!("pass lower breaks an invariant of kernels: {fault}");
    }
    Ok(kernels)
}

/// Plans a function's kernels: their order, homes, slots and offsets.
///
/// `binding` holds the extents of the function's dimensions; the plan records it. With a
/// `budget`, the total memory that the plan names is at most that many bytes; kernels are
/// repeated where that requires it.
///
/// Errors: the kernels are inconsistent, they need more memory than addresses can name, or no plan
/// within the budget was found.
pub fn plan_kernels(
    kernels: &Kernels,
    target: &Target,
    binding: &Binding,
    budget: Option<u64>,
) -> Result<Planned> {
    within("verify kernels", || kernels.verify())?;
    memory::plan_kernels(kernels, target, binding, budget, PIPELINE.memory).map(verified)
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

/// Compiles a function of a program to a plan: [`Bound::compile`].
///
/// Errors: there is no such function, a dimension variable is not bound, or the target lacks
/// something that the function needs.
pub fn compile(
    program: &Program,
    function: &str,
    binding: &Binding,
    target: &Target,
    options: &Options,
) -> Result<Verified<Plan>> {
    Ok(compile_traced(program, function, binding, target, options)?.0)
}

/// [`compile`], with the sources of the plan's steps.
pub fn compile_traced(
    program: &Program,
    function: &str,
    binding: &Binding,
    target: &Target,
    options: &Options,
) -> Result<(Verified<Plan>, Sources)> {
    Bound::new(program.get(function)?, binding)?.compile(target, options)
}

/// Compiles a function of a program to plans that take different amounts of memory:
/// [`Bound::frontier`].
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
    Bound::new(program.get(function)?, binding)?.frontier(target, options, points)
}

/// Verifies a plan. A plan that fails is a compiler bug.
pub(super) fn verified(planned: Planned<Plan>) -> Planned {
    within("verify plan", || planned.verified())
        .unwrap_or_else(|fault| panic!("planning breaks an invariant of plans: {fault}"))
}
