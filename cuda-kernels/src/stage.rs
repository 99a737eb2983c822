//! The compiled form of a nest or a call: kernels and their launches in order.
//!
//! A nest is one stage. A call may be several (a scatter sorts first, a split sum is added up
//! afterwards). Extents are constants in the code, so the only arguments of a kernel are
//! addresses.

use crate::ptx::{Function, Kernel};
pub use wengert_core::plan::Access;

/// The kernels of a nest or a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compiled {
    /// Launches, in order. Empty if there is nothing to do, as for a result without elements.
    pub stages: Vec<Stage>,
    /// Bytes of scratch memory that the stages share; the plan reserves at least as many
    /// ([`wengert_core::Target::workspace`]).
    pub workspace: u64,
}

/// A launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stage {
    /// The kernel. Its name is only a proposal: equal kernels of a plan are merged, and names are
    /// made unique.
    pub kernel: Kernel,
    /// Functions that the kernel calls; equal names are equal functions.
    pub functions: Vec<Function>,
    /// Thread blocks along x, y and z; each at least 1.
    pub grid: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// One for each parameter of the kernel.
    pub arguments: Vec<Slot>,
}

/// The argument for a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Slot {
    /// The memory whose address is passed.
    pub memory: Memory,
    /// How the kernel accesses it.
    pub access: Access,
}

/// A memory of a stage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Memory {
    /// This argument of the plan's step.
    Argument(usize),
    /// A part of the workspace.
    Workspace {
        /// Its start; a multiple of 256.
        offset: u64,
        /// Its length.
        bytes: u64,
    },
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
