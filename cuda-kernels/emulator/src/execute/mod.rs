//! Execution of a launch.
//!
//! A block is run by one CPU thread, its warps in turns: a warp runs until it waits at a barrier,
//! ends, or has used up its share of instructions. Blocks are started in order. A block that has
//! used up a larger share without ending is suspended in favour of others, so that blocks may
//! wait for each other.

mod access;
mod address;
mod asynchronous;
mod atomic;
mod block;
mod check;
mod compute;
mod counting;
mod fragments;
pub(crate) mod hopper;
mod matrix;
mod ordering;
mod splits;
mod together;
mod warp;

use crate::count::Collector;
use crate::decode::program::{Constant, Operand, Program};
use crate::launch::{Access, Argument, Launch, Options, Statistics};
use crate::memory::{ADDRESS_BITS, Memory, stored_label};
use crate::module::{Kernel, Module, Parameter};
use crate::sanitize::race::RaceTable;
use crate::sanitize::{Fault, FaultKind};
use crate::semantics::rows::{Doubles, WARP, Words};
use address::Region;
use hopper::Group;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

/// Words of global memory whose histories share a lock.
pub(crate) const PAGE_WORDS: u64 = 1024;
/// Maximum number of blocks of a cluster on Hopper, beyond the portable 8 (CUDA C++ Programming
/// Guide, "Thread Block Clusters").
const MOST_CLUSTER: u64 = 16;
/// Maximum number of blocks that a CPU thread has begun and not ended.
const MOST_OPEN: usize = 64;

/// Histories of an allocation, page by page, made on first use.
pub(crate) type Pages = OnceLock<Vec<OnceLock<Mutex<RaceTable>>>>;
/// Knowledge of other blocks: (block, warp or all) → the time up to which its accesses are
/// ordered before.
pub(crate) type Known = HashMap<(u32, u32), u32>;

/// Adds knowledge of blocks other than `block`.
pub(crate) fn join_known(into: &mut Known, from: &Known, block: u32) {
    for (&who, &time) in from {
        if who.0 != block {
            let old = into.entry(who).or_insert(0);
            *old = time.max(*old);
        }
    }
}

/// Runs kernels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Emulator {
    options: Options,
}

/// State that all blocks of a launch share.
pub(crate) struct Machine<'a> {
    pub(crate) module: &'a Module,
    pub(crate) kernel: &'a Kernel,
    pub(crate) program: &'a Program,
    pub(crate) options: Options,
    pub(crate) memory: &'a Memory,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    /// Blocks of a cluster along x, y, z.
    pub(crate) cluster: [u32; 3],
    pub(crate) threads: u32,
    /// Constants, broadcast to every lane.
    pub(crate) constants: Vec<(Words, Doubles)>,
    pub(crate) parameters: Vec<u8>,
    /// The memory that each tag may access.
    pub(crate) regions: Vec<Region>,
    pub(crate) buffer_names: Vec<String>,
    /// Histories of each allocation.
    pub(crate) races: Vec<Pages>,
    pub(crate) dynamic_shared: u32,
    pub(crate) shared_bytes: u32,
    /// For each place in global memory, the releasing thread's knowledge at the last release
    /// through it.
    pub(crate) released: Mutex<HashMap<u64, Known>>,
    pub(crate) any_released: AtomicBool,
    /// Held during 64-bit strong accesses, which consist of two words.
    pub(crate) wide: Mutex<()>,
    pub(crate) warp_instructions: AtomicU64,
    pub(crate) thread_instructions: AtomicU64,
    pub(crate) stop: AtomicBool,
    /// Counts, if they are asked for.
    pub(crate) collector: Option<Collector>,
    next_position: AtomicU32,
    faults: Mutex<Vec<(u32, Fault)>>,
}

impl Emulator {
    /// An emulator with these options.
    pub fn new(options: Options) -> Emulator {
        Emulator { options }
    }

