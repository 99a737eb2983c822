//! Instructions of Hopper: products of a warpgroup, barriers in shared memory, bulk copies.
//!
//! A *warpgroup* is four warps whose first has a multiple of four as its number. It multiplies by
//! `wgmma`: 64 rows of A, from shared memory or from registers, by up to 256 columns of B, from
//! shared memory. The product is asynchronous. Until its group is waited for, its registers must
//! not be accessed and its bytes of shared memory must not be written.
//!
//! `wgmma` and `setmaxnreg` exist for `.target sm_90a` only. The others
//! are instructions of `sm_90` and later.
//!
//! Source: NVIDIA, "Parallel Thread Execution ISA", version 8.0: "Asynchronous Warpgroup Level
//! Matrix Multiply-Accumulate Instructions", "mbarrier", "cp.async.bulk", "setmaxnreg".

use super::instruction::{Inst, address, braced};
use super::types::{Operand, Reg, Type, Width};
use std::fmt;

/// Rows of A and of the sums in a product of a warpgroup.
pub const PRODUCT_ROWS: u32 = 64;
/// Most columns of B and of the sums.
pub const PRODUCT_COLUMNS: u32 = 256;
/// Bytes of a row of A, or of a column of B, in one product.
pub const PRODUCT_BYTES: u32 = 32;

/// An instruction of Hopper.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Hopper {
    /// A product, which the warps of a warpgroup begin together.
    Product(Product),
    /// Orders accesses to registers before the products that follow.
    ProductFence,
    /// Commits the products so far as a group.
    ProductCommit,
    /// Waits until at most this many of the latest groups are in flight; at most 7.
    ProductWait(u32),
    /// Orders accesses to shared memory by loads, stores and [`Inst::CopyAsync`] before those of
    /// asynchronous operations, which have a proxy of their own.
    ProxyFence,
    /// Makes initialised barriers visible to asynchronous operations.
    InitialisationFence,
    /// Initialises a barrier, whose phases end with this many arrivals.
    Initialise(Barrier, u32),
    /// Arrives at a barrier.
    Arrive(Barrier),
    /// Arrives at a barrier, whose phase also waits for a number of bytes.
    ArriveExpecting(Barrier, Operand),
    /// Lets the barrier wait for this thread's [`Inst::CopyAsync`]s so far, whose end counts as
    /// one of the expected arrivals.
    ArriveAfterCopies(Barrier),
    /// Waits a limited time for the end of the phase with this parity; the predicate says whether
    /// it has ended.
    TryWait(Reg, Barrier, Operand),
    /// Copies neighbouring bytes from global to shared memory, and signals a barrier.
    BulkCopy {
        /// Address in shared memory; a multiple of 16.
        to: Operand,
        /// Address in global memory; a multiple of 16.
        from: Operand,
        /// Bytes; a multiple of 16.
        bytes: Operand,
        /// The barrier that counts the bytes.
        barrier: Barrier,
    },
    /// Changes the number of registers of the warpgroup's threads.
    Registers(Registers),
}

/// A barrier: 8 bytes of shared memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Barrier {
    /// Address in shared memory.
    pub base: Operand,
    /// Byte offset from the address.
    pub offset: i64,
}

/// A number of registers of a thread: a multiple of 8 from 24 to 256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Registers {
    /// Waits until it gets as many.
    Increase(u32),
    /// Releases the others.
    Decrease(u32),
}

/// The left factor of a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Left {
    /// In shared memory: a [descriptor](super::descriptor).
    Shared(Reg),
    /// In registers: the fragments of `mma.sync` of rows 16·w to 16·w + 15, in warp w.
    Registers([Reg; 4]),
}

/// A product of 64 rows by up to 256 columns: d = a·b, or d += a·b.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Product {
    operands: [Type; 2],
    d: Vec<Reg>,
    a: Left,
    b: Reg,
    adds: Reg,
    transposed: [bool; 2],
}

