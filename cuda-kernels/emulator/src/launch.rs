//! What a launch says, and what it gives back.

use crate::sanitize::Sanitize;

/// What a kernel may do with a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// Only read it.
    Read,
    /// Only write it (atomics that give nothing back count as writes).
    Write,
    /// Both.
    ReadWrite,
}

/// An argument of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Argument {
    /// The parameter's bytes as they are. A pointer given so is checked against allocations only.
    Bytes(Vec<u8>),
    /// A pointer to `bytes` bytes at `address`. The kernel gets it with a tag of its own in the
    /// upper 16 bits, so that every access through it (and what is computed from it) is checked
    /// against just this range and these rights, even if other arguments name neighbouring or the
    /// same bytes.
    Buffer {
        /// The first byte.
        address: u64,
        /// How many bytes may be accessed.
        bytes: u64,
        /// What reports call it.
        name: String,
        /// What may be done with it.
        access: Access,
        /// Reads must find bytes that carry this label.
        expects: Option<u32>,
        /// Writes leave this label on the bytes.
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
    /// One for each parameter.
    pub arguments: Vec<Argument>,
}

/// How launches are executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// CPU threads that execute blocks; at least 1.
    pub threads: usize,
    /// What is checked.
    pub sanitize: Sanitize,
    /// Thread-instructions (one instruction in one thread) that a launch may execute.
    pub max_instructions: u64,
    /// Bytes of shared memory that a block may have, static and dynamic (227 KiB on sm_90).
    pub max_shared: u32,
}

impl Default for Options {
    /// One thread, all checks, 20·10⁹ thread-instructions, 227 KiB of shared memory.
    fn default() -> Options {
        Options {
            threads: 1,
            sanitize: Sanitize::ALL,
            max_instructions: 20_000_000_000,
            max_shared: 227 << 10,
        }
    }
}

/// What a launch did.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// Blocks that ran.
    pub blocks: u64,
    /// Instructions, counted once a warp.
    pub warp_instructions: u64,
    /// Instructions, counted once a thread.
    pub thread_instructions: u64,
}
