//! Products without addends, each element of which is one chain of additions: the steps of
//! attention and of convolutions.

use super::element::Element;
use super::panel::View;
use super::product::addends::Addends;
use super::product::{Order, Product, multiply};
use crate::simd::Simd;

/// Rows of numbers, some distance apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<T> {
    pub at: *mut T,
    pub distance: usize,
}

/// The vector instructions of a task, and the scratch memory of its products.
pub(super) struct Products<'a> {
    pub simd: Simd,
    pub free: &'a mut [u8],
}

impl Products<'_> {
    /// `out = lhs · rhs`, or, with `add`, `out += lhs · rhs`.
    ///
    /// # Safety
    ///
    /// As for [`multiply`].
    pub unsafe fn multiply<T: Element>(
        &mut self,
        size: [usize; 3],
        Rows { at: out, distance: row }: Rows<T::Wide>,
        add: bool,
        lhs: View<T>,
        rhs: View<T>,
    ) {
        let (order, addends) = (Order::Chain, Addends::NONE);
        let product = Product { size, order, lhs, rhs, out, row, add, addends };
        // SAFETY: the caller's promise is the same.
        unsafe { multiply(self.simd, self.free, &product, |_| ()) };
    }
}
