//! Collective instructions of a warp's lanes: shuffles, votes, matches, reductions, matrices.
//!
//! Such an instruction has a mask of its members. Lanes that reach it in different splits wait
//! for each other. There are three faults: a member that can no longer reach it, a lane that
//! executes it without being a member, and a read from a lane that does not take part.

use super::Machine;
use super::block::{Common, meet};
use super::splits::{Split, State};
use super::warp::{FULL, Next, Warp, lanes};
use crate::decode::program::{Instruction, Op, Shuffle, Vote, WarpReduction};
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::exact::F32;
use crate::semantics::float::{Float, Operation};
use crate::semantics::rows::{WARP, Words};

type Result<T> = std::result::Result<T, Box<Fault>>;

impl Warp {
    /// Executes such an instruction, or waits for the missing lanes.
    pub(crate) fn together(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        index: usize,
        pc: u32,
        (mask, active): (u32, u32),
    ) -> Result<Next> {
        let members = self.members(machine, i);
        let first = members[active.trailing_zeros() as usize];
        let uniform = lanes(active).all(|lane| members[lane] == first);
        let inactive = |this: &Self, message: String, lanes: u32| {
            Err(this.fault(machine, common, FaultKind::InactiveLane, message, pc, lanes))
        };
        for lane in lanes(active) {
            if members[lane] >> lane & 1 == 0 {
                let message =
                    format!("the lane is not in the mask {:#010x} that it gives", members[lane]);
                return inactive(self, message, 1 << lane);
            }
            let gone = members[lane] & self.exist & !self.live;
            if gone != 0 {
                let message = format!(
                    "the mask {:#010x} names lanes {gone:#010x}, which have exited",
                    members[lane]
                );
                return inactive(self, message, 1 << lane);
            }
            let cut = members[lane] & mask & !active;
            if cut != 0 {
                let message = format!(
                    "the mask {:#010x} names lanes {cut:#010x}, which the instruction's \
                     guard keeps away",
                    members[lane]
                );
                return inactive(self, message, 1 << lane);
            }
        }
        if !uniform {
            // Lanes with different masks form groups: a group that is incomplete waits for its
            // missing lanes.
            let mut waiting: Vec<(u32, u32)> = Vec::new();
            for lane in lanes(active) {
                let group = members[lane];
                if group & self.exist & !active != 0 && waiting.iter().all(|(g, _)| *g != group) {
                    let here = lanes(active).filter(|l| members[*l] == group);
                    waiting.push((group, here.fold(0, |all, l| all | 1 << l)));
                }
            }
            if !waiting.is_empty() {
                // Each group issues the instruction by itself, and the other lanes come again.
                if let Some(tally) = &mut common.tally {
                    tally.retract(pc, active);
                    waiting.iter().for_each(|(_, here)| tally.reach(pc, *here));
                }
                return self.wait_in_groups(machine, common, i, index, pc, mask, &waiting);
            }
        } else if first & self.exist & !active != 0 {
            return self.wait_for_members(machine, common, i, index, pc, first);
        }
        self.do_together(machine, common, i, pc, active, &members)?;
        Ok(Next::On)
    }

    /// The mask of each lane.
    fn members(&self, machine: &Machine<'_>, i: &Instruction) -> Words {
        let mask = match i.op {
            Op::WarpBarrier => Some(0),
            Op::Shuffle(_) => Some(3),
            Op::Vote(_) | Op::Match { .. } | Op::WarpReduce(_) => Some(1),
            Op::Elect => Some(0),
            // `.aligned`: the whole warp.
            _ => None,
        };
        match mask {
            Some(input) => *self.word(machine, i.inputs[input]),
            None => [FULL; WARP],
        }
    }

