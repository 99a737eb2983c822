//! A group: the blocks of a cluster, or a single block. It is the unit that a CPU thread runs.

use super::super::Machine;
use super::super::block::{Block, Shared, Status};
use super::{Cluster, Result};
use crate::count::Tally;

/// Rounds in which waits return false before the cluster counts as stuck.
const PATIENCE: u32 = 64;
/// Instructions of a block before another block of its cluster runs, and before a copy takes place
/// although threads could go on.
const SHARE: u64 = 100_000;

/// The blocks of a cluster.
pub(crate) struct Group {
    blocks: Vec<Block>,
    ended: Vec<bool>,
    cluster: Cluster,
}

impl Group {
    pub(crate) fn new(machine: &Machine<'_>) -> Group {
        let size = machine.cluster.iter().product::<u32>() as usize;
        Group {
            blocks: (0..size).map(|_| Block::new(machine)).collect(),
            ended: vec![false; size],
            cluster: Cluster::default(),
        }
    }

    /// The first block's index.
    pub(crate) fn index(&self) -> u32 {
        self.blocks[0].index()
    }

    /// The counters of the blocks, if the launch is counted.
    pub(crate) fn tallies(&mut self) -> impl Iterator<Item = &mut Tally> {
        self.blocks.iter_mut().filter_map(Block::tally)
    }

    /// Begins the cluster, or block, at position `index` of the order of execution.
    pub(crate) fn start(&mut self, machine: &Machine<'_>, index: u32) {
        let [cx, cy, cz] = machine.cluster;
        let (wide, high) = (machine.grid[0] / cx, machine.grid[1] / cy);
        let corner = [index % wide * cx, index / wide % high * cy, index / wide / high * cz];
        let size = self.blocks.len() as u32;
        let place = |rank| {
            let [x, y, z] =
                [corner[0] + rank % cx, corner[1] + rank / cx % cy, corner[2] + rank / cx / cy];
            x + machine.grid[0] * (y + machine.grid[1] * z)
        };
        self.cluster = Cluster {
            blocks: (0..size).map(|rank| machine.block_at(place(rank))).collect(),
            peers: (0..size).map(|_| Shared::default()).collect(),
            live: machine.threads * size,
            phases: vec![Vec::new(); size as usize],
            ..Cluster::default()
        };
        self.ended.fill(false);
        for (rank, block) in self.blocks.iter_mut().enumerate() {
            block.start(machine, place(rank as u32));
        }
        // A single block keeps the state of its cluster.
        if size == 1 {
            self.enter(0);
        }
    }

    /// Gives block `at` the state of the cluster.
    fn enter(&mut self, at: usize) {
        self.cluster.rank = at as u32;
        for other in 0..self.blocks.len() {
            if other != at {
                let common = self.blocks[other].common();
                std::mem::swap(&mut self.cluster.peers[other], &mut common.shared);
            }
        }
        self.blocks[at].common().hopper.cluster = std::mem::take(&mut self.cluster);
    }

    /// Takes it back.
    fn leave(&mut self, at: usize) {
        self.cluster = std::mem::take(&mut self.blocks[at].common().hopper.cluster);
        for other in 0..self.blocks.len() {
            if other != at {
                let common = self.blocks[other].common();
                std::mem::swap(&mut self.cluster.peers[other], &mut common.shared);
            }
        }
    }

    /// Runs something in block `at`.
    fn within<T>(&mut self, at: usize, f: impl FnOnce(&mut Block) -> T) -> T {
        if self.blocks.len() == 1 {
            return f(&mut self.blocks[0]);
        }
        self.enter(at);
        let result = f(&mut self.blocks[at]);
        self.leave(at);
        result
    }

    /// Runs for one share; returns whether all blocks have ended.
    pub(crate) fn run(&mut self, machine: &Machine<'_>) -> Result<bool> {
        let alone = self.blocks.len() == 1;
        let (mut events, mut fruitless) = (0, 0);
        loop {
            let mut yields = false;
            for at in 0..self.blocks.len() {
                if self.ended[at] {
                    continue;
                }
                let share = if alone { u64::MAX } else { SHARE };
                match self.within(at, |block| block.run(machine, share, SHARE))? {
                    Status::Ended => self.ended[at] = true,
                    Status::Yields => yields = true,
                    Status::Blocked => {}
                }
            }
            if self.ended.iter().all(|&ended| ended) {
                return Ok(true);
            }
            let at = self.ended.iter().position(|&ended| !ended).expect("one has not ended");
            if yields {
                // Threads that wait for other blocks may do so for ever.
                self.within(at, |block| block.common().transfer_oldest(machine))?;
                return Ok(false);
            }
            if machine.stop.load(std::sync::atomic::Ordering::Relaxed) {
                return Ok(false);
            }
            if self.within(at, |block| block.common().transfer_oldest(machine))? {
                continue;
            }
            // Nothing else can happen: waits return false, in case the kernel does other work then.
            let changed = self.within(at, |block| block.common().hopper.cluster.events);
            if changed != events {
                (events, fruitless) = (changed, 0);
            }
            fruitless += 1;
            let polls = self.blocks.iter().any(Block::polls);
            if !polls || fruitless > PATIENCE {
                let stuck = (0..self.blocks.len())
                    .find(|&at| !self.ended[at] && (!polls || self.blocks[at].polls()))
                    .unwrap_or(at);
                return Err(self.within(stuck, |block| block.stuck(machine)));
            }
            self.within(at, |block| block.common().hopper.cluster.rounds += 1);
        }
    }
}
