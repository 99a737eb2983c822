//! Lowering of a plan to kernels and actions.

use super::addends::addends;
use super::labels::Labels;
use super::uses::uses;
use super::{
    Action, ActionKind, Choice, Choose, KernelFacts, Launch, Lowered, Place, Question, Trip,
};
use crate::architecture::Architecture;
use crate::nest::Follower;
use crate::ptx::{Kernel, Module};
use crate::stage::{Access, Compiled, Memory};
use crate::{call, nest};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wengert_core::call::{Addends, Call, Gemm};
use wengert_core::id::IdVec;
use wengert_core::nest::{BufferRole, Nest};
use wengert_core::plan::work::STEP;
use wengert_core::plan::{self, Address, Argument, NestId, Plan, Step, ValueId, Work};
use wengert_core::{DType, Diagnostic, Id, Result, Verified};

/// Alignment of buffers in memory: of allocations, and of values in the arena.
const ALIGNMENT: u64 = 256;

pub(super) fn prepare(
    plan: &Verified<Plan>,
    architecture: Architecture,
    choose: &mut Choose<'_>,
) -> Result<Lowered> {
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
        labels: Labels::new(plan).finish(plan),
        uses: uses(plan),
        module: Module::default(),
        facts: Vec::new(),
        known: HashMap::new(),
        names: BTreeSet::new(),
        functions: BTreeSet::new(),
        nests: BTreeMap::new(),
        answers: HashMap::new(),
        calls: HashMap::new(),
        library: Vec::new(),
        own: Vec::new(),
        work: Work::of(plan),
        steps: 0,
        loops: 0,
    };
    let actions = preparing.block(&plan.steps)?;
    let Preparing { module, facts, library, own, loops, .. } = preparing;
    let dynamic = facts.iter().filter(|k| k.dynamic_shared > 0);
    let dynamic = dynamic.map(|k| format!("// dynamic_shared {} {}\n", k.name, k.dynamic_shared));
    Ok(Lowered {
        plan: plan.clone(),
        architecture,
        ptx: dynamic.collect::<String>() + &module.to_string(),
        kernels: facts,
        library,
        own,
        actions,
        loops,
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

/// A call with its arguments.
struct Called {
    question: Question,
    /// Operands, then results.
    places: Vec<Place>,
    workspace: Option<Place>,
}

impl Called {
    /// Whether its result has no elements.
    fn is_empty(&self) -> bool {
        self.places.last().is_none_or(|result| result.bytes == 0)
    }
}

/// The machine's answer to a question.
#[derive(Clone)]
enum Answer {
    /// A library does the call, and a kernel adds the remaining addends, with the call's arguments
    /// that it gets.
    Library(usize, Option<(PlacedStage, Vec<usize>)>),
    /// Kernels of this crate do the call, and its follower.
    Kernels,
}

struct Preparing<'a, 'c> {
    plan: &'a Plan,
    architecture: Architecture,
    choose: &'a mut Choose<'c>,
    labels: BTreeMap<ValueId, Option<u32>>,
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
    work: Work,
    steps: usize,
    loops: usize,
}

impl Preparing<'_, '_> {
    fn block(&mut self, steps: &[Step]) -> Result<Vec<Action>> {
        let mut actions = Vec::new();
        let mut rest = steps;
        while let [step, behind @ ..] = rest {
            rest = behind;
            let number = self.steps;
            self.steps += 1;
            let first = actions.len();
            let mut work = self.work_of(step);
            if let [next, after @ ..] = behind
                && let Some(tile) = plan::follower(self.plan, step, next)
                && self.followed(number, step, next, tile, &mut actions)?
            {
                rest = after;
                self.steps += 1;
                work = work.saturating_add(self.work_of(next));
            } else {
                self.step(number, step, &mut actions)?;
            }
            // For a step with several launches, the first stands for all.
            if let Some(action) = actions.get_mut(first) {
                action.work = work;
            }
        }
        Ok(actions)
    }

    fn work_of(&self, step: &Step) -> u64 {
        match step {
            Step::Nest { nest, .. } => self.work.nest(*nest),
            Step::Call { call, .. } => Work::call(call),
            Step::Copy { value, .. } => Work::copy(&self.plan.values[*value]),
            Step::Loop(_) | Step::If { .. } | Step::Switch { .. } => STEP,
        }
    }

    fn step(&mut self, step: usize, what: &Step, actions: &mut Vec<Action>) -> Result<()> {
        let kind = match what {
            Step::Nest { nest, arguments } => return self.nest(step, *nest, arguments, actions),
            Step::Call { call, arguments, workspace } => {
                let called = self.called(call, arguments, workspace.as_ref());
                return self.call(step, &called, actions);
            }
            Step::Copy { value, from, to } => ActionKind::Copy {
                from: self.at(*value, from, Access::Read),
                to: self.at(*value, to, Access::Write),
            },
            Step::Loop(l) => {
                self.loops = self.loops.max(l.id.index() + 1);
                let trip = match &l.trip {
                    plan::Trip::Constant(n) => Trip::Constant(*n),
                    plan::Trip::Value { count, limit } => Trip::Value {
                        count: self.argument(count, Access::Read),
                        wide: self.plan.values[count.value].dtype == DType::I64,
                        limit: *limit,
                    },
                    plan::Trip::While { before, limit, .. } => Trip::While {
                        condition: self.argument(before, Access::Read),
                        limit: *limit,
                    },
                };
                let body = self.block(&l.body)?;
                ActionKind::Loop { counter: l.id.index(), trip, reverse: l.reverse, body }
            }
            Step::If { predicate, then, otherwise, .. } => ActionKind::Branch {
                selector: self.argument(predicate, Access::Read),
                is_bool: true,
                ways: vec![self.block(then)?, self.block(otherwise)?],
            },
            Step::Switch { index, arms, .. } => ActionKind::Branch {
                selector: self.argument(index, Access::Read),
                is_bool: false,
                ways: arms.iter().map(|arm| self.block(arm)).collect::<Result<_>>()?,
            },
        };
        // A copy of no bytes is dropped.
        if !matches!(&kind, ActionKind::Copy { from, .. } if from.bytes == 0) {
            actions.push(Action { step, work: 0, kind });
        }
        Ok(())
    }

    fn nest(
        &mut self,
        step: usize,
        id: NestId,
        arguments: &[Argument],
        actions: &mut Vec<Action>,
    ) -> Result<()> {
        let nest = &self.plan.nests[id];
        let in_place = self.in_place(nest, arguments);
        let places = arguments.iter().map(|a| self.argument(a, Access::Read)).collect::<Vec<_>>();
        let alignment = alignment(&places);
        let key = (id, in_place, alignment);
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
        self.launch(step, &placed, &places, None, actions)
    }

    /// Pairs of a nest's parameters, an `in` and an `out`, that have the same address.
    fn in_place(&self, nest: &Nest, arguments: &[Argument]) -> Vec<(usize, usize)> {
        let roles: Vec<BufferRole> = nest.parameters().map(|(_, b)| b.role).collect();
        let mut in_place = Vec::new();
        for (result, _) in roles.iter().enumerate().filter(|(_, r)| **r == BufferRole::Out) {
            // A value of no bytes aliases none, whatever its address.
            let has_bytes = |n: usize| self.plan.values[arguments[n].value].bytes() > 0;
            let same = |n: &usize| {
                roles[*n] == BufferRole::In
                    && arguments[*n].at == arguments[result].at
                    && has_bytes(*n)
                    && has_bytes(result)
            };
            in_place.extend((0..roles.len()).filter(same).map(|operand| (operand, result)));
        }
        in_place
    }

    fn called(
        &self,
        call: &Call,
        arguments: &[Argument],
        workspace: Option<&(Address, u64)>,
    ) -> Called {
        let last = arguments.len() - 1;
        let shares = |n: &usize| {
            arguments[*n].at == arguments[last].at
                && self.plan.values[arguments[*n].value].bytes() > 0
        };
        let access = |n: usize| if n == last { Access::Write } else { Access::Read };
        let places: Vec<Place> =
            arguments.iter().enumerate().map(|(n, a)| self.argument(a, access(n))).collect();
        let question = Question {
            call: call.clone(),
            in_place: call.in_place().into_iter().find(shares),
            alignment: alignment(&places),
            workspace: workspace.map_or(0, |(_, bytes)| *bytes),
        };
        let workspace = workspace.map(|(at, bytes)| self.memory(at, *bytes));
        Called { question, places, workspace }
    }

    fn call(&mut self, step: usize, called: &Called, actions: &mut Vec<Action>) -> Result<()> {
        let Called { question, places, workspace } = called;
        if called.is_empty() {
            return Ok(());
        }
        match self.answer(question)? {
            Answer::Kernels => {
                let placed = self.kernels(question, None)?;
                self.launch(step, &placed, places, workspace.clone(), actions)
            }
            Answer::Library(call, left) => {
                let workspace = workspace.clone();
                let kind = ActionKind::Library { call, arguments: places.clone(), workspace };
                actions.push(Action { step, work: 0, kind });
                let Some((stage, arguments)) = left else { return Ok(()) };
                let places: Vec<Place> = arguments.iter().map(|a| places[*a].clone()).collect();
                let placed = Placed { stages: vec![stage], workspace: 0 };
                self.launch(step, &placed, &places, None, actions)
            }
        }
    }

    /// A product and its follower in the same kernels, whose parameter `tile` is the product's
    /// result. False if they are separate: a library does the product, or the nest needs more
    /// than registers.
    fn followed(
        &mut self,
        step: usize,
        product: &Step,
        follower: &Step,
        tile: usize,
        actions: &mut Vec<Action>,
    ) -> Result<bool> {
        let (
            Step::Call { call, arguments: of_call, workspace },
            Step::Nest { nest, arguments: of_nest },
        ) = (product, follower)
        else {
            unreachable!("a nest follows a call")
        };
        let nest = &self.plan.nests[*nest];
        let mut called = self.called(call, of_call, workspace.as_ref());
        let takes = !called.is_empty() && Follower::takes(nest);
        if !takes || !matches!(self.answer(&called.question)?, Answer::Kernels) {
            return Ok(false);
        }
        let result = of_call.len() - 1;
        let mut in_place = self.in_place(nest, of_nest);
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
        called.places.extend(of_nest.iter().map(|a| self.argument(a, Access::Read)));
        called.question.alignment = alignment(&called.places);
        let placed = self.kernels(&called.question, Some(follower))?;
        self.launch(step, &placed, &called.places, called.workspace, actions)?;
        Ok(true)
    }

    /// Asks the machine, unless it was asked before.
    fn answer(&mut self, question: &Question) -> Result<Answer> {
        if let Some(known) = self.answers.get(question) {
            return Ok(known.clone());
        }
        let answer = match ((self.choose)(question)?, &question.call) {
            (Choice::Library(left), call) => {
                self.library.push(question.clone());
                let number = self.library.len() - 1;
                match call {
                    Call::Gemm(gemm) if left != Addends::default() => {
                        Answer::Library(number, Some(self.left(gemm, &left, question.alignment)?))
                    }
                    _ => Answer::Library(number, None),
                }
            }
            (Choice::Kernels(reason), call) => {
                tracing::debug!(call = call.name(), reason, "a call is done by kernels of our own");
                self.own.push((question.clone(), reason));
                Answer::Kernels
            }
        };
        self.answers.insert(question.clone(), answer.clone());
        Ok(answer)
    }

    /// The kernel for the addends that a library leaves, with the call's arguments that it gets.
    fn left(
        &mut self,
        gemm: &Gemm,
        left: &Addends,
        alignment: u64,
    ) -> Result<(PlacedStage, Vec<usize>)> {
        let (nest, arguments) = addends(gemm, left);
        let options = nest::Options { alignment, ..nest::Options::default() };
        let compiled = nest::compile(&nest, self.architecture, &[], &options)?;
        let mut placed = self.place(compiled, "call gemm, the addends that the library leaves");
        let stage = placed.stages.pop().expect("a result with elements has a kernel");
        Ok((stage, arguments))
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
        step: usize,
        placed: &Placed,
        places: &[Place],
        workspace: Option<Place>,
        actions: &mut Vec<Action>,
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
            let kind = ActionKind::Launch(Launch { kernel, grid, dynamic_shared, arguments });
            actions.push(Action { step, work: 0, kind });
        }
        Ok(())
    }

    fn argument(&self, argument: &Argument, access: Access) -> Place {
        self.at(argument.value, &argument.at, access)
    }

    fn at(&self, value: ValueId, at: &Address, access: Access) -> Place {
        let bytes = self.plan.values[value].bytes();
        Place { access, label: self.labels[&value], ..self.memory(at, bytes) }
    }

    fn memory(&self, at: &Address, bytes: u64) -> Place {
        let strides = at.strides.iter().map(|(l, stride)| (l.index(), *stride)).collect();
        Place {
            space: at.space,
            offset: at.offset,
            strides,
            bytes,
            access: Access::ReadWrite,
            label: None,
        }
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
