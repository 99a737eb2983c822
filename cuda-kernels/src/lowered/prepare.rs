//! Lowering of a plan to kernels and actions.

use super::addends::addends;
use super::share::share;
use super::uses::uses;
use super::{Choice, Choose, Command, KernelFacts, Launch, LoweredPlan, ProductChoice, Question};
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
    choose: &mut Choose<'_>,
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
        calls: HashMap::new(),
        library: Vec::new(),
        own: Vec::new(),
        products: Vec::new(),
        nest_bytes: 0,
    };
    let mut resolved = resolve(plan, &mut preparing)?;
    let Preparing { mut module, mut facts, library, own, products, nest_bytes, .. } = preparing;
    share(&mut resolved, &mut module, &mut facts);
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
        resolved,
    })
}

/// Stages of a nest or call in the module: like [`crate::stage::Stage`], with the number of the
/// kernel.
#[derive(Clone)]
struct Placed {
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
struct Called {
    question: Question,
    /// Operands, then results.
    places: Vec<Place>,
    workspace: Option<Place>,
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
    fn is_empty(&self) -> bool {
        self.places.last().is_none_or(|result| result.bytes == 0)
    }
}

/// The device's answer to a question.
#[derive(Clone)]
enum Answer {
    /// A library does the call, and a kernel adds the remaining addends.
    Library(usize, Option<Left>),
    /// Kernels of this crate do the call, and its follower.
    Kernels,
}

/// The kernel of the addends that a library leaves.
#[derive(Clone)]
struct Left {
    addends: Addends,
    stage: PlacedStage,
    /// Numbers of the call's arguments that it gets; the last is the result.
    arguments: Vec<usize>,
}

struct Preparing<'a, 'c> {
    plan: &'a Plan,
    architecture: Architecture,
    choose: &'a mut Choose<'c>,
    uses: IdVec<ValueId, usize>,
    module: Module,
    facts: Vec<KernelFacts>,
    /// Kernels without their names. Looked up, never iterated.
    known: HashMap<Kernel, usize>,
    names: BTreeSet<String>,
    functions: BTreeSet<String>,
    nests: BTreeMap<NestKey, Placed>,
    /// Looked up, never iterated.
    answers: HashMap<Question, Answer>,
    /// Kernels of calls with their followers. Looked up, never iterated.
    calls: HashMap<(Question, Option<Follower>), Placed>,
    library: Vec<Question>,
    own: Vec<(Question, String)>,
    products: Vec<ProductChoice>,
    nest_bytes: u64,
}

impl<'p> Prepare<'p> for Preparing<'_, '_> {
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
            Step::Call { call, .. } => {
                let mut called = Called::new(call, places, resolver.workspace(step));
                let recorded = self.record(&called)?;
                if let Some(next) = steps.get(1)
                    && let Some(tile) = plan::follower(self.plan, step, next)
                {
                    let within =
                        self.followed(&mut called, [step, next], tile, resolver, commands)?;
                    if recorded {
                        self.record_follower(next, within, &resolver.arguments(next));
                    }
                    if within {
                        return Ok(2);
                    }
                }
                self.call(called, commands)?;
            }
            _ => unreachable!("the walk executes all other steps"),
        }
        Ok(1)
    }
}

impl Preparing<'_, '_> {
    /// Records the choice for a product; false for other calls.
    fn record(&mut self, called: &Called) -> Result<bool> {
        let Called { question, places, .. } = called;
        if called.is_empty() || call::library_product(&question.call).is_none() {
            return Ok(false);
        }
        let (library, left, beside) = match self.answer(question)? {
            Answer::Library(_, None) => (Ok(()), Addends::default(), 0),
            Answer::Library(_, Some(left)) => {
                // The result is read and written.
                let read: u64 = left.arguments.iter().map(|n| places[*n].bytes).sum();
                (Ok(()), left.addends, read + places.last().map_or(0, |result| result.bytes))
            }
            Answer::Kernels => {
                let reason = self.own.iter().find(|(known, _)| known == question);
                let reason = reason.map_or_else(String::new, |(_, reason)| reason.clone());
                (Err(reason), Addends::default(), 0)
            }
        };
        let (call, in_place) = (question.call.clone(), question.in_place);
        self.nest_bytes += beside;
        self.products.push(ProductChoice { call, in_place, library, left, follower: None, beside });
        Ok(true)
    }

