//! Time of a warp that has its scheduler for itself.
//!
//! The warp issues in order, at most one instruction a clock. An instruction waits until the
//! registers that it reads are written, and until its pipe is free. `DEPBAR` waits for groups of
//! asynchronous copies. Registers stay outstanding across blocks, so a load that is issued a loop
//! iteration early is waited for where it is used.
//!
//! Blocks are followed in the order of their addresses, loops twice. The second pass is the
//! steady state, and its clocks count for every execution of the block. Blocks that are never
//! executed are left out.

use crate::card::Card;
use crate::pipe::{self, Class, Pipe, UnknownCost};
use crate::sass::{Flow, Instruction, Kernel, Register};
use std::collections::{BTreeMap, BTreeSet};

/// Mean latency of a load of global memory, clocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LoadLatency(pub f64);

/// The time of a lone warp.
#[derive(Clone, PartialEq, Debug)]
pub struct WarpTime {
    /// Clocks of one execution of each block.
    pub blocks: Vec<f64>,
    /// Clocks of the warp: the sum over blocks of executions times clocks.
    pub clocks: f64,
    /// Most bytes of global memory that it has in flight at once.
    pub bytes_in_flight: f64,
}

/// The time of a warp whose blocks are executed this often.
///
/// Errors: an executed instruction has no known cost.
pub fn warp_time(
    kernel: &Kernel,
    flow: &Flow,
    executions: &[f64],
    latency: LoadLatency,
    card: &Card,
) -> Result<WarpTime, UnknownCost> {
    let mut warp = Warp {
        kernel,
        flow,
        executions,
        latency,
        card,
        now: 0.0,
        ready: BTreeMap::new(),
        free: BTreeMap::new(),
        groups: Vec::new(),
        open_group: 0.0,
        products: 0.0,
        flying: Vec::new(),
        peak: 0.0,
        clocks: vec![0.0; flow.blocks.len()],
    };
    let all: Vec<usize> = (0..flow.blocks.len()).collect();
    warp.sequence(&all, flow.loops.len())?;
    let clocks = warp.clocks.iter().zip(executions).map(|(c, x)| c * x).sum();
    Ok(WarpTime { clocks, bytes_in_flight: warp.peak, blocks: warp.clocks })
}

struct Warp<'a> {
    kernel: &'a Kernel,
    flow: &'a Flow,
    executions: &'a [f64],
    latency: LoadLatency,
    card: &'a Card,
    now: f64,
    /// When registers are written.
    ready: BTreeMap<Register, f64>,
    /// When pipes take another instruction.
    free: BTreeMap<Pipe, f64>,
    /// When groups of asynchronous copies are complete, and the group that is open.
    groups: Vec<f64>,
    open_group: f64,
    /// When products of the warp group are complete.
    products: f64,
    /// Loads in flight: when they arrive, and their bytes.
    flying: Vec<(f64, f64)>,
    peak: f64,
    clocks: Vec<f64>,
}

impl Warp<'_> {
    /// Follows blocks once; loops with an index below `inside` twice.
    fn sequence(&mut self, blocks: &[usize], inside: usize) -> Result<(), UnknownCost> {
        let mut done: BTreeSet<usize> = BTreeSet::new();
        for &b in blocks {
            if done.contains(&b) {
                continue;
            }
            // Loops are sorted by size: the last that holds the block is the outermost.
            let outermost = self.flow.loops[..inside].iter().rposition(|l| l.blocks.contains(&b));
            match outermost {
                Some(index) => {
                    let body = self.flow.loops[index].blocks.clone();
                    self.sequence(&body, index)?;
                    self.sequence(&body, index)?;
                    done.extend(body);
                }
                None => self.block(b)?,
            }
        }
        Ok(())
    }

    fn block(&mut self, at: usize) -> Result<(), UnknownCost> {
        if self.executions[at] <= 0.0 {
            return Ok(());
        }
        let start = self.now;
        let (kernel, flow) = (self.kernel, self.flow);
        let block = &flow.blocks[at];
        for i in &kernel.code[block.first..block.end] {
            self.instruction(i)?;
        }
        let last = &kernel.code[block.end - 1];
        let goes_back = block.successors.iter().any(|&s| s <= at);
        if last.opcode == "BRA" && (last.guard.is_none() || goes_back) {
            self.now += self.card.architecture.latencies.branch.value - 1.0;
        }
        self.clocks[at] = self.now - start;
        Ok(())
    }

    fn instruction(&mut self, i: &Instruction) -> Result<(), UnknownCost> {
        let cost = pipe::cost(i, self.card)?;
        let registers = i.registers();
        let mut start = self.now;
        for r in &registers.reads {
            start = start.max(self.ready.get(r).copied().unwrap_or(0.0));
        }
        for (pipe, clocks) in cost.busy.into_iter().flatten() {
            // Partitions share these; a warp alone finds them free.
            let is_shared = matches!(pipe, Pipe::Memory | Pipe::Control | Pipe::Bulk);
            if !is_shared {
                let free = self.free.entry(pipe).or_insert(0.0);
                start = start.max(*free);
                *free = start + clocks;
            }
        }
        start = start.max(self.waits_for(i));
        let latency = match cost.class {
            Class::GlobalLoad | Class::Atomic => self.latency.0,
            _ => cost.latency,
        };
        let copies = i.opcode == "LDGSTS";
        if cost.class == Class::GlobalLoad || copies {
            let arrival = start + self.latency.0;
            self.flying.retain(|(at, _)| *at > start);
            self.flying.push((arrival, 32.0 * f64::from(i.width())));
            self.peak = self.peak.max(self.flying.iter().map(|(_, bytes)| bytes).sum());
            if copies {
                self.open_group = self.open_group.max(arrival);
            }
        }
        match (i.opcode.as_str(), cost.class) {
            ("LDGDEPBAR", _) => {
                self.groups.push(self.open_group);
                self.open_group = 0.0;
            }
            (_, Class::TensorAsynchronous) => {
                self.products = self.products.max(start) + cost.latency;
            }
            _ => {}
        }
        if cost.class == Class::Barrier {
            start += cost.latency - 1.0;
        }
        for r in registers.writes {
            self.ready.insert(r, start + latency);
        }
        self.now = start + 1.0;
        Ok(())
    }

    /// When the asynchronous work that an instruction waits for is done.
    fn waits_for(&self, i: &Instruction) -> f64 {
        let left = i.operands.last().and_then(|o| {
            let digits = o.strip_prefix("0x")?;
            usize::from_str_radix(digits, 16).ok()
        });
        match i.opcode.as_str() {
            // `DEPBAR.LE SB0, 0x1`: all groups but the last one.
            "DEPBAR" => {
                let kept = self.groups.len().saturating_sub(left.unwrap_or(0));
                self.groups[..kept].iter().copied().fold(0.0, f64::max)
            }
            "WARPGROUP" if i.has("DEPBAR") && left.unwrap_or(0) == 0 => self.products,
            _ => 0.0,
        }
    }
}
