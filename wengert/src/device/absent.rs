//! Stand-ins for the devices that this build leaves out.

use super::{Backend, DeviceOptions};
use std::sync::Arc;
use wengert_core::plan::Plan;
use wengert_core::{Diagnostic, Result, Target, Verified, diagnostic};

fn not_built(name: &str) -> Diagnostic {
    Diagnostic::of_device(format!("device `{name}` is not built into this version"))
        .help("build with the feature `cuda`, or use `cpu` or `interpreter`")
}

pub mod cuda {
    use super::*;

    pub fn open(number: u32, _: &DeviceOptions) -> Result<Arc<dyn Backend>> {
        Err(not_built(&format!("cuda:{number}")))
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

    pub fn products(plan: &Verified<Plan>) -> Result<String> {
        ptx(plan)
    }

    pub fn ptx(plan: &Verified<Plan>) -> Result<String> {
        Err(diagnostic!("PTX for the plan of @{} is not built into this version", plan.function)
            .help("build with the feature `cuda`"))
    }
}

pub mod emulator {
    use super::*;

    pub fn open() -> Result<Arc<dyn Backend>> {
        Err(not_built("emulator"))
    }
}
