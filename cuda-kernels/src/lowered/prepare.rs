//! Lowering of a plan to kernels and actions.

use super::addends::addends;
use super::share::share;
use super::uses::uses;
use super::{
    Choice, Choose, Command, Following, KernelFacts, Launch, LoweredPlan, ProductChoice, Question,
};
use crate::architecture::Architecture;
use crate::nest::Follower;
use crate::ptx::{Kernel, Module};
use crate::stage::{Compiled, Memory};
use crate::{call, nest};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wengert_core::call::{Addends, Call, Gemm};
use wengert_core::id::IdVec;
use wengert_core::plan::resolve::in_place;
use wengert_core::plan::{self, NestId, Place, Plan, Prepare, Resolver, Step, ValueId, resolve};
use wengert_core::{Diagnostic, Result, Verified};

/// Alignment of buffers in memory: of allocations, and of values in the arena.
const ALIGNMENT: u64 = 256;

pub(super) fn prepare(
    plan: &Verified<Plan>,
    architecture: Architecture,
    choose: &mut dyn Choose,
) -> Result<LoweredPlan> {
    if plan.target.name != architecture.name() {
        let (function, target, name) = (&plan.function, &plan.target.name, architecture.name());
        return Err(Diagnostic::of_device(format!(
            "the plan of @{function} is for `{target}`, this is `{name}`"
        ))
        .help(format!("compile the function for `{name}`")));
    }
    let mut preparing = Preparing {
        plan,
        architecture,
        choose,
        uses: uses(plan),
        module: Module { overlaps: architecture.overlaps(), ..Module::default() },
        facts: Vec::new(),
        known: HashMap::new(),
        names: BTreeSet::new(),
        functions: BTreeSet::new(),
        nests: BTreeMap::new(),
        answers: HashMap::new(),
        pairs: HashMap::new(),
        calls: HashMap::new(),
        library: Vec::new(),
        own: Vec::new(),
        products: Vec::new(),
        nest_bytes: 0,
        exchanges: 0,
    };
    let mut resolved = resolve(plan, &mut preparing)?;
    let Preparing { mut module, mut facts, library, own, products, nest_bytes, exchanges, .. } =
        preparing;
    if plan.target.shares_launches {
        share(&mut resolved, &mut module, &mut facts);
    }
    let dynamic = facts.iter().filter(|k| k.dynamic_shared > 0);
    let dynamic = dynamic.map(|k| format!("// dynamic_shared {} {}\n", k.name, k.dynamic_shared));
    Ok(LoweredPlan {
        plan: plan.clone(),
        architecture,
        ptx: dynamic.collect::<String>() + &module.to_string(),
        kernels: facts,
        library,
        own,
        products,
        nest_bytes,
        exchanges,
        resolved,
    })
}

/// Stages of a nest or call in the module: like [`crate::stage::Stage`], with the number of the
/// kernel.
#[derive(Clone)]
pub(super) struct Placed {
    stages: Vec<PlacedStage>,
    workspace: u64,
}

#[derive(Clone)]
struct PlacedStage {
    kernel: usize,
    grid: [u32; 3],
    dynamic_shared: u32,
    arguments: Vec<crate::stage::Slot>,
}

/// Parameters of a nest's kernel beyond the nest: aliases, and the alignment of the arguments.
type NestKey = (NestId, Vec<(usize, usize)>, u64);

/// A call with its memory.
pub(super) struct Called {
    pub question: Question,
    /// Operands, then results.
    pub places: Vec<Place>,
    pub workspace: Option<Place>,
}

impl Called {
    fn new(call: &Call, places: Vec<Place>, workspace: Option<Place>) -> Self {
        let last = places.len() - 1;
        let shares = |n: &usize| places[*n].bytes > 0 && places[*n].is_same(&places[last]);
        let question = Question {
            call: call.clone(),
            in_place: call.in_place().into_iter().find(shares),
            alignment: alignment(&places),
            workspace: workspace.as_ref().map_or(0, |w| w.bytes),
        };
        Called { question, places, workspace }
    }

