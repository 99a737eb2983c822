//! What a nest or a call becomes: kernels, and how they are launched one after another.
//!
//! A nest is one stage; a call may be several (a scatter sorts first, a split sum is added up afterwards). Extents are known, so they stand in
//! the code, and the only arguments of a kernel are addresses.

use crate::ptx::{Function, Kernel};

/// The kernels of a nest or a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// Launches, in order. None if there is nothing to do, as where a result has no element.
    pub stages: Vec<Stage>,
    /// Bytes of memory that the stages share and that hold nothing before or after; the plan reserves at least so many
    /// ([`wengert_core::Target::workspace`]).
    pub workspace: u64,
}

/// A launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// The kernel. Its name is only a wish: equal kernels of a plan are made one, and names are made unique.
    pub kernel: Kernel,
    /// Functions that the kernel calls; equal names are equal functions.
    pub functions: Vec<Function>,
    /// Thread blocks along x, y and z; each at least 1.
    pub grid: [u32; 3],
    /// Bytes of shared memory beyond what the kernel declares.
    pub dynamic_shared: u32,
    /// One for each parameter of the kernel.
    pub arguments: Vec<Slot>,
}

/// What is passed for a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot {
    /// Whose address.
    pub memory: Memory,
    /// What the kernel does there.
    pub access: Access,
}

/// A memory of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Memory {
    /// That argument of the plan's step.
    Argument(usize),
    /// A part of the workspace.
    Workspace {
        /// Where it begins; a multiple of 256.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
}

/// What a kernel does with a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Access {
    /// It reads only.
    Read,
    /// It writes every byte, and reads none that it has not written.
    Write,
    /// It reads and writes.
    ReadWrite,
}

impl Slot {
    /// An operand.
    pub const fn read(argument: usize) -> Slot {
        Slot { memory: Memory::Argument(argument), access: Access::Read }
    }

    /// A result that is written whole.
    pub const fn write(argument: usize) -> Slot {
        Slot { memory: Memory::Argument(argument), access: Access::Write }
    }
}
