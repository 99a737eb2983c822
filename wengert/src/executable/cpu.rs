//! Plans on the CPU, on the session's memory.
//!
//! Inputs are read from the caller's literals, and variables are read and written in the
//! session's store, so a training step copies no parameter. Outputs are written into memory of
//! the executable and copied out. The only allocations of tensor size in a run are the returned
//! literals.

use super::profile::{KernelTime, by_kernel};
use crate::available_memory::{self, Promise};
use crate::store::Store;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use wengert_core::plan::Plan;
use wengert_core::{Diagnostic, Literal, Result, Verified, with_native};
use wengert_cpu::{AlignedBytes, Buffer, Executable, Memory};

/// A plan on the CPU. Runs are exclusive: there is one arena.
#[derive(Debug)]
pub(super) struct CpuRunner(Mutex<Running>);

#[derive(Debug)]
struct Running {
    executable: Executable,
    /// Buffers of the outputs, reused by every run.
    outputs: Vec<AlignedBytes>,
    /// Numbers of the plan's variables by key path.
    variables: BTreeMap<String, usize>,
    /// Memory of the arena and the outputs, promised until the first run touches it.
    promise: Option<Promise>,
}

impl CpuRunner {
    /// Prepares a plan; `work_limit` is the most operations of one run.
    ///
    /// Errors: the plan is for another target; there is not enough memory.
    pub(super) fn new(plan: &Verified<Plan>, work_limit: u64) -> Result<Self> {
        let mut executable = Executable::new(plan)?;
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
        Ok(CpuRunner(Mutex::new(Running { executable, outputs, variables, promise })))
    }

    /// Starts measuring the time of kernels.
    pub(super) fn measure(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).executable.measure();
    }

    /// Time of kernels since then.
    pub(super) fn profile(&self) -> Option<Vec<KernelTime>> {
        let running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(by_kernel(running.executable.plan(), running.executable.profile()?))
    }

    /// Runs the plan on inputs in the plan's order and the session's variables, which have the
    /// plan's types.
    pub(super) fn run(&self, given: &[Literal], store: &mut Store) -> Result<Vec<Literal>> {
        // A run that panicked leaves no state in arena and outputs that the next one relies on.
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Running { executable, outputs, variables, promise } = &mut *running;
        let made = executable.plan().variables.iter().filter(|v| v.before.is_none());
        let made: Vec<_> = made.map(|v| (v.name.as_str(), v.dtype, &v.shape[..])).collect();
        if !made.is_empty() {
            store.make(&made)?;
        }
        let inputs: Vec<Buffer<'_>> = given.iter().map(reading).collect();
        let mut written: Vec<Buffer<'_>> =
            outputs.iter_mut().map(|bytes| Buffer::writing(&mut bytes[..])).collect();
        let mut stored: Vec<Option<Buffer<'_>>> = (0..variables.len()).map(|_| None).collect();
        for (path, variable) in store.iter_mut() {
            if let Some(i) = variables.get(path) {
                let declared = &executable.plan().variables[*i];
                stored[*i] = Some(match declared.before == Some(declared.after) {
                    true => Buffer::reading(variable.bytes()),
                    false => Buffer::writing(variable.bytes_mut()),
                });
            }
        }
        let stored = stored.into_iter().collect::<Option<Vec<_>>>();
        let mut stored =
            stored.ok_or_else(|| Diagnostic::new("a variable of the plan has no value"))?;
        executable.run(Memory {
            inputs: &inputs,
            outputs: &mut written,
            variables: &mut stored,
        })?;
        *promise = None;
        let plan = executable.plan();
        let results = plan.outputs.iter().zip(outputs);
        results
            .map(|(o, bytes)| Literal::from_bytes(plan.values[o.value].dtype, &o.shape, bytes))
            .collect()
    }
}

/// The elements of a literal, borrowed.
fn reading(literal: &Literal) -> Buffer<'_> {
    with_native!(literal.dtype(), T => {
        Buffer::reading(literal.as_slice::<T>().expect("the dtype is its own"))
    })
}
