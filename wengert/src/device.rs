//! Devices that run programs.

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
    /// A GPU emulated on the CPU: the same PTX kernels, executed instruction by instruction and
    /// checked by sanitizers. Slow; it tests the GPU path on a machine without a GPU.
    Emulator,
    /// The graph interpreter: the mathematical meaning of each op, rounded to its dtype. Slow;
    /// the oracle for the other devices.
    Interpreter,
}

/// Options of a device. All but the memory budget, the work limit and the check of indices are
/// for GPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceOptions {
    /// Whether the steps of a run are captured into a CUDA graph and replayed as one. The bits
    /// are the same either way. The environment variable `WENGERT_CUDA_CAPTURE=0` changes the
    /// default to off.
    pub capture: bool,
    /// A file with the fastest cuBLASLt algorithms for one GPU and library version. The same file
    /// gives the same bits.
    pub tuning: Option<PathBuf>,
    /// Whether products that the tuning file lacks are measured at compile time and added to it.
    pub autotune: bool,
    /// Whether cuBLASLt may use its fastest algorithms: round f32 operands to tf32, and add
    /// a bias and a residual before rounding and in another order. Results then differ from other
    /// devices' by more than the order of sums.
    pub fast_products: bool,
    /// Most bytes of all memory that a function may take: its variables, inputs, outputs,
    /// constants and arena. Where its plan would take more, results are recomputed instead of
    /// kept; the bits are the same. A function that cannot run within the budget is an error.
    pub memory_budget: Option<u64>,
    /// Most operations of one run of a plan from a file ([`wengert_core::plan::work`]); a run
    /// that would take more is an error. A file may hold loops of any length, hence the limit.
    /// The default is [`format::plan::WORK_LIMIT`](crate::format::plan::WORK_LIMIT). Functions
    /// compiled in this process have no limit.
    pub work_limit: u64,
    /// Whether an index out of range makes the run an error ([`wengert_compiler::indices`]),
    /// instead of the op's defined result. Other results keep their bits. A run additionally
    /// reduces the indices of each lookup and copies the variables that it replaces.
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

    /// Every kind of device: the devices of this machine, and the reasons why others are absent.
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

/// Whether `cuda:0` is usable; false if the machine has neither GPU nor driver.
#[cfg(feature = "cuda")]
fn first_gpu() -> Result<bool> {
    Ok(wengert_cuda::driver::probe::first_gpu()?)
}

#[cfg(not(feature = "cuda"))]
fn first_gpu() -> Result<bool> {
    Ok(false)
}

/// The GPUs of this machine, each with a short description, or why none is usable.
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

/// The error for a device that this build leaves out.
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
