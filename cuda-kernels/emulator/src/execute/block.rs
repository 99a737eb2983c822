//! A block: its shared memory, its barriers, its clock, and the scheduling of its warps.

use super::hopper::{BlockState, SharedState};
use super::splits::State;
use super::warp::{FULL, Warp, lanes};
use super::{Known, Machine};
use crate::count::Tally;
use crate::decode::program::{Barrier, BarrierKind, Op};
use crate::launch::Asynchrony;
use crate::sanitize::race::{Entry, RaceTable};
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::rows::WARP;

/// Maximum number of instructions of a warp in its turn.
const TURN: u64 = 5_000;
/// The same, if copies may take place between turns.
const SHORT_TURN: u64 = 16;
/// Maximum number of instructions of a block before it is suspended in favour of other blocks.
const SHARE: u64 = 4_000_000;

type Result<T> = std::result::Result<T, Box<Fault>>;

/// A byte of shared memory has been written.
pub(crate) const WRITTEN: u8 = 1;
/// An asynchronous copy will write it.
pub(crate) const IN_FLIGHT: u8 = 2;

/// The shared memory of a block.
#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) bytes: Vec<u8>,
    pub(crate) state: Vec<u8>,
    pub(crate) races: RaceTable,
    pub(crate) hopper: SharedState,
}

/// Ordering of accesses.
pub(crate) struct Order {
    pub(crate) block: u32,
    /// The block's clock, which every synchronisation advances.
    pub(crate) time: u32,
    /// The time of the last barrier of the whole block.
    pub(crate) all_time: u32,
    /// The vector clocks of the warps, once some have synchronised without the others.
    pub(crate) warp_times: Option<Box<[[u32; WARP]; WARP]>>,
    /// The block's knowledge of other blocks.
    pub(crate) known: Known,
    /// For each barrier in shared memory: the phases that each warp knows to be complete.
    pub(crate) phases: Vec<[u32; WARP]>,
}

/// A barrier at which threads wait.
#[derive(Clone, Default)]
struct Gathering {
    /// Threads that have arrived.
    threads: u32,
    /// Threads as the hardware counts them: whole warps.
    counted: u32,
    /// Threads that it waits for; 0 for all of the block.
    wanted: u32,
    waiting: Vec<Waiting>,
    /// Warps that have arrived, and those that wait.
    came: u32,
    receives: u32,
    all: bool,
    any: bool,
    population: u32,
}

/// A split at a barrier.
#[derive(Clone, Copy)]
struct Waiting {
    warp: u32,
    split: u32,
    mask: u32,
    pc: u32,
    result: u32,
}

/// State that the warps of a block share.
pub(crate) struct Common {
    pub(crate) index: u32,
    pub(crate) shared: Shared,
    pub(crate) order: Order,
    /// Threads that have not exited.
    pub(crate) live: u32,
    /// Warps with such threads.
    pub(crate) live_warps: u32,
    barriers: Vec<Gathering>,
    released: Vec<Waiting>,
    pub(crate) hopper: BlockState,
    /// Counters, if the launch is counted.
    pub(crate) tally: Option<Box<Tally>>,
}

/// How a block's turn ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    /// All threads have exited.
    Ended,
    /// It has used up its share.
    Yields,
    /// No thread can go on.
    Blocked,
}

/// A block that is being executed.
pub(crate) struct Block {
    common: Common,
    warps: Vec<Warp>,
}

impl Order {
    /// Joins the clocks of all `givers`, and assigns the result to each of `receivers`.
    fn meet(&mut self, givers: u32, receivers: u32, everyone: bool) {
        if everyone {
            self.all_time = self.time;
            self.warp_times = None;
        } else {
            let times = self.warp_times.get_or_insert_with(|| Box::new([[0; WARP]; WARP]));
            meet(times, givers, receivers, self.time);
        }
        for known in &mut self.phases {
            let most = lanes(givers).map(|giver| known[giver]).max().unwrap_or(0);
            for receiver in lanes(receivers) {
                known[receiver] = most.max(known[receiver]);
            }
        }
        self.time = self.time.saturating_add(1);
    }
}

