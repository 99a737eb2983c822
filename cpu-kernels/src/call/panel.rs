//! Matrices in memory, and copies of parts of them in the order in which products read them.

use super::element::Element;
use crate::kernels;
use crate::kernels::squares::SIDE;
#[cfg(target_arch = "x86_64")]
use crate::kernels::squares::square;
use crate::simd::Simd;

/// A matrix in memory: the address of its first element, and the distances between rows and
/// between columns, in elements.
#[derive(Debug)]
pub(super) struct View<T> {
    pub at: *const T,
    pub row: usize,
    pub column: usize,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for View<T> {}

impl<T: Copy> View<T> {
    /// Address of an element.
    #[inline(always)]
    pub fn element(self, i: usize, j: usize) -> *const T {
        self.at.wrapping_add(i * self.row + j * self.column)
    }

    /// An element.
    ///
    /// # Safety
    ///
    /// It exists, and is valid to read.
    #[inline(always)]
    pub unsafe fn get(self, i: usize, j: usize) -> T {
        // SAFETY: the caller guarantees it.
        unsafe { self.element(i, j).read() }
    }

    /// The matrix transposed.
    pub fn transposed(self) -> Self {
        View { at: self.at, row: self.column, column: self.row }
    }

    /// The part that begins at an element.
    pub fn from(self, i: usize, j: usize) -> Self {
        View { at: self.element(i, j), ..self }
    }
}

impl<T: Element> View<T> {
    /// The same matrix, for elements whose dtype is that of the arithmetic.
    pub fn plain(self) -> View<T::Wide> {
        assert!(!T::HALF, "every element but a half is its own number");
        View { at: self.at.cast(), row: self.row, column: self.column }
    }
}

/// Copies elements, widened to the dtype of the arithmetic.
#[derive(Clone, Copy)]
struct Widening {
    /// Widens whole chunks of halves; other elements are copied.
    kernel: Option<kernels::Kernel>,
}

impl Widening {
    fn new<T: Element>(simd: Simd) -> Self {
        let kernel = || kernels::convert(T::DTYPE, <T::Wide as Element>::DTYPE, simd);
        Widening { kernel: T::HALF.then(kernel) }
    }

    /// Copies `count` elements.
    ///
    /// # Safety
    ///
    /// As for [`widen`]; the elements and vector instructions are those of [`new`](Self::new).
    #[inline]
    unsafe fn run<T: Element>(self, source: *const T, destination: *mut T::Wide, count: usize) {
        let Some(kernel) = self.kernel else {
            // SAFETY: the two types are the same; the caller guarantees the remaining conditions.
            unsafe { source.cast::<T::Wide>().copy_to_nonoverlapping(destination, count) };
            return;
        };
        let whole = count / kernels::CHUNK * kernels::CHUNK;
        if whole > 0 {
            let (to, from, none) = (destination.cast(), source.cast(), std::ptr::null());
            // SAFETY: the count is a multiple of CHUNK. The kernel was looked up for these dtypes
            // and the machine's vector instructions. The caller guarantees the instructions and
            // the blocks. The kernel reads no second and third block.
            unsafe { kernel(to, from, none, none, whole, 0) };
        }
        for k in whole..count {
            // SAFETY: k is below the count.
            unsafe { destination.add(k).write(source.add(k).read().wide()) };
        }
    }
}

/// Copies `count` elements, widened to the dtype of the arithmetic.
///
/// # Safety
///
/// The source is valid to read and the destination to write `count` elements; they do not
/// overlap. The machine has the vector instructions.
#[inline]
pub(super) unsafe fn widen<T: Element>(
    simd: Simd,
    source: *const T,
    destination: *mut T::Wide,
    count: usize,
) {
    // SAFETY: the caller's promise is the same.
    unsafe { Widening::new::<T>(simd).run(source, destination, count) }
}

/// A dense copy of `rows × columns` elements, widened to the dtype of the arithmetic, in their
/// order in memory if they have one.
///
/// # Safety
///
/// The elements exist and are valid to read, the destination is valid to write as many numbers;
/// they do not overlap. The machine has the vector instructions.
pub(super) unsafe fn widened<T: Element>(
    simd: Simd,
    source: View<T>,
    [rows, columns]: [usize; 2],
    destination: *mut T::Wide,
) -> View<T::Wide> {
    let widening = Widening::new::<T>(simd);
    // SAFETY: indices are below the extents; each index of the result is below their product.
    unsafe {
        if source.row == 1 && source.column != 1 {
            for j in 0..columns {
                widening.run(source.element(0, j), destination.add(j * rows), rows);
            }
            return View { at: destination, row: 1, column: rows };
        }
        for i in 0..rows {
            let row = destination.add(i * columns);
            if source.column == 1 {
                widening.run(source.element(i, 0), row, columns);
            } else {
                (0..columns).for_each(|j| row.add(j).write(source.get(i, j).wide()));
            }
        }
    }
    View { at: destination, row: columns, column: 1 }
}

/// A dense copy with contiguous rows, of a matrix with contiguous columns (`row` is 1). Elements
/// of four bytes are transposed by vector instructions.
///
/// # Safety
///
/// As for [`widened`].
pub(super) unsafe fn transposed<T: Element>(
    simd: Simd,
    source: View<T>,
    [rows, columns]: [usize; 2],
    destination: *mut T,
) -> View<T> {
    assert_eq!(source.row, 1, "chosen when the call was compiled");
    let squares =
        cfg!(target_arch = "x86_64") && size_of::<T>() == size_of::<f32>() && simd >= Simd::Avx2;
    let whole = |extent: usize| if squares { extent / SIDE * SIDE } else { 0 };
    let (whole_rows, whole_columns) = (whole(rows), whole(columns));
    // SAFETY: a square of SIDE × SIDE within the whole rows and columns exists, and the indices
    // of the remaining elements are below the extents; an index of the result is below their
    // product. If there are squares, the elements have 4 bytes and the machine AVX2.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        for j in (0..whole_columns).step_by(SIDE) {
            // Along the runs of the source, so that the hardware prefetcher follows.
            for i in (0..whole_rows).step_by(SIDE) {
                square(
                    source.element(i, j).cast(),
                    source.column,
                    destination.add(i * columns + j).cast(),
                    columns,
                );
            }
        }
        for i in 0..rows {
            let from = if i < whole_rows { whole_columns } else { 0 };
            (from..columns).for_each(|j| destination.add(i * columns + j).write(source.get(i, j)));
        }
    }
    View { at: destination, row: columns, column: 1 }
}