    /// Runs a launch to its end.
    ///
    /// The module's `.global` and `.const` variables are placed in `memory` when it is first used
    /// with it, and keep their values from launch to launch, as on a device.
    ///
    /// # Errors
    /// The first fault. With several CPU threads it may be any of those that happen at about the
    /// same time. Memory keeps the kernel's writes up to then.
    pub fn run(
        &self,
        module: &Module,
        launch: &Launch,
        memory: &mut Memory,
    ) -> Result<Statistics, Box<Fault>> {
        let name = &launch.kernel;
        let invalid = |message: String| Box::new(Fault::launch(name, message));
        let kernel = module.kernel(name).map_err(|error| invalid(error.to_string()))?;
        let variables = memory.load(module).map_err(|error| invalid(error.to_string()))?;
        let program = &kernel.program;
        let threads = self.check(kernel, launch).map_err(invalid)?;
        let cluster = self.cluster(kernel, launch).map_err(invalid)?;
        let dynamic_at = program.shared_bytes.next_multiple_of(program.dynamic_align);
        let shared_bytes = if launch.dynamic_shared > 0 {
            dynamic_at.saturating_add(launch.dynamic_shared)
        } else {
            program.shared_bytes
        };
        if shared_bytes > self.options.max_shared {
            let most = self.options.max_shared;
            return Err(invalid(format!(
                "a block needs {shared_bytes} bytes of shared memory; there are {most}"
            )));
        }
        let (parameters, regions, buffer_names) =
            arguments(kernel, launch, memory).map_err(invalid)?;
        let collector = match &self.options.count {
            Some(_) if cluster != [1; 3] => {
                let message = "launches with clusters of blocks are not counted".to_owned();
                return Err(invalid(message));
            }
            Some(counting) => {
                counting.caches.check().map_err(invalid)?;
                let [x, y, z] = launch.grid;
                Some(Collector::new(counting, x * y * z, program))
            }
            None => None,
        };
        let constants = program
            .constants
            .iter()
            .map(|constant| {
                let value = match *constant {
                    Constant::Value(value) => value,
                    Constant::Address { variable, offset } => {
                        variables[variable as usize].wrapping_add(offset as u64)
                    }
                    Constant::Dynamic(offset) => u64::from(dynamic_at).wrapping_add(offset as u64),
                };
                ([value as u32; WARP], [value; WARP])
            })
            .collect();
        let races = if self.options.sanitize.races {
            memory.allocations.iter().map(|_| OnceLock::new()).collect()
        } else {
            Vec::new()
        };
        let machine = Machine {
            module,
            kernel,
            program,
            options: self.options,
            memory,
            grid: launch.grid,
            block: launch.block,
            cluster,
            threads,
            constants,
            parameters,
            regions,
            buffer_names,
            races,
            dynamic_shared: launch.dynamic_shared,
            shared_bytes,
            released: Mutex::new(HashMap::new()),
            any_released: AtomicBool::new(false),
            wide: Mutex::new(()),
            warp_instructions: AtomicU64::new(0),
            thread_instructions: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            collector,
            next_position: AtomicU32::new(0),
            faults: Mutex::new(Vec::new()),
        };
        machine.run()?;
        Ok(Statistics {
            blocks: machine.blocks().into(),
            warp_instructions: machine.warp_instructions.load(Relaxed),
            thread_instructions: machine.thread_instructions.load(Relaxed),
            counts: machine
                .collector
                .map(|collector| collector.finish(program, threads.div_ceil(WARP as u32))),
        })
    }

    /// Checks the launch's extents; returns the number of threads of a block.
    fn check(&self, kernel: &Kernel, launch: &Launch) -> Result<u32, String> {
        let [x, y, z] = launch.block;
        let threads = u64::from(x) * u64::from(y) * u64::from(z);
        if x > 1024 || y > 1024 || z > 64 || threads > 1024 || threads == 0 {
            return Err(format!(
                "a block has 1 to 1024 threads (x, y ≤ 1024, z ≤ 64), not {x}×{y}×{z}"
            ));
        }
        let [gx, gy, gz] = launch.grid;
        let blocks = u64::from(gx) * u64::from(gy) * u64::from(gz);
        if gy > 65535 || gz > 65535 || blocks == 0 || blocks >= u64::from(u32::MAX) {
            return Err(format!(
                "a grid has 1 to 2^32 − 2 blocks (y, z ≤ 65535), not {gx}×{gy}×{gz}"
            ));
        }
        if let Some(required) = kernel.required_threads()
            && required != launch.block
        {
            return Err(format!(
                "the kernel requires blocks of {required:?} threads, not {:?}",
                launch.block
            ));
        }
        if let Some(most) = kernel.most_threads()
            && threads > most.iter().map(|&n| u64::from(n)).product()
        {
            return Err(format!(
                "the kernel allows blocks of at most {most:?} threads, not {:?}",
                launch.block
            ));
        }
        Ok(threads as u32)
    }