    /// Splits off the incomplete groups (mask, lanes that have arrived); each waits separately.
    #[allow(clippy::too_many_arguments)] // As for its neighbours, and the groups.
    fn wait_in_groups(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        index: usize,
        pc: u32,
        mask: u32,
        waiting: &[(u32, u32)],
    ) -> Result<Next> {
        let cut = waiting.iter().fold(0, |all, (_, here)| all | here);
        let stay = Some((mask & !cut, pc)).filter(|(mask, _)| *mask != 0);
        let ways: Vec<(u32, u32)> =
            stay.into_iter().chain(waiting.iter().map(|(_, here)| (*here, pc))).collect();
        let meet = self.splits.get(index).meet;
        self.splits.part(index, &ways, meet, self.live);
        for (group, here) in waiting {
            let is_it = |split: &Split| {
                split.state == State::Ready && (split.mask, split.pc) == (*here, pc)
            };
            let at = self.splits.iter().find(|(_, split)| is_it(split)).map(|(at, _)| at);
            let at = at.expect("the split was parted into exactly these lanes");
            self.wait_for_members(machine, common, i, at, pc, *group)?;
        }
        Ok(Next::Choose)
    }

    fn wait_for_members(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        index: usize,
        pc: u32,
        members: u32,
    ) -> Result<Next> {
        self.splits.set_state(index, State::WarpSync(members));
        let here: Vec<(usize, u32)> = self
            .splits
            .iter()
            .filter(|(_, split)| split.state == State::WarpSync(members) && split.pc == pc)
            .map(|(at, split)| (at, split.mask))
            .collect();
        let all = here.iter().fold(0, |all, (_, mask)| all | mask);
        if members & self.exist & !all != 0 {
            return Ok(Next::Choose);
        }
        self.do_together(machine, common, i, pc, all & self.live, &[members; WARP])?;
        for (at, _) in here {
            self.splits.get(at).pc = pc + 1;
            self.splits.set_state(at, State::Ready);
        }
        Ok(Next::Choose)
    }

    /// Orders earlier accesses of the lanes of `active` before later ones of each other.
    fn synchronise(&mut self, common: &mut Common, active: u32, members: &Words) {
        let now = common.order.time;
        let first = members[active.trailing_zeros() as usize];
        if first & self.live == self.live && active == self.live {
            self.full_time = now;
            self.lane_times = None;
        } else {
            let times = self.lane_times.get_or_insert_with(|| Box::new([[0; WARP]; WARP]));
            let mut left = active;
            while left != 0 {
                let group = members[left.trailing_zeros() as usize] & active;
                meet(times, group, group, now);
                left &= !group;
            }
        }
        common.order.time = now.saturating_add(1);
    }

    fn do_together(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        i: &Instruction,
        pc: u32,
        active: u32,
        members: &Words,
    ) -> Result<()> {
        // The accesses of `ldmatrix` and `stmatrix` come before the synchronisation.
        match &i.op {
            Op::LoadMatrix { count, transposed, offset, space } => {
                let form = (*count, *transposed, *offset, *space);
                return self.load_matrices(machine, common, i, form, pc, active);
            }
            Op::StoreMatrix { count, transposed, offset, space } => {
                let form = (*count, *transposed, *offset, *space);
                return self.store_matrices(machine, common, i, form, pc, active);
            }
            // These synchronise too, but do not order memory accesses.
            Op::MoveMatrix | Op::Matrix(_) | Op::Fragment(_) | Op::FragmentProduct(..) => {}
            _ => self.synchronise(common, active, members),
        }
        match &i.op {
            Op::Shuffle(mode) => self.shuffle(machine, common, i, *mode, pc, active)?,
            Op::Vote(mode) => {
                let p = self.predicate(machine, i.inputs[0]);
                let mut row = [0; WARP];
                let mut result = 0;
                for lane in lanes(active) {
                    let group = members[lane] & active;
                    let there = p & group;
                    row[lane] = there;
                    let holds = match mode {
                        Vote::All => there == group,
                        Vote::Any => there != 0,
                        Vote::Uniform => there == 0 || there == group,
                        Vote::Ballot => false,
                    };
                    result |= u32::from(holds) << lane;
                }
                self.set_word(i.outputs[0], active, &row);
                self.set_predicate(i.outputs[0], active, result);
            }
            Op::Match { all } => {
                let values = self.any(machine, i.inputs[0]);
                let (mut row, mut same) = ([0; WARP], 0);
                for lane in lanes(active) {
                    let group = members[lane] & active;
                    let equal = lanes(group)
                        .filter(|&other| values[other] == values[lane])
                        .fold(0, |mask, other| mask | 1 << other);
                    row[lane] = if *all && equal != group { 0 } else { equal };
                    same |= u32::from(equal == group) << lane;
                }
                self.set_word(i.outputs[0], active, &row);
                if let Some(&p) = i.outputs.get(1) {
                    self.set_predicate(p, active, same);
                }
            }
            Op::WarpReduce(operation) => {
                let values = *self.word(machine, i.inputs[0]);
                let mut row = [0; WARP];
                for lane in lanes(active) {
                    let group = members[lane] & active;
                    row[lane] = lanes(group)
                        .map(|other| values[other])
                        .reduce(|a, b| reduce(*operation, a, b))
                        .unwrap_or(0);
                }
                self.set_word(i.outputs[0], active, &row);
            }
            Op::Elect => {
                let mut row = [0; WARP];
                let mut p = 0;
                for lane in lanes(active) {
                    let leader = (members[lane] & active).trailing_zeros();
                    row[lane] = leader;
                    p |= u32::from(leader == lane as u32) << lane;
                }
                self.set_word(i.outputs[0], active, &row);
                if let Some(&output) = i.outputs.get(1) {
                    self.set_predicate(output, active, p);
                }
            }
            Op::MoveMatrix => self.move_matrix(machine, i, active),
            Op::Matrix(matrix) => self.matrix(machine, i, matrix, active),
            Op::Fragment(fragment) => self.fragment(machine, common, i, fragment, pc, active)?,
            Op::FragmentProduct(matrix, registers) => {
                self.fragment_product(machine, i, matrix, *registers, active);
            }
            _ => {}
        }
        Ok(())
    }

