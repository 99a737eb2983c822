//! Tiles of a factor in shared memory, with the swizzle of 128 bytes.
//!
//! | memory lies along | a row of 128 bytes | rows | from a product to the next |
//! |---|---|---|---|
//! | the sum | 64 or 128 terms of an outer index | all outer indices | 32 bytes |
//! | an outer index | 64 outer indices of a term | 64 terms, for each 64 of them | 16 rows |
//!
//! Only halves may lie along an outer index. Eight neighbouring threads copy a row, each 16 bytes
//! of it. A thread's vectors differ by a multiple of eight rows, where the swizzle has the same
//! permutation.

use crate::call::product::Gather;
use crate::call::product::gather::Direction;
use crate::call::product::loader::{Loader, Prepared, Vector};
use crate::ptx::descriptor::{Layout, Swizzle};
use crate::ptx::hopper::{PRODUCT_BYTES, PRODUCT_ROWS};
use crate::ptx::{Binary, Code, Reg, Ternary, Type};

const SWIZZLE: Swizzle = Swizzle::Bytes128;
/// Bytes of a row.
pub(super) const ROW: usize = SWIZZLE.row() as usize;
/// Bytes after which the swizzle repeats.
pub(super) const PATTERN: usize = SWIZZLE.pattern() as usize;
/// Bytes of a vector.
const VECTOR: usize = 16;

/// A tile of a factor in shared memory.
pub(super) struct Strip<'a> {
    pub loader: Loader<'a>,
}

impl<'a> Strip<'a> {
    /// A tile of `outers` rows of lhs or columns of rhs; none if the factor is no matrix of which
    /// 16 bytes are contiguous, or if `wgmma` does not transpose its elements.
    pub fn new(factor: &'a Gather, outers: usize, threads: usize) -> Option<Strip<'a>> {
        let size = factor.number.size() as usize;
        let loader = Loader::of_strip(factor, [outers, ROW / size], threads);
        let wide = loader.vector * size == VECTOR;
        let right = size == 2 || loader.direction == Direction::Depth;
        (factor.is_matrix() && wide && right).then_some(Strip { loader })
    }

    /// Terms of the sum.
    pub fn depth(&self) -> usize {
        self.loader.depths
    }

    /// Whether rows lie along the outer index.
    pub fn is_transposed(&self) -> bool {
        self.loader.direction == Direction::Outer
    }

    pub fn bytes(&self) -> usize {
        self.loader.outers * ROW
    }

    /// Bytes of 64 outer indices.
    pub fn group_bytes(&self) -> usize {
        PRODUCT_ROWS as usize * ROW
    }

    /// Bytes of the outer indices of a row, over all depths, if rows lie along these.
    fn across(&self) -> usize {
        self.loader.depths * ROW
    }

    pub fn layout(&self) -> Layout {
        // Along the sum, a row has all terms, and the distance across is not used.
        let leading = if self.is_transposed() { self.across() } else { VECTOR };
        Layout { swizzle: SWIZZLE, leading: leading as u32, stride: PATTERN as u32 }
    }

    /// Bytes from the beginning to the terms of the n-th product.
    pub fn at(&self, n: usize) -> u32 {
        let terms = PRODUCT_BYTES / self.loader.gather.number.size() as u32;
        n as u32 * if self.is_transposed() { terms * ROW as u32 } else { PRODUCT_BYTES }
    }

    /// Address that a thread's first vector is written to.
    pub fn write(&self, code: &mut Code, prepared: &Prepared, base: Reg) -> Reg {
        let size = self.loader.gather.number.size();
        let (outer, depth) = (prepared.outer, prepared.depth);
        let offset = if self.is_transposed() {
            let wide = ROW as i64 / size;
            let across = code.binary(Binary::Shr, Type::U32, outer, i64::from(wide.ilog2()));
            let within = code.binary(Binary::And, Type::B32, outer, wide - 1);
            let start = code.binary(Binary::Mul, Type::S32, across, self.across() as i64);
            let row = code.ternary(Ternary::Mad, Type::S32, depth, ROW as i64, start);
            code.ternary(Ternary::Mad, Type::S32, within, size, row)
        } else {
            let row = code.binary(Binary::Mul, Type::S32, outer, ROW as i64);
            code.ternary(Ternary::Mad, Type::S32, depth, size, row)
        };
        let offset = code.swizzled(SWIZZLE, offset);
        code.binary(Binary::Add, Type::U32, base, offset)
    }

    /// Bytes from a thread's first vector to another one.
    pub fn far(&self, vector: &Vector) -> i64 {
        let rows = if self.is_transposed() { vector.depth } else { vector.outer };
        assert!(rows.is_multiple_of(PATTERN / ROW), "the permutation is that of the first vector");
        (rows * ROW) as i64
    }
}
