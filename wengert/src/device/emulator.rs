//! Plans on the emulated GPU: the kernels' PTX, executed under sanitizers.
//!
//! The emulator owns all device memory. Variables are copied there before a run and back after
//! the run, since the emulator is for verification, not for speed. Each launch declares the
//! accesses of its kernel: the buffer behind each address, whether the kernel reads or writes it,
//! and the label of the value that it must hold. So the emulator reports a kernel that accesses
//! memory outside its buffers, reads undefined memory, or runs too early. The error names the step
//! and its source line.
//!
//! Ranks exchange data by the transport (`exchanges`), under the same watch.

mod exchanges;

use super::backend::no_value;
use super::cuda::at_source;
use super::{Backend, PlanMemory, PreparedFunction};
use crate::outputs::Returned;
use crate::store::Store;
use exchanges::Exchanges;
use std::sync::Arc;
use wengert_compiler::pipeline::Sources;
use wengert_core::nest::BufferRole;
use wengert_core::plan::{
    Access, Account, Argument, Counters, Memories, Plan, Region, Step, StepRunner,
};
use wengert_core::{Diagnostic, Literal, Result, Target, Verified};
use wengert_cpu::World;
use wengert_cuda::architecture::Architecture;
use wengert_cuda::lowered::{Command, Launch, LoweredPlan, NoLibrary, StepError};
use wengert_cuda::target::target;
use wengert_emulator::{self as emulator, Emulator, Memory, Module};

/// The architecture that programs are compiled for.
const EMULATED: &str = "sm_90";

/// Bytes of race detection for each byte that a launch writes. For each word of four bytes, the
/// emulator records the last write and two reads, in twelve bytes each.
const HISTORY: u64 = 9;

/// The emulated GPU. It runs plans for any GPU.
#[derive(Debug)]
struct EmulatorBackend {
    /// The ranks that it has joined.
    world: Option<World>,
}

/// Opens the emulator.
pub(super) fn open() -> Result<Arc<dyn Backend>> {
    Ok(Arc::new(EmulatorBackend { world: None }))
}

impl Backend for EmulatorBackend {
    fn target(&self) -> Result<Target> {
        Ok(target(EMULATED))
    }

    /// A word of four bytes takes nine: its value, a mask of written bytes, and its label. Inputs
    /// and variables are copied into words. Outputs are copied twice, after the last launch.
    fn plan_memory(&self, plan: &Plan) -> PlanMemory {
        let account = Account::sizes(plan);
        let words = account.total().div_ceil(4).saturating_mul(9);
        let while_running = most_written(plan).saturating_mul(HISTORY);
        let more = while_running.max(account.outputs.saturating_mul(2));
        PlanMemory { bytes: words.saturating_add(more), arena_quarters: 9 }
    }

    fn prepare(
        &self,
        plan: Verified<Plan>,
        sources: Option<Sources>,
        work_limit: u64,
    ) -> Result<Box<dyn PreparedFunction>> {
        let mut function = EmulatedFunction::new(&plan, sources, work_limit)?;
        if let Some(world) = self.world.as_ref().filter(|_| !plan.mesh.is_empty()) {
            function.exchanges = Exchanges::among(world.enter(&plan)?);
        }
        Ok(Box::new(function))
    }

    fn world(&self) -> Option<&World> {
        self.world.as_ref()
    }

    fn join(&self, world: World) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(EmulatorBackend { world: Some(world) }))
    }
}

/// Most bytes that one launch writes. Steps that share a launch write different bytes, so they
/// write at most what all steps do, and at most all memory of the plan.
fn most_written(plan: &Plan) -> u64 {
    let bytes = |arguments: &mut dyn Iterator<Item = &Argument>| {
        arguments.map(|argument| plan.values[argument.value].bytes()).fold(0, u64::saturating_add)
    };
    let (mut most, mut all) = (0u64, 0u64);
    plan.visit(&mut |step| {
        let written = match step {
            Step::Nest { nest, arguments } => {
                let parameters = plan.nests[*nest].parameters().zip(arguments);
                let results = parameters.filter(|((_, buffer), _)| buffer.role != BufferRole::In);
                bytes(&mut results.map(|(_, argument)| argument))
            }
            Step::Call { call, arguments, workspace } => {
                let results = bytes(&mut arguments.iter().skip(call.operands().len()));
                results.saturating_add(workspace.as_ref().map_or(0, |(_, bytes)| *bytes))
            }
            _ => 0,
        };
        most = most.max(written);
        all = all.saturating_add(written);
    });
    match plan.target.shares_launches {
        true => most.max(all.min(Account::sizes(plan).total())),
        false => most,
    }
}

/// A plan on the emulator: its kernels and their memory.
struct EmulatedFunction {
    /// Shared with the walk over it.
    lowered: Arc<LoweredPlan>,
    emulator: Emulator,
    module: Module,
    memory: Memory,
    /// Addresses of the plan's memories.
    addresses: Memories<u64>,
    sources: Option<Sources>,
    /// Most operations of one run.
    work_limit: u64,
    instructions: u64,
    exchanges: Exchanges,
}