impl Product {
    /// A product with sums in f32. A lane's registers of `d` hold, for each eight columns, two
    /// neighbouring sums of a row and two of the row 8 further down, as `mma.sync` does. `adds`
    /// says whether `d` is added to. A transposed operand has neighbouring rows of A, or columns
    /// of B, side by side in shared memory; the others lie along the sum.
    ///
    /// # Panics
    ///
    /// If PTX has no such product: other types than bf16, f16, tf32 and 8-bit floats; a number of
    /// columns that is no multiple of 8, or above 256; a transposed operand of other elements than
    /// halves, or in registers.
    pub fn new(
        operands: [Type; 2],
        d: Vec<Reg>,
        a: Left,
        b: Reg,
        adds: Reg,
        transposed: [bool; 2],
    ) -> Product {
        let same = operands[0] == operands[1];
        let halves = matches!(operands[0], Type::BF16 | Type::F16);
        let eights = operands.iter().all(|ty| matches!(ty, Type::E4M3 | Type::E5M2));
        let multiplied = eights || (same && (halves || operands[0] == Type::TF32));
        assert!(multiplied, "a warpgroup multiplies floats of one type, or of 8 bits");
        let columns = 2 * d.len() as u32;
        assert!(
            columns > 0 && columns.is_multiple_of(8) && columns <= PRODUCT_COLUMNS,
            "a product has a multiple of 8 columns, at most 256"
        );
        let registers = d.iter().chain(match &a {
            Left::Shared(_) => &[][..],
            Left::Registers(registers) => registers,
        });
        assert!(
            registers.into_iter().all(|r| r.width == Width::B32),
            "sums and fragments are words"
        );
        let in_registers = matches!(a, Left::Registers(_));
        assert!(
            (halves || transposed == [false; 2]) && !(in_registers && transposed[0]),
            "only halves in shared memory are transposed"
        );
        Product { operands, d, a, b, adds, transposed }
    }

    /// Terms of a sum in one product of elements of this type.
    pub const fn depth(operand: Type) -> u32 {
        PRODUCT_BYTES / operand.bytes()
    }
}

impl fmt::Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&address(&self.base, self.offset))
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Product { operands, d, a, b, adds, transposed } = self;
        let (n, k) = (2 * d.len(), Product::depth(operands[0]));
        let [x, y] = operands.map(Type::name);
        write!(f, "wgmma.mma_async.sync.aligned.m{PRODUCT_ROWS}n{n}k{k}.f32{x}{y} ")?;
        write!(f, "{}, ", braced(d))?;
        match a {
            Left::Shared(descriptor) => write!(f, "{descriptor}")?,
            Left::Registers(registers) => f.write_str(&braced(registers))?,
        }
        write!(f, ", {b}, {adds}, 1, 1")?;
        if operands[0].bytes() == 2 {
            let [of_a, of_b] = transposed.map(u8::from);
            match a {
                Left::Shared(_) => write!(f, ", {of_a}, {of_b}")?,
                Left::Registers(_) => write!(f, ", {of_b}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Hopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hopper::Product(product) => product.fmt(f),
            Hopper::ProductFence => f.write_str("wgmma.fence.sync.aligned"),
            Hopper::ProductCommit => f.write_str("wgmma.commit_group.sync.aligned"),
            Hopper::ProductWait(groups) => write!(f, "wgmma.wait_group.sync.aligned {groups}"),
            Hopper::ProxyFence => f.write_str("fence.proxy.async.shared::cta"),
            Hopper::InitialisationFence => f.write_str("fence.mbarrier_init.release.cluster"),
            Hopper::Initialise(barrier, count) => {
                write!(f, "mbarrier.init.shared.b64 {barrier}, {count}")
            }
            Hopper::Arrive(barrier) => write!(f, "mbarrier.arrive.shared.b64 _, {barrier}"),
            Hopper::ArriveExpecting(barrier, bytes) => {
                write!(f, "mbarrier.arrive.expect_tx.shared.b64 _, {barrier}, {bytes}")
            }
            Hopper::ArriveAfterCopies(barrier) => {
                write!(f, "cp.async.mbarrier.arrive.noinc.shared.b64 {barrier}")
            }
            Hopper::TryWait(done, barrier, parity) => {
                write!(f, "mbarrier.try_wait.parity.shared.b64 {done}, {barrier}, {parity}")
            }
            Hopper::BulkCopy { to, from, bytes, barrier } => {
                let (to, from) = (address(to, 0), address(from, 0));
                f.write_str("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes ")?;
                write!(f, "{to}, {from}, {bytes}, {barrier}")
            }
            Hopper::Registers(Registers::Increase(count)) => {
                write!(f, "setmaxnreg.inc.sync.aligned.u32 {count}")
            }
            Hopper::Registers(Registers::Decrease(count)) => {
                write!(f, "setmaxnreg.dec.sync.aligned.u32 {count}")
            }
        }
    }
}

impl Inst {
    /// Whether it exists for `.target sm_90a` only.
    pub(super) fn needs_hopper(&self) -> bool {
        let Inst::Hopper(hopper) = self else { return false };
        match hopper {
            Hopper::Product(_)
            | Hopper::ProductFence
            | Hopper::ProductCommit
            | Hopper::ProductWait(_)
            | Hopper::Registers(_) => true,
            Hopper::ProxyFence
            | Hopper::InitialisationFence
            | Hopper::Initialise(..)
            | Hopper::Arrive(_)
            | Hopper::ArriveExpecting(..)
            | Hopper::ArriveAfterCopies(_)
            | Hopper::TryWait(..)
            | Hopper::BulkCopy { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests;
