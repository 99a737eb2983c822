//! A function compiled for a device.

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
mod emulator;
mod indices;
mod profile;
mod room;

pub use profile::KernelTime;
pub use room::Need;

#[cfg(feature = "cuda")]
use crate::available_memory::Limit;
use crate::available_memory::{Available, available};
use crate::device::{Device, DeviceOptions};
use crate::outputs::Returned;
use crate::signature::Signature;
use crate::store::Store;
use cpu::CpuRunner;
use indices::IndexChecks;
use std::collections::BTreeMap;
use wengert_compiler::pipeline::{Bound, Options, Sources};
use wengert_core::graph::{Function, OutputRole};
use wengert_core::plan::{self, Plan};
use wengert_core::{Binding, Diagnostic, Literal, Location, Result, Target, Verified, interpret};

/// A device that is open.
#[derive(Clone, Debug)]
pub enum Machine {
    /// The CPU's threads.
    Cpu,
    /// The emulated GPU.
    #[cfg(feature = "cuda")]
    Emulator,
    /// The interpreters.
    Interpreter,
    /// A GPU.
    #[cfg(feature = "cuda")]
    Cuda(cuda::Gpu),
}

impl Machine {
    /// Opens a device.
    ///
    /// Errors: it is not there, or not built into this version.
    pub fn open(device: Device, options: &DeviceOptions) -> Result<Machine> {
        match device {
            Device::Cpu => {
                // The pool's threads take address space, so they start before the check of free
                // memory.
                wengert_cpu::Pool::global()?;
                Ok(Machine::Cpu)
            }
            Device::Interpreter => Ok(Machine::Interpreter),
            #[cfg(feature = "cuda")]
            Device::Emulator => Ok(Machine::Emulator),
            #[cfg(feature = "cuda")]
            Device::Cuda(number) => Ok(Machine::Cuda(cuda::Gpu::open(number, options)?)),
            #[cfg(not(feature = "cuda"))]
            Device::Cuda(_) | Device::Emulator => {
                Err(crate::device::not_built(&device.to_string()))
            }
        }
    }

    /// The target that programs are compiled for. (The interpreters run a plan of any target.)
    ///
    /// Errors: the GPU is too old for the kernels.
    pub fn target(&self) -> Result<Target> {
        match self {
            Machine::Cpu | Machine::Interpreter => Ok(Target::cpu()),
            #[cfg(feature = "cuda")]
            Machine::Emulator => Ok(Target::cuda(EMULATED)),
            #[cfg(feature = "cuda")]
            Machine::Cuda(gpu) => Ok(Target::cuda(&gpu.architecture()?.name())),
        }
    }

    /// Free memory; `None` where it is not known.
    ///
    /// Error: the device has failed.
    pub fn free_memory(&self) -> Result<Option<Available>> {
        match self {
            #[cfg(feature = "cuda")]
            Machine::Cuda(gpu) => {
                let bytes = gpu.device().memory_info()?.0;
                Ok(Some(Available { bytes, limit: Limit::Device, promised: 0 }))
            }
            _ => Ok(available()),
        }
    }

    /// Waits for all runs to end.
    ///
    /// Error: the device has failed.
    pub fn finish(&self) -> Result<()> {
        match self {
            #[cfg(feature = "cuda")]
            Machine::Cuda(gpu) => Ok(gpu.device().synchronise()?),
            _ => Ok(()),
        }
    }

    /// An empty store in the memory where this device keeps variables.
    pub fn store(&self) -> Store {
        match self {
            #[cfg(feature = "cuda")]
            Machine::Cuda(gpu) => Store::on(gpu.device().clone()),
            _ => Store::default(),
        }
    }
}

/// The architecture that programs are compiled for on the emulator.
#[cfg(feature = "cuda")]
const EMULATED: &str = "sm_90";

/// A function without dimension variables on a device.
#[derive(Debug)]
pub struct Executable {
    signature: Signature,
    runner: Runner,
    /// Source locations of the probes, by the names of their outputs.
    probes: BTreeMap<String, Location>,
    /// Index checks. They are the last outputs of the runner and absent from the signature.
    checks: IndexChecks,
}

