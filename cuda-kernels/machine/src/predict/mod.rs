//! Predicted time of a launch, and the resource that limits it.
//!
//! The model is a roofline over many resources (Williams, Waterman and Patterson, "Roofline: an
//! insightful visual performance model for multicore architectures", 2009), with instructions in
//! place of operations (Ding and Williams, "An Instruction Roofline Model for GPUs", 2019). Each
//! resource gives a time that the launch cannot undercut. The prediction is the largest of them.
//!
//! # Formulas
//!
//! A launch has B blocks on S multiprocessors with clock f. The busiest multiprocessor runs
//! ⌈B/S⌉ blocks, a share **q = ⌈B/S⌉/B** of all work. So the last, incomplete round of blocks
//! costs a whole one. It keeps **p** of its four partitions busy: 4, or fewer if fewer warps are
//! resident.
//!
//! | resource | seconds |
//! |---|---|
//! | issue | instructions · q / (p · issue rate/4 · f) |
//! | pipe | clocks of a partition's share, summed over instructions, · q / (p · f) |
//! | shared | (wavefronts of shared memory + sectors of L1 / 4) · q / f |
//! | L2 | bytes / (min(bandwidth of L2, S' · port) · f), S' = min(B, S) |
//! | DRAM | bytes / achievable bandwidth |
//! | latency | the larger of the two below |
//!
//! Shared memory and L1 are one memory of 128 bytes a clock, which is a wavefront or 4 sectors.
//!
//! **Latency**, as in Volkov, "Understanding Latency Hiding on GPUs", 2016. R blocks are resident
//! on a multiprocessor, so the launch has W = ⌈B/(S·R)⌉ waves. A warp that has its scheduler for
//! itself takes T clocks ([`warp_time`]): it waits for each result before the instruction that
//! uses it. Each wave takes at least T, so the launch takes at least W·T/f. And by Little's law
//! (bytes in flight = bandwidth · latency), n resident warps with b bytes in flight each move at
//! most n·b bytes per latency of the memory. Both use latencies of an idle memory.
//!
//! ```text
//! seconds = gap of a graph + max(latency, first access + largest of the other resources)
//! ```
//!
//! The **first access** is one latency of DRAM (or of L2, if nothing misses it): no data move
//! before it.
//!
//! # Not modelled
//!
//! Lower clocks under a limit of power, congestion of L2's partitions, pages of DRAM and
//! translation of addresses, conflicts of register banks, misses of the instruction cache, blocks
//! of unequal work, overlap with the kernels before and after.

mod warp;
mod work;

pub use warp::{LoadLatency, WarpTime, warp_time};
pub use work::{Shape, Work, WorkError, load_latency};

use crate::card::Card;
use crate::pipe::{PARTITIONS, Pipe};

/// A resource that may limit a launch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Resource {
    /// Bandwidth of device memory.
    Dram,
    /// Bandwidth of L2.
    L2,
    /// Bandwidth of shared memory and L1.
    Shared,
    /// Slots of the schedulers.
    Issue,
    /// A pipe.
    Pipe(Pipe),
    /// Latency that the resident warps do not hide.
    Latency,
    /// The gap between two kernels.
    Launch,
}

impl Resource {
    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Resource::Dram => "dram",
            Resource::L2 => "l2",
            Resource::Shared => "shared",
            Resource::Issue => "issue",
            Resource::Pipe(pipe) => pipe.name(),
            Resource::Latency => "latency",
            Resource::Launch => "launch",
        }
    }
}

/// A predicted launch.
#[derive(Clone, PartialEq, Debug)]
pub struct Prediction {
    /// Seconds from the end of the kernel before it to its own end.
    pub seconds: f64,
    /// The resource that takes the longest.
    pub limiter: Resource,
    /// Seconds of each resource, the longest first.
    pub resources: Vec<(Resource, f64)>,
    /// Rounds of resident blocks.
    pub waves: f64,
    /// Bytes of global memory that the resident warps have in flight.
    pub in_flight: f64,
    /// Bytes in flight that the achievable bandwidth of device memory needs.
    pub in_flight_needed: f64,
}

impl Prediction {
    /// Seconds of a resource.
    pub fn seconds_of(&self, resource: Resource) -> f64 {
        self.resources.iter().find(|(r, _)| *r == resource).map_or(0.0, |(_, s)| *s)
    }
}

/// Predicts a launch. Work without blocks takes the gap only.
pub fn predict(work: &Work, card: &Card) -> Prediction {
    let (clock, rates) = (card.boost.value, &card.architecture.rates);
    let processors = card.multiprocessors.value;
    let blocks = work.blocks as f64;
    let resident = f64::from(work.occupancy.blocks);
    let most = (blocks / processors).ceil();
    let share = if blocks > 0.0 { most / blocks } else { 0.0 };
    let warps_per_block = f64::from(work.warps_per_block);
    let partitions = (warps_per_block * resident.min(most)).clamp(1.0, PARTITIONS);
    let used = processors.min(blocks);

    let issue = rates.issue.value / PARTITIONS * partitions * clock;
    let mut resources = vec![(Resource::Issue, work.instructions * share / issue)];
    for (pipe, busy) in &work.busy {
        resources.push((Resource::Pipe(*pipe), busy * share / (partitions * clock)));
    }
    let wavefronts = work.wavefronts + work.l1_sectors * 32.0 / rates.shared_bytes.value;
    resources.push((Resource::Shared, wavefronts * share / clock));
    if used > 0.0 {
        let l2 = card.l2_bandwidth.value.min(used * rates.l2_port.value);
        resources.push((Resource::L2, work.l2_bytes / (l2 * clock)));
    }
    resources.push((Resource::Dram, work.dram_bytes / card.dram_achievable()));
    let throughput = resources.iter().map(|(_, s)| *s).fold(0.0, f64::max);

    let waves = (blocks / (processors * resident)).ceil();
    let warps = (resident * processors).min(blocks) * warps_per_block;
    let in_flight = warps * work.bytes_in_flight;
    let (l2_latency, dram_latency) = (card.l2_latency.value, card.dram_latency.value);
    // Bytes that wait for DRAM, and bytes that L2 holds.
    let waits =
        work.dram_read * dram_latency + (work.l2_read - work.dram_read).max(0.0) * l2_latency;
    let little = if in_flight > 0.0 { waits / in_flight } else { 0.0 };
    let latency = (waves * work.warp_clocks).max(little) / clock;
    resources.push((Resource::Latency, latency));
    resources.push((Resource::Launch, card.graph_gap.value));

    let first = match () {
        () if work.dram_bytes > 0.0 => dram_latency / clock,
        () if work.l2_bytes > 0.0 => l2_latency / clock,
        () => 0.0,
    };
    let first = if throughput > 0.0 { first } else { 0.0 };
    let seconds = card.graph_gap.value + latency.max(first + throughput);
    resources.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    Prediction {
        seconds,
        limiter: resources[0].0,
        resources,
        waves,
        in_flight,
        in_flight_needed: card.dram_achievable() * dram_latency / clock,
    }
}