/// Joins the clocks of the `givers`, and assigns the result to the `receivers`: a step of vector
/// clocks.
pub(crate) fn meet(times: &mut [[u32; WARP]; WARP], givers: u32, receivers: u32, now: u32) {
    let mut joined = [0; WARP];
    for giver in lanes(givers) {
        for (time, &known) in joined.iter_mut().zip(&times[giver]) {
            *time = known.max(*time);
        }
    }
    for giver in lanes(givers) {
        joined[giver] = now;
    }
    for receiver in lanes(receivers) {
        for (time, &known) in times[receiver].iter_mut().zip(&joined) {
            *time = known.max(*time);
        }
    }
}

impl Block {
    pub(crate) fn new(machine: &Machine<'_>) -> Block {
        let bytes = machine.shared_bytes as usize;
        let warps = machine.threads.div_ceil(WARP as u32);
        let tally = || Box::new(Tally::new(machine.program.code.len(), warps as usize));
        let races = if machine.options.sanitize.races { bytes.div_ceil(4) } else { 0 };
        Block {
            common: Common {
                index: 0,
                shared: Shared {
                    bytes: vec![0; bytes],
                    state: vec![0; bytes],
                    races: RaceTable::new(races),
                    hopper: SharedState::default(),
                },
                order: Order {
                    block: 0,
                    time: 1,
                    all_time: 0,
                    warp_times: None,
                    known: Known::new(),
                    phases: Vec::new(),
                },
                live: 0,
                live_warps: 0,
                barriers: vec![Gathering::default(); 16],
                released: Vec::new(),
                hopper: BlockState::default(),
                tally: machine.collector.as_ref().map(|_| tally()),
            },
            warps: (0..warps).map(|w| Warp::new(machine, w)).collect(),
        }
    }

    pub(crate) fn index(&self) -> u32 {
        self.common.index
    }

    /// The counters, if the launch is counted.
    pub(crate) fn tally(&mut self) -> Option<&mut Tally> {
        self.common.tally.as_deref_mut()
    }

    /// Begins the block at `position` of the order of execution.
    pub(crate) fn start(&mut self, machine: &Machine<'_>, position: u32) {
        let index = machine.block_at(position);
        let common = &mut self.common;
        if let Some(tally) = &mut common.tally {
            tally.start(position);
        }
        common.index = index;
        common.shared.state.fill(0);
        common.shared.races.clear();
        common.shared.hopper.start(common.shared.bytes.len());
        common.hopper.start();
        common.order = Order {
            block: index,
            time: 1,
            all_time: 0,
            warp_times: None,
            known: Known::new(),
            phases: Vec::new(),
        };
        common.live = machine.threads;
        common.live_warps = ((1u64 << self.warps.len()) - 1) as u32;
        common.barriers.fill(Gathering::default());
        for warp in &mut self.warps {
            warp.start(machine, index);
        }
    }

    pub(crate) fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    /// Whether a thread tries an instruction again and again.
    pub(crate) fn polls(&self) -> bool {
        self.warps.iter().any(|warp| warp.splits.iter().any(|(_, s)| s.state == State::Poll))
    }

