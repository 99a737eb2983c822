//! The epilogue of a tile: what is done with its sums while they are in registers. The bias and
//! the residual are added, and the sums are rounded to the dtype of the operands.
//!
//! This could also be done when the sums are in memory, and for some products it is (see
//! [`finish`](crate::call::finish)). But after its last term a sum is in a register, and the kernel
//! has few loads at that point. A separate pass would load and store every sum once more. And its
//! stores to a result that is not in the caches would wait for memory, one after the other; those
//! of a tile overlap with the multiplications of the next tile.

use wengert_core::half::bf16;

/// Applied to final sums: the bias is added, then the residual, each with a rounding; then the
/// sums are rounded to bf16, or stored as they are.
pub(in crate::call) struct Epilogue<T> {
    /// A number for each column; null if there is no bias.
    pub bias: *const T,
    /// A number for each element, with the row distance of out; null if there is no residual.
    pub residual: *const T,
    /// Where the rounded sums are stored, instead of in out; only for kernels of
    /// [pairs](super::pairs).
    pub rounded: Rounded,
}

/// A matrix of rounded sums.
#[derive(Clone, Copy)]
pub(in crate::call) struct Rounded {
    /// The first element; null if the sums are not rounded.
    pub at: *mut bf16,
    /// Distance between rows.
    pub row: usize,
}

impl Rounded {
    /// Sums are stored as they are.
    pub const NONE: Rounded = Rounded { at: std::ptr::null_mut(), row: 0 };

    /// Whether sums are rounded.
    #[inline(always)]
    pub fn is_some(self) -> bool {
        !self.at.is_null()
    }
}

impl<T> Clone for Epilogue<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Epilogue<T> {}

impl<T> Epilogue<T> {
    /// Sums are stored as they are.
    pub const NONE: Epilogue<T> =
        Epilogue { bias: std::ptr::null(), residual: std::ptr::null(), rounded: Rounded::NONE };

    /// Whether anything is added.
    pub fn adds(self) -> bool {
        !(self.bias.is_null() && self.residual.is_null())
    }

    /// The epilogue of the elements from a row and a column on; `out_row` is the distance between
    /// the rows of out.
    #[inline(always)]
    pub fn from(self, [row, column]: [usize; 2], out_row: usize) -> Self {
        let moved = |at: *const T, by| if at.is_null() { at } else { at.wrapping_add(by) };
        let Rounded { at, row: distance } = self.rounded;
        let at = if at.is_null() { at } else { at.wrapping_add(row * distance + column) };
        Epilogue {
            bias: moved(self.bias, column),
            residual: moved(self.residual, row * out_row + column),
            rounded: Rounded { at, row: distance },
        }
    }
}
