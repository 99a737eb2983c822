//! Plans on the CPU, on the session's memory.
//!
//! Inputs are read from the caller's literals, and variables are read and written in the
//! session's store, so a training step copies no parameter. Outputs are written into memory of
//! the executable and copied out. The only allocations of tensor size in a run are the returned
//! literals.

use super::backend::{make_variables, no_value};
use super::{Backend, PlanMemory, PreparedFunction};
use crate::available_memory::{self, Promise};
use crate::executable::{KernelTime, StepTime, by_kernel, by_step};
use crate::outputs::Returned;
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::Arc;
use wengert_compiler::pipeline::Sources;
use wengert_core::plan::{Account, Plan};
use wengert_core::{Literal, Result, Target, Verified, diagnostic, with_native};
use wengert_cpu::{AlignedBytes, Buffer, CpuExecutable, Pool, RunMemory, Simd, World};

/// The CPU: its threads, and the ranks that it has joined.
#[derive(Debug)]
pub(crate) struct CpuBackend {
    /// None are the threads of the process.
    pool: Option<Arc<Pool>>,
    world: Option<World>,
}

impl CpuBackend {
    /// The threads of the process, without other ranks.
    pub const SHARED: CpuBackend = CpuBackend { pool: None, world: None };

    fn pool(&self) -> Result<Arc<Pool>> {
        match &self.pool {
            Some(pool) => Ok(pool.clone()),
            None => Pool::global().cloned(),
        }
    }
}

/// Opens the CPU and starts the threads. They take address space, so they start before the first
/// check of free memory.
///
/// Errors: the number of threads is not from 1 to 4096; a thread cannot start.
pub(super) fn open(threads: Option<usize>) -> Result<Arc<dyn Backend>> {
    let Some(threads) = threads else {
        Pool::global()?;
        return Ok(Arc::new(CpuBackend::SHARED));
    };
    if !(1..=Pool::MOST_THREADS).contains(&threads) {
        return Err(diagnostic!("{threads} threads")
            .help(format!("a CPU runs on 1 to {} threads", Pool::MOST_THREADS)));
    }
    Ok(Arc::new(CpuBackend { pool: Some(Arc::new(Pool::new(threads)?)), world: None }))
}

impl Backend for CpuBackend {
    fn target(&self) -> Result<Target> {
        Ok(Target::cpu())
    }

    fn plan_memory(&self, plan: &Plan) -> PlanMemory {
        let account = Account::sizes(plan);
        // Outputs are copied into literals.
        let all = [account.arena, account.constants, account.outputs, account.outputs];
        PlanMemory { bytes: all.into_iter().fold(0, u64::saturating_add), arena_quarters: 4 }
    }

    /// The CPU's errors name no step, so they need no sources.
    fn prepare(
        &self,
        plan: Verified<Plan>,
        _: Option<Sources>,
        work_limit: u64,
    ) -> Result<Box<dyn PreparedFunction>> {
        let (pool, simd) = (self.pool()?, Simd::choose()?);
        let executable = match &self.world {
            Some(world) => CpuExecutable::among(&plan, pool, simd, world)?,
            None => CpuExecutable::on(&plan, pool, simd)?,
        };
        Ok(Box::new(CpuFunction::new(&plan, executable, work_limit)?))
    }

    fn world(&self) -> Option<&World> {
        self.world.as_ref()
    }

    fn join(&self, world: World) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(CpuBackend { pool: self.pool.clone(), world: Some(world) }))
    }
}

/// A plan on the CPU.
struct CpuFunction {
    executable: CpuExecutable,
    /// Buffers of the outputs, reused by every run.
    outputs: Vec<AlignedBytes>,
    /// Numbers of the plan's variables by key path.
    variables: BTreeMap<String, usize>,
    /// RunMemory of the arena and the outputs, promised until the first run touches it.
    promise: Option<Promise>,
}

impl CpuFunction {
    /// A prepared plan; `work_limit` is the most operations of one run.
    ///
    /// Error: there is not enough memory.
    fn new(plan: &Verified<Plan>, mut executable: CpuExecutable, work_limit: u64) -> Result<Self> {
        executable.limit(work_limit);
        let bytes = |value| usize::try_from(plan.values[value].bytes()).unwrap_or(usize::MAX);
        let outputs = plan.outputs.iter().map(|output| AlignedBytes::new(bytes(output.value)));
        let variables =
            plan.variables.iter().enumerate().map(|(i, v)| (v.name.clone(), i)).collect();
        let outputs: Vec<AlignedBytes> = outputs.collect::<Result<_>>()?;
        let constants: u64 = plan.constants.iter().map(|c| plan.values[c.value].bytes()).sum();
        let untouched = executable.bytes() as u64 - constants;
        let untouched =
            outputs.iter().map(|bytes| bytes.len() as u64).fold(untouched, u64::saturating_add);
        let promise = Some(Promise::to_touch(untouched));
        // The threads' scratch memory is known only now.
        available_memory::check_promises(|| {
            format!("@{} and the scratch memory of its threads", plan.function)
        })?;
        Ok(CpuFunction { executable, outputs, variables, promise })
    }
}

impl PreparedFunction for CpuFunction {
    fn measure(&mut self) -> Result<()> {
        self.executable.measure();
        Ok(())
    }

    fn profile(&self) -> Vec<KernelTime> {
        let executable = &self.executable;
        executable.profile().map_or_else(Vec::new, |spent| by_kernel(executable.plan(), spent))
    }

    fn step_times(&self) -> Vec<StepTime> {
        let executable = &self.executable;
        executable.profile().map_or_else(Vec::new, |spent| by_step(executable.plan(), spent))
    }

    fn run(&mut self, given: &[Literal], store: &mut Store) -> Result<Returned> {
        let CpuFunction { executable, outputs, variables, promise } = self;
        make_variables(executable.plan(), store)?;
        let inputs: Vec<Buffer<'_>> = given.iter().map(reading).collect();
        let mut written: Vec<Buffer<'_>> =
            outputs.iter_mut().map(|bytes| Buffer::writing(&mut bytes[..])).collect();
        let mut stored: Vec<Option<Buffer<'_>>> = (0..variables.len()).map(|_| None).collect();
        for (path, variable) in store.iter_mut() {
            if let Some(i) = variables.get(path) {
                let declared = &executable.plan().variables[*i];
                stored[*i] = Some(match declared.before == Some(declared.after) {
                    true => Buffer::reading(&variable.memory::<AlignedBytes>()[..]),
                    false => Buffer::writing(&mut variable.memory_mut::<AlignedBytes>()[..]),
                });
            }
        }
        let stored = stored.into_iter().collect::<Option<Vec<_>>>();
        let mut stored = stored.ok_or_else(no_value)?;
        executable.run(RunMemory {
            inputs: &inputs,
            outputs: &mut written,
            variables: &mut stored,
        })?;
        *promise = None;
        let plan = executable.plan();
        let results = plan.outputs.iter().zip(outputs);
        let results = results
            .map(|(o, bytes)| Literal::from_bytes(plan.values[o.value].dtype, &o.shape, bytes));
        Ok(Returned::now(results.collect::<Result<_>>()?))
    }
}

/// The elements of a literal, borrowed.
fn reading(literal: &Literal) -> Buffer<'_> {
    with_native!(literal.dtype(), T => {
        Buffer::reading(literal.as_slice::<T>().expect("the dtype is its own"))
    })
}
