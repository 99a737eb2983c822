//! Compilation targets by name, and the PTX text of a plan.

use crate::device;
use wengert_core::plan::Plan;
use wengert_core::{Result, Target, Verified};

/// The target of a name: `cpu`, or a GPU's architecture such as `sm_90`.
///
/// Errors: there is no such target in this build.
pub fn target(name: &str) -> Result<Target> {
    device::target(name)
}

/// The PTX module of a plan for a GPU. It has every kernel, including calls that a library may
/// run on a real device.
///
/// Errors: the plan is for another target; this version is built without GPUs.
pub fn ptx(plan: &Verified<Plan>) -> Result<String> {
    device::ptx(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_names() {
        assert_eq!(target("cpu").unwrap(), Target::cpu());
        if device::HAS_CUDA {
            assert_eq!(target("sm_90").unwrap().name, "sm_90");
        }
        let unknown = target("sm_75").unwrap_err();
        assert!(
            unknown.to_string().contains("targets are cpu")
                || unknown.to_string().contains("target is cpu")
        );
    }
}
