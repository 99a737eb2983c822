//! A function compiled for a device.

mod indices;
mod invariants;
mod profile;
mod room;

pub use profile::{KernelTime, StepTime, by_kernel, by_step};
pub use room::Need;

use crate::device::{Backend, PreparedFunction};
use crate::outputs::Returned;
use crate::signature::Signature;
use crate::store::Store;
use invariants::Invariants;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wengert_compiler::indices::{Watched, watch};
use wengert_compiler::pipeline::{Bound, Options, Sources};
use wengert_core::graph::Function;
use wengert_core::plan::Plan;
use wengert_core::{Binding, Literal, Location, Mesh, Result, Target, Verified, diagnostic};
use wengert_cpu::ranks::check_size;

/// A function without dimension variables on a device.
pub struct LoadedExecutable {
    signature: Signature,
    /// Runs are exclusive: a device has one memory for the plan.
    prepared: Mutex<Box<dyn PreparedFunction>>,
    /// Source locations of the probes, by the names of their outputs.
    probes: BTreeMap<String, Location>,
    /// The checked lookups. Their reports are the last outputs of the function and absent from
    /// the signature.
    checks: Vec<Watched>,
    /// What runs before, if invariants are kept.
    invariants: Option<Invariants>,
}

impl fmt::Debug for LoadedExecutable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LoadedExecutable").field(&self.signature.name).finish()
    }
}

/// How a function is compiled.
#[derive(Clone, Copy, Default, Debug)]
pub struct CompileOptions {
    /// Most bytes that the plan may take.
    pub memory_budget: Option<u64>,
    /// Whether an index out of range makes the run an error.
    pub check_indices: bool,
    /// Whether the bits of a row do not depend on the number of rows.
    pub batch_invariant: bool,
    /// Whether nests use approximate instructions, where the target has some.
    pub approximate_functions: bool,
    /// Whether invariants are kept.
    pub keep_invariants: bool,
}

impl CompileOptions {
    /// The target of a device under these options.
    pub fn target(self, backend: &dyn Backend) -> Result<Target> {
        let mut target = backend.target()?;
        if self.batch_invariant {
            target = target.with_batch_invariance();
        }
        if self.approximate_functions {
            target = target.with_approximate_functions();
        }
        Ok(target)
    }
}

/// Number of steps from which on memory freed after compilation is returned to the system.
const LARGE: usize = 64;

/// Prepares a plan. Memory used by compilation is freed.
fn prepared(
    backend: &dyn Backend,
    plan: Verified<Plan>,
    sources: Option<Sources>,
    work_limit: u64,
) -> Result<Mutex<Box<dyn PreparedFunction>>> {
    let is_large = plan.steps.len() >= LARGE;
    let prepared = backend.prepare(plan, sources, work_limit)?;
    if is_large {
        wengert_cpu::memory::give_back();
    }
    Ok(Mutex::new(prepared))
}

/// Error: a function has a mesh, and the device has not joined as many ranks.
fn check_ranks(backend: &dyn Backend, function: &str, mesh: &Mesh) -> Result<()> {
    match backend.world() {
        _ if mesh.is_empty() => Ok(()),
        Some(world) => check_size(function, mesh, world.size()),
        None => Err(diagnostic!(
            "@{function} runs on the {} ranks of {mesh}, and the session has joined no ranks",
            mesh.ranks()
        )
        .help("join the ranks by `wengert::transport::join`, and give them to `Session::join`")),
    }
}

