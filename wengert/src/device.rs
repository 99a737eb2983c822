//! What programs run on.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;
use wengert_core::{Diagnostic, Result};

/// A device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Device {
    /// The CPU: compiled plans on threads with SIMD.
    Cpu,
    /// An NVIDIA GPU, by its number: compiled plans as PTX kernels and cuBLASLt.
    Cuda(u32),
    /// A GPU emulated on the CPU: the same PTX kernels, executed instruction by instruction and watched by sanitizers. Slow; the proof of
    /// the GPU path on a machine without one.
    Emulator,
    /// The graph interpreter: the mathematical meaning of each op, rounded to its dtype. Slow; the oracle for the others.
    Interpreter,
}

/// How a device is used. All but the budget of memory, the limit of work and the check of indices is for GPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceOptions {
    /// Whether the steps of a run are captured into a CUDA graph and replayed as one; the bits are the same either way. The environment
    /// variable `WENGERT_CUDA_CAPTURE=0` turns it off where nothing else is said.
    pub capture: bool,
    /// A file that says which of cuBLASLt's algorithms were quickest, for the very GPU and library version. With the same file, bits are the
    /// same.
    pub tuning: Option<PathBuf>,
    /// Whether products that the tuning file lacks are measured when a function is compiled, and noted there.
    pub autotune: bool,
    /// Whether cuBLASLt may do what is fastest: round f32 operands to tf32, and do whole epilogues in another order and with its own
    /// activations. Then results differ from other devices' by more than the order of sums.
    pub fast_products: bool,
    /// Most bytes of all memory that a function may take: its variables, inputs, outputs, constants and arena. Where its plan would take more, kernels run again instead of keeping what
    /// they have made; the bits are the same. A function that cannot be run in so little is an error.
    pub memory_budget: Option<u64>,
    /// Most operations of one run of a plan from a file ([`wengert_core::plan::work`]); a run that would take more is an error. A file may hold loops of any
    /// length, so there is a limit, which is [`format::plan::WORK_LIMIT`](crate::format::plan::WORK_LIMIT) where nothing else is said. Functions that are compiled here have none.
    pub work_limit: u64,
    /// Whether an index out of range is an error of the run ([`wengert_compiler::indices`]), instead of what the op defines
    /// for it. Other results keep their bits; a run reduces the indices of each lookup besides, and copies the variables
    /// that it replaces.
    pub check_indices: bool,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        let capture = std::env::var_os("WENGERT_CUDA_CAPTURE").is_none_or(|value| value != "0");
        let work_limit = crate::format::plan::WORK_LIMIT;
        DeviceOptions {
            capture,
            tuning: None,
            autotune: false,
            fast_products: false,
            memory_budget: None,
            work_limit,
            check_indices: false,
        }
    }
}

/// A device that this machine has, or the reason why it has none of that kind.
#[derive(Clone, PartialEq, Debug)]
pub struct Survey {
    /// Its name, as `--device` takes it.
    pub name: String,
    /// The device, or what is missing.
    pub device: Result<Device>,
    /// What it is, in a few words.
    pub description: String,
}

impl Device {
    /// The fastest device of this machine: its first GPU if it can be used, else the CPU.
    ///
    /// Where there is something of a GPU that cannot be used (a driver without a GPU, a driver that
    /// is too old, no cuBLASLt), the first call says why on standard error, and
    /// [`survey`](Self::survey) says it too. A device that is named is never replaced so: it is an
    /// error.
    pub fn best() -> Device {
        static BEST: OnceLock<Device> = OnceLock::new();
        *BEST.get_or_init(|| match first_gpu() {
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

    /// Every kind of device: those of this machine, and why others are not there.
    pub fn survey() -> Vec<Survey> {
        let known = |device: Device, description: &str| Survey {
            name: device.to_string(),
            device: Ok(device),
            description: description.into(),
        };
        let mut survey = vec![known(Device::Cpu, "compiled plans on CPU threads with SIMD")];
        match gpus() {
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
        if cfg!(feature = "cuda") {
            survey.push(known(Device::Emulator, "PTX kernels, executed and watched on the CPU"));
        }
        survey.push(known(Device::Interpreter, "the graph interpreter, an oracle"));
        survey
    }
}

/// Whether `cuda:0` can be used; false if the machine has nothing of a GPU.
#[cfg(feature = "cuda")]
fn first_gpu() -> Result<bool> {
    Ok(wengert_cuda::driver::probe::first_gpu()?)
}

#[cfg(not(feature = "cuda"))]
fn first_gpu() -> Result<bool> {
    Ok(false)
}

/// The GPUs of this machine, each in a few words, or why none can be used.
#[cfg(feature = "cuda")]
fn gpus() -> Result<Vec<String>> {
    let found = wengert_cuda::driver::probe::probe();
    let devices = found.driver?.devices?;
    if devices.is_empty() {
        return Err(Diagnostic::of_device("the NVIDIA driver finds no GPU")
            .help("use the device `cpu` or `emulator`"));
    }
    found.cublas_lt?;
    Ok(devices.iter().map(ToString::to_string).collect())
}

#[cfg(not(feature = "cuda"))]
fn gpus() -> Result<Vec<String>> {
    Err(not_built("cuda"))
}

/// What is said of devices that a build leaves out.
#[cfg(not(feature = "cuda"))]
pub(crate) fn not_built(name: &str) -> Diagnostic {
    Diagnostic::of_device(format!("device `{name}` is not built into this version"))
        .help("build with the feature `cuda`, or use `cpu` or `interpreter`")
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

    /// Reads `cpu`, `cuda` (the first), `cuda:N`, `emulator`, `interpreter`. Whether there is such a device is found when it is opened.
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
            _ => Err(Diagnostic::new(format!("unknown device `{text}`"))
                .help("devices are cpu, interpreter, cuda, cuda:N and emulator")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
