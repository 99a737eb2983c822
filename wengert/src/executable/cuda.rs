//! Plans on a GPU, with the session's variables in its memory.

use crate::data::bytes::little_endian;
use crate::device::DeviceOptions;
use crate::outputs::Returned;
use crate::store::Store;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use wengert_compiler::pipeline::Sources;
use wengert_core::plan::Plan;
use wengert_core::{DType, Diagnostic, Literal, Result, Verified};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::driver::blas::{Rules, Tuning};
use wengert_cuda::driver::{Address, Device};
use wengert_cuda::executable::{self, Executable, Options};

/// An open GPU with its options.
#[derive(Clone, Debug)]
pub struct Gpu {
    device: Device,
    /// Shared by the session's functions, so that each uses the measurements made for others.
    options: Arc<Mutex<Options>>,
    tuning: Option<PathBuf>,
}

impl Gpu {
    /// Opens `cuda:number`.
    ///
    /// Errors: it is absent or unusable; the tuning file cannot be read.
    pub(super) fn open(number: u32, chosen: &DeviceOptions) -> Result<Gpu> {
        let device = Device::open(number)?;
        let tuning =
            chosen.tuning.as_deref().map_or_else(|| Ok(Tuning::default()), Tuning::load)?;
        let rules = if chosen.fast_products { Rules::RELAXED } else { Rules::STRICT };
        if chosen.autotune && chosen.tuning.is_none() {
            return Err(Diagnostic::new(
                "what is measured must be written down, or no other run has the same bits",
            )
            .help("name a tuning file"));
        }
        let options = Options { capture: chosen.capture, rules, tuning, autotune: chosen.autotune };
        Ok(Gpu { device, options: Arc::new(Mutex::new(options)), tuning: chosen.tuning.clone() })
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// The architecture that its kernels are compiled for.
    pub(super) fn architecture(&self) -> Result<Architecture> {
        executable::architecture(&self.device)
    }
}

/// A plan on a GPU. Runs are exclusive: there is one arena.
pub(super) struct CudaRunner(Mutex<Running>);

impl std::fmt::Debug for CudaRunner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CudaRunner")
    }
}

struct Running {
    executable: Executable,
    sources: Option<Sources>,
    /// Numbers of the plan's variables by key path.
    variables: BTreeMap<String, usize>,
}

impl CudaRunner {
    /// Prepares a plan; `work_limit` is the most operations of one run.
    ///
    /// Errors: the plan is for another target; the driver refuses a kernel; there is not enough
    /// memory.
    pub(super) fn new(
        gpu: &Gpu,
        plan: &Verified<Plan>,
        sources: Option<Sources>,
        work_limit: u64,
    ) -> Result<Self> {
        let mut options = gpu.options.lock().unwrap_or_else(PoisonError::into_inner);
        let known = options.tuning.len();
        let mut executable = Executable::new(&gpu.device, plan, &mut options)?;
        executable.limit(work_limit);
        if let Some(path) = gpu.tuning.as_deref().filter(|_| options.tuning.len() > known) {
            options.tuning.save(path)?;
        }
        for decision in executable.decisions() {
            tracing::debug!(function = plan.function, decision, "decided");
        }
        let variables =
            plan.variables.iter().enumerate().map(|(i, v)| (v.name.clone(), i)).collect();
        Ok(CudaRunner(Mutex::new(Running { executable, sources, variables })))
    }

    /// Announces that many runs follow.
    pub(super) fn expect_repeats(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).executable.expect_repeats();
    }

    /// Starts a run on inputs in the plan's order and the session's variables, which have the
    /// plan's types and are in device memory.
    pub(super) fn run(&self, given: &[Literal], store: &mut Store) -> Result<Returned> {
        // A run that panicked leaves no state that the next one relies on.
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Running { executable, sources, variables } = &mut *running;
        let plan = executable.plan();
        let made = plan.variables.iter().filter(|v| v.before.is_none());
        let made: Vec<_> = made.map(|v| (v.name.as_str(), v.dtype, &v.shape[..])).collect();
        store.make(&made)?;
        let mut addresses: Vec<Option<Address>> = vec![None; variables.len()];
        for (path, number) in variables.iter() {
            addresses[*number] = store.get(path).map(|stored| stored.address());
        }
        let addresses = addresses.into_iter().collect::<Option<Vec<_>>>();
        let addresses =
            addresses.ok_or_else(|| Diagnostic::new("a variable of the plan has no value"))?;
        let bytes: Vec<_> = given.iter().map(little_endian).collect();
        let bytes: Vec<&[u8]> = bytes.iter().map(|b| &b[..]).collect();
        let outputs = executable.run(&bytes, &addresses).map_err(|failure| {
            let places = sources.iter().flat_map(|s| s.of_step(failure.step));
            places.fold(failure.error, |error, (location, what)| error.at(location, what))
        })?;
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