/// How a function is compiled.
#[derive(Clone, Copy, Default, Debug)]
pub struct CompileOptions {
    /// Most bytes that the plan may take.
    pub memory_budget: Option<u64>,
    /// Whether an index out of range makes the run an error.
    pub check_indices: bool,
}

/// The runner of the function.
#[derive(Debug)]
enum Runner {
    /// The graph interpreter.
    Graph(Function),
    /// The plan interpreter, and the most operations of one run.
    Plan(Verified<Plan>, u64),
    /// The CPU's threads.
    Cpu(Box<CpuRunner>),
    /// An emulated GPU.
    #[cfg(feature = "cuda")]
    Emulator(Box<emulator::EmulatorRunner>),
    /// A GPU.
    #[cfg(feature = "cuda")]
    Cuda(Box<cuda::CudaRunner>),
}

/// Number of steps from which on memory freed after compilation is returned to the system.
const LARGE: usize = 64;

impl Runner {
    /// The runner of a plan made from these sources, on a machine. Memory used by compilation is
    /// freed.
    fn of_plan(
        machine: &Machine,
        plan: Verified<Plan>,
        sources: Option<Sources>,
        work_limit: u64,
    ) -> Result<Runner> {
        let is_large = plan.steps.len() >= LARGE;
        let runner = Runner::made(machine, plan, sources, work_limit)?;
        if is_large {
            wengert_cpu::memory::give_back();
        }
        Ok(runner)
    }

    fn made(
        machine: &Machine,
        plan: Verified<Plan>,
        sources: Option<Sources>,
        work_limit: u64,
    ) -> Result<Runner> {
        // The CPU's errors name no step, so they need no sources.
        #[cfg(not(feature = "cuda"))]
        drop(sources);
        Ok(match machine {
            // It interprets the steps of any target.
            Machine::Interpreter => Runner::Plan(plan, work_limit),
            Machine::Cpu => Runner::Cpu(Box::new(CpuRunner::new(&plan, work_limit)?)),
            #[cfg(feature = "cuda")]
            Machine::Emulator => Runner::Emulator(Box::new(emulator::EmulatorRunner::new(
                &plan, sources, work_limit,
            )?)),
            #[cfg(feature = "cuda")]
            Machine::Cuda(gpu) => {
                Runner::Cuda(Box::new(cuda::CudaRunner::new(gpu, &plan, sources, work_limit)?))
            }
        })
    }
}

impl Executable {
    /// Compiles `function` for a binding, in a session with these variables.
    ///
    /// Errors: those of the compiler; there is not enough memory.
    pub fn compile(
        machine: &Machine,
        function: &Function,
        binding: &Binding,
        options: CompileOptions,
        variables: &Store,
    ) -> Result<Executable> {
        let mut bound = Bound::new(function, binding)?;
        let signature = Signature::of_function(&bound.function);
        let mut checks = IndexChecks::default();
        if options.check_indices {
            (bound.function, checks) = IndexChecks::added(bound.function)?;
        }
        if matches!(machine, Machine::Interpreter) {
            room::check_graph(&bound, variables)?;
            let Bound { function, probes, .. } = bound;
            return Ok(Executable { signature, runner: Runner::Graph(function), probes, checks });
        }
        let planning = Options { memory_budget: options.memory_budget, ..Options::default() };
        let (plan, sources) = bound.compile(&machine.target()?, &planning)?;
        room::check(machine, &plan, variables, Some(&bound))?;
        // It is compiled from the caller's own program, so its work has no limit.
        let runner = Runner::of_plan(machine, plan, Some(sources), u64::MAX)?;
        Ok(Executable { signature, runner, probes: bound.probes, checks })
    }

    /// Loads a verified plan, with a limit on the operations of one run, in a session with these
    /// variables.
    ///
    /// Errors: the plan is for another target; there is not enough memory.
    pub fn load(
        machine: &Machine,
        plan: Verified<Plan>,
        work_limit: u64,
        variables: &Store,
    ) -> Result<Executable> {
        let signature = Signature::of_plan(&plan);
        room::check(machine, &plan, variables, None)?;
        let runner = Runner::of_plan(machine, plan, None, work_limit)?;
        let (probes, checks) = (BTreeMap::new(), IndexChecks::default());
        Ok(Executable { signature, runner, probes, checks })
    }

