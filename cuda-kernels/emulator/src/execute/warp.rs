//! A warp: its registers, the states of its lanes, and the loop that executes instructions.

use super::Machine;
use super::asynchronous::Copies;
use super::block::Common;
use super::hopper::Register;
use super::splits::{Splits, State};
use crate::decode::program::{Instruction, Op, Operand};
use crate::parse::syntax::Special;
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::rows::{Doubles, WARP, Words};

/// All lanes.
pub(crate) const FULL: u32 = u32::MAX;

/// 32 threads in lockstep.
pub(crate) struct Warp {
    pub(crate) index: u32,
    pub(crate) words: Vec<Words>,
    pub(crate) doubles: Vec<Doubles>,
    pub(crate) predicates: Vec<u32>,
    /// The lanes that have written each watched register, for words, doubles and predicates.
    written: [Vec<u32>; 3],
    /// The carry flag of `add.cc` and similar.
    pub(crate) carry: u32,
    /// Local memory of the lanes, concatenated.
    pub(crate) local: Vec<u8>,
    pub(crate) local_written: Vec<bool>,
    pub(crate) splits: Splits,
    /// Lanes that have a thread: all but those past the end of the block's last warp.
    pub(crate) exist: u32,
    /// Lanes that have not exited.
    pub(crate) live: u32,
    /// The block's clock when all lanes last synchronised.
    pub(crate) full_time: u32,
    /// The vector clocks of the lanes, once some lanes have synchronised without the others.
    pub(crate) lane_times: Option<Box<[[u32; WARP]; WARP]>>,
    pub(crate) copies: Copies,
    /// At the last fence wider than the block: the block's clock, and the time of the block's last
    /// barrier before the fence.
    pub(crate) fenced: Option<(u32, u32)>,
    pub(crate) clock: u64,
    pub(crate) thread_instructions: u64,
    /// State of the registers that products use, by row; empty if the kernel has none.
    pub(crate) registers: Vec<Register>,
    /// It has executed a `wgmma.fence`.
    pub(crate) product_fenced: bool,
    /// Lanes that have arrived at the cluster's barrier and not waited, and its phase then.
    pub(crate) cluster_arrived: u32,
    pub(crate) cluster_phase: u32,
    /// The last round in which a wait returned false although it was not over.
    pub(crate) gave_up: u64,
    /// The changes that waits have seen.
    seen: u64,
    /// The last wait at a barrier that returned false: instruction, address, phase.
    pub(crate) refused: Option<(u32, u64, u64)>,
    /// Registers of a thread, once `setmaxnreg` has set them.
    pub(crate) register_count: Option<u32>,
}

/// Effect of an executed instruction on its split.
pub(crate) enum Next {
    /// Continue with the next instruction.
    On,
    /// The split waits or has changed; choose a split again.
    Choose,
}

type Result<T> = std::result::Result<T, Box<Fault>>;

/// Whether a special register differs from block to block.
fn of_block(special: Special) -> bool {
    matches!(
        special,
        Special::Ctaid(_)
            | Special::Clusterid(_)
            | Special::ClusterCtaid(_)
            | Special::ClusterRank
            | Special::Smid
    )
}

/// Indices of the lanes in a mask, ascending.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let lane = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (lane < WARP).then_some(lane)
    })
}

impl Warp {
    pub(crate) fn new(machine: &Machine<'_>, index: u32) -> Warp {
        let program = machine.program;
        let threads = machine.threads - index * WARP as u32;
        let exist = if threads >= WARP as u32 { FULL } else { (1 << threads) - 1 };
        let local = program.local_bytes as usize * WARP;
        let mut warp = Warp {
            index,
            words: vec![[0; WARP]; program.words as usize],
            doubles: vec![[0; WARP]; program.doubles as usize],
            predicates: vec![0; program.predicates as usize],
            written: program.watched.map(|count| vec![0; count as usize]),
            carry: 0,
            local: vec![0; local],
            local_written: vec![false; local],
            splits: Splits::default(),
            exist,
            live: exist,
            full_time: 0,
            lane_times: None,
            copies: Copies::default(),
            fenced: None,
            clock: 0,
            thread_instructions: 0,
            registers: Vec::new(),
            product_fenced: false,
            cluster_arrived: 0,
            cluster_phase: 0,
            gave_up: 0,
            seen: 0,
            refused: None,
            register_count: None,
        };
        for &(special, operand) in &program.specials {
            if !of_block(special) {
                warp.preset(machine, special, operand, 0);
            }
        }
        warp
    }

