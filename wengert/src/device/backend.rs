//! The boundary between the library and its devices.

use crate::available_memory::{Available, available};
use crate::executable::{KernelTime, StepTime};
use crate::outputs::Returned;
use crate::store::Store;
use std::fmt::Debug;
use std::sync::Arc;
use wengert_compiler::pipeline::Sources;
use wengert_core::graph::Function;
use wengert_core::plan::Plan;
use wengert_core::{DType, Diagnostic, Literal, Result, Target, Verified};
use wengert_cpu::World;

/// An open device.
pub trait Backend: Debug + Send + Sync {
    /// The target that programs are compiled for: the calls that it claims, the workspace that it
    /// promises them, the shapes of its reductions.
    ///
    /// Errors: the device is too old for the kernels.
    fn target(&self) -> Result<Target>;

    /// Memory that the device allocates to run a plan.
    fn plan_memory(&self, plan: &Plan) -> PlanMemory;

    /// Prepares a plan: compiles its kernels and allocates its memory. `sources` are the lines
    /// that its steps come from, for errors. `work_limit` is the most operations of one run.
    ///
    /// Errors: the plan is for another target; a kernel does not compile; there is not enough
    /// memory.
    fn prepare(
        &self,
        plan: Verified<Plan>,
        sources: Option<Sources>,
        work_limit: u64,
    ) -> Result<Box<dyn PreparedFunction>>;

    /// The function itself, on a device that runs functions without compiling them.
    fn prepare_graph(&self, _: &Function) -> Option<Box<dyn PreparedFunction>> {
        None
    }

    /// Free memory; `None` where it is not known.
    ///
    /// Error: the device has failed.
    fn free_memory(&self) -> Result<Option<Available>> {
        Ok(available())
    }

    /// Whether the device is in the host's memory, which grants more than there is. A plan is
    /// then compared with the free memory before it is prepared.
    fn is_in_host_memory(&self) -> bool {
        true
    }

    /// Waits for all runs to end.
    ///
    /// Error: the device has failed.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// The world that it has joined; none runs functions on this rank alone.
    fn world(&self) -> Option<&World> {
        None
    }

    /// The device as one of the ranks of a world.
    ///
    /// Error: the device joins no ranks.
    fn join(&self, _: World) -> Result<Arc<dyn Backend>> {
        Err(Diagnostic::new("this device joins no ranks")
            .help("use the device `cpu`, `emulator` or `cuda`"))
    }

    /// An empty store in the memory where the device keeps variables.
    fn store(&self) -> Store {
        Store::default()
    }
}

/// A function that a device can run.
pub trait PreparedFunction: Send {
    /// Runs the function on inputs and keys in its order, of its types. The variables that it
    /// reads exist and have its types; those that it replaces or creates are written. A GPU may
    /// still be running on return.
    fn run(&mut self, given: &[Literal], variables: &mut Store) -> Result<Returned>;

    /// Announces that many runs follow.
    fn expect_repeats(&mut self) {}

    /// Starts measuring the time of each kernel.
    ///
    /// Error: kernels are not timed on this device.
    fn measure(&mut self) -> Result<()> {
        Err(Diagnostic::new("kernels are timed on the CPU only").help("use the device `cpu`"))
    }

    /// Time of each kernel since [`measure`](Self::measure), the longest first; empty before that
    /// call.
    fn profile(&self) -> Vec<KernelTime> {
        Vec::new()
    }

    /// Time of each step since [`measure`](Self::measure), in their order; empty before that call.
    fn step_times(&self) -> Vec<StepTime> {
        Vec::new()
    }
}

/// Memory that a device allocates to run a plan. Inputs and variables are not counted.
#[derive(Clone, Copy, Debug)]
pub struct PlanMemory {
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes allocated for each byte of the arena, in quarters.
    pub arena_quarters: u64,
}

/// Makes the variables that a plan creates.
///
/// Error: there is not enough memory.
pub fn make_variables(plan: &Plan, variables: &mut Store) -> Result<()> {
    let made = plan.variables.iter().filter(|v| v.before.is_none());
    let made: Vec<(&str, DType, &[usize])> =
        made.map(|v| (v.name.as_str(), v.dtype, &v.shape[..])).collect();
    variables.make(&made)
}

/// The error for a variable of the plan that the store lacks.
pub fn no_value() -> Diagnostic {
    Diagnostic::new("a variable of the plan has no value")
}
