//! Faults of kernels, and their places.

use crate::parse::syntax::Space;
use std::fmt;

/// The kind of a fault.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FaultKind {
    /// An access outside every allocation, outside the argument's buffer, or outside the space.
    OutOfBounds(Space),
    /// An address that is no multiple of the access's size (of the whole vector's, for vector
    /// accesses).
    Misaligned,
    /// A read of bytes that have not been written.
    UninitialisedRead(Space),
    /// A read of a register that this thread has not written.
    UninitialisedRegister,
    /// A write through a read-only argument, or to constants.
    WriteToReadOnly,
    /// A read through a write-only argument.
    ReadOfWriteOnly,
    /// A barrier that not all threads of the block reach, or that a part of a warp reaches.
    DivergentBarrier,
    /// No thread can continue.
    DeadLock,
    /// Two threads of a block access the same bytes of shared memory, one writes, and nothing
    /// orders them.
    SharedRace,
    /// Two threads of a launch access the same bytes of global memory, one writes, and nothing
    /// orders them.
    GlobalRace,
    /// A lane takes part in a shuffle, vote or similar without being in the mask, or is in the
    /// mask without taking part.
    InactiveLane,
    /// Bytes do not hold the value that the plan expects.
    ExpectedValue,
    /// An access to bytes that an asynchronous copy has still to write.
    AsyncCopyNotAwaited,
    /// A write to bytes that an asynchronous operation has still to read.
    SourceInUse,
    /// Bytes that a thread has written are accessed by an asynchronous operation, and no
    /// `fence.proxy.async` lies between.
    ProxyFenceMissing,
    /// A product's register was accessed, and no `wgmma.fence` lies between.
    ProductFenceMissing,
    /// An access to a register of a product that has not been waited for.
    RegisterInFlight,
    /// A `wgmma` or `setmaxnreg` that not all threads of the warpgroup execute alike.
    WarpgroupDivergence,
    /// `setmaxnreg` with a count that the block's registers do not allow.
    RegisterBudget,
    /// A barrier in shared memory that is not initialised, or used against its rules.
    InvalidBarrier,
    /// A barrier gets more bytes than it expects, or more than it counts.
    TransactionBytes,
    /// A matrix descriptor or tensor map that describes no legal operand.
    InvalidDescriptor,
    /// Bytes that were copied with one swizzle are read with another.
    WrongSwizzle,
    /// An access to shared memory of a block of the cluster that may not have begun, or may have
    /// exited.
    RemoteBlock,
    /// A thread or block exits while an asynchronous operation uses what goes with it.
    ExitWhilePending,
    /// The launch does not fit the kernel or the machine.
    InvalidLaunch,
    /// `trap`, `brkpt`, or a failed assertion.
    Trap,
    /// More instructions than allowed.
    InstructionLimit,
}

/// The other side of a race.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Other {
    /// Line of the PTX text.
    pub line: u32,
    /// The line itself.
    pub text: String,
    /// Block of the other thread.
    pub block: [u32; 3],
    /// The other thread.
    pub thread: [u32; 3],
    /// Whether it wrote.
    pub writes: bool,
}

/// A fault of a kernel, and its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct Fault {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The message: one sentence without a full stop.
    pub message: String,
    /// Name of the kernel.
    pub kernel: String,
    /// Line of the PTX text, from 1; 0 if no instruction caused it.
    pub line: u32,
    /// The line itself.
    pub text: String,
    /// The last `//` comment line above it in the kernel, which describes this part of the code.
    pub comment: Option<String>,
    /// The block.
    pub block: [u32; 3],
    /// The thread in its block.
    pub thread: [u32; 3],
    /// The lane in its warp.
    pub lane: u32,
    /// The address in its space, if there is one.
    pub address: Option<u64>,
    /// Name of the buffer or allocation, and the offset in it.
    pub buffer: Option<(String, i64)>,
    /// The other access of a race.
    pub other: Option<Other>,
}

impl Fault {
    /// A fault without an instruction.
    pub(crate) fn launch(kernel: &str, message: impl Into<String>) -> Fault {
        Fault {
            kind: FaultKind::InvalidLaunch,
            message: message.into(),
            kernel: kernel.to_owned(),
            line: 0,
            text: String::new(),
            comment: None,
            block: [0; 3],
            thread: [0; 3],
            lane: 0,
            address: None,
            buffer: None,
            other: None,
        }
    }
}

fn triple(ids: [u32; 3]) -> String {
    format!("({}, {}, {})", ids[0], ids[1], ids[2])
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in kernel `{}`: {}", self.kind, self.kernel, self.message)?;
        if self.line != 0 {
            write!(f, "\n  --> PTX line {}: {}", self.line, self.text)?;
        }
        if let Some(comment) = &self.comment {
            write!(f, "\n      in: {comment}")?;
        }
        if self.line != 0 {
            write!(
                f,
                "\n      block {}, thread {}, lane {}",
                triple(self.block),
                triple(self.thread),
                self.lane
            )?;
        }
        if let Some((name, offset)) = &self.buffer {
            write!(f, "\n      buffer `{name}`, byte offset {offset}")?;
        }
        if let Some(address) = self.address {
            write!(f, "\n      address {address:#x}")?;
        }
        if let Some(other) = &self.other {
            let what = if other.writes { "write" } else { "read" };
            write!(
                f,
                "\n  the other access is a {what} at PTX line {}: {}",
                other.line, other.text
            )?;
            write!(f, "\n      block {}, thread {}", triple(other.block), triple(other.thread))?;
        }
        Ok(())
    }
}
