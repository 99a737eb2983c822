//! Properties of compute capabilities that kernels depend on: one row each.

use wengert_core::{Diagnostic, Result};

/// A compute capability.
///
/// Sources: CUDA C++ Programming Guide, "Compute Capabilities", table of technical
/// specifications; PTX ISA, `.target`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Architecture {
    /// Major · 10 + minor: 90 for `sm_90`.
    pub number: u32,
    /// Maximum number of bytes of shared memory of a thread block that opts in.
    pub shared_per_block: u32,
    /// Bytes of shared memory of a multiprocessor.
    pub shared_per_multiprocessor: u32,
    /// Maximum number of resident threads on a multiprocessor.
    pub threads_per_multiprocessor: u32,
    /// Maximum number of resident thread blocks on a multiprocessor.
    pub blocks_per_multiprocessor: u32,
}

/// 32-bit registers of a multiprocessor; the same for every row.
pub const REGISTERS_PER_MULTIPROCESSOR: u32 = 65_536;
/// Maximum number of bytes of shared memory of a block that does not opt in.
pub const STATIC_SHARED: u32 = 48 << 10;
/// Threads of a warp.
pub const WARP: u32 = 32;
/// Maximum number of threads of a block.
pub const MAX_BLOCK: u32 = 1024;
/// The version of the PTX text; every driver since CUDA 12.0 reads it.
pub const PTX_VERSION: &str = "8.0";
/// The version of a text with products of 8-bit floats; every driver since CUDA 12.4 reads it.
pub const FLOAT8_VERSION: &str = "8.4";
/// The target of a text with products of warpgroups, which runs on no other architecture (PTX ISA,
/// `.target`).
pub const HOPPER_TARGET: &str = "sm_90a";

const fn row(
    number: u32,
    block: u32,
    multiprocessor: u32,
    threads: u32,
    blocks: u32,
) -> Architecture {
    Architecture {
        number,
        shared_per_block: block << 10,
        shared_per_multiprocessor: multiprocessor << 10,
        threads_per_multiprocessor: threads,
        blocks_per_multiprocessor: blocks,
    }
}

impl Architecture {
    /// Every row, oldest first.
    pub const ALL: [Architecture; 6] = [
        row(80, 163, 164, 2048, 32),
        row(86, 99, 100, 1536, 16),
        row(89, 99, 100, 1536, 24),
        row(90, 227, 228, 2048, 32),
        row(100, 227, 228, 2048, 32),
        row(120, 99, 100, 1536, 24),
    ];

    /// `sm_90`, for example.
    pub fn name(&self) -> String {
        format!("sm_{}", self.number)
    }

    /// Whether a kernel may be launched before its predecessor has ended (CUDA C++ Programming
    /// Guide, "Programmatic Dependent Launch").
    pub fn overlaps(&self) -> bool {
        self.number >= 90
    }

    /// Whether tensor cores multiply 8-bit floats (PTX ISA, `mma`).
    pub fn multiplies_float8(&self) -> bool {
        self.number >= 89
    }

    /// Whether `mma` of 8-bit floats adds in f32: `ptxas` makes two products of f16 of it, where
    /// the multiprocessor has 8-bit products of another kind only.
    pub fn adds_float8_in_f32(&self) -> bool {
        matches!(self.number, 90 | 100)
    }

    /// Whether warpgroups multiply (PTX ISA, `wgmma`): on this architecture alone.
    pub fn multiplies_by_warpgroups(&self) -> bool {
        self.number == 90
    }

    /// The row with this name.
    ///
    /// Errors: there is no such row.
    pub fn from_name(name: &str) -> Result<Architecture> {
        Architecture::ALL.into_iter().find(|a| a.name() == name).ok_or_else(|| {
            let names: Vec<_> = Architecture::ALL.iter().map(Architecture::name).collect();
            Diagnostic::new(format!("unknown architecture `{name}`"))
                .help(format!("architectures are {}", names.join(", ")))
        })
    }

    /// The row for a device of this compute capability: its own, or the latest one before it of
    /// the same major number, whose PTX it runs.
    ///
    /// Errors: the device is older than every row, or of a generation without one.
    pub fn of_device(major: u32, minor: u32) -> Result<Architecture> {
        let number = major * 10 + minor;
        let fits = |a: &Architecture| a.number <= number && a.number / 10 == major;
        Architecture::ALL.into_iter().rfind(fits).ok_or_else(|| {
            Diagnostic::of_device(format!(
                "a device of compute capability {major}.{minor} is not supported"
            ))
            .help("use a GPU of compute capability 8.0 or later (Ampere, Ada, Hopper, Blackwell)")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_name_and_by_device() {
        for row in Architecture::ALL {
            assert_eq!(Architecture::from_name(&row.name()).unwrap(), row);
            assert_eq!(Architecture::of_device(row.number / 10, row.number % 10).unwrap(), row);
        }
        assert_eq!(Architecture::of_device(8, 7).unwrap().number, 86);
        assert!(Architecture::of_device(7, 5).is_err());
        assert!(Architecture::from_name("sm_75").unwrap_err().to_string().contains("sm_80"));
    }
}
