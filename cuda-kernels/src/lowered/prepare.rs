//! Lowering of a plan to kernels and actions.

use super::epilogue::epilogue;
use super::{Choice, Choose, Command, KernelFacts, Launch, LoweredPlan, Question};
use crate::architecture::Architecture;
use crate::ptx::{Kernel, Module};
use crate::stage::{Compiled, Memory};
use crate::{call, nest};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use wengert_core::call::{Call, Epilogue};
use wengert_core::plan::resolve::in_place;
use wengert_core::plan::{NestId, Place, Plan, Prepare, Resolver, Step, resolve};
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
        module: Module::default(),
        facts: Vec::new(),
        known: HashMap::new(),
        names: BTreeSet::new(),
        functions: BTreeSet::new(),
        nests: BTreeMap::new(),
        calls: HashMap::new(),
        library: Vec::new(),
        own: Vec::new(),
    };
    let resolved = resolve(plan, &mut preparing)?;
    let Preparing { module, facts, library, own, .. } = preparing;
    let dynamic = facts.iter().filter(|k| k.dynamic_shared > 0);
    let dynamic = dynamic.map(|k| format!("// dynamic_shared {} {}\n", k.name, k.dynamic_shared));
    Ok(LoweredPlan {
        plan: plan.clone(),
        architecture,
        ptx: dynamic.collect::<String>() + &module.to_string(),
        kernels: facts,
        library,
        own,
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

/// The implementation of a call.
#[derive(Clone)]
enum Done {
    /// By a library, and a kernel for the remaining epilogue, with the call's arguments that it
    /// gets.
    Library(usize, Option<(PlacedStage, Vec<usize>)>),
    /// By kernels.
    Kernels(Placed),
}

struct Preparing<'a, 'c> {
    plan: &'a Plan,
    architecture: Architecture,
    choose: &'a mut Choose<'c>,
    module: Module,
    facts: Vec<KernelFacts>,
    /// Kernels without their names. Looked up, never iterated.
    known: HashMap<Kernel, usize>,
    names: BTreeSet<String>,
    functions: BTreeSet<String>,
    nests: BTreeMap<NestKey, Placed>,
    /// Looked up, never iterated.
    calls: HashMap<Question, Done>,
    library: Vec<Question>,
    own: Vec<(Question, String)>,
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
                self.call(call, places, resolver.workspace(step), commands)?;
            }
            _ => unreachable!("the walk executes all other steps"),
        }
        Ok(1)
    }
}

impl Preparing<'_, '_> {
    fn nest(&mut self, id: NestId, places: Vec<Place>, commands: &mut Vec<Command>) -> Result<()> {
        let nest = &self.plan.nests[id];
        let alignment = alignment(&places);
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

    fn call(
        &mut self,
        call: &Call,
        places: Vec<Place>,
        workspace: Option<Place>,
        commands: &mut Vec<Command>,
    ) -> Result<()> {
        let last = places.len() - 1;
        let shares = |n: &usize| places[*n].bytes > 0 && places[*n].is_same(&places[last]);
        let in_place = call.in_place().into_iter().find(shares);
        if places[last].bytes == 0 {
            return Ok(());
        }
        let reserved = workspace.as_ref().map_or(0, |w| w.bytes);
        let question = Question {
            call: call.clone(),
            in_place,
            alignment: alignment(&places),
            workspace: reserved,
        };
        let done = match self.calls.get(&question) {
            Some(done) => done.clone(),
            None => {
                let done = self.decide(&question)?;
                self.calls.insert(question, done.clone());
                done
            }
        };
        match done {
            Done::Kernels(placed) => self.launch(&placed, &places, workspace, commands),
            Done::Library(number, left) => {
                let left = left.map(|(stage, arguments)| {
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

    /// Decides how a call is done, and by which kernels.
    fn decide(&mut self, question: &Question) -> Result<Done> {
        let Question { call, in_place, alignment, .. } = question;
        let origin = format!("call {}", call.name());
        match (self.choose)(question)? {
            Choice::Library(left) => {
                self.library.push(question.clone());
                let number = self.library.len() - 1;
                if left == Epilogue::default() {
                    return Ok(Done::Library(number, None));
                }
                let gemm = call::library_product(call).expect("a library computes products only");
                let (nest, arguments) = epilogue(gemm, &left);
                let options = nest::Options { alignment: *alignment, ..nest::Options::default() };
                let compiled = nest::compile(&nest, self.architecture, &[], &options)?;
                let mut placed = self
                    .place(compiled, &format!("{origin}, the epilogue that the library leaves"));
                let stage = placed.stages.pop().expect("a result with elements has a kernel");
                Ok(Done::Library(number, Some((stage, arguments))))
            }
            Choice::Kernels(reason) => {
                tracing::debug!(call = call.name(), reason, "a call is done by kernels of our own");
                self.own.push((question.clone(), reason));
                let options = call::Options {
                    in_place: *in_place,
                    alignment: *alignment,
                    ..call::Options::default()
                };
                let compiled = call::compile_with(call, self.architecture, options)?;
                Ok(Done::Kernels(self.place(compiled, &origin)))
            }
        }
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
