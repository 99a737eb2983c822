//! What the machine code of a plan's kernels says by itself: no counts, no times.

use super::tools::Tools;
use crate::device::cuda;
use wengert_core::plan::Plan;
use wengert_core::{Result, Verified, diagnostic};
use wengert_cuda::assembly::machine;
use wengert_cuda::driver::blas::Rules;
use wengert_cuda::executable::library_by_rule;
use wengert_cuda::lowered::LoweredPlan;
use wengert_machine::card::Card;
use wengert_machine::occupancy::{Occupancy, occupancy};
pub use wengert_machine::sass::Facts;
use wengert_machine::sass::Flow;

/// The machine code of a plan.
#[derive(Debug)]
pub struct MachineCode {
    /// The listing of `nvdisasm`, with the lines of the PTX text as comments.
    pub listing: String,
    /// The kernels, in the order of the module.
    pub kernels: Vec<KernelCode>,
}

/// The machine code of a kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct KernelCode {
    /// Its name in the module.
    pub kernel: String,
    /// The nest or call that it belongs to.
    pub origin: String,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block, those included that a launch adds.
    pub shared: u32,
    /// Bytes of registers that are stored to and loaded from local memory.
    pub spills: (u32, u32),
    /// Resident blocks of a multiprocessor. `None` if no card of this architecture is known, or a
    /// block does not fit.
    pub occupancy: Option<Occupancy>,
    /// Instructions, accesses, loops.
    pub facts: Facts,
}

/// The machine code of a plan's own kernels. Products that cuBLASLt's rules leave to it have none.
///
/// Errors: the plan is not for a GPU; a tool of NVIDIA is missing or fails.
pub fn machine_code(plan: &Verified<Plan>, tools: &Tools) -> Result<MachineCode> {
    let architecture = cuda::architecture(plan)?;
    let lowered = LoweredPlan::new(plan, architecture, &mut library_by_rule(Rules::STRICT))?;
    if lowered.kernels.is_empty() {
        return Ok(MachineCode { listing: String::new(), kernels: Vec::new() });
    }
    let code = tools.code(&lowered.ptx, &machine(&lowered.ptx, architecture))?;
    let is_of_it = |card: &&Card| format!("sm_{}", card.architecture.number) == plan.target.name;
    let card = Card::all().iter().find(is_of_it);
    let mut kernels = Vec::with_capacity(lowered.kernels.len());
    for known in &lowered.kernels {
        let absent = |what| diagnostic!("{what} does not name the kernel `{}`", known.name);
        let kernel = code.module.kernel(&known.name).ok_or_else(|| absent("nvdisasm"))?;
        let resources = code.resources.iter().find(|r| r.kernel == known.name);
        let resources = resources.ok_or_else(|| absent("ptxas"))?;
        let flow = Flow::new(kernel)
            .map_err(|error| diagnostic!("the code of kernel `{}`: {error}", known.name))?;
        let (threads, registers) = (known.threads, resources.registers);
        let shared = resources.shared + known.dynamic_shared;
        kernels.push(KernelCode {
            kernel: known.name.clone(),
            origin: known.origin.clone(),
            threads,
            registers,
            shared,
            spills: resources.spills,
            occupancy: card
                .and_then(|card| occupancy(&card.architecture.limits, threads, registers, shared)),
            facts: Facts::new(kernel, &flow),
        });
    }
    Ok(MachineCode { listing: code.listing, kernels })
}