    /// Whether its result has no elements.
    pub fn is_empty(&self) -> bool {
        self.places.last().is_none_or(|result| result.bytes == 0)
    }
}

/// The device's answer to a question.
#[derive(Clone)]
pub(super) enum Answer {
    /// A library does the call, and a kernel adds the remaining addends.
    Library(usize, Option<Left>),
    /// Kernels of this crate do the call, and its follower, for this reason.
    Kernels(String),
}

/// The kernel of the addends that a library leaves.
#[derive(Clone)]
pub(super) struct Left {
    pub addends: Addends,
    stage: PlacedStage,
    /// Numbers of the call's arguments that it gets; the last is the result.
    pub arguments: Vec<usize>,
}

pub(super) struct Preparing<'a> {
    pub plan: &'a Plan,
    pub architecture: Architecture,
    pub choose: &'a mut dyn Choose,
    pub uses: IdVec<ValueId, usize>,
    module: Module,
    facts: Vec<KernelFacts>,
    /// Kernels without their names. Looked up, never iterated.
    known: HashMap<Kernel, usize>,
    names: BTreeSet<String>,
    functions: BTreeSet<String>,
    nests: BTreeMap<NestKey, Placed>,
    /// Looked up, never iterated.
    answers: HashMap<(Question, bool), Answer>,
    /// The reason why a product and its follower are one kernel, if they are. Looked up, never
    /// iterated.
    pub pairs: HashMap<(Question, Following), Option<String>>,
    /// Kernels of calls with their followers. Looked up, never iterated.
    calls: HashMap<(Question, Option<Follower>), Placed>,
    library: Vec<Question>,
    pub own: Vec<(Question, String)>,
    pub products: Vec<ProductChoice>,
    pub nest_bytes: u64,
    /// Number of exchanges so far.
    pub exchanges: usize,
}

impl<'p> Prepare<'p> for Preparing<'_> {
    type Kernel = Command;

    fn prepare(
        &mut self,
        resolver: &Resolver<'p>,
        steps: &'p [Step],
        commands: &mut Vec<Command>,
    ) -> Result<usize> {
        let step = &steps[0];
        let places = resolver.arguments(step);
        match step {
            Step::Nest { nest, .. } => self.nest(*nest, places, commands)?,
            Step::Call { call: Call::Collective(call), .. } => {
                self.collective(call, &places, resolver.workspace(step), commands)?;
            }
            Step::Call { call, .. } => {
                let called = Called::new(call, places, resolver.workspace(step));
                let next = steps.get(1);
                let next =
                    next.and_then(|next| Some((next, plan::follower(self.plan, step, next)?)));
                let followed = next.and_then(|(next, tile)| {
                    self.followed(&called, [step, next], tile, resolver.arguments(next))
                });
                let following = followed.as_ref().map(|(following, _)| following);
                let answer = self.product_or_call(&called, following)?;
                let recorded = self.record(&called, &answer);
                let within = followed.filter(|_| matches!(answer, Answer::Kernels(_)));
                if let Some((next, _)) = next.filter(|_| recorded) {
                    self.record_follower(next, within.is_some(), &resolver.arguments(next));
                }
                match within {
                    Some((following, of_nest)) => {
                        self.pair(called, following, of_nest, commands)?;
                        return Ok(2);
                    }
                    None => self.call(called, answer, commands)?,
                }
            }
            _ => unreachable!("the walk executes all other steps"),
        }
        Ok(1)
    }
}

