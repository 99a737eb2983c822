//! Stand-ins for the devices that this build leaves out.

use super::{Backend, DeviceOptions, PlanMemory, PreparedFunction};
use wengert_compiler::pipeline::Sources;
use wengert_core::plan::Plan;
use wengert_core::{Diagnostic, Result, Target, Verified, diagnostic};

/// A device that cannot be opened.
#[derive(Debug)]
pub enum Absent {}

impl Backend for Absent {
    fn target(&self) -> Result<Target> {
        match *self {}
    }

    fn plan_memory(&self, _: &Plan) -> PlanMemory {
        match *self {}
    }

    fn prepare(
        &self,
        _: Verified<Plan>,
        _: Option<Sources>,
        _: u64,
    ) -> Result<Box<dyn PreparedFunction>> {
        match *self {}
    }
}

fn not_built(name: &str) -> Diagnostic {
    Diagnostic::of_device(format!("device `{name}` is not built into this version"))
        .help("build with the feature `cuda`, or use `cpu` or `interpreter`")
}

pub mod cuda {
    use super::*;

    pub struct CudaBackend;

    impl CudaBackend {
        pub fn open(number: u32, _: &DeviceOptions) -> Result<Absent> {
            Err(not_built(&format!("cuda:{number}")))
        }
    }

    pub fn first_gpu() -> Result<bool> {
        Ok(false)
    }

    pub fn gpus() -> Result<Vec<String>> {
        Err(not_built("cuda"))
    }

    pub fn target(name: &str) -> Result<Target> {
        Err(diagnostic!("unknown target `{name}`")
            .help("this version is built without the feature `cuda`; its target is cpu"))
    }

    pub fn ptx(plan: &Verified<Plan>) -> Result<String> {
        let message =
            format!("PTX for the plan of @{} is not built into this version", plan.function);
        Err(Diagnostic::new(message).help("build with the feature `cuda`"))
    }
}

pub mod emulator {
    use super::*;

    pub struct EmulatorBackend;

    impl EmulatorBackend {
        pub fn open() -> Result<Absent> {
            Err(not_built("emulator"))
        }
    }
}
