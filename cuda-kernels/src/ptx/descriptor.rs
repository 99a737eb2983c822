//! Matrices in shared memory, as products of a warpgroup read them.
//!
//! A *descriptor* is 64 bits: the address, the distances of groups of rows, and the swizzle. The
//! bytes of a matrix are groups of 16. A *swizzle* permutes the groups of a row of 32, 64 or 128
//! bytes, so that the same group of eight successive rows lies in different banks: bits 4… of the
//! address are xor-ed with its bits 7…. Its pattern repeats every eight rows, so an address that a
//! matrix begins at, or a thread's rows are counted from, is a multiple of [`Swizzle::pattern`].
//!
//! Along the sum, element (r, k) lies, before the swizzle, `row · (r mod 8) + stride · (r / 8)`
//! bytes and its k elements from the beginning. Transposed, it lies
//! `leading · (r / R) + row · (k mod 8) + stride · (k / 8)` bytes and r mod R elements from there,
//! where R elements fill a row of the swizzle.
//!
//! Source: PTX ISA 8.0, "Asynchronous Warpgroup Level Matrix Shared Memory Layout" and "Matrix
//! Descriptor Format".

use super::builder::Code;
use super::types::{Reg, Type};
use super::{Binary, Rounding};

/// A permutation of groups of 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Swizzle {
    /// Within rows of 32 bytes.
    Bytes32,
    /// Within rows of 64 bytes.
    Bytes64,
    /// Within rows of 128 bytes.
    Bytes128,
}

impl Swizzle {
    /// Bytes of a row.
    pub const fn row(self) -> u32 {
        match self {
            Swizzle::Bytes32 => 32,
            Swizzle::Bytes64 => 64,
            Swizzle::Bytes128 => 128,
        }
    }

    /// Bytes after which the permutation repeats: eight rows.
    pub const fn pattern(self) -> u32 {
        8 * self.row()
    }

    /// The code in a descriptor.
    const fn code(self) -> u64 {
        match self {
            Swizzle::Bytes128 => 1,
            Swizzle::Bytes64 => 2,
            Swizzle::Bytes32 => 3,
        }
    }

    /// Where the byte at an address lies, or at an offset from a multiple of
    /// [`pattern`](Self::pattern).
    pub const fn place(self, address: u32) -> u32 {
        address ^ (address >> 3 & self.mask())
    }

    /// The bits of an address that it changes.
    const fn mask(self) -> u32 {
        self.row() - 16
    }
}

/// The layout of a matrix in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// The permutation of its rows.
    pub swizzle: Swizzle,
    /// Bytes from one row of the swizzle to its neighbour across, if the matrix is transposed. As
    /// every distance, a multiple of 16 below 2¹⁸.
    pub leading: u32,
    /// Bytes from eight rows to the next eight.
    pub stride: u32,
}

impl Layout {
    /// A descriptor's bits, but for the address.
    pub const fn bits(self) -> u64 {
        const FIELD: u64 = 0x3fff;
        (self.leading as u64 >> 4 & FIELD) << 16
            | (self.stride as u64 >> 4 & FIELD) << 32
            | self.swizzle.code() << 62
    }

    /// What is added to a descriptor for a matrix `bytes` further on; a multiple of 16.
    pub const fn step(bytes: u32) -> i64 {
        bytes as i64 >> 4
    }
}

impl Code {
    /// The descriptor of a matrix at an address.
    pub fn descriptor(&mut self, address: Reg, layout: Layout) -> Reg {
        let groups = self.binary(Binary::Shr, Type::U32, address, 4);
        let wide = self.convert(Rounding::Exact, Type::U64, Type::U32, groups);
        self.binary(Binary::Or, Type::B64, wide, layout.bits() as i64)
    }

    /// [`Swizzle::place`] of an offset in a register.
    pub fn swizzled(&mut self, swizzle: Swizzle, offset: Reg) -> Reg {
        let row = self.binary(Binary::Shr, Type::U32, offset, 3);
        let row = self.binary(Binary::And, Type::B32, row, i64::from(swizzle.mask()));
        self.binary(Binary::Xor, Type::B32, offset, row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that Triton's compiler makes for such matrices (`emulator/tests/hopper/triton`).
    #[test]
    fn bits_are_those_of_another_compiler() {
        let layout = Layout { swizzle: Swizzle::Bytes128, leading: 16, stride: 1024 };
        assert_eq!(layout.bits(), 0x4000_0040_0001_0000);
        let layout = Layout { swizzle: Swizzle::Bytes128, leading: 0, stride: 1024 };
        assert_eq!(layout.bits(), 0x4000_0040_0000_0000);
    }

    #[test]
    fn codes_and_distances() {
        let bits = |swizzle, leading, stride| Layout { swizzle, leading, stride }.bits();
        assert_eq!(bits(Swizzle::Bytes64, 0, 0), 2 << 62);
        assert_eq!(bits(Swizzle::Bytes32, 0, 0), 3 << 62);
        assert_eq!(bits(Swizzle::Bytes32, 0x3fff0, 0x20), 3 << 62 | 2 << 32 | 0x3fff << 16);
        assert_eq!(Layout::step(8192), 512);
    }

    /// PTX ISA, figures of the swizzles: the group of row r at column c is at column c ^ r, where
    /// two rows of 64 bytes, or four of 32, share a row of banks.
    #[test]
    fn groups_are_exchanged() {
        for (swizzle, across) in
            [(Swizzle::Bytes32, 2), (Swizzle::Bytes64, 4), (Swizzle::Bytes128, 8)]
        {
            let shared = 8 / across;
            for row in 0..16 {
                for group in 0..across {
                    let address = row * swizzle.row() + group * 16 + 5;
                    let moved = group ^ (row / shared % across);
                    let expected = row * swizzle.row() + moved * 16 + 5;
                    assert_eq!(swizzle.place(address), expected, "{swizzle:?} {row} {group}");
                }
            }
        }
    }
}