    /// Runs for one share, a number of instructions; `late` is the share while a bulk copy is
    /// pending.
    pub(crate) fn run(&mut self, machine: &Machine<'_>, share: u64, late: u64) -> Result<Status> {
        let mut used = 0;
        let share = share.min(SHARE);
        loop {
            let pending = self.common.hopper.cluster.has_transfers();
            if used >= if pending { share.min(late) } else { share } {
                return Ok(Status::Yields);
            }
            // With a seed, copies take place between short turns.
            let seeded = pending && matches!(machine.options.asynchrony, Asynchrony::Seeded(_));
            let turn = if seeded { SHORT_TURN } else { TURN };
            let mut progress = 0;
            for at in 0..self.warps.len() {
                let warp = &mut self.warps[at];
                warp.wake(self.common.hopper.cluster.changes());
                if warp.splits.ready == 0 {
                    continue;
                }
                let left = if self.common.tally.is_some() {
                    warp.run::<true>(machine, &mut self.common, turn)?
                } else {
                    warp.run::<false>(machine, &mut self.common, turn)?
                };
                progress += turn - left - std::mem::take(&mut self.common.hopper.polls);
                let threads = std::mem::take(&mut warp.thread_instructions);
                if !machine.count(turn - left, threads) {
                    let (pc, mask) =
                        warp.splits.iter().next().map_or((0, 1), |(_, s)| (s.pc, s.mask));
                    let most = machine.options.max_instructions;
                    let message = format!("the launch executes more than {most} instructions");
                    return Err(warp.fault(
                        machine,
                        &self.common,
                        FaultKind::InstructionLimit,
                        message,
                        pc,
                        mask,
                    ));
                }
                for waiting in std::mem::take(&mut self.common.released) {
                    self.warps[waiting.warp as usize].pass(machine, waiting);
                    progress += 1;
                }
            }
            if self.warps.iter().all(|warp| warp.splits.finished()) {
                return Ok(Status::Ended);
            }
            self.common.transfer_perhaps(machine, used)?;
            if progress == 0 {
                return Ok(Status::Blocked);
            }
            if machine.stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(Status::Yields);
            }
            used += progress;
        }
    }

    /// The fault for a block that cannot continue.
    pub(crate) fn stuck(&self, machine: &Machine<'_>) -> Box<Fault> {
        let common = &self.common;
        let polls = self.warps.iter().flat_map(|warp| {
            let waiting = warp.waiting().into_iter();
            waiting.filter(|(state, ..)| *state == State::Poll).map(move |(_, pc, m)| (warp, pc, m))
        });
        let waits: Vec<(&Warp, u32, u32, String)> = polls
            .map(|(warp, pc, mask)| (warp, pc, mask, warp.describe_wait(machine, common, pc, mask)))
            .collect();
        if let Some((warp, pc, mask, first)) = waits.first() {
            let others = waits[1..].iter().take(8).map(|(warp, pc, _, what)| {
                let line = machine.program.code[*pc as usize].line;
                format!("; warp {} at line {line}: {what}", warp.index)
            });
            let message = format!("no thread can go on: {first}{}", others.collect::<String>());
            return warp.fault(machine, common, FaultKind::DeadLock, message, *pc, *mask);
        }
        let mut barrier = None;
        for warp in &self.warps {
            for (state, pc, mask) in warp.waiting() {
                match state {
                    State::WarpSync(members) => {
                        let missing = members & !mask;
                        let message = format!(
                            "lanes {missing:#010x} are named by the mask and never come \
                             to this instruction (the mask is {members:#010x}, \
                             lanes {mask:#010x} are there)"
                        );
                        return warp.fault(
                            machine,
                            common,
                            FaultKind::InactiveLane,
                            message,
                            pc,
                            mask,
                        );
                    }
                    State::Gathering => {
                        let message = format!(
                            "only lanes {mask:#010x} of the warp's {:#010x} come to \
                             this barrier together",
                            warp.live
                        );
                        return warp.fault(
                            machine,
                            common,
                            FaultKind::DivergentBarrier,
                            message,
                            pc,
                            mask,
                        );
                    }
                    State::Barrier => barrier = barrier.or(Some((warp, pc, mask))),
                    _ => {}
                }
            }
        }
        match barrier {
            Some((warp, pc, mask)) => {
                let id = machine.constant_input(pc, 0).map_or(0, |id| id as usize % 16);
                let threads: u32 = common.barriers.iter().map(|b| b.threads).sum();
                let message = format!(
                    "threads wait at barrier {id} for others that never come ({threads} \
                     of {} wait at barriers)",
                    common.live
                );
                warp.fault(machine, common, FaultKind::DivergentBarrier, message, pc, mask)
            }
            None => {
                let message = "no thread of the block can go on".to_owned();
                self.warps[0].fault(machine, common, FaultKind::DeadLock, message, 0, 1)
            }
        }
    }
}

