//! Where the buffers of a nest lie.

use crate::ptx::{Reg, Space};

/// Memory of a buffer.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// In global memory, from this address on.
    Global {
        /// Its address.
        base: Reg,
        /// Whether the kernel may write it, through this parameter or another one.
        written: bool,
    },
    /// In the local memory of the thread.
    Local {
        /// Its address.
        base: Reg,
    },
    /// In the shared memory of the block.
    Shared {
        /// Its address; 32 bits.
        base: Reg,
    },
}

impl Place {
    /// Its address space.
    pub const fn space(&self) -> Space {
        match self {
            Place::Global { .. } => Space::Global,
            Place::Local { .. } => Space::Local,
            Place::Shared { .. } => Space::Shared,
        }
    }

    /// Its address.
    pub const fn base(&self) -> Reg {
        match self {
            Place::Global { base, .. } | Place::Local { base } | Place::Shared { base } => *base,
        }
    }
}
