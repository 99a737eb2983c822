//! Plans on a GPU, with the session's variables in its memory.

mod ranks;

use super::backend::{make_variables, no_value};
use super::{Backend, DeviceOptions, PlanMemory, PreparedFunction};
use crate::available_memory::{Available, Limit};
use crate::data::bytes::little_endian;
use crate::outputs::Returned;
use crate::store::{Allocator, Store, VariableMemory};
use ranks::Joined;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use wengert_compiler::pipeline::Sources;
use wengert_core::plan::{Account, Plan};
use wengert_core::{DType, Diagnostic, Literal, Result, Target, Verified, diagnostic};
use wengert_cpu::World;
use wengert_cuda::architecture::Architecture;
use wengert_cuda::driver::blas::{Rules, Tuning};
use wengert_cuda::driver::{Address, Device, Memory, probe};
use wengert_cuda::executable::{self, ByRule, CudaExecutable, Options};
use wengert_cuda::lowered::{LoweredPlan, NoLibrary, ProductTable, StepError};
use wengert_cuda::target;

/// Whether `cuda:0` is usable; false if the machine has neither GPU nor driver.
pub(super) fn first_gpu() -> Result<bool> {
    Ok(probe::first_gpu()?)
}

/// The GPUs of this machine, each with a short description, or why none is usable.
pub(super) fn gpus() -> Result<Vec<String>> {
    let found = probe::probe();
    let devices = found.driver?.devices?;
    if devices.is_empty() {
        return Err(Diagnostic::of_device("the NVIDIA driver finds no GPU")
            .help("use the device `cpu` or `emulator`"));
    }
    found.cublas_lt?;
    Ok(devices.iter().map(ToString::to_string).collect())
}

/// The target of an architecture's name.
///
/// Error: it is unknown.
pub(super) fn target(name: &str) -> Result<Target> {
    match Architecture::from_name(name) {
        Ok(architecture) => Ok(target::target(&architecture.name())),
        Err(_) => {
            let names: Vec<String> = Architecture::ALL.iter().map(Architecture::name).collect();
            Err(diagnostic!("unknown target `{name}`")
                .help(format!("targets are cpu, {}", names.join(", "))))
        }
    }
}

/// The architecture that a plan is for.
pub(super) fn architecture(plan: &Plan) -> Result<Architecture> {
    Architecture::from_name(&plan.target.name).map_err(|_| {
        diagnostic!(
            "the plan of @{} is for `{}`, which reads no PTX",
            plan.function,
            plan.target.name
        )
        .help("compile the function for a GPU, such as sm_90")
    })
}

/// The PTX module of a plan. It has every kernel, including calls that a library may run on a
/// real device.
///
/// Error: the plan is for another target.
pub(super) fn ptx(plan: &Verified<Plan>) -> Result<String> {
    Ok(LoweredPlan::new(plan, architecture(plan)?, &mut NoLibrary)?.ptx)
}

/// How the products of a plan are computed, as a table.
///
/// Error: the plan is for another target.
pub(super) fn products(plan: &Verified<Plan>) -> Result<String> {
    let mut choose = ByRule(Rules::STRICT);
    let lowered = LoweredPlan::new(plan, architecture(plan)?, &mut choose)?;
    let nests = lowered.nest_bytes as f64 / 1e9;
    Ok(format!("{}{nests:.2} GB in all nests\n", ProductTable(&lowered.products)))
}

/// An open GPU with its options.
#[derive(Debug)]
struct CudaBackend {
    device: Device,
    /// Shared by the session's functions, so that each uses the measurements made for others.
    options: Mutex<Options>,
    tuning: Option<PathBuf>,
    /// The ranks that it has joined.
    joined: Option<Joined>,
}

/// Opens `cuda:number`.
///
/// Errors: it is absent or unusable; the tuning file cannot be read.
pub(super) fn open(number: u32, chosen: &DeviceOptions) -> Result<Arc<dyn Backend>> {
    let device = Device::open(number)?;
    let tuning = chosen.tuning.as_deref().map_or_else(|| Ok(Tuning::default()), Tuning::load)?;
    let rules = if chosen.fast_products { Rules::RELAXED } else { Rules::STRICT };
    if chosen.autotune && chosen.tuning.is_none() {
        return Err(Diagnostic::new(
            "what is measured must be written down, or no other run has the same bits",
        )
        .help("name a tuning file"));
    }
    let options = Options { capture: chosen.capture, rules, tuning, autotune: chosen.autotune };
    let (options, tuning) = (Mutex::new(options), chosen.tuning.clone());
    Ok(Arc::new(CudaBackend { device, options, tuning, joined: None }))
}

impl Backend for CudaBackend {
    fn target(&self) -> Result<Target> {
        Ok(target::target(&executable::architecture(&self.device)?.name()))
    }

    fn plan_memory(&self, plan: &Plan) -> PlanMemory {
        let account = Account::sizes(plan);
        // Inputs and outputs have areas for their copies, as large as they are.
        let copies = account.inputs.saturating_add(account.outputs);
        let bytes = (account.total() - account.parameters - account.state).saturating_add(copies);
        PlanMemory { bytes, arena_quarters: 4 }
    }

    fn prepare(
        &self,
        plan: Verified<Plan>,
        sources: Option<Sources>,
        work_limit: u64,
    ) -> Result<Box<dyn PreparedFunction>> {
        Ok(Box::new(CudaFunction::new(self, &plan, sources, work_limit)?))
    }

    fn free_memory(&self) -> Result<Option<Available>> {
        let bytes = self.device.memory_info()?.0;
        Ok(Some(Available { bytes, limit: Limit::Device, promised: 0 }))
    }

