//! The launches of a plan, without running it.

use std::collections::BTreeMap;
use wengert_core::plan::{Counters, Region, Space, StepRunner};
use wengert_core::{Diagnostic, Result};
use wengert_cuda::lowered::{Command, LoweredPlan, StepError};

/// A launch by what its time depends on.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Recorded {
    /// Number of the kernel.
    pub kernel: usize,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// For each argument the block of memory that it is in, its offset there, and its bytes.
    pub arguments: Vec<(usize, u64, u64)>,
    /// Bytes of the blocks of memory. Arguments that overlap are in one block.
    pub memory: Vec<u64>,
}

/// What a run of a plan does.
#[derive(Debug)]
pub struct Launches {
    /// Launches of kernels, and how often each runs.
    pub launches: BTreeMap<Recorded, u64>,
    /// Calls of the library by their questions, and how often each runs.
    pub products: BTreeMap<usize, u64>,
    /// Copies, and their bytes.
    pub copies: (u64, u64),
}

/// Walks over a plan.
///
/// Errors: a loop or branch depends on data.
pub fn of(lowered: &LoweredPlan) -> Result<Launches> {
    let launches =
        Launches { launches: BTreeMap::new(), products: BTreeMap::new(), copies: (0, 0) };
    let mut recorder = Recorder { lowered, launches };
    lowered.run(&mut recorder, u64::MAX).map_err(|failure| failure.error)?;
    Ok(recorder.launches)
}

struct Recorder<'a> {
    lowered: &'a LoweredPlan,
    launches: Launches,
}

/// Divides regions into blocks of memory: those that overlap are in one.
fn blocks(regions: &[Region]) -> (Vec<(usize, u64, u64)>, Vec<u64>) {
    let mut order: Vec<usize> = (0..regions.len()).collect();
    order.sort_by_key(|n| (regions[*n].space, regions[*n].offset));
    let mut arguments = vec![(0, 0, 0); regions.len()];
    // Space, first and last offset of each block.
    let mut found: Vec<(Space, u64, u64)> = Vec::new();
    for n in order {
        let Region { space, offset, bytes, .. } = regions[n];
        match found.last_mut() {
            Some((last, _, end)) if *last == space && offset < *end => {
                *end = (*end).max(offset + bytes);
            }
            _ => found.push((space, offset, offset + bytes)),
        }
        let block = found.len() - 1;
        arguments[n] = (block, offset - found[block].1, bytes);
    }
    (arguments, found.iter().map(|(_, from, end)| end - from).collect())
}

impl StepRunner for Recorder<'_> {
    type Kernel = Command;
    type Error = StepError;

    fn launch(&mut self, command: &Command, counters: &Counters) -> Result<()> {
        match command {
            Command::Launch(launch) => {
                let regions: Vec<Region> =
                    launch.arguments.iter().map(|place| counters.region(place)).collect();
                let (arguments, memory) = blocks(&regions);
                let recorded = Recorded {
                    kernel: launch.kernel,
                    grid: launch.grid,
                    dynamic_shared: launch.dynamic_shared,
                    arguments,
                    memory,
                };
                *self.launches.launches.entry(recorded).or_default() += 1;
            }
            Command::Library { call, .. } => {
                *self.launches.products.entry(*call).or_default() += 1;
            }
            Command::Start(_) | Command::Wait(_) | Command::Position { .. } => {
                return Err(Diagnostic::new(
                    "the time cannot be predicted: ranks exchange data, which has no model here",
                )
                .help("predict ranks by `graphrun scale`"));
            }
        }
        Ok(())
    }

    fn copy(&mut self, from: Region, _: Region) -> Result<()> {
        self.launches.copies.0 += 1;
        self.launches.copies.1 += from.bytes;
        Ok(())
    }

    fn read(&mut self, _: Region) -> Result<[u8; 8]> {
        Err(Diagnostic::new(
            "the time cannot be predicted: a loop or branch of the function depends on data",
        )
        .help("predict the function of its body, and multiply by the steps that you expect"))
    }

    fn located(&self, step: Option<usize>, error: Diagnostic) -> StepError {
        self.lowered.located(step, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::plan::Access;

    #[test]
    fn overlapping_regions_are_in_one_block() {
        let region = |space, offset, bytes| Region {
            space,
            offset,
            bytes,
            access: Access::Read,
            label: None,
        };
        let regions = [
            region(Space::Arena, 256, 64),
            region(Space::Input(0), 0, 100),
            region(Space::Arena, 0, 128),
            region(Space::Arena, 64, 128),
            region(Space::Arena, 192, 64),
        ];
        let (arguments, memory) = blocks(&regions);
        // 0..128 and 64..192 overlap; 192..256 and 256..320 only touch.
        assert_eq!(memory, [192, 64, 64, 100]);
        assert_eq!(arguments, [(2, 0, 64), (3, 0, 100), (0, 0, 128), (0, 64, 128), (1, 0, 64)]);
    }
}
