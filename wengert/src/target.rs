//! Compilation targets by name, and the PTX text of a plan.

use wengert_core::plan::Plan;
use wengert_core::{Diagnostic, Result, Target, Verified};

/// The target of a name: `cpu`, or a GPU's architecture such as `sm_90`.
///
/// Errors: there is no such target in this build.
pub fn target(name: &str) -> Result<Target> {
    match name {
        "cpu" => Ok(Target::cpu()),
        _ => gpu(name),
    }
}

#[cfg(feature = "cuda")]
fn gpu(name: &str) -> Result<Target> {
    use wengert_cuda::architecture::Architecture;
    match Architecture::from_name(name) {
        Ok(architecture) => Ok(Target::cuda(&architecture.name())),
        Err(_) => {
            let names: Vec<String> = Architecture::ALL.iter().map(Architecture::name).collect();
            Err(Diagnostic::new(format!("unknown target `{name}`"))
                .help(format!("targets are cpu, {}", names.join(", "))))
        }
    }
}

#[cfg(not(feature = "cuda"))]
fn gpu(name: &str) -> Result<Target> {
    Err(Diagnostic::new(format!("unknown target `{name}`"))
        .help("this version is built without the feature `cuda`; its target is cpu"))
}

/// The PTX module of a plan for a GPU. It has every kernel, including calls that a library may
/// run on a real device.
///
/// Errors: the plan is for another target.
#[cfg(feature = "cuda")]
pub fn ptx(plan: &Verified<Plan>) -> Result<String> {
    use wengert_cuda::architecture::Architecture;
    use wengert_cuda::lowered::{Lowered, no_library};
    let architecture = Architecture::from_name(&plan.target.name).map_err(|_| {
        Diagnostic::new(format!(
            "the plan of @{} is for `{}`, which reads no PTX",
            plan.function, plan.target.name
        ))
        .help("compile the function for a GPU, such as sm_90")
    })?;
    Ok(Lowered::new(plan, architecture, &mut no_library)?.ptx)
}

/// The PTX module of a plan for a GPU.
///
/// Errors: always; this version is built without GPUs.
#[cfg(not(feature = "cuda"))]
pub fn ptx(plan: &Verified<Plan>) -> Result<String> {
    let message = format!("PTX for the plan of @{} is not built into this version", plan.function);
    Err(Diagnostic::new(message).help("build with the feature `cuda`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_names() {
        assert_eq!(target("cpu").unwrap(), Target::cpu());
        if cfg!(feature = "cuda") {
            assert_eq!(target("sm_90").unwrap(), Target::cuda("sm_90"));
        }
        let unknown = target("sm_75").unwrap_err();
        assert!(
            unknown.to_string().contains("targets are cpu")
                || unknown.to_string().contains("target is cpu")
        );
    }
}
