//! Kernels of others: PTX that some compiler made, and a launch of it.
//!
//! ```text
//! Foreign::new(ptx, "sm_90a") ─► sample(kernel, launch, card) ─► Sample ─► predict ─► seconds
//! ```
//!
//! A sample is a wave of resident blocks on memory that holds zeros, as for kernels of a plan. A
//! long loop of equal steps need not be run: [`Sample::extended`] takes the launch at two small
//! numbers of steps, and adds the difference as often as the steps are more.

use super::tools::{Code, Tools};
use std::collections::BTreeMap;
use wengert_core::{Diagnostic, Result, diagnostic};
use wengert_emulator::{self as emulator, Emulator, Memory, Module, Sanitize, TensorMap};
pub use wengert_emulator::{ElementType, Swizzle};
use wengert_machine::card::Card;
use wengert_machine::join::join;
use wengert_machine::occupancy::{Occupancy, occupancy};
pub use wengert_machine::predict::{Prediction, Resource, Work};
use wengert_machine::predict::{Shape, predict};
use wengert_machine::ptx::{self, Statement};
use wengert_machine::sampling;
use wengert_machine::sass::Flow;

/// A module of foreign kernels.
#[derive(Debug)]
pub struct Foreign {
    code: Code,
    module: Module,
    statements: BTreeMap<u32, Statement>,
}

/// An argument of a launch.
#[derive(Clone, PartialEq, Debug)]
pub enum Argument {
    /// A pointer to memory of its own.
    Memory {
        /// Its bytes, for the traffic of the whole launch.
        bytes: u64,
        /// The first of these that the blocks of a sample may access.
        touched: u64,
    },
    /// A value in the parameter's bytes.
    Value(Vec<u8>),
    /// A tensor map of two dimensions, rows of which follow each other without a gap.
    Map {
        /// The element type.
        element: ElementType,
        /// Columns and rows of the tensor.
        extents: [u64; 2],
        /// Columns and rows of a box.
        tile: [u32; 2],
        /// How the chunks of a box are permuted in shared memory.
        swizzle: Swizzle,
    },
}

impl Argument {
    /// Memory that all blocks may access.
    pub fn memory(bytes: u64) -> Argument {
        Argument::Memory { bytes, touched: bytes }
    }

    /// A 32-bit integer.
    pub fn int(value: i32) -> Argument {
        Argument::Value(value.to_le_bytes().into())
    }

    /// A 64-bit integer, or a pointer that is not used.
    pub fn long(value: i64) -> Argument {
        Argument::Value(value.to_le_bytes().into())
    }

    /// A number.
    pub fn float(value: f32) -> Argument {
        Argument::Value(value.to_le_bytes().into())
    }

    /// Bytes of memory behind it.
    fn bytes(&self) -> u64 {
        match self {
            Argument::Memory { bytes, .. } => *bytes,
            Argument::Value(_) => 0,
            Argument::Map { element, extents, .. } => {
                extents[0] * extents[1] * u64::from(element.bytes())
            }
        }
    }
}

/// A launch.
#[derive(Clone, PartialEq, Debug)]
pub struct Launch {
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// One for each parameter.
    pub arguments: Vec<Argument>,
}

/// The work of a launch, from a sample of its blocks.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// The work of all blocks.
    pub work: Work,
    /// The part of the counts that the machine code does not explain; 0 if all fit.
    pub misfit: f64,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of registers that are stored to and loaded from local memory.
    pub spills: (u32, u32),
    /// Blocks that ran.
    pub sampled: u64,
}

impl Foreign {
    /// Assembles a module for a target such as `sm_90a`.
    ///
    /// Errors: `ptxas` refuses it; the emulator does not know an instruction of it.
    pub fn new(ptx: &str, target: &str, tools: &Tools) -> Result<Foreign> {
        let module = Module::parse(ptx)
            .map_err(|error| diagnostic!("the emulator cannot read the module: {error}"))?;
        Ok(Foreign { code: tools.code(ptx, target)?, module, statements: ptx::statements(ptx) })
    }

