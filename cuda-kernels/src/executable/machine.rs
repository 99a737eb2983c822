//! The driver as a machine that runs a plan.

use super::Executable;
use crate::driver::Address;
use crate::lowered::{Bound, Launch, Machine};
use wengert_core::Result;
use wengert_core::plan::Space;

/// The memory spaces of a run.
pub(super) struct Spaces<'a> {
    pub executable: &'a Executable,
    pub variables: &'a [Address],
}

impl Spaces<'_> {
    fn address(&self, bound: &Bound) -> Address {
        let executable = self.executable;
        let base = match bound.space {
            Space::Arena => executable.arena.address(),
            Space::Input(n) => executable.inputs[n as usize],
            Space::Output(n) => executable.outputs[n as usize],
            Space::Variable(n) => self.variables[n as usize],
            Space::Constant(n) => executable.constants[n as usize],
        };
        base.offset(bound.offset)
    }
}

impl Machine for Spaces<'_> {
    fn launch(&mut self, launch: &Launch, arguments: &[Bound]) -> Result<()> {
        let executable = self.executable;
        let facts = &executable.lowered.kernels[launch.kernel];
        let addresses: Vec<u64> = arguments.iter().map(|a| self.address(a).0).collect();
        let block = [facts.threads, 1, 1];
        executable
            .device
            .launch_verified(
                &executable.functions[launch.kernel],
                launch.grid,
                block,
                launch.dynamic_shared,
                &addresses,
            )
            .map_err(|e| e.context(format!("kernel `{}` of {}", facts.name, facts.origin)).into())
    }

    fn library(
        &mut self,
        call: usize,
        arguments: &[Bound],
        workspace: Option<Bound>,
    ) -> Result<()> {
        let addresses: Vec<Address> = arguments.iter().map(|a| self.address(a)).collect();
        let workspace = workspace.map_or(Address::default(), |w| self.address(&w));
        self.executable.products.execute(call, &addresses, workspace)
    }

    fn copy(&mut self, from: Bound, to: Bound) -> Result<()> {
        Ok(self.executable.device.copy(self.address(&from), self.address(&to), from.bytes)?)
    }

    fn read(&mut self, from: Bound) -> Result<[u8; 8]> {
        let mut word = [0; 8];
        let bytes = from.bytes.min(8) as usize;
        self.executable.device.read(self.address(&from), &mut word[..bytes])?;
        Ok(word)
    }
}
