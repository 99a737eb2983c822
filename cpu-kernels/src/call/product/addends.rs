//! What a tile adds to its sums before it stores them.
//!
//! A bias and a residual could as well be added when the sums are in memory, and are where there is more to do to them than this. But a sum that has its
//! last term is in a register, and the kernel has little to load just then; to come by again would be to load and store every sum once more.

/// What is added to sums when they are final, each rounded: first the bias, then the residual.
pub(in crate::call) struct Addends<T> {
    /// A number for each column; null: none.
    pub bias: *const T,
    /// A number for each element, in rows as far from each other as those of out; null: none.
    pub residual: *const T,
}

impl<T> Clone for Addends<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Addends<T> {}

impl<T> Addends<T> {
    /// Nothing is added.
    pub const NONE: Addends<T> = Addends { bias: std::ptr::null(), residual: std::ptr::null() };

    /// Those of the elements from a column on, and from so many elements of the rows before.
    pub fn from(self, before: usize, column: usize) -> Self {
        let moved = |at: *const T, by| if at.is_null() { at } else { at.wrapping_add(by) };
        Addends { bias: moved(self.bias, column), residual: moved(self.residual, before + column) }
    }
}
