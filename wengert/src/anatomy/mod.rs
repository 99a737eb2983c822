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

mod flow;
mod memory;
mod modules;

pub use memory::{Buffer, Memory};
pub use modules::Part;

use crate::session::Session;
use flow::{Flow, Origin};
use serde::Serialize;
use std::borrow::Borrow;
use std::collections::BTreeMap;
use wengert_compiler::kernels::cost::{Cost, Rates};
use wengert_compiler::pipeline::{Bound, Explained, Fate, Options, passes};
use wengert_core::graph::{Function, InputRole, OutputRole, Owner, Program, print_equations};
use wengert_core::plan::{Plan, Step, follower};
use wengert_core::{Binding, Id, Literal, Location, Result, Target, Verified};

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

/// An input or an output.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// `input`, `param`, `state` or `key`; `output` or `state`.
    pub role: &'static str,
    /// Its type.
    pub ty: String,
    /// Bytes of its elements.
    pub bytes: u64,
    /// Of an output the equation that computes it; none if it is an input.
    pub equation: Option<usize>,
}

/// An equation.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Equation {
    /// Name of the op.
    pub op: String,
    /// Its text, without regions.
    pub text: String,
    /// The file of its source line.
    pub file: Option<usize>,
    /// Its source line; 0 if it is not known.
    pub line: u32,
    /// The rules that derived it from its source line, outermost first; empty if none did.
    pub rule: String,
    /// Its module, if one is known.
    pub module: Option<usize>,
    /// Its part.
    pub part: Part,
    /// Of an equation that derivatives made the forward equation that it was derived from.
    pub link: Option<usize>,
    /// The equation that has the region which it is in.
    pub within: Option<usize>,
    /// The number of that region.
    pub region: Option<usize>,
    /// The callee that it is in.
    pub callee: Option<String>,
    /// Sources of its operands: `n` is equation n, `-1 - i` is input i. Values of a region that no
    /// single value outside stands for have none.
    pub operands: Vec<i64>,
    /// Bytes of its results.
    pub bytes: u64,
    /// The kernels that compute it.
    pub kernels: Vec<usize>,
    /// Why it has no kernel.
    pub reason: Option<String>,
}

/// A step of the plan.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Kernel {
    /// The nest's number and name, or the call and its extents.
    pub name: String,
    /// `nest`, `call`, `copy`, `loop` or `branch`.
    pub kind: &'static str,
    /// Its text, without nested steps.
    pub text: String,
    /// Its nest.
    pub nest: Option<usize>,
    /// The equations that it computes, perhaps in part.
    pub equations: Vec<usize>,
    /// The step that contains it.
    pub within: Option<usize>,
    /// The number of times that it runs, if every loop around it runs to its limit.
    pub times: u64,
    /// Scalar operations of one run of it. A fused multiply-add counts as two.
    pub operations: u64,
    /// Bytes that it reads in one run, each buffer once.
    pub read: u64,
    /// Bytes that it writes in one run.
    pub written: u64,
    /// Seconds of one run at the rates of the roofline.
    pub predicted: f64,
    /// The product on whose tiles it may run, within the product's own time.
    pub follows: Option<usize>,
    /// Measured seconds in one run of the function.
    pub seconds: Option<f64>,
    /// Number of steps that were measured together, since they run one nest. The time is divided
    /// among them.
    pub shared: usize,
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

/// Texts, each once.
#[derive(Default)]
struct Table {
    entries: Vec<String>,
    positions: BTreeMap<String, usize>,
}