    /// The extents of clusters: those of the kernel, else those of the options.
    fn cluster(&self, kernel: &Kernel, launch: &Launch) -> Result<[u32; 3], String> {
        let given = self.options.cluster;
        let cluster = match kernel.required_cluster() {
            None => given,
            Some(required) if given == [1; 3] || given == required => required,
            Some(required) => {
                return Err(format!(
                    "the kernel requires clusters of {required:?} blocks, not {given:?}"
                ));
            }
        };
        let size: u64 = cluster.iter().map(|&n| u64::from(n)).product();
        if size == 0 || size > MOST_CLUSTER {
            return Err(format!("a cluster has 1 to {MOST_CLUSTER} blocks, not {cluster:?}"));
        }
        if (0..3).any(|axis| !launch.grid[axis].is_multiple_of(cluster[axis])) {
            return Err(format!(
                "the grid {:?} is no multiple of the cluster {cluster:?}",
                launch.grid
            ));
        }
        Ok(cluster)
    }
}

type Arguments = (Vec<u8>, Vec<Region>, Vec<String>);

/// The parameter of each argument, and whether it is the first of the parameter. A parameter that
/// is an array of pointers has an argument for each, if they are buffers.
fn wanted<'k>(
    kernel: &'k Kernel,
    given: &[Argument],
) -> Result<Vec<(&'k Parameter, bool)>, String> {
    let mut wanted = Vec::new();
    for parameter in kernel.parameters() {
        let pointers = parameter.bytes as usize / 8;
        let rest = given.iter().skip(wanted.len()).take(pointers);
        let buffers = rest.take_while(|a| matches!(a, Argument::Buffer { .. })).count();
        let is_array = parameter.bytes.is_multiple_of(8) && buffers > 0;
        if is_array && buffers < pointers {
            return Err(format!(
                "`{}` has {} bytes, which are {pointers} pointers, and is given {buffers}",
                parameter.name, parameter.bytes
            ));
        }
        wanted.extend((0..if is_array { pointers } else { 1 }).map(|n| (parameter, n == 0)));
    }
    if wanted.len() != given.len() {
        return Err(format!(
            "the kernel has {} parameters and is given {} arguments",
            wanted.len(),
            given.len()
        ));
    }
    Ok(wanted)
}