    /// Source location of a probe, if known.
    pub fn probe_location(&self, output: &str) -> Location {
        self.probes.get(output).cloned().unwrap_or_default()
    }

    /// Inputs and outputs of the function.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Starts measuring the time of each kernel.
    ///
    /// Error: kernels are not timed on this device.
    pub fn measure(&self) -> Result<()> {
        match &self.runner {
            Runner::Cpu(runner) => {
                runner.measure();
                Ok(())
            }
            _ => Err(Diagnostic::new("kernels are timed on the CPU only")
                .help("open the session on `cpu`")),
        }
    }

    /// Time of each kernel since [`measure`](Self::measure), the longest first; empty before that
    /// call.
    pub fn profile(&self) -> Vec<KernelTime> {
        match &self.runner {
            Runner::Cpu(runner) => runner.profile().unwrap_or_default(),
            _ => vec![],
        }
    }

    /// Runs the function. `given` are the inputs and keys in the signature's order, of its types.
    /// The `variables` that it reads exist and have its types. State outputs replace their
    /// variables; the others are returned in the signature's order. A GPU may still be running on
    /// return.
    ///
    /// Errors: of the device; an index out of range, if indices are checked, which leaves the
    /// variables unchanged.
    pub fn run(&self, given: &[Literal], variables: &mut Store) -> Result<Returned> {
        if self.checks.is_empty() {
            return self.run_unchecked(given, variables);
        }
        let before = indices::Before::of(&self.signature, variables)?;
        // The reports decide whether the variables are replaced, so this waits for the run.
        let mut results = self.run_unchecked(given, variables)?.into_values()?;
        match self.checks.fault(&results.split_off(results.len() - self.checks.len())) {
            Some(fault) => {
                before.restore(variables)?;
                Err(fault)
            }
            None => Ok(Returned::now(results)),
        }
    }

    fn run_unchecked(&self, given: &[Literal], variables: &mut Store) -> Result<Returned> {
        let values = match &self.runner {
            Runner::Cpu(runner) => runner.run(given, variables),
            #[cfg(feature = "cuda")]
            Runner::Emulator(runner) => runner.run(given, variables),
            #[cfg(feature = "cuda")]
            Runner::Cuda(runner) => return runner.run(given, variables),
            Runner::Graph(function) => self.run_graph(function, given, variables),
            Runner::Plan(plan, work_limit) => {
                let before: Vec<Option<Literal>> = plan
                    .variables
                    .iter()
                    .map(|v| {
                        v.before
                            .and_then(|_| Some(variables.get(&v.name)?.to_literal()))
                            .transpose()
                    })
                    .collect::<Result<_>>()?;
                let run = plan::interpret_within(plan, given, &before, *work_limit)?;
                for (variable, value) in plan.variables.iter().zip(&run.variables) {
                    variables.set(&variable.name, value)?;
                }
                Ok(run.outputs)
            }
        };
        values.map(Returned::now)
    }

    /// Announces that many runs follow.
    pub fn expect_repeats(&self) {
        #[cfg(feature = "cuda")]
        if let Runner::Cuda(runner) = &self.runner {
            runner.expect_repeats();
        }
    }

    fn run_graph(
        &self,
        function: &Function,
        given: &[Literal],
        variables: &mut Store,
    ) -> Result<Vec<Literal>> {
        let mut given = given.iter().cloned();
        let inputs = self.signature.inputs.iter().map(|input| match input.is_variable() {
            true => variables
                .get(&input.name)
                .expect("the caller has checked that all are there")
                .to_literal(),
            false => Ok(given.next().expect("the caller has checked that all are there")),
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let mut returned = Vec::new();
        for (output, value) in function.outputs.iter().zip(interpret::run(function, &inputs)?) {
            match output.role {
                OutputRole::State => variables.set(&output.name, &value)?,
                OutputRole::Output => returned.push(value),
            }
        }
        Ok(returned)
    }
}
