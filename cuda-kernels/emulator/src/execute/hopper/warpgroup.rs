//! What the four warps of a warpgroup execute together.
//!
//! A *warpgroup* is four warps whose first has a multiple of four as its index. Its warps execute
//! the same `wgmma` and `setmaxnreg` in the same order. Here each warp executes them by itself, and
//! the sequences of the four are compared.

use super::super::Machine;
use super::super::block::Common;
use super::super::warp::{FULL, Next, Warp};
use super::Result;
use crate::sanitize::FaultKind;
use crate::semantics::rows::WARP;
use std::collections::VecDeque;

/// What the warps of a warpgroup have executed together.
#[derive(Default)]
pub(super) struct Warpgroup {
    /// Instruction and operands of each step that some warp has not done.
    steps: VecDeque<(u32, [u64; 2])>,
    first: u64,
    done: [u64; 4],
    exited: [bool; 4],
}

impl Warp {
    /// The same step must be executed by all warps of the warpgroup, in the same order.
    pub(super) fn step(
        &self,
        machine: &Machine<'_>,
        common: &mut Common,
        operands: [u64; 2],
        pc: u32,
    ) -> Result<()> {
        let wrong = |common: &Common, message: String| -> Result<()> {
            let kind = FaultKind::WarpgroupDivergence;
            Err(self.fault(machine, common, kind, message, pc, FULL))
        };
        let (group, member) = (self.index as usize / 4, self.index as usize % 4);
        if (group as u32 + 1) * 4 * WARP as u32 > machine.threads {
            let message = format!(
                "warps {} to {} are a warpgroup, and the block has {} threads",
                group * 4,
                group * 4 + 3,
                machine.threads
            );
            return wrong(common, message);
        }
        let state = &mut common.hopper.warpgroups[group];
        let next = state.done[member];
        let gone = (0..4).find(|&other| state.exited[other] && state.done[other] <= next);
        if let Some(gone) = gone {
            let message = format!("warp {} of the warpgroup has exited", group * 4 + gone);
            return wrong(common, message);
        }
        let at = (state.done[member] - state.first) as usize;
        if let Some(&(other, others)) = state.steps.get(at)
            && (other, others) != (pc, operands)
        {
            let line = machine.program.code[other as usize].line;
            let message = format!(
                "another warp of the warpgroup executes line {line} as its step {}, with operands \
                 {others:x?}, and this one has {operands:x?}",
                state.done[member]
            );
            return wrong(common, message);
        }
        if at == state.steps.len() {
            state.steps.push_back((pc, operands));
        }
        state.done[member] += 1;
        while state.done.iter().all(|&done| done > state.first) {
            state.steps.pop_front();
            state.first += 1;
        }
        Ok(())
    }

    /// `setmaxnreg`: the registers of a warpgroup's threads.
    pub(super) fn set_registers(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        (increases, count): (bool, u32),
        index: usize,
        pc: u32,
    ) -> Result<Next> {
        let wrong = |this: &Self, common: &Common, message: String| {
            let kind = FaultKind::RegisterBudget;
            Err(this.fault(machine, common, kind, message, pc, FULL))
        };
        let Some(limit) = machine.kernel.registers_at_start() else {
            let message = "`setmaxnreg` needs `.maxnreg`, `.reqntid` or `.maxntid`: without them \
                           the registers of a thread are unknown when the kernel begins"
                .to_owned();
            return wrong(self, common, message);
        };
        let current = self.register_count.unwrap_or(limit);
        if increases && count < current || !increases && count > current {
            let way = if increases { "increases" } else { "decreases" };
            let message = format!("`setmaxnreg` {way} the registers from {current} to {count}");
            return wrong(self, common, message);
        }
        let warps = machine.threads.div_ceil(WARP as u32);
        let taken = common.hopper.register_change;
        let change = i64::from(count) - i64::from(current);
        if taken + change > 0 {
            // It waits until another warpgroup has released registers.
            if common.hopper.cluster.gives_up(&mut self.gave_up) {
                let message = format!(
                    "the warp waits for {change} more registers a thread, and all registers of \
                     the block's {warps} warps are taken"
                );
                return wrong(self, common, message);
            }
            return Ok(self.poll(common, index));
        }
        self.step(machine, common, [count.into(), 0], pc)?;
        common.hopper.register_change += change;
        self.register_count = Some(count);
        common.hopper.cluster.happened();
        Ok(Next::On)
    }

    /// The warp exits: its products must have been waited for, and its warpgroup must need it no
    /// more.
    pub(super) fn exit_products(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        pc: u32,
    ) -> Result<()> {
        if let Some(pending) = common.hopper.products.iter().find(|p| p.warp == self.index) {
            let message = "the warp exits without `wgmma.wait_group` for this product".to_owned();
            let kind = FaultKind::ExitWhilePending;
            return Err(self.fault(machine, common, kind, message, pending.pc, 1));
        }
        let (group, member) = (self.index as usize / 4, self.index as usize % 4);
        let state = &mut common.hopper.warpgroups[group];
        state.exited[member] = true;
        if state.done.iter().any(|&done| done > state.done[member]) {
            let message = "the warp exits, and its warpgroup executes a `wgmma` or `setmaxnreg` \
                           without it"
                .to_owned();
            let kind = FaultKind::WarpgroupDivergence;
            return Err(self.fault(machine, common, kind, message, pc, 1));
        }
        Ok(())
    }
}
