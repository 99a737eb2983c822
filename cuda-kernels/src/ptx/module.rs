//! The module of kernels, of bundles of them, and of the functions that they call.

use super::bundle::Bundle;
use super::kernel::{Extern, Function, Kernel};
use crate::architecture::{FLOAT8_VERSION, HOPPER_TARGET, PTX_VERSION};
use std::fmt;

/// One PTX file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Module {
    /// Whether kernels may be launched before the preceding ones have ended
    /// ([`Architecture::overlaps`](crate::architecture::Architecture::overlaps)). Each waits for
    /// them first, so that only the launches overlap.
    pub overlaps: bool,
    /// Functions that kernels call and the driver provides.
    pub externs: Vec<Extern>,
    /// Functions that kernels call, each name once.
    pub functions: Vec<Function>,
    /// Kernels, each name once.
    pub kernels: Vec<Kernel>,
    /// Kernels that share launches.
    pub bundles: Vec<Bundle>,
}

impl Module {
    /// Kernels that are launched one after another.
    pub fn new(functions: Vec<Function>, kernels: Vec<Kernel>) -> Module {
        Module { functions, kernels, ..Module::default() }
    }
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text runs on every later architecture, but for that of `sm_90a`, which runs on no
        // other; the driver or `ptxas` compiles it for the installed one.
        let any = |is: fn(&Kernel) -> bool| {
            self.kernels.iter().chain(self.bundles.iter().flat_map(Bundle::kernels)).any(is)
        };
        let float8 = any(Kernel::multiplies_float8);
        let target = match () {
            () if any(Kernel::needs_hopper) => HOPPER_TARGET,
            () if self.overlaps || any(Kernel::is_of_hopper) => "sm_90",
            () if float8 => "sm_89",
            () => "sm_80",
        };
        let version = if float8 { FLOAT8_VERSION } else { PTX_VERSION };
        writeln!(f, ".version {version}\n.target {target}\n.address_size 64")?;
        if self.kernels.iter().any(|k| k.dynamic_shared) {
            writeln!(f, ".extern .shared .align 16 .b8 {}[];", Kernel::DYNAMIC)?;
        }
        for function in &self.externs {
            write!(f, "\n{function}")?;
        }
        for function in &self.functions {
            write!(f, "\n{function}")?;
        }
        for kernel in &self.kernels {
            writeln!(f)?;
            kernel.write(f, self.overlaps)?;
        }
        for bundle in &self.bundles {
            writeln!(f)?;
            bundle.write(f, self.overlaps)?;
        }
        Ok(())
    }
}
