//! Plans on the emulated GPU: the kernels' PTX, executed under sanitizers.
//!
//! All device memory is the emulator's. Variables are copied there before a run and back after
//! it, since the emulator is for verification, not for speed. Each launch declares to the
//! emulator the accesses of its kernel: the buffer behind each address, whether it is read or
//! written, and the label of the value that it must hold. So a kernel that accesses memory
//! outside its buffers, reads undefined memory, or runs too early is found, with its step and
//! source line.

use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wengert_compiler::pipeline::Sources;
use wengert_core::plan::{Plan, Space};
use wengert_core::{Diagnostic, Literal, Result, Verified};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::lowered::{self, Bound, Launch, Lowered, Machine};
use wengert_cuda::stage::Access;
use wengert_emulator::{self as emulator, Argument, Emulator, Memory, Module};

/// A plan on the emulator. Runs are exclusive: there is one memory.
pub(super) struct EmulatorRunner(Mutex<Running>);

impl std::fmt::Debug for EmulatorRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EmulatorRunner")
    }
}

struct Running {
    lowered: Lowered,
    sources: Option<Sources>,
    machine: Emulated,
    variables: BTreeMap<String, usize>,
    /// Most operations of one run.
    work_limit: u64,
}

/// The machine: kernels and memory.
struct Emulated {
    emulator: Emulator,
    module: Module,
    memory: Memory,
    /// Names and addresses of a plan's memory spaces.
    arena: u64,
    inputs: Vec<u64>,
    outputs: Vec<u64>,
    variables: Vec<u64>,
    constants: Vec<u64>,
    /// Kernels, with the nest or call of each.
    kernels: Vec<lowered::KernelFacts>,
    instructions: u64,
}

