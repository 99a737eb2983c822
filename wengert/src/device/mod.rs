//! Devices that run programs: the list of them, and the boundary between them and the library.
//!
//! A device is one file here that implements [`Backend`] and [`PreparedFunction`], a variant of
//! [`Device`], and an arm in each function of this file. No other file of this crate knows which
//! devices there are, or which of them this build has.

mod backend;
pub(crate) mod cpu;
mod interpreter;
mod options;

#[cfg(not(feature = "cuda"))]
mod absent;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
mod emulator;
#[cfg(feature = "gpu-model")]
pub mod predicted;

#[cfg(not(feature = "cuda"))]
use absent::{cuda, emulator};

pub(crate) use backend::{Backend, PlanMemory, PreparedFunction};
pub use options::DeviceOptions;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use wengert_core::plan::Plan;
use wengert_core::{Diagnostic, Result, Target, Verified, diagnostic};

/// Whether this build has NVIDIA GPUs and their emulator.
pub(crate) const HAS_CUDA: bool = cfg!(feature = "cuda");

/// A device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Device {
    /// The CPU: compiled plans on threads with SIMD.
    Cpu,
    /// An NVIDIA GPU, by its number: compiled plans as PTX kernels and cuBLASLt.
    Cuda(u32),
    /// A GPU emulated on the CPU: the same PTX kernels, executed instruction by instruction and
    /// checked by sanitizers. Slow; it tests the GPU path on a machine without a GPU.
    Emulator,
    /// The graph interpreter: the mathematical meaning of each op, rounded to its dtype. Slow;
    /// the oracle for the other devices.
    Interpreter,
}

/// A device of this machine, or the reason why it has none of that kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Survey {
    /// Its name, as `--device` takes it.
    pub name: String,
    /// The device, or the reason why it is unusable.
    pub device: Result<Device>,
    /// A short description.
    pub description: String,
}

impl Device {
    /// The fastest device of this machine: its first GPU if usable, else the CPU.
    ///
    /// If a GPU or its driver is present but unusable (a driver without a GPU, a driver that is
    /// too old, no cuBLASLt), the first call prints the reason to standard error;
    /// [`survey`](Self::survey) reports it too. A device requested by name is never replaced: it
    /// is an error.
    pub fn best() -> Device {
        static BEST: OnceLock<Device> = OnceLock::new();
        *BEST.get_or_init(|| match cuda::first_gpu() {
            Ok(true) => Device::Cuda(0),
            Ok(false) => Device::Cpu,
            Err(why) => {
                eprintln!("warning: running on the CPU, since no GPU can be used: {why}");
                Device::Cpu
            }
        })
    }

    /// Every device of this machine.
    pub fn all() -> Vec<Device> {
        Device::survey().into_iter().filter_map(|s| s.device.ok()).collect()
    }

    /// Every kind of device: the devices of this machine, and the reasons why others are absent.
    pub fn survey() -> Vec<Survey> {
        let known = |device: Device, description: &str| Survey {
            name: device.to_string(),
            device: Ok(device),
            description: description.into(),
        };
        let mut survey = vec![known(Device::Cpu, "compiled plans on CPU threads with SIMD")];
        match cuda::gpus() {
            Ok(names) => {
                let devices = names.iter().enumerate();
                survey.extend(devices.map(|(n, name)| known(Device::Cuda(n as u32), name)));
            }
            Err(why) => survey.push(Survey {
                name: "cuda".into(),
                description: "NVIDIA GPUs: PTX kernels and cuBLASLt".into(),
                device: Err(why),
            }),
        }
        if HAS_CUDA {
            survey.push(known(Device::Emulator, "PTX kernels, executed and watched on the CPU"));
        }
        survey.push(known(Device::Interpreter, "the graph interpreter, an oracle"));
        survey
    }

    /// Opens the device.
    ///
    /// Errors: it is not there, or not built into this version.
    pub(crate) fn open(self, options: &DeviceOptions) -> Result<Arc<dyn Backend>> {
        match self {
            Device::Cpu => cpu::open(options.threads),
            Device::Cuda(number) => cuda::open(number, options),
            Device::Emulator => emulator::open(),
            Device::Interpreter => Ok(Arc::new(interpreter::InterpreterBackend)),
        }
    }
}

/// The target of a name: `cpu`, or a GPU's architecture such as `sm_90`.
///
/// Errors: there is no such target in this build.
pub fn target(name: &str) -> Result<Target> {
    match name {
        "cpu" => Ok(Target::cpu()),
        _ => cuda::target(name),
    }
}

/// The PTX module of a plan for a GPU. It has every kernel, including calls that a library may
/// run on a real device.
///
/// Errors: the plan is for another target; this version is built without GPUs.
pub fn ptx(plan: &Verified<Plan>) -> Result<String> {
    cuda::ptx(plan)
}

/// How the products of a plan for a GPU are computed, as a table: by cuBLASLt or by kernels of our
/// own, with which addends and followers, and the bytes that kernels beside the products move.
/// cuBLASLt is assumed to have an algorithm for every product that it can express with the plan's
/// bits; a device decides when the plan is loaded.
///
/// Errors: the plan is for another target; this version is built without GPUs.
pub fn products(plan: &Verified<Plan>) -> Result<String> {
    cuda::products(plan)
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(number) => write!(f, "cuda:{number}"),
            Device::Emulator => f.write_str("emulator"),
            Device::Interpreter => f.write_str("interpreter"),
        }
    }
}

impl FromStr for Device {
    type Err = Diagnostic;

    /// Parses `cpu`, `cuda` (the first), `cuda:N`, `emulator`, `interpreter`. Opening the device
    /// checks that it exists.
    fn from_str(text: &str) -> Result<Device> {
        let cuda = text.strip_prefix("cuda").and_then(|rest| match rest.strip_prefix(':') {
            None => rest.is_empty().then_some(0),
            Some(number) => number.parse::<u32>().ok(),
        });
        match (text, cuda) {
            ("cpu", _) => Ok(Device::Cpu),
            ("emulator", _) => Ok(Device::Emulator),
            ("interpreter", _) => Ok(Device::Interpreter),
            (_, Some(number)) => Ok(Device::Cuda(number)),
            _ => Err(diagnostic!("unknown device `{text}`")
                .help("devices are cpu, interpreter, cuda, cuda:N and emulator")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_names() {
        assert_eq!(target("cpu").unwrap(), Target::cpu());
        if HAS_CUDA {
            assert_eq!(target("sm_90").unwrap().name, "sm_90");
        }
        let unknown = target("sm_75").unwrap_err();
        assert!(
            unknown.to_string().contains("targets are cpu")
                || unknown.to_string().contains("target is cpu")
        );
    }

    #[test]
    fn names() {
        for device in Device::all().into_iter().chain([Device::Cuda(3), Device::Emulator]) {
            assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        }
        assert_eq!("cuda".parse::<Device>().unwrap(), Device::Cuda(0));
        for unknown in ["gpu", "cuda:x", "cuda3", "cuda:", "emulator:1", ""] {
            let message = unknown.parse::<Device>().unwrap_err().message;
            assert!(message.contains("unknown device"), "{message}");
        }
    }

    #[test]
    fn the_survey_names_every_kind() {
        let survey = Device::survey();
        for kind in ["cpu", "cuda", "interpreter"] {
            assert!(survey.iter().any(|s| s.name.starts_with(kind)), "{kind}");
        }
        for absent in survey.iter().filter_map(|s| s.device.as_ref().err()) {
            assert!(absent.help.is_some(), "{absent}");
        }
    }
}
