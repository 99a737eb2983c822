//! Memory checks for a function: free memory is checked before any allocation.
//!
//! The memory in a plan is known to the byte. A device may need more: outputs are copied into
//! literals, the emulator keeps records for its sanitizers, an interpreter keeps sixteen bytes
//! per element. Existing memory is not counted: the variables of the session, and inputs, which
//! the caller allocates.
//!
//! If there is not enough, the error states the needed and the free memory, the limit, and the
//! memory budget that would suffice. The budget is verified: the function is compiled again
//! within it.

use crate::available_memory::{self, Available, reserve};
use crate::device::cpu::CpuBackend;
use crate::device::{Backend, PlanMemory};
use crate::store::Store;
use wengert_compiler::pipeline::{Bound, Options};
use wengert_core::plan::{Account, Bytes, Plan};
use wengert_core::{Diagnostic, Result, Target, Verified, interpret};

/// Memory that a device will allocate for a plan.
pub struct Need {
    /// All memory in the plan: the quantity that a budget bounds.
    pub total: u64,
    /// Bytes that the executable itself will allocate.
    pub own: u64,
    /// Bytes of variables that do not exist yet.
    pub variables: u64,
    /// Bytes allocated for each byte of the arena, in quarters.
    quarters: u64,
}

impl Need {
    /// The need of a plan in a session with these variables.
    pub fn of(backend: &dyn Backend, plan: &Plan, variables: &Store) -> Need {
        let missing = plan.variables.iter().filter(|v| variables.get(&v.name).is_none());
        let missing = missing.map(|v| plan.values[v.after].bytes()).fold(0, u64::saturating_add);
        let PlanMemory { bytes, arena_quarters } = backend.plan_memory(plan);
        let total = Account::sizes(plan).total();
        Need { total, own: bytes, variables: missing, quarters: arena_quarters }
    }

    /// The bytes to allocate and the reserve.
    pub fn bytes(&self) -> u64 {
        let all = self.own.saturating_add(self.variables);
        all.saturating_add(reserve(all))
    }

    /// The greatest budget with which this plan's function would fit, provided that its arena can
    /// be made so small.
    pub fn budget(&self, available: &Available) -> u64 {
        // Free memory may shrink slightly until the next attempt.
        let free = available.bytes - available.bytes / 32;
        let missing = self.bytes().saturating_sub(free);
        self.total.saturating_sub(missing.saturating_mul(4) / self.quarters).max(1)
    }
}

/// The plan of a function within a budget.
fn compiled(bound: &Bound, target: &Target, memory_budget: Option<u64>) -> Result<Verified<Plan>> {
    let options = Options { memory_budget, ..Options::default() };
    Ok(bound.compile(target, &options)?.0)
}

/// The smallest possible budget of a function.
fn least(bound: &Bound, target: &Target) -> Result<u64> {
    let plans = bound.frontier(target, &Options::default(), 1)?;
    Ok(plans.iter().map(|planned| Account::sizes(&planned.plan).total()).min().unwrap_or(0))
}

/// Checks that there is memory for a plan. With the function that it was made of, the error's
/// budget is verified; without, as for a plan from a file, it is an estimate.
pub(super) fn check(
    backend: &dyn Backend,
    plan: &Plan,
    variables: &Store,
    bound: Option<&Bound>,
) -> Result<()> {
    if !backend.is_in_host_memory() {
        return Ok(());
    }
    let Some(available) = available_memory::available() else { return Ok(()) };
    let need = Need::of(backend, plan, variables);
    if need.bytes() <= available.bytes {
        return Ok(());
    }
    let help = match bound {
        Some(bound) => advice(backend, plan, &available, bound, variables, ""),
        None => {
            let budget = rounded(need.budget(&available));
            format!(
                "compile the function for less memory: `graphrun compile --memory-budget {budget}`"
            )
        }
    };
    Err(refused(&plan.function, need.bytes(), &available).help(help))
}