    /// Begins a block.
    pub(crate) fn start(&mut self, machine: &Machine<'_>, block: u32) {
        for &(special, operand) in &machine.program.specials {
            if of_block(special) {
                self.preset(machine, special, operand, block);
            }
        }
        self.written.iter_mut().for_each(|rows| rows.fill(0));
        self.local_written.fill(false);
        self.live = self.exist;
        self.splits.start(self.exist, machine.program.code.len() as u32);
        self.full_time = 0;
        self.lane_times = None;
        self.copies.clear();
        self.fenced = None;
        self.carry = 0;
        self.clock = 0;
        self.registers.clear();
        if machine.program.has_products {
            self.registers.resize(machine.program.words as usize, Register::default());
        }
        self.product_fenced = false;
        (self.cluster_arrived, self.cluster_phase) = (0, 0);
        (self.gave_up, self.seen) = (0, 0);
        self.refused = None;
        self.register_count = None;
    }

    /// Waits are tried again, if there are changes that they have not seen.
    pub(crate) fn wake(&mut self, changes: u64) {
        if changes != self.seen {
            self.seen = changes;
            self.splits.retry();
        }
    }

    fn preset(&mut self, machine: &Machine<'_>, special: Special, operand: Operand, block: u32) {
        let first = self.index * WARP as u32;
        let per_lane =
            |f: &dyn Fn(u32) -> u32| -> Words { std::array::from_fn(|lane| f(lane as u32)) };
        let id = machine.block_id(block);
        let cluster = machine.cluster;
        let inside: [u32; 3] = std::array::from_fn(|axis| id[axis] % cluster[axis]);
        let row = match special {
            Special::Tid(axis) => per_lane(&|lane| machine.thread_id(first + lane)[axis as usize]),
            Special::Ntid(axis) => [machine.block[axis as usize]; WARP],
            Special::Ctaid(axis) => [id[axis as usize]; WARP],
            Special::Nctaid(axis) => [machine.grid[axis as usize]; WARP],
            Special::Clusterid(axis) => [id[axis as usize] / cluster[axis as usize]; WARP],
            Special::Nclusterid(axis) => {
                [machine.grid[axis as usize] / cluster[axis as usize]; WARP]
            }
            Special::ClusterCtaid(axis) => [inside[axis as usize]; WARP],
            Special::ClusterNctaid(axis) => [cluster[axis as usize]; WARP],
            Special::ClusterRank => {
                [inside[0] + cluster[0] * (inside[1] + cluster[1] * inside[2]); WARP]
            }
            Special::ClusterRanks => [cluster.iter().product(); WARP],
            Special::IsExplicitCluster => [u32::from(cluster != [1; 3]); WARP],
            Special::Laneid => per_lane(&|lane| lane),
            Special::Warpid => [self.index; WARP],
            Special::Nwarpid => [machine.threads.div_ceil(WARP as u32); WARP],
            Special::Smid => [block % 4; WARP],
            Special::Nsmid => [4; WARP],
            Special::Gridid => [0; WARP],
            Special::LanemaskEq => per_lane(&|lane| 1 << lane),
            Special::LanemaskLt => per_lane(&|lane| (1 << lane) - 1),
            Special::LanemaskLe => per_lane(&|lane| ((1u64 << (lane + 1)) - 1) as u32),
            Special::LanemaskGe => per_lane(&|lane| u32::MAX << lane),
            Special::LanemaskGt => per_lane(&|lane| !((1u64 << (lane + 1)) - 1) as u32),
            Special::DynamicShared => [machine.dynamic_shared; WARP],
            Special::TotalShared => [machine.shared_bytes; WARP],
            Special::WarpSize => [WARP as u32; WARP],
            Special::Clock
            | Special::ClockHigh
            | Special::Clock64
            | Special::Globaltimer
            | Special::GlobaltimerLow
            | Special::GlobaltimerHigh => [0; WARP],
        };
        match operand {
            Operand::Word(r) => self.words[r as usize] = row,
            Operand::Double(r) => self.doubles[r as usize] = row.map(u64::from),
            _ => unreachable!("special registers are words or doubles"),
        }
    }