    fn shuffle(
        &mut self,
        machine: &Machine<'_>,
        common: &Common,
        i: &Instruction,
        mode: Shuffle,
        pc: u32,
        active: u32,
    ) -> Result<()> {
        let values = *self.word(machine, i.inputs[0]);
        let (b, c) = (self.word(machine, i.inputs[1]), self.word(machine, i.inputs[2]));
        let (mut row, mut p) = ([0; WARP], 0);
        for lane in lanes(active) {
            let (by, clamp, segment) = (b[lane] & 31, c[lane] & 31, c[lane] >> 8 & 31);
            let this = lane as u32;
            let most = this & segment | clamp & !segment;
            let (source, inside) = match mode {
                Shuffle::Up => (this.wrapping_sub(by), this as i32 - by as i32 >= most as i32),
                Shuffle::Down => (this + by, this + by <= most),
                Shuffle::Butterfly => (this ^ by, this ^ by <= most),
                Shuffle::Index => {
                    let source = this & segment | by & !segment;
                    (source, source <= most)
                }
            };
            let source = if inside { source } else { this };
            if active >> source & 1 == 0 {
                let message = format!("the lane reads lane {source}, which does not take part");
                return Err(self.fault(
                    machine,
                    common,
                    FaultKind::InactiveLane,
                    message,
                    pc,
                    1 << lane,
                ));
            }
            row[lane] = values[source as usize];
            p |= u32::from(inside) << lane;
        }
        self.set_word(i.outputs[0], active, &row);
        if let Some(&output) = i.outputs.get(1) {
            self.set_predicate(output, active, p);
        }
        Ok(())
    }
}

fn reduce(operation: WarpReduction, a: u32, b: u32) -> u32 {
    match operation {
        WarpReduction::Add => a.wrapping_add(b),
        WarpReduction::And => a & b,
        WarpReduction::Or => a | b,
        WarpReduction::Xor => a ^ b,
        WarpReduction::Minimum { signed: true } => (a as i32).min(b as i32) as u32,
        WarpReduction::Maximum { signed: true } => (a as i32).max(b as i32) as u32,
        WarpReduction::Minimum { .. } => a.min(b),
        WarpReduction::Maximum { .. } => a.max(b),
        WarpReduction::Float { maximum, absolute, nan } => {
            let operation = if maximum { Operation::Maximum } else { Operation::Minimum };
            let cut = if absolute { 0x7fff_ffff } else { u32::MAX };
            let float = Float { nan, ..Float::new(operation, F32) };
            float.evaluate((a & cut).into(), (b & cut).into(), 0) as u32
        }
    }
}