/// Lays out the arguments, and makes a region of each buffer.
fn arguments(kernel: &Kernel, launch: &Launch, memory: &Memory) -> Result<Arguments, String> {
    let wanted = wanted(kernel, &launch.arguments)?;
    let (mut bytes, mut regions, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let mut untagged = Vec::new();
    for ((parameter, is_first), argument) in wanted.into_iter().zip(&launch.arguments) {
        if is_first {
            bytes.resize(bytes.len().next_multiple_of(parameter.align as usize), 0);
        }
        match argument {
            Argument::Bytes(data) => {
                if data.len() as u64 != parameter.bytes {
                    let (name, size) = (&parameter.name, parameter.bytes);
                    return Err(format!("`{name}` has {size} bytes and is given {}", data.len()));
                }
                for word in data.chunks_exact(8) {
                    let address =
                        u64::from_le_bytes(word.try_into().expect("the chunk has 8 bytes"));
                    untagged.extend(memory.find(address));
                }
                bytes.extend_from_slice(data);
            }
            Argument::Buffer { address, bytes: size, name, access, expects, makes } => {
                if parameter.bytes == 0 || !parameter.bytes.is_multiple_of(8) {
                    return Err(format!(
                        "`{}` has {} bytes and is no pointer",
                        parameter.name, parameter.bytes
                    ));
                }
                let allocation = memory
                    .range(*address, *size)
                    .map_err(|e| format!("the buffer `{name}`: {e}"))?
                    .0;
                let index = memory.find(allocation.base).unwrap_or(0);
                regions.push(Region {
                    allocation: index as u32,
                    low: *address,
                    high: address + size,
                    read: *access != Access::Write,
                    write: *access != Access::Read,
                    track: true,
                    expects: expects.map_or(0, |label| stored_label(Some(label))),
                    makes: stored_label(*makes),
                    tag: regions.len() as u32 + 1,
                });
                names.push(name.clone());
                let tagged = address | (regions.len() as u64) << ADDRESS_BITS;
                bytes.extend_from_slice(&tagged.to_le_bytes());
            }
        }
    }
    if regions.len() >= 1 << (64 - ADDRESS_BITS) {
        return Err("a launch has at most 65535 buffers".to_owned());
    }
    // Reads of bytes that no argument of this launch may write need not be recorded.
    let written: Vec<(u64, u64)> =
        regions.iter().filter(|r| r.write).map(|r| (r.low, r.high)).collect();
    for region in &mut regions {
        let overlaps = written.iter().any(|&(low, high)| low < region.high && region.low < high);
        region.track = overlaps || untagged.contains(&(region.allocation as usize));
    }
    Ok((bytes, regions, names))
}

impl Machine<'_> {
    /// Blocks that run.
    fn blocks(&self) -> u32 {
        let all = self.grid[0] * self.grid[1] * self.grid[2];
        self.collector.as_ref().map_or(all, |collector| collector.waves().blocks())
    }

    /// The index in the grid of the block at a position of the order of execution.
    pub(crate) fn block_at(&self, position: u32) -> u32 {
        self.collector.as_ref().map_or(position, |collector| collector.waves().block(position))
    }

    /// Groups of blocks that run together.
    fn groups(&self) -> u32 {
        self.blocks() / self.cluster.iter().product::<u32>()
    }

    /// Coordinates of a block in the grid.
    pub(crate) fn block_id(&self, index: u32) -> [u32; 3] {
        let [x, y, _] = self.grid;
        [index % x, index / x % y, index / x / y]
    }

    /// Coordinates of a thread in its block.
    pub(crate) fn thread_id(&self, index: u32) -> [u32; 3] {
        let [x, y, _] = self.block;
        [index % x, index / x % y, index / x / y]
    }

    fn run(&self) -> Result<(), Box<Fault>> {
        // Counts are to be the same in every run.
        let alone = self.collector.is_some() && self.program.observes_blocks();
        let threads = if alone { 1 } else { self.options.threads.max(1) };
        let workers = threads.min(self.groups() as usize);
        if workers == 1 {
            self.work();
        } else {
            std::thread::scope(|scope| {
                for _ in 0..workers {
                    scope.spawn(|| self.work());
                }
            });
        }
        let mut faults = self.faults.lock().expect("no holder of the lock panics");
        faults.sort_by_key(|(block, _)| *block);
        match faults.drain(..).next() {
            Some((_, fault)) => Err(Box::new(fault)),
            None => Ok(()),
        }
    }

    /// The loop of one CPU thread: runs blocks until there are none.
    fn work(&self) {
        let mut open: VecDeque<Group> = VecDeque::new();
        // Blocks that have ended pass their memory to the next.
        let mut spare: Vec<Group> = Vec::new();
        loop {
            if self.stop.load(Relaxed) {
                return;
            }
            if open.is_empty()
                || open.len() < MOST_OPEN && self.next_position.load(Relaxed) < self.groups()
            {
                let position = self.next_position.fetch_add(1, Relaxed);
                if position < self.groups() {
                    let mut group = spare.pop().unwrap_or_else(|| Group::new(self));
                    group.start(self, position);
                    open.push_front(group);
                } else {
                    self.next_position.store(self.groups(), Relaxed);
                }
            }
            let Some(mut group) = open.pop_front() else { break };
            let index = group.index();
            match group.run(self) {
                Ok(true) => {
                    if let Some(collector) = &self.collector {
                        group.tallies().for_each(|tally| collector.ended(tally));
                    }
                    spare.push(group);
                }
                Ok(false) => open.push_back(group),
                Err(fault) => {
                    self.faults.lock().expect("no holder of the lock panics").push((index, *fault));
                    self.stop.store(true, Relaxed);
                }
            }
        }
        if let Some(collector) = &self.collector {
            spare.iter_mut().flat_map(Group::tallies).for_each(|tally| collector.add(tally));
        }
    }

    /// Counts instructions; an error if there are too many.
    pub(crate) fn count(&self, warp: u64, thread: u64) -> bool {
        self.warp_instructions.fetch_add(warp, Relaxed);
        self.thread_instructions.fetch_add(thread, Relaxed) + thread
            <= self.options.max_instructions
    }

    /// A fault of an instruction.
    pub(crate) fn fault(
        &self,
        kind: FaultKind,
        message: String,
        pc: u32,
        block: u32,
        thread: u32,
    ) -> Box<Fault> {
        let line = self.program.code.get(pc as usize).map_or(0, |i| i.line);
        Box::new(Fault {
            kind,
            message,
            kernel: self.kernel.name().to_owned(),
            line,
            text: self.module.line(line),
            comment: self.module.comment(self.kernel, line),
            block: self.block_id(block),
            thread: self.thread_id(thread),
            lane: thread % WARP as u32,
            address: None,
            buffer: None,
            other: None,
        })
    }

    /// The constant value of an input of the instruction, if it is a constant.
    pub(crate) fn constant_input(&self, pc: u32, input: usize) -> Option<u64> {
        match self.program.code[pc as usize].inputs.get(input) {
            Some(&Operand::Constant(index)) => Some(self.constants[index as usize].1[0]),
            _ => None,
        }
    }
}