    /// Executes until all splits wait or have ended, or `budget` instructions are done; returns
    /// the rest of the budget. `COUNT` says whether instructions are counted, so that the loop
    /// without counts is free of them.
    pub(crate) fn run<const COUNT: bool>(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        mut budget: u64,
    ) -> Result<u64> {
        let code = &machine.program.code[..];
        'choose: while budget > 0 {
            let Some(index) = self.splits.choose(self.clock) else { break };
            loop {
                let split = *self.splits.get(index);
                if split.pc == split.meet {
                    self.splits.end(index, self.live);
                    continue 'choose;
                }
                let (mut pc, mask) = (split.pc, split.mask);
                // Runs straight-line code without choosing a split again.
                loop {
                    if budget == 0 {
                        self.splits.get(index).pc = pc;
                        break 'choose;
                    }
                    budget -= 1;
                    let instruction = &code[pc as usize];
                    let active = match instruction.guard {
                        None => mask,
                        Some((p, negated)) => {
                            let p = self.predicates[p as usize];
                            mask & if negated { !p } else { p }
                        }
                    };
                    if COUNT && let Some(tally) = &mut common.tally {
                        tally.reach(pc, active);
                    }
                    self.clock += 1;
                    self.thread_instructions += u64::from(mask.count_ones());
                    if instruction.watched && machine.options.sanitize.uninitialised {
                        self.check_registers(machine, common, instruction, pc, mask, active)?;
                    }
                    if instruction.pinned && active != 0 {
                        self.check_pinned(machine, common, instruction, pc, active)?;
                    }
                    match &instruction.op {
                        Op::Branch(target) => {
                            if active == mask {
                                pc = *target;
                            } else if active == 0 {
                                pc += 1;
                            } else {
                                if COUNT && let Some(tally) = &mut common.tally {
                                    tally.diverge(pc);
                                }
                                let meet = machine.program.reconvergence[pc as usize];
                                let ways = [(mask & !active, pc + 1), (active, *target)];
                                self.splits.part(index, &ways, meet, self.live);
                                continue 'choose;
                            }
                        }
                        _ if active == 0 => pc += 1,
                        _ => {
                            self.splits.get(index).pc = pc;
                            match self.execute(
                                machine,
                                common,
                                instruction,
                                index,
                                pc,
                                mask,
                                active,
                            )? {
                                Next::On => pc += 1,
                                Next::Choose => continue 'choose,
                            }
                        }
                    }
                    if pc == split.meet
                        || self.splits.ready > 1 && machine.program.leaders[pc as usize]
                    {
                        self.splits.get(index).pc = pc;
                        if pc == split.meet {
                            break;
                        }
                        continue 'choose;
                    }
                }
            }
        }
        Ok(budget)
    }

    /// Checks that watched registers are written before they are read.
    fn check_registers(
        &mut self,
        machine: &Machine<'_>,
        common: &Common,
        instruction: &Instruction,
        pc: u32,
        mask: u32,
        active: u32,
    ) -> Result<()> {
        let guard = instruction.guard.map(|(p, _)| (Operand::Predicate(p), mask));
        for (operand, needed) in
            guard.into_iter().chain(instruction.inputs.iter().map(|&o| (o, active)))
        {
            let Some(written) = self.written_lanes(operand) else { continue };
            let missing = needed & !*written;
            if missing != 0 {
                let message = "the thread reads a register that it has not written".to_owned();
                return Err(self.fault(
                    machine,
                    common,
                    FaultKind::UninitialisedRegister,
                    message,
                    pc,
                    missing,
                ));
            }
        }
        for &output in &instruction.outputs {
            if let Some(written) = self.written_lanes(output) {
                *written |= active;
            }
        }
        Ok(())
    }

    fn written_lanes(&mut self, operand: Operand) -> Option<&mut u32> {
        match operand {
            Operand::Word(r) => self.written[0].get_mut(r as usize),
            Operand::Double(r) => self.written[1].get_mut(r as usize),
            Operand::Predicate(r) => self.written[2].get_mut(r as usize),
            Operand::Constant(_) | Operand::Sink => None,
        }
    }

    /// A fault of the first lane of `mask`.
    pub(crate) fn fault(
        &self,
        machine: &Machine<'_>,
        common: &Common,
        kind: FaultKind,
        message: String,
        pc: u32,
        mask: u32,
    ) -> Box<Fault> {
        let thread = self.index * WARP as u32 + mask.trailing_zeros().min(31);
        machine.fault(kind, message, pc, common.index, thread)
    }

    /// Ends the `active` lanes of a split.
    pub(crate) fn exit(&mut self, common: &mut Common, index: usize, pc: u32, active: u32) -> Next {
        self.live &= !active;
        common.live -= active.count_ones();
        let split = self.splits.get(index);
        split.mask &= !active;
        if split.mask == 0 {
            self.splits.end(index, self.live);
            return Next::Choose;
        }
        split.pc = pc;
        Next::On
    }

    /// A row of up to 32 bits.
    #[inline(always)]
    pub(crate) fn word<'a>(&'a self, machine: &'a Machine<'_>, operand: Operand) -> &'a Words {
        match operand {
            Operand::Word(r) => &self.words[r as usize],
            Operand::Constant(c) => &machine.constants[c as usize].0,
            _ => unreachable!("the decoder has checked the class"),
        }
    }

    /// A row of 64 bits.
    #[inline(always)]
    pub(crate) fn double<'a>(&'a self, machine: &'a Machine<'_>, operand: Operand) -> &'a Doubles {
        match operand {
            Operand::Double(r) => &self.doubles[r as usize],
            Operand::Constant(c) => &machine.constants[c as usize].1,
            _ => unreachable!("the decoder has checked the class"),
        }
    }

    /// A predicate; constants are true if not 0.
    pub(crate) fn predicate(&self, machine: &Machine<'_>, operand: Operand) -> u32 {
        match operand {
            Operand::Predicate(r) => self.predicates[r as usize],
            Operand::Constant(c) if machine.constants[c as usize].1[0] != 0 => FULL,
            _ => 0,
        }
    }

    /// A row of either width, as 64 bits.
    #[inline(always)]
    pub(crate) fn any(&self, machine: &Machine<'_>, operand: Operand) -> Doubles {
        match operand {
            Operand::Word(r) => self.words[r as usize].map(u64::from),
            Operand::Double(r) => self.doubles[r as usize],
            Operand::Constant(c) => machine.constants[c as usize].1,
            Operand::Predicate(_) | Operand::Sink => [0; WARP],
        }
    }

    /// Writes a row in some lanes.
    #[inline(always)]
    pub(crate) fn set_word(&mut self, operand: Operand, active: u32, row: &Words) {
        let Operand::Word(r) = operand else { return };
        let target = &mut self.words[r as usize];
        if active == FULL {
            *target = *row;
        } else {
            for lane in 0..WARP {
                target[lane] = if active >> lane & 1 == 1 { row[lane] } else { target[lane] };
            }
        }
    }

    /// Writes a row in some lanes.
    #[inline(always)]
    pub(crate) fn set_double(&mut self, operand: Operand, active: u32, row: &Doubles) {
        let Operand::Double(r) = operand else { return };
        let target = &mut self.doubles[r as usize];
        if active == FULL {
            *target = *row;
        } else {
            for lane in 0..WARP {
                target[lane] = if active >> lane & 1 == 1 { row[lane] } else { target[lane] };
            }
        }
    }

    /// Writes a predicate in some lanes.
    #[inline(always)]
    pub(crate) fn set_predicate(&mut self, operand: Operand, active: u32, value: u32) {
        if let Operand::Predicate(r) = operand {
            let target = &mut self.predicates[r as usize];
            *target = *target & !active | value & active;
        }
    }

    /// Writes a row of either width; words take the low half.
    #[inline(always)]
    pub(crate) fn set_any(&mut self, operand: Operand, active: u32, row: &Doubles) {
        match operand {
            Operand::Word(_) => self.set_word(operand, active, &row.map(|value| value as u32)),
            Operand::Double(_) => self.set_double(operand, active, row),
            _ => {}
        }
    }

    /// State, program counter and lanes of each split, for reports of a deadlock.
    pub(crate) fn waiting(&self) -> Vec<(State, u32, u32)> {
        self.splits.iter().map(|(_, split)| (split.state, split.pc, split.mask)).collect()
    }
}