impl Warp {
    /// A barrier releases a split.
    fn pass(&mut self, machine: &Machine<'_>, waiting: Waiting) {
        let output = machine.program.code[waiting.pc as usize].outputs.first().copied();
        if let Some(output) = output {
            self.set_word(output, waiting.mask, &[waiting.result; WARP]);
            self.set_predicate(output, waiting.mask, if waiting.result != 0 { FULL } else { 0 });
        }
        self.splits.get(waiting.split as usize).pc = waiting.pc + 1;
        self.splits.set_state(waiting.split as usize, State::Ready);
    }

    /// A split arrives at a barrier of the block.
    pub(crate) fn barrier(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        barrier: Barrier,
        index: usize,
        pc: u32,
        (mask, active): (u32, u32),
    ) -> Result<()> {
        if !barrier.aligned {
            if active != mask {
                // The other lanes continue independently, and do not wait for these.
                let end = machine.program.code.len() as u32;
                if let Some(tally) = &mut common.tally {
                    tally.retract(pc, active);
                }
                self.splits.part(index, &[(active, pc), (mask & !active, pc + 1)], end, self.live);
                return Ok(());
            }
            return self.arrive(machine, common, barrier, &[(index, mask)], pc);
        }
        if active != mask {
            let message = format!(
                "the guard lets only lanes {active:#010x} of {mask:#010x} execute the barrier"
            );
            return Err(self.fault(
                machine,
                common,
                FaultKind::DivergentBarrier,
                message,
                pc,
                active,
            ));
        }
        self.splits.set_state(index, State::Gathering);
        self.gather(machine, common)
    }

    /// If all live lanes have arrived at one barrier, the warp arrives at it.
    pub(crate) fn gather(&mut self, machine: &Machine<'_>, common: &mut Common) -> Result<()> {
        let mut here: Vec<(usize, u32)> = Vec::new();
        let mut place = None;
        for (index, split) in self.splits.iter() {
            match split.state {
                State::Gathering if place.is_none_or(|pc| pc == split.pc) => {
                    place = Some(split.pc);
                    here.push((index, split.mask & self.live));
                }
                State::Parent => {}
                _ => return Ok(()),
            }
        }
        let Some(pc) = place else { return Ok(()) };
        if here.iter().fold(0, |all, (_, mask)| all | mask) != self.live {
            return Ok(());
        }
        let Op::Barrier(barrier) = machine.program.code[pc as usize].op else {
            unreachable!("splits gather at barriers only")
        };
        self.arrive(machine, common, barrier, &here, pc)
    }

    fn arrive(
        &mut self,
        machine: &Machine<'_>,
        common: &mut Common,
        barrier: Barrier,
        splits: &[(usize, u32)],
        pc: u32,
    ) -> Result<()> {
        let active = splits.iter().fold(0, |all, (_, mask)| all | mask);
        let first = active.trailing_zeros() as usize;
        let instruction = &machine.program.code[pc as usize];
        let reduces = !matches!(barrier.kind, BarrierKind::Sync | BarrierKind::Arrive);
        let at = usize::from(reduces);
        let id = self.word(machine, instruction.inputs[at])[first];
        let wanted =
            if barrier.counted { self.word(machine, instruction.inputs[at + 1])[first] } else { 0 };
        let wrong = |this: &Self, message: String| {
            Err(this.fault(machine, common, FaultKind::DivergentBarrier, message, pc, active))
        };
        if id > 15 {
            return wrong(self, format!("there is no barrier {id}; they are numbered 0 to 15"));
        }
        if barrier.counted && (wanted == 0 || !wanted.is_multiple_of(32)) {
            return wrong(
                self,
                format!("a barrier waits for a multiple of 32 threads, not for {wanted}"),
            );
        }
        let state = &common.barriers[id as usize];
        if state.threads > 0 && state.wanted != wanted {
            let before = state.wanted;
            return wrong(
                self,
                format!(
                    "barrier {id} waits for {wanted} threads here and for {before} \
                     elsewhere (0: all)"
                ),
            );
        }
        let state = &mut common.barriers[id as usize];
        if state.threads == 0 {
            *state = Gathering { all: true, ..Gathering::default() };
        }
        state.wanted = wanted;
        state.threads += active.count_ones();
        state.counted += if barrier.aligned { WARP as u32 } else { active.count_ones() };
        state.came |= 1 << self.index;
        if reduces {
            let p = self.predicate(machine, instruction.inputs[0]) & active;
            state.all &= p == active;
            state.any |= p != 0;
            state.population += p.count_ones();
        }
        for &(split, mask) in splits {
            if barrier.kind == BarrierKind::Arrive {
                self.splits.get(split).pc = pc + 1;
                self.splits.set_state(split, State::Ready);
            } else {
                self.splits.set_state(split, State::Barrier);
                state.receives |= 1 << self.index;
                state.waiting.push(Waiting {
                    warp: self.index,
                    split: split as u32,
                    mask,
                    pc,
                    result: 0,
                });
            }
        }
        common.complete(machine, id as usize);
        Ok(())
    }
}

