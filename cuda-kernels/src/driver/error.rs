//! Errors of a device.
//!
//! An error says which operation failed ("launching `softmax_3`"), which call failed, with code,
//! name and text, and what to do. Two properties of CUDA's errors are explained where they apply:
//!
//! - **Asynchronous.** Kernels run while the host goes on. A fault surfaces at a later call,
//!   often one that waits; an earlier kernel caused it. `CUDA_LAUNCH_BLOCKING=1` in the
//!   environment makes every launch wait.
//! - **Sticky.** After a fault (a bad address, an illegal instruction) the context is lost with
//!   all its memory: every later call returns the same code. Only a new process helps. A
//!   [`super::Device`] remembers the first such error and adds it to every later one.

use wengert_core::Diagnostic;

/// Result of a device operation.
pub type Result<T, E = DeviceError> = std::result::Result<T, E>;

/// A device operation failed.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{}", Diagnostic::from(self.clone()))]
pub struct DeviceError {
    /// The operation.
    pub doing: String,
    /// Why it failed.
    pub cause: Cause,
    /// The fault that had already lost the context, if it is another one.
    pub earlier: Option<Box<DeviceError>>,
}

/// Cause of a failure.
#[derive(Clone, PartialEq, Debug)]
pub enum Cause {
    /// A call returned an error.
    Call {
        /// The function.
        call: &'static str,
        /// The returned code.
        code: u32,
        /// Name of the code.
        name: String,
        /// Text of the code, with details if there are any (a compiler's log).
        text: String,
    },
    /// Less memory is free than requested.
    Memory {
        /// Bytes requested.
        wanted: u64,
        /// Bytes free.
        free: u64,
        /// Bytes of the device.
        total: u64,
    },
    /// The operation was not attempted.
    Refused {
        /// Reason.
        why: String,
        /// What to do about it.
        help: String,
    },
}

impl DeviceError {
    /// An error.
    pub fn new(doing: impl Into<String>, cause: Cause) -> Self {
        DeviceError { doing: doing.into(), cause, earlier: None }
    }

    /// An error of an operation that was not attempted.
    pub fn refused(
        doing: impl Into<String>,
        why: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        DeviceError::new(doing, Cause::Refused { why: why.into(), help: help.into() })
    }

    /// Prefixes the operation with `context: `, such as the plan's step.
    #[must_use]
    pub fn context(mut self, context: impl std::fmt::Display) -> Self {
        self.doing = format!("{context}: {}", self.doing);
        self
    }

    /// The code of the failed call.
    pub fn code(&self) -> Option<u32> {
        match self.cause {
            Cause::Call { code, .. } => Some(code),
            _ => None,
        }
    }

    /// True if the context is lost: every call on this device fails until the process ends.
    pub fn is_sticky(&self) -> bool {
        matches!(
            &self.cause,
            Cause::Call { call, code, .. }
                if call.starts_with("cu")
                    && !call.starts_with("cublas")
                    && STICKY.contains(code)
        )
    }
}

/// Codes after which a context is unusable (CUDA driver API, `CUresult`: "leaves the process in
/// an inconsistent state").
const STICKY: [u32; 14] = [
    214, // CUDA_ERROR_ECC_UNCORRECTABLE
    220, // CUDA_ERROR_NVLINK_UNCORRECTABLE
    226, // CUDA_ERROR_CONTAINED
    700, // CUDA_ERROR_ILLEGAL_ADDRESS
    702, // CUDA_ERROR_LAUNCH_TIMEOUT
    709, // CUDA_ERROR_CONTEXT_IS_DESTROYED
    710, // CUDA_ERROR_ASSERT
    714, // CUDA_ERROR_HARDWARE_STACK_ERROR
    715, // CUDA_ERROR_ILLEGAL_INSTRUCTION
    716, // CUDA_ERROR_MISALIGNED_ADDRESS
    717, // CUDA_ERROR_INVALID_ADDRESS_SPACE
    718, // CUDA_ERROR_INVALID_PC
    719, // CUDA_ERROR_LAUNCH_FAILED
    721, // CUDA_ERROR_TENSOR_MEMORY_LEAK
];

