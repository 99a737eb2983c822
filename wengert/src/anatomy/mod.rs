//! The anatomy of a function: its equations, the kernels that compute them, and the memory that
//! they use, as one description for reports.
//!
//! ```
//! use wengert::anatomy::Anatomy;
//! use wengert::core::graph::parse_program;
//! use wengert::{Binding, target};
//! # fn main() -> wengert::Result<()> {
//! let text = "func @f(%x: f32[6,10], %y: f32[10,5]) -> (f32[6]) {
//!     %0: f32[6,5] = dot_general %x, %y {contract=[[1],[0]]}
//!     %1: f32[6,5] = tanh %0
//!     %2: f32[6] = reduce_sum %1 {axes=[1]}
//!     return %2 }";
//! let program = parse_program(text, "f.ir")?;
//! let anatomy = Anatomy::of(&program, "f", &Binding::new(), &target("cpu")?)?;
//! let product = &anatomy.kernels[anatomy.equations[0].kernels[0]];
//! assert_eq!(product.operations, 2 * 6 * 10 * 5);
//! assert_eq!(anatomy.equations[1].kernels, anatomy.equations[2].kernels); // They are fused.
//! assert_eq!(anatomy.equations[1].line, 3);
//! # Ok(())
//! # }
//! ```
//!
//! A **kernel** is here a step of the plan: a nest that runs on its arguments, a call, or a copy. A
//! loop or a branch is a step too, which costs nothing beside its nested steps. Positions in the
//! lists are the numbers by which the entries name each other.

mod equations;
mod flow;
mod kernels;
mod memory;
mod modules;
mod ports;

pub use equations::Equation;
pub use kernels::Kernel;
pub use memory::{Buffer, Memory};
pub use modules::Part;
pub use ports::Port;

use crate::session::Session;
use equations::{Table, equations};
use kernels::kernels;
use ports::{inputs, outputs};
use serde::Serialize;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use wengert_compiler::kernels::cost::Rates;
use wengert_compiler::pipeline::{Bound, Options};
use wengert_core::graph::Program;
use wengert_core::plan::Plan;
use wengert_core::{Binding, Literal, Result, Target, Verified};

/// Most characters of an equation's or a step's text: constants may have any number of elements.
const LONGEST_LINE: usize = 1000;
/// Most characters of a nest's text.
const LONGEST_NEST: usize = 20_000;

/// What a function becomes.
#[derive(Clone, Debug, Serialize)]
pub struct Anatomy {
    /// Name of the function.
    pub function: String,
    /// Name of the target.
    pub target: String,
    /// Extents of its dimension variables.
    pub binding: BTreeMap<String, i64>,
    /// Source files.
    pub files: Vec<String>,
    /// Key paths of modules.
    pub modules: Vec<String>,
    /// Inputs, variables included.
    pub inputs: Vec<Port>,
    /// Outputs, updated variables included.
    pub outputs: Vec<Port>,
    /// Every equation after dimension variables are bound, by its
    /// [number](wengert_core::graph::Function::numbered).
    pub equations: Vec<Equation>,
    /// Steps of the plan, in the order of its text.
    pub kernels: Vec<Kernel>,
    /// Texts of the nests.
    pub nests: Vec<String>,
    /// Memory of the plan.
    pub memory: Memory,
    /// Rates of the machine that times are compared with.
    pub roofline: Roofline,
    /// Number of measured runs; 0 if times were not measured.
    pub runs: u64,
    /// The plan.
    #[serde(skip)]
    pub plan: Verified<Plan>,
}

/// Rates of a machine per second, in round numbers.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Roofline {
    /// Bytes of memory traffic.
    pub bytes: f64,
    /// Operations of calls.
    pub calls: f64,
    /// Operations of nests.
    pub nests: f64,
}

impl Anatomy {
    /// The anatomy of a function for a binding of its dimension variables.
    ///
    /// Errors: there is no such function, a dimension variable is not bound, or the target lacks
    /// something that the function needs.
    pub fn of(
        program: &Program,
        function: &str,
        binding: &Binding,
        target: &Target,
    ) -> Result<Anatomy> {
        let bound = Bound::new(program.get(function)?, binding)?;
        let explained = bound.explain(target, &Options::default())?;
        let rates = Rates::of(target);
        let mut files = Table::default();
        let mut modules = Table::default();
        let equations = equations(&bound.function, &explained, &mut files, &mut modules);
        let plan = explained.planned.plan;
        Ok(Anatomy {
            function: function.into(),
            target: target.name.clone(),
            binding: binding.iter().map(|(name, n)| (name.to_string(), n)).collect(),
            files: files.entries,
            modules: modules.entries,
            inputs: inputs(&bound.function),
            outputs: outputs(&bound.function),
            equations,
            kernels: kernels(&plan, explained.steps, &rates),
            nests: plan.nests.iter().map(|(_, n)| short(&n.to_string(), LONGEST_NEST)).collect(),
            memory: Memory::of(&plan),
            roofline: Roofline { bytes: rates.bytes, calls: rates.calls, nests: rates.nests },
            runs: 0,
            plan,
        })
    }

    /// Runs the function `runs` times in a session that has its variables, and notes the time of
    /// each kernel in all runs but the first, which touches new memory. (A single run is timed
    /// itself.)
    ///
    /// Errors: the session's device is not that of the target, or times no kernels; those of a run.
    pub fn measure<L: Borrow<Literal>>(
        &mut self,
        session: &mut Session,
        inputs: &[(&str, L)],
        runs: u64,
    ) -> Result<()> {
        let mut compiled = session.load_plan(self.plan.clone())?;
        if runs > 1 {
            compiled.run(inputs)?;
        }
        let measured = runs.saturating_sub(1).max(1);
        compiled.measure()?;
        for _ in 0..measured {
            compiled.run(inputs)?;
        }
        session.finish()?;
        let times = compiled.step_times();
        // How often the steps that run a nest run it in one run of the function.
        let mut all: BTreeMap<Option<usize>, u64> = BTreeMap::new();
        for time in times.iter().filter(|time| time.shared > 1) {
            let kernel = &self.kernels[time.step];
            let sum = all.entry(kernel.nest).or_default();
            *sum = sum.saturating_add(kernel.times);
        }
        for time in times {
            let kernel = &mut self.kernels[time.step];
            let together = all.get(&kernel.nest).copied().unwrap_or(kernel.times);
            let share = kernel.times as f64 / together.max(1) as f64;
            kernel.seconds = Some(time.time.as_secs_f64() / measured as f64 * share);
            kernel.shared = time.shared;
        }
        self.runs = measured;
        Ok(())
    }
}

fn short(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn bytes_of(ty: &wengert_core::TensorType) -> u64 {
    ty.bytes().map_or(0, |bytes| bytes as u64)
}
