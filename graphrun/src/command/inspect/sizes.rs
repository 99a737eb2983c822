//! The sizes of functions, and the operations of modules.
//!
//! Operations are those of the kernels that are compiled for CPUs ([`Kernels::cost`]). The
//! operations of a module are those of the kernels that read its parameters, or values computed
//! from its parameters only. A kernel that reads parameters of several modules counts in the
//! innermost module that contains them.

use super::interface::is_variable;
use crate::module_tree::common;
use crate::source::part;
use std::collections::BTreeMap;
use wengert::core::Target;
use wengert::core::graph::{Body, Function};
use wengert::core::plan::account::Account;
use wengert::kernels::Kernels;
use wengert::kernels::cost::Cost;
use wengert::pipeline::{Bound, Options, compile_kernels, plan_kernels};
use wengert::{Binding, Diagnostic};

/// The sizes of a function.
pub(super) struct Sizes {
    pub equations: usize,
    /// Values that were assumed for dimension variables.
    pub assumed: Binding,
    pub compiled: Result<Compiled, Diagnostic>,
}

/// The sizes of a compiled function.
pub(super) struct Compiled {
    pub kernels: usize,
    /// Bytes of all memory that its plan names.
    pub memory: u64,
    /// Operations by the innermost module of the parameters; under the empty name, those of
    /// kernels without one.
    pub by_module: BTreeMap<String, u64>,
}

impl Compiled {
    pub fn operations(&self) -> u64 {
        self.by_module.values().copied().fold(0, u64::saturating_add)
    }
}

impl Sizes {
    pub fn of(function: &Function, binding: &Binding) -> Sizes {
        let binding = part(binding, function);
        let open = function.variables();
        let assumed = open
            .iter()
            .filter(|name| binding.get(name).is_none())
            .fold(Binding::new(), |assumed, name| assumed.with(name, 1));
        let all = assumed.iter().fold(binding, |all, (name, value)| all.with(name, value));
        let callees = function.body.callees();
        let called: usize = callees.iter().map(|callee| equations(callee.body)).sum();
        let equations = equations(&function.body) + called;
        Sizes { equations, assumed, compiled: compile(function, &all) }
    }
}

fn compile(function: &Function, binding: &Binding) -> Result<Compiled, Diagnostic> {
    let bound = Bound::new(function, binding)?;
    let target = Target::cpu();
    let kernels = compile_kernels(&bound.function, &target, &Options::default())?.kernels;
    let plan = plan_kernels(&kernels, &target, binding, None)?.plan;
    Ok(Compiled {
        kernels: kernels.kernels.len(),
        memory: Account::sizes(&plan).total(),
        by_module: by_module(&kernels),
    })
}

/// Equations of a body and of the regions in it, without those of called functions.
fn equations(body: &Body) -> usize {
    let within = body.equations.iter().filter(|equation| equation.op.callee().is_none());
    let regions = within.flat_map(|equation| &equation.regions);
    body.equations.len() + regions.map(|region| equations(region)).sum::<usize>()
}

/// The operations of each module.
fn by_module(kernels: &Kernels) -> BTreeMap<String, u64> {
    // The module of each buffer that depends on parameters only.
    let mut modules: BTreeMap<_, String> = kernels
        .inputs
        .iter()
        .filter(|(input, _)| is_variable(input))
        .map(|(input, buffer)| (*buffer, input.name.clone()))
        .collect();
    let mut counts = BTreeMap::new();
    for kernel in &kernels.kernels {
        let mut module: Option<&str> = None;
        for read in kernel.reads.iter().filter_map(|read| modules.get(read)) {
            module = Some(module.map_or(read.as_str(), |module| common(module, read)));
        }
        let module = module.unwrap_or_default().to_owned();
        let only_parameters =
            !kernel.reads.is_empty() && kernel.reads.iter().all(|read| modules.contains_key(read));
        let Cost { operations, .. } = kernels.cost(kernel);
        let count: &mut u64 = counts.entry(module.clone()).or_default();
        *count = count.saturating_add(operations);
        if only_parameters {
            modules.extend(kernel.writes.iter().map(|write| (*write, module.clone())));
        }
    }
    counts
}
