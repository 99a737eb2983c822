//! The driver's part of a run.

use super::CudaExecutable;
use crate::driver::Address;
use crate::lowered::{Command, StepError};
use wengert_core::plan::{Counters, Memories, Place, Region, StepRunner};
use wengert_core::{Diagnostic, Result};

/// A run on a GPU.
pub(super) struct CudaRun<'a> {
    pub executable: &'a CudaExecutable,
    pub memories: &'a Memories<Address>,
}

impl CudaRun<'_> {
    fn address(&self, region: Region) -> Address {
        self.memories[region.space].offset(region.offset)
    }
}

impl StepRunner for CudaRun<'_> {
    type Kernel = Command;
    type Error = StepError;

    fn launch(&mut self, command: &Command, counters: &Counters) -> Result<()> {
        let executable = self.executable;
        let address = |place: &Place| self.address(counters.region(place));
        match command {
            Command::Launch(launch) => {
                let facts = &executable.lowered.kernels[launch.kernel];
                let addresses: Vec<u64> = launch.arguments.iter().map(|p| address(p).0).collect();
                let function = &executable.functions[launch.kernel];
                let (grid, block, shared) =
                    (launch.grid, [facts.threads, 1, 1], launch.dynamic_shared);
                let device = &executable.device;
                device.launch_verified(function, grid, block, shared, &addresses).map_err(|e| {
                    e.context(format!("kernel `{}` of {}", facts.name, facts.origin)).into()
                })
            }
            Command::Library { call, arguments, workspace } => {
                let addresses: Vec<Address> = arguments.iter().map(address).collect();
                let workspace = workspace.as_ref().map_or(Address::default(), address);
                executable.products.execute(*call, &addresses, workspace)
            }
            Command::Start(exchange) => {
                executable.collectives().start(&executable.device, exchange, address)
            }
            Command::Wait(exchange) => executable.collectives().wait(exchange),
            Command::Position { over, result } => {
                let to = address(result);
                executable.collectives().position(&executable.device, over, to)
            }
        }
    }

    fn copy(&mut self, from: Region, to: Region) -> Result<()> {
        Ok(self.executable.device.copy(self.address(from), self.address(to), from.bytes)?)
    }

    fn read(&mut self, from: Region) -> Result<[u8; 8]> {
        let mut word = [0; 8];
        let bytes = from.bytes.min(8) as usize;
        self.executable.device.read(self.address(from), &mut word[..bytes])?;
        Ok(word)
    }

    fn located(&self, step: Option<usize>, error: Diagnostic) -> StepError {
        self.executable.lowered.located(step, error)
    }
}