impl EmulatorRunner {
    /// Prepares a plan for a GPU; `work_limit` is the most operations of one run.
    ///
    /// Errors: the GPU of the plan is unknown; there is not enough memory.
    pub(super) fn new(
        plan: &Verified<Plan>,
        sources: Option<Sources>,
        work_limit: u64,
    ) -> Result<Self> {
        let architecture = Architecture::from_name(&plan.target.name).map_err(|_| {
            let (function, target) = (&plan.function, &plan.target.name);
            Diagnostic::of_device(format!(
                "the plan of @{function} is for `{target}`, which is no GPU to emulate"
            ))
            .help("compile the function for a GPU, such as sm_90")
        })?;
        let lowered = Lowered::new(plan, architecture, &mut lowered::no_library)?;
        let module = Module::parse(&lowered.ptx).unwrap_or_else(|error| {
            panic!(
                "the emulator reads every module that is emitted for @{}: {error}",
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
        let kernels = lowered.kernels.clone();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let emulator = Emulator::new(emulator::Options { threads, ..emulator::Options::default() });
        let machine = Emulated {
            emulator,
            module,
            memory,
            arena,
            inputs,
            outputs,
            variables,
            constants,
            kernels,
            instructions: 0,
        };
        let variables =
            plan.variables.iter().enumerate().map(|(i, v)| (v.name.clone(), i)).collect();
        Ok(EmulatorRunner(Mutex::new(Running { lowered, sources, machine, variables, work_limit })))
    }

    /// Runs the plan on inputs in the plan's order and the session's variables, which have the
    /// plan's types. On an error no variable has changed.
    pub(super) fn run(&self, given: &[Literal], store: &mut Store) -> Result<Vec<Literal>> {
        // A run that panicked leaves no state that the next one relies on.
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Running { lowered, sources, machine, variables, work_limit } = &mut *running;
        let plan = &lowered.plan;
        machine.begin(plan, given, store, variables)?;
        lowered::run(lowered, machine, *work_limit).map_err(|failure| {
            let places = sources.iter().flat_map(|s| s.of_step(failure.step));
            places.fold(failure.error, |error, (location, what)| error.at(location, what))
        })?;
        tracing::debug!(function = plan.function, instructions = machine.instructions, "emulated");
        for (path, number) in variables.iter() {
            let variable = &plan.variables[*number];
            if variable.before != Some(variable.after) {
                let bytes = machine
                    .read_all(machine.variables[*number], plan.values[variable.after].bytes())?;
                store.set(path, &Literal::from_bytes(variable.dtype, &variable.shape, &bytes)?)?;
            }
        }
        let outputs = plan.outputs.iter().zip(&machine.outputs);
        let read = outputs.map(|(output, address)| {
            let value = &plan.values[output.value];
            let bytes = machine.read_all(*address, value.bytes())?;
            Literal::from_bytes(value.dtype, &output.shape, &bytes)
        });
        read.collect()
    }
}

impl Emulated {
    /// Memory before a run: inputs, variables and constants are defined, all else is undefined.
    fn begin(
        &mut self,
        plan: &Plan,
        given: &[Literal],
        store: &Store,
        variables: &BTreeMap<String, usize>,
    ) -> Result<()> {
        self.instructions = 0;
        self.memory.forget(self.arena, plan.arena).map_err(failed)?;
        for (address, output) in self.outputs.iter().zip(&plan.outputs) {
            self.memory.forget(*address, plan.values[output.value].bytes()).map_err(failed)?;
        }
        for (address, literal) in self.inputs.iter().zip(given) {
            self.memory.write(*address, &literal.to_bytes()).map_err(failed)?;
        }
        for (path, number) in variables {
            let variable = &plan.variables[*number];
            let address = self.variables[*number];
            self.memory.forget(address, plan.values[variable.after].bytes()).map_err(failed)?;
            if variable.before.is_some() {
                let stored = store.get(path).ok_or_else(|| {
                    Diagnostic::new(format!("variable `{path}` of the plan has no value"))
                })?;
                self.memory.write(address, stored.bytes()).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn address(&self, bound: &Bound) -> u64 {
        let base = match bound.space {
            Space::Arena => self.arena,
            Space::Input(n) => self.inputs[n as usize],
            Space::Output(n) => self.outputs[n as usize],
            Space::Variable(n) => self.variables[n as usize],
            Space::Constant(n) => self.constants[n as usize],
        };
        base + bound.offset
    }

    fn read_all(&self, address: u64, bytes: u64) -> Result<Vec<u8>> {
        let bytes = usize::try_from(bytes).expect("the verifier bounds the bytes of values");
        self.memory.read(address, bytes).map_err(failed)
    }
}

impl Machine for Emulated {
    fn launch(&mut self, launch: &Launch, arguments: &[Bound]) -> Result<()> {
        let facts = &self.kernels[launch.kernel];
        let mut given = Vec::with_capacity(arguments.len());
        for (n, bound) in arguments.iter().enumerate() {
            let address = self.address(bound);
            let (reads, writes) = (bound.access != Access::Write, bound.access != Access::Read);
            // A buffer that is written whole must not be read before; but in place it holds the
            // operand.
            let shares = |other: &Bound| {
                other.access != Access::Write
                    && other.space == bound.space
                    && other.offset == bound.offset
            };
            if !reads && !arguments.iter().any(shares) {
                self.memory.forget(address, bound.bytes).map_err(failed)?;
            }
            given.push(Argument::Buffer {
                address,
                bytes: bound.bytes,
                name: format!("parameter {n} at {}+{}", bound.space, bound.offset),
                access: match bound.access {
                    Access::Read => emulator::Access::Read,
                    Access::Write => emulator::Access::Write,
                    Access::ReadWrite => emulator::Access::ReadWrite,
                },
                expects: bound.label.filter(|_| bound.access == Access::Read),
                makes: bound.label.filter(|_| writes),
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
        Ok(())
    }

    fn library(&mut self, _: usize, _: &[Bound], _: Option<Bound>) -> Result<()> {
        unreachable!("no call was left to a library")
    }

    fn copy(&mut self, from: Bound, to: Bound) -> Result<()> {
        let bytes = self.read_all(self.address(&from), from.bytes)?;
        let address = self.address(&to);
        self.memory.write(address, &bytes).map_err(failed)?;
        self.memory.label(address, to.bytes, to.label).map_err(failed)
    }

    fn read(&mut self, from: Bound) -> Result<[u8; 8]> {
        let bytes = self.read_all(self.address(&from), from.bytes.min(8))?;
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(&bytes);
        Ok(word)
    }
}

/// An error of the emulator's memory.
fn failed(error: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::of_device(format!("the emulator's memory: {error}"))
}
