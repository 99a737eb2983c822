//! Products without addends, each element of which is one chain of additions: the steps of
//! attention and of convolutions.

use super::element::Element;
use super::panel::{View, widened};
use super::product::{Product, multiply};
use crate::simd::Simd;

/// Rows of numbers, some distance apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<T> {
    pub at: *mut T,
    pub distance: usize,
}

impl<T: Copy> Rows<T> {
    /// Address of a row.
    pub fn row(self, position: usize) -> *mut T {
        self.at.wrapping_add(position * self.distance)
    }

    /// The same rows of numbers of the same size.
    pub fn cast<U: Copy>(self) -> Rows<U> {
        assert_eq!(size_of::<T>(), size_of::<U>(), "rows stay where they are");
        Rows { at: self.at.cast(), distance: self.distance }
    }

    /// The rows from `position` on.
    pub fn at(self, position: usize) -> Self {
        Rows { at: self.row(position), ..self }
    }

    /// The rows from `position` on, as a matrix.
    pub fn from(self, position: usize) -> View<T> {
        View { at: self.row(position), row: self.distance, column: 1 }
    }

    /// The same, transposed.
    pub fn across(self, position: usize) -> View<T> {
        View { at: self.row(position), row: 1, column: self.distance }
    }
}

/// The vector instructions of a task, and the scratch memory of its products.
pub(super) struct Products<'a> {
    pub simd: Simd,
    pub free: &'a mut [u8],
}

impl Products<'_> {
    /// The matrix in the dtype of the arithmetic: in place, or, if that is another dtype, a copy in
    /// `copy`.
    ///
    /// # Safety
    ///
    /// As for [`widened`], if it is copied.
    pub unsafe fn wide<T: Element>(
        &self,
        source: View<T>,
        size: [usize; 2],
        copy: *mut T::Wide,
    ) -> View<T::Wide> {
        if !T::HALF {
            return source.plain();
        }
        // SAFETY: the caller's promise is the same.
        unsafe { widened(self.simd, source, size, copy) }
    }

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
        let product = Product::chains(size, [lhs, rhs], (out, row), add);
        // SAFETY: the caller's promise is the same.
        unsafe { multiply(self.simd, self.free, &product, |_| ()) };
    }
}