/// What to do about a code of the driver.
fn mend(code: u32) -> Option<&'static str> {
    Some(match code {
        2 => {
            "use a smaller batch or a memory budget, or end other programs on this GPU \
             (`nvidia-smi` lists them)"
        }
        3 => {
            "the driver is not initialised or is shutting down; do not use the device \
             from exit handlers"
        }
        46 => {
            "another process holds this GPU in exclusive mode; end it, or let the administrator \
             change the compute mode"
        }
        100 => super::probe::NO_GPU,
        304 => {
            "the driver's library does not reach its kernel module: check `nvidia-smi`, that the \
             module `nvidia` is loaded, and that /dev/nvidia* is there and may be opened"
        }
        101 => "`nvidia-smi -L` lists the devices; CUDA_VISIBLE_DEVICES hides and renumbers them",
        200 | 209 | 300 => {
            "the program does not fit this GPU; compile it for this one. If it was, empty the \
             driver's cache (CUDA_CACHE_PATH, else ~/.nv)"
        }
        218 => "this is a fault of the PTX emitter: please report it with the log above",
        221 => "libnvidia-ptxjitcompiler.so.1 is missing: install the NVIDIA driver completely",
        222 => "the PTX is newer than the driver: install a newer NVIDIA driver",
        701 => {
            "the kernel needs more registers or shared memory than a block may have: please report \
             it with the kernel's name"
        }
        702 => {
            "the GPU drives a display and its watchdog ended the kernel; use another GPU, \
             or smaller extents"
        }
        802..=804 => {
            "the driver's library and its kernel module do not fit: restart the machine after a \
             driver update, or leave out the `cuda-compat` package"
        }
        900..=908 => {
            "something was done during a capture that a CUDA graph cannot hold; \
             run with capture off to go on"
        }
        999 => {
            "the driver does not say; `dmesg` may (Xid messages); restarting the \
             machine often helps"
        }
        code if STICKY.contains(&code) => {
            "a kernel launched before this call faulted; run with CUDA_LAUNCH_BLOCKING=1 (and \
             capture off) to see which, or on `--device emulator` to see why. The context is lost: \
             start again, from a checkpoint if there is one"
        }
        _ => return None,
    })
}

/// For example `12.3 GiB`, rounded to one decimal.
pub fn size_text(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match UNITS.into_iter().find(|(_, shift)| bytes >> shift != 0) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} bytes"),
    }
}

impl From<DeviceError> for Diagnostic {
    fn from(error: DeviceError) -> Diagnostic {
        let sticky = error.is_sticky();
        let mut diagnostic = match error.cause {
            Cause::Call { call, code, name, text } => {
                let separator = if text.is_empty() { "" } else { ": " };
                let message =
                    format!("{}: {call} failed with {name} ({code}){separator}{text}", error.doing);
                let help = if call.starts_with("cublas") { None } else { mend(code) };
                let diagnostic = Diagnostic::of_device(message);
                match help {
                    Some(help) => diagnostic.help(help),
                    None => diagnostic,
                }
            }
            Cause::Memory { wanted, free, total } => Diagnostic::of_device(format!(
                "{} needs {} ({wanted} bytes), and {} of {} are free",
                error.doing,
                size_text(wanted),
                size_text(free),
                size_text(total)
            ))
            .help(
                "use a smaller batch, or `--memory-budget` to recompute instead of keeping, \
                 or end other programs on this GPU (`nvidia-smi` lists them)",
            ),
            Cause::Refused { why, help } => {
                Diagnostic::of_device(format!("{}: {why}", error.doing)).help(help)
            }
        };
        if let Some(earlier) = error.earlier {
            let first = Diagnostic::from(*earlier);
            diagnostic.message = format!(
                "{} (the context was lost before; the first fault: {})",
                diagnostic.message, first.message
            );
            diagnostic.help = first.help.or(diagnostic.help);
        } else if sticky {
            diagnostic
                .message
                .push_str(" (faults show late: the guilty kernel may be an earlier one)");
        }
        diagnostic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> DeviceError {
        DeviceError::new(
            "waiting for the device",
            Cause::Call {
                call: "cuStreamSynchronize",
                code: 700,
                name: "CUDA_ERROR_ILLEGAL_ADDRESS".into(),
                text: "an illegal memory access was encountered".into(),
            },
        )
    }

    #[test]
    fn an_error_names_call_code_text_and_mend() {
        let text = fault().context("step 7, `%12` at model.rs:30").to_string();
        for part in [
            "step 7",
            "model.rs:30",
            "cuStreamSynchronize",
            "700",
            "illegal memory",
            "show late",
            "emulator",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(fault().is_sticky());
        let later = DeviceError {
            earlier: Some(Box::new(fault())),
            ..DeviceError::refused("copying", "no", "x")
        };
        assert!(later.to_string().contains("the first fault: waiting for the device"), "{later}");
    }

    #[test]
    fn a_code_of_cublas_is_not_taken_for_one_of_the_driver() {
        let cause = |call| Cause::Call { call, code: 702, name: "x".into(), text: String::new() };
        assert!(!DeviceError::new("a", cause("cublasLtMatmul")).is_sticky());
        assert!(DeviceError::new("a", cause("cuEventQuery")).is_sticky());
    }

    #[test]
    fn memory_is_told_in_units_that_are_read() {
        let error = DeviceError::new(
            "the arena",
            Cause::Memory { wanted: 3 << 30, free: 1 << 29, total: 1 << 31 },
        );
        let text = error.to_string();
        assert!(text.contains("the arena needs 3.0 GiB (3221225472 bytes)"), "{text}");
        assert!(
            text.contains("512.0 MiB of 2.0 GiB are free") && text.contains("--memory-budget"),
            "{text}"
        );
        assert_eq!(size_text(1023), "1023 bytes");
    }
}