impl EmulatedFunction {
    /// Prepares a plan for a GPU; `work_limit` is the most operations of one run.
    ///
    /// Errors: the GPU of the plan is unknown; there is not enough memory.
    fn new(plan: &Verified<Plan>, sources: Option<Sources>, work_limit: u64) -> Result<Self> {
        let architecture = Architecture::from_name(&plan.target.name).map_err(|_| {
            let (function, target) = (&plan.function, &plan.target.name);
            Diagnostic::of_device(format!(
                "the plan of @{function} is for `{target}`, which is not a known GPU"
            ))
            .help("compile the function for a GPU, such as sm_90")
        })?;
        let lowered = LoweredPlan::new(plan, architecture, &mut NoLibrary)?;
        let module = Module::parse(&lowered.ptx).unwrap_or_else(|error| {
            panic!(
                "the emulator cannot parse the module that was emitted for @{}: {error}",
                plan.function
            )
        });
        let mut memory = Memory::new();
        let value = |v| plan.values[v].bytes();
        let mut place = |name: String, bytes: u64| memory.allocate(&name, bytes).map_err(failed);
        let arena = place("arena".into(), plan.arena)?;
        let inputs =
            plan.inputs.iter().map(|i| place(format!("input `{}`", i.name), value(i.value)));
        let inputs = inputs.collect::<Result<_>>()?;
        let outputs =
            plan.outputs.iter().map(|o| place(format!("output `{}`", o.name), value(o.value)));
        let outputs = outputs.collect::<Result<_>>()?;
        let variables =
            plan.variables.iter().map(|v| place(format!("variable `{}`", v.name), value(v.after)));
        let variables = variables.collect::<Result<_>>()?;
        let constants = plan.constants.iter().enumerate();
        let constants = constants.map(|(n, c)| place(format!("constant {n}"), value(c.value)));
        let constants: Vec<u64> = constants.collect::<Result<_>>()?;
        for (address, constant) in constants.iter().zip(&plan.constants) {
            memory.write(*address, &constant.literal.to_bytes()).map_err(failed)?;
        }
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let emulator = Emulator::new(emulator::Options { threads, ..emulator::Options::default() });
        let addresses = Memories { arena, inputs, outputs, variables, constants };
        let lowered = Arc::new(lowered);
        Ok(EmulatedFunction {
            lowered,
            emulator,
            module,
            memory,
            addresses,
            sources,
            work_limit,
            instructions: 0,
            exchanges: Exchanges::default(),
        })
    }
}

impl PreparedFunction for EmulatedFunction {
    /// On an error no variable has changed.
    fn run(&mut self, given: &[Literal], store: &mut Store) -> Result<Returned> {
        let lowered = self.lowered.clone();
        let plan = &lowered.plan;
        self.begin(plan, given, store)?;
        lowered
            .run(self, self.work_limit)
            .map_err(|failure| at_source(self.sources.as_ref(), failure))?;
        self.exchanges.all_ended()?;
        tracing::debug!(function = plan.function, instructions = self.instructions, "emulated");
        for (variable, address) in plan.variables.iter().zip(&self.addresses.variables) {
            if variable.before != Some(variable.after) {
                let bytes = self.read_all(*address, plan.values[variable.after].bytes())?;
                let value = Literal::from_bytes(variable.dtype, &variable.shape, &bytes)?;
                store.set(&variable.name, &value)?;
            }
        }
        let outputs = plan.outputs.iter().zip(&self.addresses.outputs);
        let read = outputs.map(|(output, address)| {
            let value = &plan.values[output.value];
            let bytes = self.read_all(*address, value.bytes())?;
            Literal::from_bytes(value.dtype, &output.shape, &bytes)
        });
        Ok(Returned::now(read.collect::<Result<_>>()?))
    }
}

