//! The work of a launch: plain numbers, from machine code and counts or by hand.

use super::warp::{LoadLatency, warp_time};
use crate::card::Card;
use crate::join::Executed;
use crate::occupancy::{Occupancy, WARP, occupancy};
use crate::pipe::{Pipe, UnknownCost};
use crate::sass::{Flow, Kernel};
use std::collections::BTreeMap;
use wengert_emulator::count::{Counts, Traffic};

/// Work of a launch.
#[derive(Clone, PartialEq, Debug)]
pub struct Work {
    /// Blocks of the grid.
    pub blocks: u64,
    /// Warps of a block.
    pub warps_per_block: u32,
    /// Resident blocks.
    pub occupancy: Occupancy,
    /// Warp instructions.
    pub instructions: f64,
    /// Clocks for which one partition's share of each pipe is busy.
    pub busy: BTreeMap<Pipe, f64>,
    /// Wavefronts of shared memory.
    pub wavefronts: f64,
    /// Sectors of 32 bytes between L1 and registers.
    pub l1_sectors: f64,
    /// Bytes between L1 and L2.
    pub l2_bytes: f64,
    /// Bytes of these that are read.
    pub l2_read: f64,
    /// Bytes between L2 and device memory.
    pub dram_bytes: f64,
    /// Bytes of these that are read.
    pub dram_read: f64,
    /// Clocks of a warp that has its scheduler for itself.
    pub warp_clocks: f64,
    /// Most bytes of global memory that a warp has in flight.
    pub bytes_in_flight: f64,
}

/// Shape and resources of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Blocks of the grid.
    pub blocks: u64,
    /// Threads of a block.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block, static and dynamic.
    pub shared: u32,
}

/// Work that cannot be stated.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WorkError {
    /// An executed instruction has no known cost.
    #[error(transparent)]
    Cost(#[from] UnknownCost),
    /// A block is larger than a multiprocessor.
    #[error(
        "a block of {threads} threads with {registers} registers each and {shared} bytes of \
             shared memory does not fit"
    )]
    DoesNotFit {
        /// Threads of a block.
        threads: u32,
        /// Registers of a thread.
        registers: u32,
        /// Bytes of shared memory.
        shared: u32,
    },
}

impl Work {
    /// Work that occupies multiprocessors, and does nothing.
    ///
    /// Errors: a block does not fit.
    pub fn empty(shape: &Shape, card: &Card) -> Result<Work, WorkError> {
        let Shape { threads, registers, shared, .. } = *shape;
        let occupancy = occupancy(&card.architecture.limits, threads, registers, shared)
            .ok_or(WorkError::DoesNotFit { threads, registers, shared })?;
        Ok(Work {
            blocks: shape.blocks,
            warps_per_block: threads.div_ceil(WARP),
            occupancy,
            instructions: 0.0,
            busy: BTreeMap::new(),
            wavefronts: 0.0,
            l1_sectors: 0.0,
            l2_bytes: 0.0,
            l2_read: 0.0,
            dram_bytes: 0.0,
            dram_read: 0.0,
            warp_clocks: 0.0,
            bytes_in_flight: 0.0,
        })
    }

    /// The work of a launch whose counts and executed instructions are known. Counts of a sample
    /// of blocks are scaled to the grid.
    ///
    /// Errors: an executed instruction has no known cost; a block does not fit.
    pub fn new(
        kernel: &Kernel,
        flow: &Flow,
        executed: &Executed,
        counts: &Counts,
        shape: &Shape,
        card: &Card,
    ) -> Result<Work, WorkError> {
        let mut work = Work::empty(shape, card)?;
        let scale = shape.blocks as f64 / counts.blocks.max(1) as f64;
        let sum = |of: fn(&wengert_emulator::count::LineCounts) -> u64| {
            counts.lines.values().map(|l| of(l) as f64).sum::<f64>() * scale
        };
        work.instructions = executed.instructions();
        work.busy = executed.busy(kernel, flow, card)?;
        work.wavefronts = sum(|l| l.shared.wavefronts);
        work.l1_sectors = sum(|l| l.global.sectors + l.atomics.sectors + l.local.sectors);
        let traffic = &counts.traffic;
        work.l2_read = traffic.l2_read as f64 * scale;
        let l2_bytes = traffic.l2_read + traffic.l2_write + traffic.l2_atomic;
        work.l2_bytes = l2_bytes as f64 * scale;
        work.dram_read = traffic.dram_read as f64 * scale;
        work.dram_bytes = (traffic.dram_read + traffic.dram_write) as f64 * scale;
        let latency = load_latency(traffic, card);
        let time = warp_time(kernel, flow, &executed.blocks, latency, card)?;
        work.warp_clocks = time.clocks;
        work.bytes_in_flight = time.bytes_in_flight;
        Ok(work)
    }

    /// Scales the traffic with device memory from a sample to the grid. What is fetched for the
    /// first time is at most what the arguments hold, `memory` bytes; what is fetched again grows
    /// with the grid.
    pub fn bound_traffic(&mut self, counts: &Counts, memory: f64, card: &Card) {
        let (scale, traffic) = (counts.scale(), &counts.traffic);
        let first = (traffic.compulsory as f64 * scale).min(memory);
        let again = traffic.dram_read.saturating_sub(traffic.compulsory) as f64 * scale;
        let mut written = traffic.dram_write as f64 * scale;
        if memory <= card.l2_bytes.value {
            // L2 holds it all until the end.
            written = written.min(memory);
        }
        self.dram_read = first + again;
        self.dram_bytes = self.dram_read + written;
    }

    /// The work of a launch of `steps` steps, from this one of `short` and another of `long` steps
    /// of the same shape. A step adds the same work each time, so all of it is linear in steps,
    /// but for the bytes in flight, which are those of the longer one.
    pub fn extended(&self, short: f64, longer: &Work, long: f64, steps: f64) -> Work {
        let times = (steps - short) / (long - short);
        let line = |of: fn(&Work) -> f64| (of(self) + times * (of(longer) - of(self))).max(0.0);
        let pipe = |p: &Pipe| {
            let [a, b] = [self, longer].map(|w| w.busy.get(p).copied().unwrap_or(0.0));
            (*p, (a + times * (b - a)).max(0.0))
        };
        Work {
            instructions: line(|w| w.instructions),
            busy: longer.busy.keys().map(pipe).collect(),
            wavefronts: line(|w| w.wavefronts),
            l1_sectors: line(|w| w.l1_sectors),
            l2_bytes: line(|w| w.l2_bytes),
            l2_read: line(|w| w.l2_read),
            dram_bytes: line(|w| w.dram_bytes),
            dram_read: line(|w| w.dram_read),
            warp_clocks: line(|w| w.warp_clocks),
            ..longer.clone()
        }
    }
}

/// Mean latency of a load: that of L1, L2 and DRAM, weighted with the sectors that each answers.
pub fn load_latency(traffic: &Traffic, card: &Card) -> LoadLatency {
    let share = |part: u64, all: u64| match all {
        0 => 0.0,
        _ => (part as f64 / all as f64).min(1.0),
    };
    let hits = share(traffic.l1_hits, traffic.l1_sectors);
    let misses = share(traffic.dram_read, traffic.l2_read);
    let beyond = misses * card.dram_latency.value + (1.0 - misses) * card.l2_latency.value;
    LoadLatency(hits * card.architecture.latencies.l1.value + (1.0 - hits) * beyond)
}
