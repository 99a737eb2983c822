//! The counts of a CPU thread's blocks, by instruction, and the requests of the block that runs.

use super::trace::Trace;
use super::{LineCounts, banks, coalesce};

pub(crate) use super::trace::Kind;

/// The counters of a block. They go on counting when it begins another one.
pub(crate) struct Tally {
    /// By program counter.
    pub(super) code: Vec<LineCounts>,
    /// The block's position.
    pub(super) position: u32,
    pub(super) trace: Trace,
    /// Barriers that the block has completed.
    phase: u32,
    /// For each warp, the phase of its last request, and its number in that phase.
    warps: Vec<(u32, u32)>,
}

impl Tally {
    /// Counters for a kernel of `instructions` instructions and blocks of `warps` warps.
    pub(crate) fn new(instructions: usize, warps: usize) -> Tally {
        Tally {
            code: vec![LineCounts::default(); instructions],
            position: 0,
            trace: Trace::default(),
            phase: 0,
            warps: vec![(0, 0); warps],
        }
    }

    /// Begins the block at `position`.
    pub(crate) fn start(&mut self, position: u32) {
        self.position = position;
        self.trace = Trace::default();
        self.phase = 0;
        self.warps.fill((0, 0));
    }

    /// A warp issues an instruction; its guard holds in the `active` lanes.
    #[inline(always)]
    pub(crate) fn reach(&mut self, pc: u32, active: u32) {
        let counts = &mut self.code[pc as usize];
        counts.reached += 1;
        counts.issued += u64::from(active != 0);
        counts.lanes += u64::from(active.count_ones());
    }

    /// Takes back [`Tally::reach`]: the instruction was not executed, and will be reached again.
    pub(crate) fn retract(&mut self, pc: u32, active: u32) {
        let counts = &mut self.code[pc as usize];
        counts.reached -= 1;
        counts.issued -= u64::from(active != 0);
        counts.lanes -= u64::from(active.count_ones());
    }

    /// The lanes of a warp take different ways.
    pub(crate) fn diverge(&mut self, pc: u32) {
        self.code[pc as usize].diverged += 1;
    }

    /// The block completes a barrier.
    pub(crate) fn barrier(&mut self) {
        self.phase += 1;
    }

    /// A request to global memory. `spans` gives the address and number of bytes of a lane of
    /// `mask`, at most `bytes`.
    pub(crate) fn global(
        &mut self,
        warp: u32,
        pc: u32,
        kind: Kind,
        (mask, bytes): (u32, u32),
        spans: impl Fn(usize) -> (u64, u32),
    ) {
        let sectors = coalesce::sectors(mask, bytes, &spans);
        if sectors.is_empty() {
            return;
        }
        let touched = sectors.iter().map(|s| u64::from(s.touched.count_ones())).sum::<u64>();
        let counts = &mut self.code[pc as usize];
        if kind == Kind::Atomic {
            counts.atomics.requests += 1;
            counts.atomics.sectors += touched;
        } else {
            counts.global.requests += 1;
            counts.global.sectors += touched;
            let lanes = (0..32).filter(|lane| mask >> lane & 1 == 1);
            counts.global.bytes += lanes.map(|lane| u64::from(spans(lane).1)).sum::<u64>();
        }
        let (phase, ordinal) = &mut self.warps[warp as usize];
        if *phase != self.phase {
            (*phase, *ordinal) = (self.phase, 0);
        }
        self.trace.push((*phase, *ordinal, warp), kind, &sectors);
        *ordinal += 1;
    }

    /// A request to shared memory of `bytes` bytes in each lane of `mask`. `exclusive` says that
    /// lanes do not share a word.
    pub(crate) fn shared(
        &mut self,
        pc: u32,
        (mask, bytes): (u32, u32),
        exclusive: bool,
        address: impl Fn(usize) -> u64,
    ) {
        let (wavefronts, least) = banks::wavefronts(mask, bytes, exclusive, address);
        let counts = &mut self.code[pc as usize].shared;
        counts.requests += 1;
        counts.wavefronts += wavefronts;
        counts.bytes += u64::from(mask.count_ones() * bytes);
        counts.least += least;
    }

    /// A request to local memory of `bytes` bytes in each lane of `mask`.
    pub(crate) fn local(
        &mut self,
        pc: u32,
        (mask, bytes): (u32, u32),
        address: impl Fn(usize) -> u64,
    ) {
        let counts = &mut self.code[pc as usize].local;
        counts.requests += 1;
        counts.sectors += coalesce::local_sectors(mask, bytes, address);
        counts.bytes += u64::from(mask.count_ones() * bytes);
    }

    /// A request for constants.
    pub(crate) fn constants(&mut self, pc: u32, mask: u32, address: impl Fn(usize) -> u64) {
        let mut different: Vec<u64> =
            (0..32).filter(|lane| mask >> lane & 1 == 1).map(address).collect();
        different.sort_unstable();
        different.dedup();
        let counts = &mut self.code[pc as usize].constants;
        counts.requests += 1;
        counts.addresses += different.len() as u64;
    }
}