    /// Records the nest that follows the product that was recorded last. `within`: the product's
    /// kernels run it.
    fn record_follower(&mut self, step: &Step, within: bool, places: &[Place]) {
        let Step::Nest { nest, .. } = step else { return };
        let name = self.plan.nests[*nest].name.clone();
        let product = self.products.last_mut().expect("the product was recorded");
        product.beside += if within { 0 } else { places.iter().map(|p| p.bytes).sum::<u64>() };
        product.follower = Some((name, within));
    }

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

    fn call(&mut self, called: Called, commands: &mut Vec<Command>) -> Result<()> {
        if called.is_empty() {
            return Ok(());
        }
        let answer = self.answer(&called.question)?;
        let Called { question, places, workspace } = called;
        match answer {
            Answer::Kernels => {
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

    /// Does a product and its follower, a nest whose parameter `tile` is the product's result, in
    /// the same kernels. False if they are separate: a library does the product, or the nest
    /// needs more than registers.
    fn followed(
        &mut self,
        called: &mut Called,
        [product, follower]: [&Step; 2],
        tile: usize,
        resolver: &Resolver<'_>,
        commands: &mut Vec<Command>,
    ) -> Result<bool> {
        let (Step::Call { arguments: of_call, .. }, Step::Nest { nest, .. }) = (product, follower)
        else {
            unreachable!("a nest follows a call")
        };
        let nest = &self.plan.nests[*nest];
        let takes = !called.is_empty() && Follower::takes(nest);
        if !takes || !matches!(self.answer(&called.question)?, Answer::Kernels) {
            return Ok(false);
        }
        let of_nest = resolver.arguments(follower);
        let result = of_call.len() - 1;
        let mut in_place = in_place(&of_nest);
        // A product that the nest's result overwrites, or that nothing else uses, is not stored.
        let overwritten = in_place.iter().any(|(operand, _)| *operand == tile);
        let stores = !overwritten && self.uses[of_call[result].value] > 1;
        in_place.retain(|(operand, _)| *operand != tile);
        let argument = |n: usize| if n == tile { result } else { of_call.len() + n };
        let follower = Follower {
            nest: nest.clone(),
            tile,
            arguments: (0..of_nest.len()).map(argument).collect(),
            in_place,
            stores,
        };
        called.places.extend(of_nest);
        called.question.alignment = alignment(&called.places);
        let placed = self.kernels(&called.question, Some(follower))?;
        self.launch(&placed, &called.places, called.workspace.take(), commands)?;
        Ok(true)
    }

    /// Asks the device, unless it was asked before.
    fn answer(&mut self, question: &Question) -> Result<Answer> {
        if let Some(known) = self.answers.get(question) {
            return Ok(known.clone());
        }
        let choice = match self.plan.target.batch_invariant {
            true => Choice::Kernels("the target is batch-invariant".into()),
            false => (self.choose)(question)?,
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
                self.own.push((question.clone(), reason));
                Answer::Kernels
            }
        };
        self.answers.insert(question.clone(), answer.clone());
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
    fn kernels(&mut self, question: &Question, follower: Option<Follower>) -> Result<Placed> {
        let key = (question.clone(), follower);
        if let Some(known) = self.calls.get(&key) {
            return Ok(known.clone());
        }
        let (Question { call, in_place, alignment, .. }, follower) = &key;
        let options = call::Options {
            in_place: *in_place,
            alignment: *alignment,
            follower: follower.as_ref(),
            batch_invariant: self.plan.target.batch_invariant,
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
    fn place(&mut self, compiled: Compiled, origin: &str) -> Placed {
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

    fn launch(
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
fn alignment(places: &[Place]) -> u64 {
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
