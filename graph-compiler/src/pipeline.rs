//! The one ordered list of passes, and what runs it.
//!
//! A function is bound (no dimension variables) before it comes here. Passes up to `split_reductions` rewrite the graph and fix
//! what is computed, bit for bit; `fuse` and `lower` decide where and when. The verifier runs after every pass. Each pass spends
//! **fuel**, one unit for each change it makes; with its fuel limited it stops there, which is how a miscompilation is bisected.

use crate::kernels::Kernels;
use crate::lower::assemble;
use crate::view::View;
use crate::{calls, fuse};
use std::collections::BTreeMap;
use wengert_core::graph::{Function, Program, verify};
use wengert_core::plan::{self, Plan};
use wengert_core::{Binding, Result, Target};

/// How to compile.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether equations are fused into kernels; the bits are the same either way.
    pub fuse: bool,
    /// How many changes a pass may make, by its name; those without an entry, any number.
    pub fuel: BTreeMap<String, u64>,
    /// Keep the function as it was after each pass.
    pub keep_stages: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { fuse: true, fuel: BTreeMap::new(), keep_stages: false }
    }
}

/// A function as kernels, and how it came to be.
#[derive(Clone, PartialEq, Debug)]
pub struct Compiled {
    /// The function after the last graph pass.
    pub function: Function,
    /// Its kernels.
    pub kernels: Kernels,
    /// The function after each graph pass, if [`Options::keep_stages`] asks for it.
    pub stages: Vec<(&'static str, Function)>,
}

/// What a pass may use.
pub(crate) struct Context<'a> {
    pub target: &'a Target,
    /// Changes that the pass may still make.
    pub fuel: u64,
}

/// A pass over graphs.
pub struct Pass {
    /// Its name, for fuel and dumps.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    run: fn(Function, &mut Context<'_>) -> Result<Function>,
}

/// The passes over graphs, in their order.
pub const PASSES: &[Pass] = &[Pass {
    name: "decompose",
    doc: "Replaces composites, and calls that the target does not claim, by ops that they consist of.",
    run: |function, context| {
        let (function, spent) = calls::decompose(function, context.target, context.fuel)?;
        context.fuel -= spent;
        Ok(function)
    },
}];

/// Compiles a bound function to kernels.
pub fn compile_kernels(function: &Function, target: &Target, options: &Options) -> Result<Compiled> {
    let mut function = function.clone();
    let mut stages = Vec::new();
    for pass in PASSES {
        let mut context = Context { target, fuel: options.fuel.get(pass.name).copied().unwrap_or(u64::MAX) };
        function = (pass.run)(function, &mut context)?;
        if let Err(fault) = verify(&function) {
            panic!("pass {} breaks an invariant of the graph: {fault}", pass.name);
        }
        if options.keep_stages {
            stages.push((pass.name, function.clone()));
        }
    }
    let kernels = {
        let view = View::new(&function)?;
        let fused = fuse::fuse(&view, target, options.fuse);
        assemble(&function, &view, &fused, target)?
    };
    if let Err(fault) = kernels.verify() {
        panic!("pass lower breaks an invariant of kernels: {fault}");
    }
    Ok(Compiled { function, kernels, stages })
}

/// Compiles a function of a program to a plan.
pub fn compile(
    program: &Program,
    function: &str,
    binding: &Binding,
    target: &Target,
    options: &Options,
) -> Result<Plan> {
    let bound = program.get(function)?.bind(binding)?;
    verify(&bound)?;
    let compiled = compile_kernels(&bound, target, options)?;
    let plan = crate::memory::plan_kernels(&compiled.kernels, target, binding)?;
    if let Err(fault) = plan::verify(&plan) {
        panic!("pass plan breaks an invariant of plans: {fault}");
    }
    Ok(plan)
}