impl Common {
    /// Releases the threads at a barrier, if all have arrived.
    fn complete(&mut self, machine: &Machine<'_>, id: usize) {
        let state = &self.barriers[id];
        if state.threads == 0 {
            return;
        }
        let there = if state.wanted == 0 {
            state.threads >= self.live
        } else {
            state.counted >= state.wanted
        };
        if !there {
            return;
        }
        if let Some(tally) = &mut self.tally {
            tally.barrier();
        }
        let state = std::mem::take(&mut self.barriers[id]);
        let everyone =
            state.came & self.live_warps == self.live_warps && state.threads >= self.live;
        let everyone = everyone && state.receives == state.came;
        self.order.meet(state.came, state.receives, everyone);
        for waiting in state.waiting {
            let result = match &machine.program.code[waiting.pc as usize].op {
                Op::Barrier(Barrier { kind: BarrierKind::ReduceAnd, .. }) => u32::from(state.all),
                Op::Barrier(Barrier { kind: BarrierKind::ReduceOr, .. }) => u32::from(state.any),
                _ => state.population,
            };
            self.released.push(Waiting { result, ..waiting });
        }
    }

    /// Threads have exited: barriers that wait for all may be complete.
    pub(crate) fn after_exit(&mut self, machine: &Machine<'_>) {
        if self.live == 0 {
            return;
        }
        for id in 0..self.barriers.len() {
            if self.barriers[id].threads > 0 && self.barriers[id].wanted == 0 {
                self.complete(machine, id);
            }
        }
    }
}

/// Whether an earlier access is ordered before one of `lane` of `warp` now.
#[inline(always)]
pub(crate) fn ordered<'a>(
    order: &'a Order,
    warp: u32,
    full_time: u32,
    lane_times: Option<&'a [[u32; WARP]; WARP]>,
    lane: usize,
) -> impl Fn(Entry) -> bool + 'a {
    move |before: Entry| {
        if let Some((block, slot, serial)) = before.phase() {
            // Copied bytes: the phase of the copy's barrier must be known. Knowledge of phases in
            // other blocks is not kept.
            return block != order.block
                || order.phases.get(slot).is_some_and(|known| known[warp as usize] >= serial);
        }
        if before.block != order.block {
            return !order.known.is_empty() && knows(order, before);
        }
        if before.time <= order.all_time {
            return true;
        }
        let (other, other_lane) = (before.thread() / WARP as u32, before.thread() as usize % WARP);
        if other == warp {
            before.time <= full_time
                || lane_times.is_some_and(|times| before.time <= times[lane][other_lane])
        } else {
            order
                .warp_times
                .as_ref()
                .is_some_and(|times| before.time <= times[warp as usize][other as usize])
        }
    }
}

fn knows(order: &Order, before: Entry) -> bool {
    let until =
        |who: u32| order.known.get(&(before.block, who)).is_some_and(|&time| before.time <= time);
    until(u32::MAX) || until(before.thread() / WARP as u32)
}