impl Table {
    fn position(&mut self, text: &str) -> usize {
        if let Some(known) = self.positions.get(text) {
            return *known;
        }
        self.positions.insert(text.to_owned(), self.entries.len());
        self.entries.push(text.to_owned());
        self.entries.len() - 1
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

fn inputs(function: &Function) -> Vec<Port> {
    let port = |(n, input): (usize, &wengert_core::graph::Input)| {
        let ty = function.input_type(n);
        let role = match input.role {
            InputRole::Input => "input",
            role => role.name(),
        };
        Port {
            name: input.name.clone(),
            role,
            ty: ty.to_string(),
            bytes: bytes_of(ty),
            equation: None,
        }
    };
    function.inputs.iter().enumerate().map(port).collect()
}

fn outputs(function: &Function) -> Vec<Port> {
    let flow = Flow::of(function);
    let port = |(n, output): (usize, &wengert_core::graph::Output)| {
        let ty = function.output_type(n);
        let role = if output.role == OutputRole::State { "state" } else { "output" };
        let equation = match flow.outputs[n] {
            Origin::Equation(number) => Some(number),
            Origin::Input(_) | Origin::Inside => None,
        };
        Port { name: output.name.clone(), role, ty: ty.to_string(), bytes: bytes_of(ty), equation }
    };
    function.outputs.iter().enumerate().map(port).collect()
}

fn equations(
    function: &Function,
    explained: &Explained,
    files: &mut Table,
    modules: &mut Table,
) -> Vec<Equation> {
    let flow = Flow::of(function);
    let places = modules::places(function, &flow);
    let texts = print_equations(function);
    let numbered = function.numbered();
    let mut equations = Vec::with_capacity(numbered.len());
    for (number, found) in numbered.into_iter().enumerate() {
        let id = found.equation.location;
        let (file, line) = match function.locations.origin(id) {
            Location::Source { file, line, .. } => (Some(files.position(file)), *line),
            _ => (None, 0),
        };
        let described = function.locations.describe(id);
        let rule = described.rsplit_once(" of ").map_or("", |(rules, _)| rules);
        let (within, region, callee) = match found.owner {
            Owner::Function => (None, None, None),
            Owner::Callee(name) => (None, None, Some(name.to_owned())),
            Owner::Region { equation, region } => (Some(equation), Some(region), None),
        };
        let operand = |origin: &Origin| match origin {
            Origin::Equation(n) => i64::try_from(*n).ok(),
            Origin::Input(n) => i64::try_from(*n).ok().map(|n| -1 - n),
            Origin::Inside => None,
        };
        let (kernels, reason) = match &explained.fates[number] {
            Fate::Steps(steps) => (steps.clone(), None),
            Fate::Removed(pass) => (Vec::new(), Some(removed(pass))),
            Fate::NoStep => (
                Vec::new(),
                Some("No kernel: its result is a constant, or describes bytes that exist.".into()),
            ),
        };
        let module = &places.modules[number];
        let results = found.equation.results.iter();
        equations.push(Equation {
            op: found.equation.op.name().into(),
            text: short(&texts[number], LONGEST_LINE),
            file,
            line,
            rule: rule.into(),
            module: (!module.is_empty()).then(|| modules.position(module)),
            part: places.parts[number],
            link: places.links[number],
            within,
            region,
            callee,
            operands: flow.operands[number].iter().filter_map(operand).collect(),
            bytes: results.map(|v| bytes_of(found.body.ty(*v))).fold(0, u64::saturating_add),
            kernels,
            reason,
        });
    }
    equations
}

/// The sentence for an equation that a pass removed.
fn removed(name: &str) -> String {
    if name == "dce" {
        return "Nothing needs its result, or rewrites replaced what used it: the pass `dce` \
                removed it."
            .into();
    }
    let doc = passes().into_iter().find(|pass| pass.name == name).map_or("", |pass| pass.doc);
    format!("The pass `{name}` removed it. {doc}")
}

fn kernels(plan: &Plan, steps: Vec<Vec<usize>>, rates: &Rates) -> Vec<Kernel> {
    let mut found = Vec::with_capacity(steps.len());
    block(plan, &plan.steps, None, 1, rates, &mut found);
    for (kernel, equations) in found.iter_mut().zip(steps) {
        kernel.equations = equations;
    }
    found
}

/// Adds the steps of a block, each of which runs `times` times.
fn block(
    plan: &Plan,
    steps: &[Step],
    within: Option<usize>,
    times: u64,
    rates: &Rates,
    found: &mut Vec<Kernel>,
) {
    let mut before: Option<(usize, &Step)> = None;
    for step in steps {
        let number = found.len();
        let (kind, name, nest) = match step {
            Step::Nest { nest, .. } => {
                ("nest", format!("{nest} {}", plan.nests[*nest].name), Some(nest.index()))
            }
            Step::Call { call, .. } => ("call", call.description(), None),
            Step::Copy { .. } => ("copy", "copy".into(), None),
            Step::Loop(l) => {
                ("loop", format!("loop {}, at most {} times", l.id, l.trip.limit()), None)
            }
            Step::If { .. } => ("branch", "if".into(), None),
            Step::Switch { arms, .. } => ("branch", format!("switch of {}", arms.len()), None),
        };
        let follows = before
            .filter(|(_, product)| follower(plan, product, step).is_some())
            .map(|(product, _)| product);
        let cost = Cost::of_step(plan, step);
        let text = wengert_core::plan::print::StepText(plan, step).to_string();
        found.push(Kernel {
            name,
            kind,
            text: short(&text, LONGEST_LINE),
            nest,
            equations: Vec::new(),
            within,
            times,
            operations: cost.operations,
            read: cost.read,
            written: cost.written,
            predicted: rates.seconds_of_step(plan, step),
            follows,
            seconds: None,
            shared: 1,
        });
        let inside = match step {
            Step::Loop(l) => times.saturating_mul(l.trip.limit()),
            _ => times,
        };
        for steps in step.blocks() {
            block(plan, steps, Some(number), inside, rates, found);
        }
        before = Some((number, step));
    }
}