impl Preparing<'_> {
    fn nest(&mut self, id: NestId, places: Vec<Place>, commands: &mut Vec<Command>) -> Result<()> {
        let nest = &self.plan.nests[id];
        let alignment = alignment(&places);
        self.nest_bytes += places.iter().map(|place| place.bytes).sum::<u64>();
        let key = (id, in_place(&places), alignment);
        let placed = match self.nests.get(&key) {
            Some(placed) => placed.clone(),
            None => {
                let options = nest::Options { alignment, ..nest::Options::default() };
                let compiled = nest::compile(nest, self.architecture, &key.1, &options)?;
                let placed = self.place(compiled, &format!("nest @{}", nest.name));
                self.nests.insert(key, placed.clone());
                placed
            }
        };
        self.launch(&placed, &places, None, commands)
    }

    fn call(&mut self, called: Called, answer: Answer, commands: &mut Vec<Command>) -> Result<()> {
        if called.is_empty() {
            return Ok(());
        }
        let Called { question, places, workspace } = called;
        match answer {
            Answer::Kernels(_) => {
                let placed = self.kernels(&question, None)?;
                self.launch(&placed, &places, workspace, commands)
            }
            Answer::Library(number, left) => {
                let left = left.map(|Left { stage, arguments, .. }| {
                    let places: Vec<Place> = arguments.iter().map(|a| places[*a].clone()).collect();
                    (Placed { stages: vec![stage], workspace: 0 }, places)
                });
                commands.push(Command::Library { call: number, arguments: places, workspace });
                match left {
                    Some((placed, places)) => self.launch(&placed, &places, None, commands),
                    None => Ok(()),
                }
            }
        }
    }

    /// Whether bits of a row must not depend on the number of rows, as a library's do.
    pub(super) fn invariant(&self) -> bool {
        self.plan.target.batch_invariant
    }

    /// Asks the device, unless it was asked before ([`Choose::call`]).
    pub(super) fn answer(&mut self, question: &Question, compared: bool) -> Result<Answer> {
        let key = (question.clone(), compared);
        if let Some(known) = self.answers.get(&key) {
            return Ok(known.clone());
        }
        let choice = match self.invariant() {
            true => Choice::Kernels("the target is batch-invariant".into()),
            false => self.choose.call(question, compared)?,
        };
        let answer = match choice {
            Choice::Library(left) => {
                self.library.push(question.clone());
                let number = self.library.len() - 1;
                let left = match left == Addends::default() {
                    true => None,
                    false => {
                        let gemm = call::library_product(&question.call);
                        let gemm = gemm.expect("a library computes products only");
                        Some(self.left(gemm, left, question.alignment)?)
                    }
                };
                Answer::Library(number, left)
            }
            Choice::Kernels(reason) => {
                let call = question.call.name();
                tracing::debug!(call, reason, "a call is done by kernels of our own");
                self.own.push((question.clone(), reason.clone()));
                Answer::Kernels(reason)
            }
        };
        self.answers.insert(key, answer.clone());
        Ok(answer)
    }

    /// The kernel for the addends that a library leaves.
    fn left(&mut self, gemm: &Gemm, left: Addends, alignment: u64) -> Result<Left> {
        let (nest, arguments) = addends(gemm, &left);
        let options = nest::Options { alignment, ..nest::Options::default() };
        let compiled = nest::compile(&nest, self.architecture, &[], &options)?;
        let mut placed = self.place(compiled, "call gemm, the addends that the library leaves");
        let stage = placed.stages.pop().expect("a result with elements has a kernel");
        Ok(Left { addends: left, stage, arguments })
    }

    /// Kernels of this crate for a call and its follower.
    pub(super) fn kernels(
        &mut self,
        question: &Question,
        follower: Option<Follower>,
    ) -> Result<Placed> {
        let key = (question.clone(), follower);
        if let Some(known) = self.calls.get(&key) {
            return Ok(known.clone());
        }
        let (Question { call, in_place, alignment, .. }, follower) = &key;
        let options = call::Options {
            in_place: *in_place,
            alignment: *alignment,
            follower: follower.as_ref(),
            batch_invariant: self.invariant(),
            ..call::Options::default()
        };
        let compiled = call::compile_with(call, self.architecture, options)?;
        let origin = match follower {
            None => format!("call {}", call.name()),
            Some(follower) => format!("call {}, nest @{}", call.name(), follower.nest.name),
        };
        let placed = self.place(compiled, &origin);
        self.calls.insert(key, placed.clone());
        Ok(placed)
    }

    /// Adds new kernels to the module.
    pub(super) fn place(&mut self, compiled: Compiled, origin: &str) -> Placed {
        let Compiled { stages, workspace } = compiled;
        let stages = stages.into_iter().map(|stage| {
            for function in stage.functions {
                if self.functions.insert(function.name.clone()) {
                    self.module.functions.push(function);
                }
            }
            let (grid, dynamic_shared, arguments) =
                (stage.grid, stage.dynamic_shared, stage.arguments);
            let kernel = self.kernel(stage.kernel, origin);
            let most = &mut self.facts[kernel].dynamic_shared;
            *most = dynamic_shared.max(*most);
            PlacedStage { kernel, grid, dynamic_shared, arguments }
        });
        let stages = stages.collect();
        Placed { stages, workspace }
    }

    fn kernel(&mut self, mut kernel: Kernel, origin: &str) -> usize {
        let wished = std::mem::take(&mut kernel.name);
        if let Some(known) = self.known.get(&kernel) {
            return *known;
        }
        let number = self.facts.len();
        self.known.insert(kernel.clone(), number);
        let wished = identifier(&wished);
        kernel.name =
            if self.names.contains(&wished) { format!("{wished}_{number}") } else { wished };
        // A proposed name may equal a generated one.
        while !self.names.insert(kernel.name.clone()) {
            kernel.name.push('x');
        }
        self.facts.push(KernelFacts {
            name: kernel.name.clone(),
            threads: kernel.threads,
            shared: kernel.static_shared(),
            dynamic_shared: 0,
            origin: origin.into(),
        });
        self.module.kernels.push(kernel);
        number
    }

    pub(super) fn launch(
        &self,
        placed: &Placed,
        places: &[Place],
        workspace: Option<Place>,
        commands: &mut Vec<Command>,
    ) -> Result<()> {
        let reserved = workspace.as_ref().map_or(0, |w| w.bytes);
        if placed.workspace > reserved {
            let message = format!(
                "its kernels use {} bytes of workspace, {reserved} are reserved",
                placed.workspace
            );
            return Err(Diagnostic::new(message).help("compile the plan again with this version"));
        }
        for stage in &placed.stages {
            let argument = |slot: &crate::stage::Slot| match slot.memory {
                Memory::Argument(n) => Place { access: slot.access, ..places[n].clone() },
                Memory::Workspace { offset, bytes } => {
                    let whole = workspace.clone().expect("its length was just compared");
                    Place { offset: whole.offset + offset, bytes, access: slot.access, ..whole }
                }
            };
            let arguments = stage.arguments.iter().map(argument).collect();
            let (kernel, grid, dynamic_shared) = (stage.kernel, stage.grid, stage.dynamic_shared);
            commands.push(Command::Launch(Launch { kernel, grid, dynamic_shared, arguments }));
        }
        Ok(())
    }
}

/// The common alignment of all addresses; a power of two.
pub(super) fn alignment(places: &[Place]) -> u64 {
    let parts = places.iter().filter(|p| p.bytes > 0);
    let parts = parts.flat_map(|p| p.strides.iter().map(|(_, s)| *s).chain([p.offset]));
    parts.fold(
        ALIGNMENT,
        |all, part| if part == 0 { all } else { all.min(1 << part.trailing_zeros()) },
    )
}

/// A valid PTX name: letters, digits and `_`, beginning with a letter.
fn identifier(name: &str) -> String {
    let letters = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
    let mut made: String = letters.take(64).collect();
    if !made.starts_with(|c: char| c.is_ascii_alphabetic()) {
        made.insert(0, 'k');
    }
    made
}