    /// The driver reports a lack of memory.
    fn is_in_host_memory(&self) -> bool {
        false
    }

    fn finish(&self) -> Result<()> {
        Ok(self.device.synchronise()?)
    }

    fn world(&self) -> Option<&World> {
        self.joined.as_ref().map(Joined::world)
    }

    fn join(&self, world: World) -> Result<Arc<dyn Backend>> {
        let options = self.options.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(Arc::new(CudaBackend {
            device: self.device.clone(),
            options: Mutex::new(options),
            tuning: self.tuning.clone(),
            joined: Some(Joined::new(&self.device, world)?),
        }))
    }

    fn store(&self) -> Store {
        Store::new(Box::new(DeviceMemory(self.device.clone())))
    }
}

/// A plan on a GPU.
struct CudaFunction {
    executable: CudaExecutable,
    sources: Option<Sources>,
}

impl CudaFunction {
    /// Prepares a plan; `work_limit` is the most operations of one run.
    ///
    /// Errors: the plan is for another target; the driver refuses a kernel; there is not enough
    /// memory.
    fn new(
        gpu: &CudaBackend,
        plan: &Verified<Plan>,
        sources: Option<Sources>,
        work_limit: u64,
    ) -> Result<Self> {
        let mut options = gpu.options.lock().unwrap_or_else(PoisonError::into_inner);
        let known = options.tuning.len();
        let ranks = gpu.joined.as_ref().filter(|_| !plan.mesh.is_empty());
        let mut executable = match ranks {
            Some(joined) => {
                let ranks = joined.enter(plan)?;
                CudaExecutable::among(&gpu.device, plan, &mut options, &ranks)?
            }
            None => CudaExecutable::new(&gpu.device, plan, &mut options)?,
        };
        executable.limit(work_limit);
        if let Some(path) = gpu.tuning.as_deref().filter(|_| options.tuning.len() > known) {
            options.tuning.save(path)?;
        }
        for decision in executable.decisions() {
            tracing::debug!(function = plan.function, decision, "decided");
        }
        Ok(CudaFunction { executable, sources })
    }
}

/// An error of a run, with the lines that its step comes from.
pub(super) fn at_source(sources: Option<&Sources>, failure: StepError) -> Diagnostic {
    let places = sources.into_iter().flat_map(|s| s.of_step(failure.step));
    places.fold(failure.error, |error, (location, what)| error.at(location, what))
}

impl PreparedFunction for CudaFunction {
    fn expect_repeats(&mut self) {
        self.executable.expect_repeats();
    }

    fn run(&mut self, given: &[Literal], store: &mut Store) -> Result<Returned> {
        let CudaFunction { executable, sources } = self;
        make_variables(executable.plan(), store)?;
        let address = |path: &str| Some(store.get(path)?.memory::<DeviceBytes>().address());
        let variables = executable.plan().variables.iter();
        let addresses: Option<Vec<Address>> = variables.map(|v| address(&v.name)).collect();
        let addresses = addresses.ok_or_else(no_value)?;
        let bytes: Vec<_> = given.iter().map(little_endian).collect();
        let bytes: Vec<&[u8]> = bytes.iter().map(|b| &b[..]).collect();
        let outputs = executable
            .run(&bytes, &addresses)
            .map_err(|failure| at_source(sources.as_ref(), failure))?;
        let plan = executable.plan();
        let types: Vec<(DType, Vec<usize>)> =
            plan.outputs.iter().map(|o| (plan.values[o.value].dtype, o.shape.clone())).collect();
        Ok(Returned::later(move || {
            let literal = |((dtype, shape), bytes): (&(DType, Vec<usize>), &[u8])| {
                Literal::from_bytes(*dtype, shape, bytes)
            };
            types.iter().zip(outputs.wait()?).map(literal).collect()
        }))
    }
}

/// Alignment of each variable within an allocation.
const ALIGNMENT: usize = 256;

/// The memory of a GPU, for variables. Those created together share one allocation.
#[derive(Debug)]
struct DeviceMemory(Device);

impl Allocator for DeviceMemory {
    fn zeros(&self, sizes: &[usize]) -> Result<Vec<Box<dyn VariableMemory>>> {
        let DeviceMemory(device) = self;
        let mut offsets = Vec::with_capacity(sizes.len());
        let mut total = 0u64;
        for bytes in sizes {
            offsets.push(total);
            total = total.saturating_add(bytes.next_multiple_of(ALIGNMENT) as u64);
        }
        let memory = Arc::new(device.allocate(total, "the session's variables")?);
        if total > 0 {
            device.fill(memory.address(), 0, total)?;
        }
        let part = |(offset, bytes): (u64, &usize)| -> Box<dyn VariableMemory> {
            Box::new(DeviceBytes {
                device: device.clone(),
                memory: memory.clone(),
                offset,
                bytes: *bytes,
            })
        };
        Ok(offsets.into_iter().zip(sizes).map(part).collect())
    }
}

/// The bytes of a variable: a part of an allocation, which is freed with the last of its
/// variables.
#[derive(Debug)]
struct DeviceBytes {
    device: Device,
    memory: Arc<Memory>,
    offset: u64,
    bytes: usize,
}

impl DeviceBytes {
    /// The address of its first byte.
    fn address(&self) -> Address {
        self.memory.address().offset(self.offset)
    }
}

/// Accesses happen after all earlier work of the device.
impl VariableMemory for DeviceBytes {
    fn read(&self) -> Result<Cow<'_, [u8]>> {
        let mut bytes = vec![0; self.bytes];
        self.device.read(self.address(), &mut bytes)?;
        Ok(bytes.into())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.device.write(self.address(), bytes)?)
    }
}
