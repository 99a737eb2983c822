//! The bias and residual of a tile, added before the tile is stored.
//!
//! They could also be added when the sums are in memory, as for results of halves. But after its
//! last term a sum is in a register, and the kernel has few loads at that point. A separate pass
//! would load and store every sum once more.

/// Added to final sums, each with a rounding: first the bias, then the residual.
pub(in crate::call) struct Addends<T> {
    /// A number for each column; null if there is no bias.
    pub bias: *const T,
    /// A number for each element, with the row distance of out; null if there is no residual.
    pub residual: *const T,
}

impl<T> Clone for Addends<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Addends<T> {}

impl<T> Addends<T> {
    /// No addends.
    pub const NONE: Addends<T> = Addends { bias: std::ptr::null(), residual: std::ptr::null() };

    /// The addends of the elements from `column` on, after `before` elements of previous rows.
    pub fn from(self, before: usize, column: usize) -> Self {
        let moved = |at: *const T, by| if at.is_null() { at } else { at.wrapping_add(by) };
        Addends { bias: moved(self.bias, column), residual: moved(self.residual, before + column) }
    }
}
