//! Work of a plan: the operations of its steps, and a limit on the operations of a run.
//!
//! Sizes limit the memory of a plan but not its running time: a loop may have 2^31 iterations,
//! and a nest may read one element of memory 2^60 times. A plan from a file must not occupy a
//! machine forever. So the loader of a file sets a limit ([`Allowance`]), and an executor spends
//! from it before each step. The count depends only on the plan and its data, not on a clock, so
//! the limit stops a run at the same step on every machine.
//!
//! One **operation** is a scalar instruction of a nest, a multiplication or addition of a call,
//! or a word of eight bytes that a call or a copy touches. Each step and each iteration of a loop
//! takes [`STEP`] operations in addition, about the cost of its dispatch.

use super::{NestId, Plan, Value};
use crate::call::Call;
use crate::diagnostic::{Diagnostic, Result};
use crate::id::IdVec;
use crate::nest::{BufferRole, Instr, Nest};

/// Operations of a step, or of an iteration of a loop, besides those inside it: about a
/// microsecond.
pub const STEP: u64 = 1024;

/// Operations of a plan's steps. All counts saturate.
#[derive(Clone, Debug)]
pub struct Work {
    nests: IdVec<NestId, u64>,
}

impl Work {
    /// Counts the operations of each nest.
    pub fn of(plan: &Plan) -> Work {
        Work {
            nests: plan.nests.iter().map(|(_, nest)| STEP.saturating_add(of_nest(nest))).collect(),
        }
    }

    /// Operations of one run of a nest.
    pub fn nest(&self, nest: NestId) -> u64 {
        self.nests[nest]
    }

    /// Operations of one run of a call.
    pub fn call(call: &Call) -> u64 {
        if call.results().iter().all(|ty| ty.elements() == Some(0)) {
            return STEP;
        }
        let types = call.operands().into_iter().chain(call.results());
        let bytes = types.map(|ty| ty.bytes().map_or(u64::MAX, |b| b as u64));
        let words = bytes.fold(0u64, u64::saturating_add) / 8;
        STEP.saturating_add(call.iterations()).saturating_add(words.saturating_mul(call.passes()))
    }

    /// Operations of a copy of a value.
    pub fn copy(value: &Value) -> u64 {
        STEP.saturating_add(value.bytes() / 8)
    }

    /// Operations of `count` iterations of a loop, if the steps of each iteration take at least
    /// `least`.
    pub fn repeated(count: u64, least: u64) -> u64 {
        STEP.saturating_add(least).saturating_mul(count)
    }
}

fn of_nest(nest: &Nest) -> u64 {
    let product = |axes: &[crate::nest::AxisId]| {
        axes.iter().fold(1u64, |n, a| n.saturating_mul(nest.axes[*a].extent as u64))
    };
    let of_phase = |phase: &crate::nest::Phase| {
        let prefixes = phase.body.iter().map(|instr| match instr {
            Instr::Prefix(prefix) => prefix.combine.body.len() as u64,
            Instr::Store { total: Some(total), .. } => 1 + total.combine.body.len() as u64,
            _ => 1,
        });
        let reductions = phase.reductions.iter().map(|r| r.combine.body.len() as u64);
        let iterations =
            product(&phase.axes).saturating_mul(1 + prefixes.chain(reductions).sum::<u64>());
        // At the end of a row the lanes of each tree are combined.
        let lanes =
            phase.reductions.iter().map(|r| u64::from(r.tree.lanes) * r.combine.body.len() as u64);
        iterations.saturating_add(lanes.sum())
    };
    // An empty phase still costs an operation for each row.
    let row = nest.phases.iter().map(of_phase).fold(1, u64::saturating_add);
    // An executor compares the address of each result with all other addresses.
    let parameters = nest.parameters().count() as u64;
    let results = nest.parameters().filter(|(_, b)| b.role != BufferRole::In).count() as u64;
    product(&nest.parallel).saturating_mul(row).saturating_add(parameters.saturating_mul(results))
}

/// Operations that a run may still take.
#[derive(Clone, Debug)]
pub struct Allowance {
    limit: u64,
    left: u64,
}

impl Allowance {
    /// An allowance of `limit` operations; [`u64::MAX`] means no limit.
    pub const fn new(limit: u64) -> Self {
        Allowance { limit, left: limit }
    }

    /// Takes `operations` from the allowance.
    ///
    /// Error: fewer operations are left.
    pub fn spend(&mut self, operations: u64) -> Result<()> {
        if self.limit == u64::MAX {
            return Ok(());
        }
        self.left = self.left.checked_sub(operations).ok_or_else(|| self.exceeded())?;
        Ok(())
    }

    /// Checks that at least `operations` are left, without taking them. This stops a loop that is
    /// too long before its first iteration.
    ///
    /// Error: fewer operations are left.
    pub fn covers(&self, operations: u64) -> Result<()> {
        if self.limit != u64::MAX && operations > self.left { Err(self.exceeded()) } else { Ok(()) }
    }

    fn exceeded(&self) -> Diagnostic {
        Diagnostic::new(format!(
            "the run takes more than the {} operations of its limit",
            self.limit
        ))
        .help(
            "if the plan is meant to run this long, raise the limit (--work-limit, \
             DeviceOptions::work_limit)",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::interpret::Uncompiled;
    use crate::plan::{Resolver, parse_plan};

    /// Doubles two numbers in place, 2^31 times.
    const LONG: &str = "plan @long {
  target @test {alignment=8, calls=[], gemm_epilogue=false, reduction_block=0, reduction_lanes=1, \
    row_bytes=0, row_storage=0}
  arena 8 bound 8
  value %0: f32[2] \"x\"
  value %1: f32[2] \"before\"
  value %2: f32[2] \"next\"
  value %3: f32[2] \"y\"
  input x = %0
  output y: [2] = %3
  nest @add(in %x: f32[2], out %y: f32[2]) {
    parallel i: 2
    phase {
      %0: f32 = load %x[i]
      %1: f32 = add %0, %0
      store %y[i], %1
    }
  }
  steps {
    copy %0 from input.0 to arena
    loop l0 trip 2147483648 {
      carry %0 -> %1, %2 -> %3 at arena
      run @add(%1 at arena, %2 at arena)
    }
    copy %3 from arena to output.0
  }
}
";

    #[test]
    fn constant_loops_count_in_full() {
        let (plan, places) = parse_plan("long.plan", LONG).expect("it is a plan");
        crate::plan::verify_at(&plan, &places).expect("it is right");
        let work = Work::of(&plan);
        // Two rows, each with a phase of a load, an addition and a store; and two parameters, one
        // of them a result.
        assert_eq!(work.nest(NestId(0)), STEP + 2 * (1 + 1 + 3) + 2);
        let copies = 2 * (STEP + 1);
        let resolved = Resolver::new(&plan).resolve(&mut Uncompiled).expect("nothing fails");
        assert_eq!(resolved.least, ((STEP + work.nest(NestId(0))) << 31) + STEP + copies);
    }

    #[test]
    fn an_allowance_ends() {
        let mut allowance = Allowance::new(10);
        assert!(allowance.covers(11).is_err() && allowance.covers(10).is_ok());
        allowance.spend(6).expect("ten are there");
        let error = allowance.spend(5).expect_err("four are left");
        assert!(error.message.contains("more than the 10 operations"), "{error}");
        allowance.spend(4).expect("four are left");
        let mut endless = Allowance::new(u64::MAX);
        endless.spend(u64::MAX).expect("it has no end");
        endless.spend(u64::MAX).expect("it has no end");
        endless.covers(Work::repeated(u64::MAX, u64::MAX)).expect("it has no end");
    }
}
