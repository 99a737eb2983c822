//! What programs run on.

use std::fmt;
use std::str::FromStr;
use wengert_core::{Diagnostic, Result};

/// A device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Device {
    /// The CPU: compiled plans on threads with SIMD.
    Cpu,
    /// The graph interpreter: the mathematical meaning of each op, rounded to its dtype. Slow; the oracle for the others.
    Interpreter,
}

impl Device {
    /// The fastest device of this machine.
    ///
    /// This version runs on CPUs only, which every machine has; a version for GPUs can fail here, and never falls back in
    /// silence.
    pub fn best() -> Result<Device> {
        Ok(Device::Cpu)
    }

    /// Every device of this machine.
    pub fn all() -> Vec<Device> {
        vec![Device::Cpu, Device::Interpreter]
    }

    /// What it is, in a few words.
    pub const fn describe(self) -> &'static str {
        match self {
            Device::Cpu => "compiled plans on CPU threads with SIMD",
            Device::Interpreter => "the graph interpreter, an oracle",
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Device::Cpu => "cpu",
            Device::Interpreter => "interpreter",
        })
    }
}

impl FromStr for Device {
    type Err = Diagnostic;

    /// Reads `cpu`, `interpreter`; `cuda`, `cuda:N` and `emulator` are known names of devices that this version lacks.
    fn from_str(text: &str) -> Result<Device> {
        let is_cuda = text.strip_prefix("cuda").is_some_and(|rest| {
            rest.is_empty() || rest.strip_prefix(':').is_some_and(|n| n.parse::<u32>().is_ok())
        });
        match text {
            "cpu" => Ok(Device::Cpu),
            "interpreter" => Ok(Device::Interpreter),
            _ if is_cuda || text == "emulator" => {
                Err(Diagnostic::new(format!("device `{text}` is not built into this version"))
                    .help("use `cpu` or `interpreter`"))
            }
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
        for device in Device::all() {
            assert_eq!(device.to_string().parse::<Device>().unwrap(), device);
        }
        let message = |text: &str| text.parse::<Device>().unwrap_err().message;
        for lacking in ["cuda", "cuda:3", "emulator"] {
            assert!(message(lacking).contains("not built into this version"));
        }
        for unknown in ["gpu", "cuda:x", "cuda3", ""] {
            assert!(message(unknown).contains("unknown device"));
        }
    }
}
