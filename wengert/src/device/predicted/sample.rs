//! Counts of a launch from a sample of its blocks, and the prediction from them.

use super::launches::Recorded;
use super::tools::Code;
use super::{Options, Row};
use std::collections::BTreeMap;
use wengert_core::{Diagnostic, Result, diagnostic};
use wengert_cuda::lowered::{KernelFacts, LoweredPlan};
use wengert_emulator::count::Counts;
use wengert_emulator::{self as emulator, Emulator, Memory, Module, Sanitize};
use wengert_machine::card::Card;
use wengert_machine::join::join;
use wengert_machine::occupancy::{Occupancy, occupancy};
use wengert_machine::predict::{Shape, Work, predict};
use wengert_machine::ptx::{self, Statement};
use wengert_machine::ptxas::Resources;
use wengert_machine::sampling;
use wengert_machine::sass::{Flow, Kernel};

/// What all rows of a plan share.
pub struct Sampler<'a> {
    lowered: &'a LoweredPlan,
    code: &'a Code,
    card: &'static Card,
    options: Options,
    module: Module,
    /// Of the PTX text, by line.
    statements: BTreeMap<u32, Statement>,
}

/// The parts of a kernel.
struct Parts<'a> {
    facts: &'a KernelFacts,
    kernel: &'a Kernel,
    resources: &'a Resources,
    shape: Shape,
}

impl<'a> Sampler<'a> {
    /// Parses the module.
    ///
    /// Errors: the emulator does not know an instruction of it.
    pub fn new(
        lowered: &'a LoweredPlan,
        code: &'a Code,
        card: &'static Card,
        options: Options,
    ) -> Result<Sampler<'a>> {
        let module = Module::parse(&lowered.ptx).map_err(|error| {
            diagnostic!("the emulator cannot read the kernels of the plan: {error}")
        })?;
        let statements = ptx::statements(&lowered.ptx);
        Ok(Sampler { lowered, code, card, options, module, statements })
    }

    fn parts(&self, recorded: &Recorded) -> Result<Parts<'a>> {
        let facts = &self.lowered.kernels[recorded.kernel];
        let absent = |what| diagnostic!("{what} does not name the kernel `{}`", facts.name);
        let kernel = self.code.module.kernel(&facts.name).ok_or_else(|| absent("nvdisasm"))?;
        let resources = self.code.resources.iter().find(|r| r.kernel == facts.name);
        let resources = resources.ok_or_else(|| absent("ptxas"))?;
        let shape = Shape {
            blocks: recorded.grid.iter().map(|n| u64::from(*n)).product(),
            threads: facts.threads,
            registers: resources.registers,
            shared: resources.shared + recorded.dynamic_shared,
        };
        Ok(Parts { facts, kernel, resources, shape })
    }

    /// The row of a launch that runs `times` times, or why there is none.
    ///
    /// Errors: the emulator reports a fault; there is not enough memory.
    pub fn row(&self, recorded: &Recorded, times: u64) -> Result<Result<Row, String>> {
        let parts = self.parts(recorded)?;
        let Parts { facts, kernel, resources, shape } = parts;
        let named =
            |why: &dyn std::fmt::Display| format!("{} ({}): {why}", facts.name, facts.origin);
        let limits = &self.card.architecture.limits;
        let Some(resident) = occupancy(limits, shape.threads, shape.registers, shape.shared) else {
            return Ok(Err(named(&"a block does not fit on a multiprocessor")));
        };
        let counts = self.counts(recorded, facts, resident, shape.shared)?;
        let predicted = || -> Result<_, Box<dyn std::error::Error>> {
            let flow = Flow::new(kernel)?;
            let executed = join(kernel, &flow, &self.statements, &counts)?;
            let mut work = Work::new(kernel, &flow, &executed, &counts, &shape, self.card)?;
            let memory = recorded.memory.iter().map(|n| *n as f64).sum();
            work.bound_traffic(&counts, memory, self.card);
            let misfit = executed.misfit;
            Ok((predict(&work, self.card), work, misfit))
        };
        let (prediction, work, misfit) = match predicted() {
            Ok(found) => found,
            Err(error) => return Ok(Err(named(&error))),
        };
        let total = counts.total();
        let requests = total.global.requests as f64;
        Ok(Ok(Row {
            kernel: facts.name.clone(),
            origin: facts.origin.clone(),
            times,
            blocks: shape.blocks,
            threads: shape.threads,
            registers: shape.registers,
            shared: shape.shared,
            spills: resources.spills,
            occupancy: Some(resident),
            memory: recorded.memory.iter().sum(),
            device_memory: (
                work.dram_read as u64,
                (work.dram_bytes - work.dram_read).max(0.0) as u64,
            ),
            sectors: if requests > 0.0 { total.global.sectors as f64 / requests } else { 0.0 },
            instructions: work.instructions,
            seconds: prediction.seconds,
            limiter: prediction.limiter,
            misfit,
        }))
    }

    fn counts(
        &self,
        recorded: &Recorded,
        facts: &KernelFacts,
        resident: Occupancy,
        shared: u32,
    ) -> Result<Counts> {
        let counted = match self.options.waves {
            true => sampling::waves,
            false => sampling::blocks,
        };
        let counting = counted(self.card, resident, shared, self.options.blocks);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let emulator = Emulator::new(emulator::Options {
            threads,
            // Memory holds zeros, and only some blocks run.
            sanitize: Sanitize::NONE,
            max_instructions: u64::MAX,
            count: Some(counting),
            ..emulator::Options::default()
        });
        let failed = |error: &dyn std::fmt::Display| {
            Diagnostic::of_device(format!("kernel `{}` ({}): {error}", facts.name, facts.origin))
        };
        let mut memory = Memory::new();
        let mut blocks = Vec::with_capacity(recorded.memory.len());
        for (n, bytes) in recorded.memory.iter().enumerate() {
            let place = memory.allocate(&format!("memory {n}"), *bytes);
            blocks.push(place.map_err(|error| failed(&error))?);
        }
        let argument =
            |(n, (block, offset, bytes)): (usize, &(usize, u64, u64))| emulator::Argument::Buffer {
                address: blocks[*block] + offset,
                bytes: *bytes,
                name: format!("parameter {n}"),
                access: emulator::Access::ReadWrite,
                expects: None,
                makes: None,
            };
        let launch = emulator::Launch {
            kernel: facts.name.clone(),
            grid: recorded.grid,
            block: [facts.threads, 1, 1],
            dynamic_shared: recorded.dynamic_shared,
            arguments: recorded.arguments.iter().enumerate().map(argument).collect(),
        };
        let statistics = emulator.run(&self.module, &launch, &mut memory);
        let statistics = statistics.map_err(|fault| failed(&fault))?;
        Ok(statistics.counts.expect("counts were asked for"))
    }
}
