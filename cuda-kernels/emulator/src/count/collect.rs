//! Collects the counts of all CPU threads.

use super::hierarchy::Hierarchy;
use super::tally::Tally;
use super::trace::Trace;
use super::{Counting, Counts, LineCounts, Waves};
use crate::decode::program::Program;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The counts of a launch while it runs.
pub(crate) struct Collector {
    grid: u32,
    waves: Waves,
    state: Mutex<State>,
}

struct State {
    hierarchy: Hierarchy,
    /// Waves whose requests have been executed.
    done: u32,
    /// Requests of ended blocks of later waves, by position.
    waiting: BTreeMap<u32, Trace>,
    /// By program counter.
    code: Vec<LineCounts>,
}

impl Collector {
    /// A collector for a launch of `grid` blocks.
    pub(crate) fn new(counting: &Counting, grid: u32, program: &Program) -> Collector {
        let state = State {
            hierarchy: Hierarchy::new(&counting.caches),
            done: 0,
            waiting: BTreeMap::new(),
            code: vec![LineCounts::default(); program.code.len()],
        };
        Collector { grid, waves: Waves::new(grid, counting), state: Mutex::new(state) }
    }

    /// The blocks that run, and their order.
    pub(crate) fn waves(&self) -> &Waves {
        &self.waves
    }

    /// Takes the requests of a block that has ended. CPU threads end blocks in any order; the
    /// requests of a wave are executed when all of its blocks have ended.
    pub(crate) fn ended(&self, tally: &mut Tally) {
        let mut trace = std::mem::take(&mut tally.trace);
        trace.order();
        let state = &mut *self.state.lock().expect("no holder of the lock panics");
        state.waiting.insert(tally.position, trace);
        loop {
            let wave = self.waves.positions(state.done);
            if wave.is_empty() || state.waiting.range(wave.clone()).count() < wave.len() {
                return;
            }
            let later = state.waiting.split_off(&wave.end);
            let traces: Vec<Trace> =
                std::mem::replace(&mut state.waiting, later).into_values().collect();
            state.hierarchy.wave(&traces);
            state.done += 1;
        }
    }

    /// Adds the counters of one of a CPU thread's blocks.
    pub(crate) fn add(&self, tally: &Tally) {
        let state = &mut *self.state.lock().expect("no holder of the lock panics");
        for (sum, counts) in state.code.iter_mut().zip(&tally.code) {
            *sum += *counts;
        }
    }

    /// The counts of the launch, whose blocks have `warps` warps.
    pub(crate) fn finish(self, program: &Program, warps: u32) -> Counts {
        let state = self.state.into_inner().expect("no holder of the lock panics");
        let mut lines: BTreeMap<u32, LineCounts> = BTreeMap::new();
        for (instruction, mut counts) in program.code.iter().zip(state.code) {
            if instruction.part {
                (counts.reached, counts.issued, counts.lanes, counts.diverged) = (0, 0, 0, 0);
            }
            if counts != LineCounts::default() {
                *lines.entry(instruction.line).or_default() += counts;
            }
        }
        let blocks = self.waves.blocks();
        Counts {
            lines,
            grid: self.grid.into(),
            blocks: blocks.into(),
            warps: u64::from(blocks) * u64::from(warps),
            traffic: state.hierarchy.finish(),
        }
    }
}