    /// Runs a wave of blocks of a launch and counts its work.
    ///
    /// Errors: there is no such kernel; a block does not fit on the card; an argument is invalid;
    /// the emulator reports a fault; an instruction has no known cost.
    pub fn sample(&self, kernel: &str, launch: &Launch, card: &Card) -> Result<Sample> {
        let failed = |error: &dyn std::fmt::Display| {
            Diagnostic::of_device(format!("kernel `{kernel}`: {error}"))
        };
        let absent = || diagnostic!("the module has no kernel `{kernel}`");
        let machine = self.code.module.kernel(kernel).ok_or_else(absent)?;
        let used = self.code.resources.iter().find(|r| r.kernel == kernel).ok_or_else(absent)?;
        let shape = Shape {
            blocks: launch.grid.iter().map(|n| u64::from(*n)).product(),
            threads: launch.block.iter().product(),
            registers: used.registers,
            shared: used.shared + launch.dynamic_shared,
        };
        let limits = &card.architecture.limits;
        let resident = occupancy(limits, shape.threads, shape.registers, shape.shared)
            .ok_or_else(|| failed(&"a block does not fit on a multiprocessor"))?;
        let counts = self.counts(kernel, launch, card, (resident, shape.shared), &failed)?;
        let flow = Flow::new(machine).map_err(|e| failed(&e))?;
        let executed = join(machine, &flow, &self.statements, &counts).map_err(|e| failed(&e))?;
        let mut work = Work::new(machine, &flow, &executed, &counts, &shape, card)
            .map_err(|error| failed(&error))?;
        let memory: u64 = launch.arguments.iter().map(Argument::bytes).sum();
        work.bound_traffic(&counts, memory as f64, card);
        Ok(Sample {
            work,
            misfit: executed.misfit,
            registers: used.registers,
            spills: used.spills,
            sampled: counts.blocks,
        })
    }

    fn counts(
        &self,
        kernel: &str,
        launch: &Launch,
        card: &Card,
        (resident, shared): (Occupancy, u32),
        failed: &dyn Fn(&dyn std::fmt::Display) -> Diagnostic,
    ) -> Result<emulator::count::Counts> {
        let mut memory = Memory::new();
        let mut arguments = Vec::with_capacity(launch.arguments.len());
        for (n, argument) in launch.arguments.iter().enumerate() {
            let name = format!("parameter {n}");
            arguments.push(match argument {
                Argument::Value(bytes) => emulator::Argument::Bytes(bytes.clone()),
                Argument::Memory { touched, .. } => emulator::Argument::Buffer {
                    address: memory.allocate(&name, *touched).map_err(|e| failed(&e))?,
                    bytes: *touched,
                    name,
                    access: emulator::Access::ReadWrite,
                    expects: None,
                    makes: None,
                },
                Argument::Map { element, extents, tile, swizzle } => {
                    let address =
                        memory.allocate(&name, argument.bytes()).map_err(|e| failed(&e))?;
                    let pitch = extents[0] * u64::from(element.bytes());
                    let map = TensorMap::tiled(
                        *element,
                        address,
                        extents,
                        &[pitch],
                        tile,
                        &[1, 1],
                        *swizzle,
                    );
                    emulator::Argument::Bytes(map.map_err(|e| failed(&e))?.bytes().into())
                }
            });
        }
        let emulator = Emulator::new(emulator::Options {
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            // Memory holds zeros, and only some blocks run.
            sanitize: Sanitize::NONE,
            max_instructions: u64::MAX,
            count: Some(sampling::waves(card, resident, shared, 1)),
            ..emulator::Options::default()
        });
        let launch = emulator::Launch {
            kernel: kernel.to_owned(),
            grid: launch.grid,
            block: launch.block,
            dynamic_shared: launch.dynamic_shared,
            arguments,
        };
        let statistics = emulator.run(&self.module, &launch, &mut memory);
        Ok(statistics.map_err(|fault| failed(&fault))?.counts.expect("counts were asked for"))
    }
}

impl Sample {
    /// The sample of a launch of `steps` steps, from this one of `short` and another of `long`
    /// steps, with the same grid.
    pub fn extended(&self, short: f64, longer: &Sample, long: f64, steps: f64) -> Sample {
        Sample {
            work: self.work.extended(short, &longer.work, long, steps),
            misfit: self.misfit.max(longer.misfit),
            ..longer.clone()
        }
    }

    /// The prediction.
    pub fn predict(&self, card: &Card) -> Prediction {
        predict(&self.work, card)
    }
}
