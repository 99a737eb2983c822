//! Launches: arguments, options and statistics.

use crate::count::{Counting, Counts};
use crate::sanitize::Sanitize;

/// A kernel's permission for a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Read only.
    Read,
    /// Write only (atomics that return nothing count as writes).
    Write,
    /// Read and write.
    ReadWrite,
}

/// An argument of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Argument {
    /// The parameter's bytes, unchanged. A pointer in them is checked against allocations only.
    Bytes(Vec<u8>),
    /// A pointer to `bytes` bytes at `address`. In the kernel, its upper 16 bits are a tag of this
    /// argument. So every access through the pointer, and through pointers computed from it, is
    /// checked against exactly this range and these permissions, even if other arguments name
    /// adjacent or the same bytes.
    Buffer {
        /// The first byte.
        address: u64,
        /// How many bytes may be accessed.
        bytes: u64,
        /// Its name in reports.
        name: String,
        /// Permitted accesses.
        access: Access,
        /// Label that bytes must have when they are read.
        expects: Option<u32>,
        /// Label that writes set.
        makes: Option<u32>,
    },
}

/// A launch of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Name of the kernel.
    pub kernel: String,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// One for each parameter. A parameter that is an array of pointers may have a buffer for each.
    pub arguments: Vec<Argument>,
}

/// Options of an emulator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// CPU threads that execute blocks; at least 1.
    pub threads: usize,
    /// The enabled checks.
    pub sanitize: Sanitize,
    /// Maximum number of thread-instructions (one instruction in one thread) of a launch.
    pub max_instructions: u64,
    /// Maximum number of bytes of shared memory of a block, static and dynamic (227 KiB on sm_90).
    pub max_shared: u32,
    /// Blocks of a cluster along x, y, z, for kernels without `.reqnctapercluster`.
    pub cluster: [u32; 3],
    /// When asynchronous operations take place.
    pub asynchrony: Asynchrony,
    /// The results of approximate instructions.
    pub approximations: Approximations,
    /// Whether and how to count instructions and accesses. A launch that is counted takes longer,
    /// and keeps the requests of a wave of blocks: 8 bytes for each line of each request to global
    /// memory, and 24 for the request.
    pub count: Option<Counting>,
}

/// When bulk copies and `wgmma` take place.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Asynchrony {
    /// As late as they may: when they are waited for.
    #[default]
    Late,
    /// At pseudo-random moments between their instruction and their wait, the same in every run
    /// with the same seed.
    Seeded(u64),
}

/// The results of instructions on f32 with `.approx` or `.full`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Approximations {
    /// The nearest number to the value of f64 arithmetic.
    #[default]
    Nearest,
    /// Pseudo-random numbers within the greatest error that the PTX ISA states for the instruction,
    /// half of them as far from the exact value as it allows. An instruction has the same result
    /// for the same operands in every run with the same seed.
    Seeded(u64),
}

impl Default for Options {
    /// One thread, all checks, 20·10⁹ thread-instructions, 227 KiB of shared memory, approximations
    /// rounded to the nearest number, no counts.
    fn default() -> Options {
        Options {
            threads: 1,
            sanitize: Sanitize::ALL,
            max_instructions: 20_000_000_000,
            max_shared: 227 << 10,
            cluster: [1; 3],
            asynchrony: Asynchrony::Late,
            approximations: Approximations::Nearest,
            count: None,
        }
    }
}

/// Statistics of a launch.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Blocks that ran.
    pub blocks: u64,
    /// Instructions, counted once per warp.
    pub warp_instructions: u64,
    /// Instructions, counted once per thread.
    pub thread_instructions: u64,
    /// Counts by instruction, if [`Options::count`] asks for them.
    pub counts: Option<Counts>,
}