impl EmulatedFunction {
    /// Prepares memory for a run: inputs, variables and constants are defined, all other memory is
    /// undefined.
    fn begin(&mut self, plan: &Plan, given: &[Literal], store: &Store) -> Result<()> {
        self.instructions = 0;
        self.exchanges.begin();
        self.memory.forget(self.addresses.arena, plan.arena).map_err(failed)?;
        for (address, output) in self.addresses.outputs.iter().zip(&plan.outputs) {
            self.memory.forget(*address, plan.values[output.value].bytes()).map_err(failed)?;
        }
        for (address, literal) in self.addresses.inputs.iter().zip(given) {
            self.memory.write(*address, &literal.to_bytes()).map_err(failed)?;
        }
        for (address, variable) in self.addresses.variables.iter().zip(&plan.variables) {
            self.memory.forget(*address, plan.values[variable.after].bytes()).map_err(failed)?;
            if variable.before.is_some() {
                let stored = store.get(&variable.name).ok_or_else(no_value)?;
                self.memory.write(*address, &stored.read()?).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn address(&self, region: &Region) -> u64 {
        self.addresses[region.space] + region.offset
    }

    fn read_all(&self, address: u64, bytes: u64) -> Result<Vec<u8>> {
        let bytes = usize::try_from(bytes).expect("the verifier bounds the bytes of values");
        self.memory.read(address, bytes).map_err(failed)
    }

    fn launch_kernel(&mut self, launch: &Launch, arguments: &[Region]) -> Result<()> {
        let facts = &self.lowered.kernels[launch.kernel];
        let mut given = Vec::with_capacity(arguments.len());
        for (n, region) in arguments.iter().enumerate() {
            let address = self.address(region);
            let (reads, writes) = (region.access != Access::Write, region.access != Access::Read);
            // A buffer that the kernel only writes becomes undefined, so that a read before the
            // write is found. A result that is computed in place keeps the operand's bytes.
            let shares = |other: &Region| {
                other.access != Access::Write
                    && other.space == region.space
                    && other.offset == region.offset
            };
            if !reads && !arguments.iter().any(shares) {
                self.memory.forget(address, region.bytes).map_err(failed)?;
            }
            given.push(emulator::Argument::Buffer {
                address,
                bytes: region.bytes,
                name: format!("parameter {n} at {}+{}", region.space, region.offset),
                access: match region.access {
                    Access::Read => emulator::Access::Read,
                    Access::Write => emulator::Access::Write,
                    Access::ReadWrite => emulator::Access::ReadWrite,
                },
                expects: region.label.filter(|_| region.access == Access::Read),
                makes: region.label.filter(|_| writes),
            });
        }
        let launched = emulator::Launch {
            kernel: facts.name.clone(),
            grid: launch.grid,
            block: [facts.threads, 1, 1],
            dynamic_shared: launch.dynamic_shared,
            arguments: given,
        };
        let statistics =
            self.emulator.run(&self.module, &launched, &mut self.memory).map_err(|fault| {
                Diagnostic::of_device(format!("{} (kernel of {})", fault, facts.origin))
            })?;
        self.instructions += statistics.thread_instructions;
        // What a kernel leaves of a buffer that it reads and writes is a part of the result.
        for region in arguments.iter().filter(|r| r.access == Access::ReadWrite) {
            if region.label.is_some() {
                let address = self.address(region);
                self.memory.label(address, region.bytes, region.label).map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl StepRunner for EmulatedFunction {
    type Kernel = Command;
    type Error = StepError;

    fn launch(&mut self, command: &Command, counters: &Counters) -> Result<()> {
        match command {
            Command::Launch(launch) => {
                let arguments = launch.arguments.iter().map(|place| counters.region(place));
                self.launch_kernel(launch, &arguments.collect::<Vec<_>>())
            }
            Command::Library { .. } => unreachable!("no call was left to a library"),
            Command::Start(exchange) => {
                let [source, target] =
                    [&exchange.source, &exchange.target].map(|place| counters.region(place));
                let addresses = [self.address(&source), self.address(&target)];
                self.exchanges.start(exchange, addresses, &mut self.memory)
            }
            Command::Wait(exchange) => {
                let target = counters.region(&exchange.target);
                self.exchanges.wait(exchange, target.label, &mut self.memory)
            }
            Command::Position { over, result } => {
                let result = counters.region(result);
                let address = self.address(&result);
                let position = self.exchanges.position(over)?;
                self.memory.write(address, &position.to_le_bytes()).map_err(failed)?;
                self.memory.label(address, result.bytes, result.label).map_err(failed)
            }
        }
    }

    fn copy(&mut self, from: Region, to: Region) -> Result<()> {
        let bytes = self.read_all(self.address(&from), from.bytes)?;
        let address = self.address(&to);
        self.memory.write(address, &bytes).map_err(failed)?;
        self.memory.label(address, to.bytes, to.label).map_err(failed)
    }

    fn read(&mut self, from: Region) -> Result<[u8; 8]> {
        let bytes = self.read_all(self.address(&from), from.bytes.min(8))?;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(&bytes);
        Ok(word)
    }

    fn located(&self, step: Option<usize>, error: Diagnostic) -> StepError {
        self.lowered.located(step, error)
    }
}

/// An error of the emulator's memory.
fn failed(error: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::of_device(format!("the emulator's memory: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_compiler::pipeline::{Options, compile};
    use wengert_core::Binding;
    use wengert_core::graph::parse_program;

    /// What kernels of one launch write is recorded together.
    #[test]
    fn the_memory_of_a_shared_launch_is_counted() {
        let text = "func @f(state %a: f32[100], state %b: f32[50], %x: f32[100], %y: f32[50]) -> (
            state a: f32[100], state b: f32[50]) {
            %0: f32[100] = sub %a, %x
            %1: f32[50] = sub %b, %y
            return %0, %1
        }";
        let program = parse_program(text, "f.ir").expect("a program");
        let [shared, single] = [true, false].map(|shares_launches| {
            let target = Target { shares_launches, ..target(EMULATED) };
            let plan = compile(&program, "f", &Binding::new(), &target, &Options::default());
            most_written(&plan.expect("it compiles"))
        });
        assert_eq!([shared, single], [600, 400]);
    }
}
