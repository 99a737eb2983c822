//! Division of the work of a block of threads, and the calls that warpgroups compute.

use super::super::super::number::Number;
use super::super::Work;
use super::GROUPS;
use super::tile::{PANEL, ROW};
use crate::ptx::Type;
use crate::ptx::hopper::PRODUCT_ROWS;
use wengert_core::DType;
use wengert_core::call::Attention;

/// Terms of a sum in one product.
pub(super) const DEPTH: usize = 16;
/// Rows of a block.
pub(super) const ROWS: usize = GROUPS * PRODUCT_ROWS as usize;
/// Bytes of a thread's widest copy.
const VECTOR: usize = 16;
/// Width up to which `mma.sync` stays: most of a tile's row of 128 bytes would be padding.
const NARROWEST: usize = 32;

/// Division of the work of a block of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) struct Shape {
    pub(super) dtype: DType,
    /// Halves of a row: the width, rounded up to a multiple of 16.
    pub(super) depth: usize,
    /// Columns of a block.
    pub(super) columns: usize,
    /// Blocks on a multiprocessor.
    pub(super) resident: u32,
    /// Whether the forward kernel adds the rows of a block of columns while it computes the
    /// weights of the next one.
    pub(super) overlaps: bool,
}

impl Shape {
    /// The shape of a kernel of a call; none if its sums need more registers than a thread has.
    pub fn new(call: &Attention, work: Work) -> Option<Shape> {
        let depth = call.width.next_multiple_of(DEPTH);
        let biased = !call.bias.is_empty();
        let plain = !biased && !call.prefix;
        let (columns, resident) = match (work, depth.div_ceil(PANEL)) {
            (Work::Forward, 1) if plain => (128, 2),
            (Work::Forward, 2) if !biased => (128, 1),
            (Work::Forward, 1..=2) => (64, 2),
            (Work::Forward, 3..=4) => (64, 1),
            (Work::OfQueries, 1) => (64, 2),
            (Work::OfQueries, 2) => (64, 1),
            (Work::OfQueries, 3..=4) => (32, 1),
            (Work::OfKeys, 1..=2) => (64, 1),
            _ => return None,
        };
        // The addresses and the numbers of a bias take the registers of a second block.
        let resident = if biased { 1 } else { resident };
        // Packed weights beside a block of scores: 32 more registers.
        let overlaps = matches!(work, Work::Forward) && columns > PANEL && resident == 1;
        Some(Shape { dtype: call.dtype, depth, columns, resident, overlaps })
    }

    /// Panels of 64 halves of a row.
    pub(super) fn panels(&self) -> usize {
        self.depth.div_ceil(PANEL)
    }

    /// Bytes of a tile of this many rows.
    pub(super) fn bytes(&self, rows: usize) -> usize {
        rows * ROW * self.panels()
    }

    pub(super) fn packed(&self) -> Type {
        if self.dtype == DType::F16 { Type::F16x2 } else { Type::BF16x2 }
    }

    pub(super) fn operand(&self) -> Type {
        if self.dtype == DType::F16 { Type::F16 } else { Type::BF16 }
    }
}

/// Whether warpgroups can compute a kernel of a call: products are of halves, and rows are copied
/// 16 bytes at a time.
pub(in super::super) fn can(call: &Attention, alignment: usize) -> bool {
    let vector = VECTOR / Number(call.dtype).size() as usize;
    call.dtype.is_half() && call.width.is_multiple_of(vector) && alignment >= VECTOR
}

/// Whether warpgroups compute it faster than warps: a block of theirs has more rows, and the
/// swizzle pads narrow heads.
pub(in super::super) fn fits(call: &Attention, alignment: usize) -> bool {
    let most = ROWS / 2;
    can(call, alignment) && call.width > NARROWEST && call.queries > most && call.keys > most
}