/// Checks that there is memory for the graph interpreter, which has no plan.
pub(super) fn check_graph(bound: &Bound, variables: &Store) -> Result<()> {
    let Some(available) = available_memory::available() else { return Ok(()) };
    let needed = interpret::peak_bytes(&bound.function);
    let needed = needed.saturating_add(reserve(needed));
    if needed <= available.bytes {
        return Ok(());
    }
    let help = match compiled(bound, &Target::cpu(), None) {
        Ok(plan) => {
            let need = Need::of(&CpuBackend::SHARED, &plan, variables);
            if need.bytes() <= available.bytes {
                format!("it needs only {} with `--device cpu`", Bytes(need.bytes()))
            } else {
                advice(&CpuBackend::SHARED, &plan, &available, bound, variables, "--device cpu ")
            }
        }
        Err(_) => "the interpreter keeps no memory budget: bind smaller dimensions".into(),
    };
    Err(refused(&bound.function.name, needed, &available).help(help))
}

fn refused(function: &str, needed: u64, available: &Available) -> Diagnostic {
    Diagnostic::of_device(format!(
        "there is no memory to run @{function}: it needs {}, {available}",
        Bytes(needed)
    ))
}

/// The budget that would suffice, or that none would.
fn advice(
    backend: &dyn Backend,
    plan: &Plan,
    available: &Available,
    bound: &Bound,
    variables: &Store,
    options: &str,
) -> String {
    let budget = rounded_down(Need::of(backend, plan, variables).budget(available));
    if let Ok(smaller) = compiled(bound, &plan.target, Some(budget)) {
        // The outputs count twice in the need and once in the budget, so the plan itself is
        // checked.
        if Need::of(backend, &smaller, variables).bytes() <= available.bytes {
            let budget = rounded(budget);
            return format!(
                "a memory budget of {budget} would do: `{options}--memory-budget {budget}`"
            );
        }
    }
    match least(bound, &plan.target) {
        Ok(least) => format!(
            "no memory budget would do: with the least, {least} bytes ({}), it does not fit \
             either; bind smaller dimensions",
            Bytes(least)
        ),
        Err(_) => "no memory budget would do: bind smaller dimensions".into(),
    }
}

/// A budget rounded down to whole units, as `--memory-budget` takes it.
fn rounded_down(budget: u64) -> u64 {
    match budget {
        bytes if bytes >= 16 << 20 => bytes >> 20 << 20,
        bytes if bytes >= 16 << 10 => bytes >> 10 << 10,
        bytes => bytes,
    }
}

/// A rounded budget as text, as `--memory-budget` takes it.
fn rounded(budget: u64) -> String {
    match rounded_down(budget) {
        bytes if bytes >= 16 << 20 => format!("{}MiB", bytes >> 20),
        bytes if bytes >= 16 << 10 => format!("{}KiB", bytes >> 10),
        bytes => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::available_memory::Limit;

    #[test]
    fn budgets_are_written_as_the_option_takes_them() {
        assert_eq!(
            (rounded(300 << 20), rounded((300 << 20) + 5), rounded(5000)),
            ("300MiB".into(), "300MiB".into(), "5000".into())
        );
        assert_eq!(rounded((20 << 10) + 1), "20KiB");
    }

    #[test]
    fn the_budget_is_what_the_arena_must_give_up() {
        let need = Need { total: 1000 << 20, own: 700 << 20, variables: 0, quarters: 4 };
        let free =
            |mib: u64| Available { bytes: mib << 20, limit: Limit::Machine(1 << 40), promised: 0 };
        let budget = need.budget(&free(500));
        // 700 MiB and their reserve are needed; 500 MiB less a thirty-second are free.
        assert!((700 << 20..=790 << 20).contains(&budget), "{budget}");
        assert_eq!(need.budget(&free(0)), (1000 << 20) - need.bytes());
    }
}