impl LoadedExecutable {
    /// Compiles `function` for a binding, in a session with these variables.
    ///
    /// Errors: those of the compiler; there is not enough memory; the name of a variable is
    /// reserved; the function runs on several ranks, and the device has not joined as many.
    pub fn compile(
        backend: &Arc<dyn Backend>,
        function: &Function,
        binding: &Binding,
        options: CompileOptions,
        variables: &mut Store,
    ) -> Result<LoadedExecutable> {
        check_ranks(&**backend, &function.name, &function.mesh)?;
        let mut bound = Bound::new(function, binding)?;
        let signature = Signature::of_function(&bound.function);
        signature.variables().try_for_each(Store::check_name)?;
        let mut checks = Vec::new();
        if options.check_indices {
            (bound.function, checks) = watch(bound.function)?;
        }
        if let Some(prepared) = backend.prepare_graph(&bound.function) {
            room::check_graph(&bound, variables)?;
            let prepared = Mutex::new(prepared);
            let (probes, invariants) = (bound.probes, None);
            return Ok(LoadedExecutable { signature, prepared, probes, checks, invariants });
        }
        let planning = Options { memory_budget: options.memory_budget, ..Options::default() };
        let target = options.target(&**backend)?;
        let (first, (plan, sources)) =
            match options.keep_invariants && !signature.replaces_variables() {
                true => bound.compile_divided(&target, &planning, variables.invariant_names())?,
                false => (None, bound.compile(&target, &planning)?),
            };
        let invariants = first.map(|plan| Invariants::new(backend.clone(), plan));
        if let Some(invariants) = &invariants {
            room::check(&**backend, invariants.plan(), variables, Some(&bound))?;
        }
        room::check(&**backend, &plan, variables, Some(&bound))?;
        // It is compiled from the caller's own program, so its work has no limit.
        let prepared = prepared(&**backend, plan, Some(sources), u64::MAX)?;
        let probes = bound.probes;
        Ok(LoadedExecutable { signature, prepared, probes, checks, invariants })
    }

    /// Loads a verified plan, with a limit on the operations of one run, in a session with these
    /// variables.
    ///
    /// Errors: the plan is for another target; there is not enough memory.
    pub fn load(
        backend: &dyn Backend,
        plan: Verified<Plan>,
        work_limit: u64,
        variables: &Store,
    ) -> Result<LoadedExecutable> {
        check_ranks(backend, &plan.function, &plan.mesh)?;
        let signature = Signature::of_plan(&plan);
        room::check(backend, &plan, variables, None)?;
        let prepared = prepared(backend, plan, None, work_limit)?;
        let (probes, checks) = (BTreeMap::new(), Vec::new());
        Ok(LoadedExecutable { signature, prepared, probes, checks, invariants: None })
    }

    /// Source location of a probe, if known.
    pub fn probe_location(&self, output: &str) -> Location {
        self.probes.get(output).cloned().unwrap_or_default()
    }

    /// Inputs and outputs of the function.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// The function on its device: announcements of runs, and the time of kernels.
    pub fn prepared(&self) -> MutexGuard<'_, Box<dyn PreparedFunction>> {
        // A run that panicked leaves no state in the device's memory that the next one relies on.
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the function. `given` are the inputs and keys in the signature's order, of its types.
    /// The `variables` that it reads exist and have its types. State outputs replace their
    /// variables; the others are returned in the signature's order. A GPU may still be running on
    /// return.
    ///
    /// Errors: of the device; an index out of range, if indices are checked, which leaves the
    /// variables unchanged.
    pub fn run(&self, given: &[Literal], variables: &mut Store) -> Result<Returned> {
        if let Some(invariants) = &self.invariants {
            invariants.compute(variables)?;
        }
        if self.signature.replaces_variables() {
            variables.changed();
        }
        if self.checks.is_empty() {
            return self.prepared().run(given, variables);
        }
        let before = indices::Before::of(&self.signature, variables)?;
        // The reports decide whether the variables are replaced, so this waits for the run.
        let mut results = self.prepared().run(given, variables)?.into_values()?;
        let reports = results.split_off(results.len() - self.checks.len());
        match indices::fault(&self.checks, &reports) {
            Some(fault) => {
                before.restore(variables)?;
                Err(fault)
            }
            None => Ok(Returned::now(results)),
        }
    }
}
