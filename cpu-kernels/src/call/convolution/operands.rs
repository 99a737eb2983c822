//! The operands of [direct] products, in the form that the kernels of a machine multiply.
//!
//! | elements | block | filter or cotangent |
//! |---|---|---|
//! | f32, f64 | copied | in place |
//! | halves | widened | widened |
//! | bf16, where the machine multiplies [pairs] | copied | rows of pairs |
//!
//! Neighbouring terms of a run of taps are adjacent in a block, so the kernel reads them in place
//! as a pair. Terms of a sum over positions are adjacent only if there is one channel and the
//! stride is 1. Otherwise the block is copied once more: for each element, the pair of it with the
//! element of the next position.

use super::direct::{Block, Direct};
use super::patches::{SHORT, copy};
use crate::call::element::{Element, Number};
use crate::call::panel::{View, widen, widened};
use crate::call::product::pack::Lines;
use crate::call::product::pairs;
use crate::call::product::strip::Kernels;
use crate::call::{array, take};
use crate::simd::Simd;
use std::ops::Range;

/// The kernels of direct products, and the form of their operands.
pub(super) struct Form<N: 'static> {
    simd: Simd,
    kernels: &'static Kernels<N>,
    /// Whether the kernels' numbers are pairs of elements.
    pub pairs: bool,
}

/// Bytes of scratch memory for the operands of products with `columns` columns of numbers of
/// `size` bytes; saturates. `sums` are those over positions.
pub(super) fn scratch<T: Element>(direct: &Direct, columns: usize, sums: bool) -> usize {
    let size = size_of::<T::Wide>();
    let block = array(&[direct.elements(), size]);
    if !sums || !T::HALF {
        return block;
    }
    let cotangent = array(&[direct.positions(), columns, size]);
    let pairs = if T::PAIRED { array(&[direct.elements() + 1, size_of::<T>()]) } else { 0 };
    [block, cotangent, pairs].into_iter().fold(0, usize::saturating_add)
}

/// Rows of pairs: the terms 2·p and 2·p + 1 of every column, for each p.
///
/// # Safety
///
/// The columns, of `depth` terms each, are valid to read. `to` is valid to write `depth / 2`,
/// rounded up, times `row` numbers. There are a multiple of 16 columns, at most `row`. The machine
/// has the vector instructions.
pub(super) unsafe fn pack_rows(
    simd: Simd,
    source: Lines<u16>,
    [columns, depth]: [usize; 2],
    to: *mut u32,
    row: usize,
) {
    /// Columns for which packing has a loop of its own, and at least as many as a square has: the
    /// last square of a panel begins in the panel, so no slack is written.
    const PANEL: usize = 16;
    debug_assert!(columns.is_multiple_of(PANEL), "chosen when the call was compiled");
    for column in (0..columns).step_by(PANEL) {
        // SAFETY: the columns exist; the caller guarantees the memory.
        unsafe {
            let (source, to) = (source.from(column, 0), to.add(column));
            pairs::pack(simd, source, [PANEL, depth], to, row, pairs::BESIDE_RHS);
        }
    }
}

impl<N: Number> Form<N> {
    /// The form for the elements and the machine; `None` for integers.
    pub fn of<T: Element<Wide = N>>(simd: Simd) -> Option<Self> {
        match T::kernels_of_pairs(simd) {
            Some(kernels) => Some(Form { simd, kernels, pairs: true }),
            None => N::kernels(simd).map(|kernels| Form { simd, kernels, pairs: false }),
        }
    }

    /// The block of some lines of an image, for products with the filter.
    ///
    /// # Safety
    ///
    /// The form is that of the elements. The source is the whole tensor from the group's first
    /// channel on. The free memory is as large as [`scratch`] returns. The machine has the vector
    /// instructions.
    pub unsafe fn block<'f, T: Element<Wide = N>>(
        &self,
        direct: &Direct,
        source: *const T,
        image: usize,
        lines: &Range<usize>,
        free: &mut &'f mut [u8],
    ) -> Block<'f, N> {
        let Form { simd, kernels, pairs } = *self;
        let elements = direct.elements();
        let at = if pairs {
            // The partner of the last element is read, though not used.
            let to = take::<T>(free, elements + 1).as_mut_ptr();
            // SAFETY: the elements are within the source and the block, which do not overlap.
            let copied = |from, to, count| unsafe { copy::<T>(from, to, count) };
            // SAFETY: the block has room for its elements; the caller guarantees the source.
            unsafe { direct.copy(source, image, lines, to, copied) };
            to.cast_const().cast()
        } else {
            let to = take::<N>(free, elements).as_mut_ptr();
            // SAFETY: the elements are within the source and the block, which do not overlap.
            let copied = |from: *const T, to: *mut N, count| unsafe {
                if count > SHORT {
                    widen::<T>(simd, from, to, count);
                } else {
                    (0..count).for_each(|k| to.add(k).write(from.add(k).read().wide()));
                }
            };
            // SAFETY: the block has room for its elements; the caller guarantees the source.
            unsafe { direct.copy(source, image, lines, to, copied) };
            to.cast_const()
        };
        let exchanged = T::PAIRED && !pairs;
        Block { kernels, at, pairs, doubled: false, exchanged, lines: lines.len() }
    }

    /// The block of some lines of an image, for sums over its positions.
    ///
    /// # Safety
    ///
    /// As for [`block`](Self::block).
    pub unsafe fn block_of_sums<'f, T: Element<Wide = N>>(
        &self,
        direct: &Direct,
        source: *const T,
        image: usize,
        lines: &Range<usize>,
        free: &mut &'f mut [u8],
    ) -> Block<'f, N> {
        // SAFETY: the caller's promise is the same.
        let block = unsafe { self.block(direct, source, image, lines, free) };
        let along = direct.step();
        if !self.pairs || along == 1 {
            return block;
        }
        let to = take::<N>(free, direct.elements()).as_mut_ptr().cast::<u32>();
        let elements = direct.elements_of(lines.len());
        let both = elements.saturating_sub(along);
        let source = Lines { at: block.at.cast(), across: 1, along };
        // SAFETY: both blocks have so many elements; an element below `both` has one at the
        // distance `along`.
        unsafe {
            pairs::pack(self.simd, source, [both, 2], to, both, pairs::BESIDE_LHS);
            let (source, to) = (source.from(both, 0), to.add(both));
            let alone = elements - both;
            pairs::pack(self.simd, source, [alone, 1], to, alone, pairs::BESIDE_LHS);
        }
        Block { at: to.cast_const().cast(), doubled: true, ..block }
    }

    /// The cotangent at the positions of `lines` lines of an image.
    ///
    /// # Safety
    ///
    /// As for [`block`](Self::block); the view has the positions, and contiguous columns.
    pub unsafe fn cotangent<T: Element<Wide = N>>(
        &self,
        direct: &Direct,
        view: View<T>,
        [lines, columns]: [usize; 2],
        free: &mut &mut [u8],
    ) -> View<N> {
        if !T::HALF {
            return view.plain();
        }
        let row = direct.positions_of_line();
        let to = take::<N>(free, direct.positions() * columns).as_mut_ptr();
        if !self.pairs {
            // SAFETY: the copy has room for the positions; the caller guarantees the view.
            return unsafe { widened(self.simd, view, [lines * row, columns], to) };
        }
        for line in 0..lines {
            let from = view.from(line * row, 0);
            let source = Lines { at: from.at.cast(), across: 1, along: from.row };
            let to = to.wrapping_add(line * row.div_ceil(2) * columns).cast();
            // SAFETY: a line has no more pairs than positions, so there is room for all.
            unsafe { pack_rows(self.simd, source, [columns, row], to, columns) };
        }
        View { at: to.cast_const(), row: columns, column: 1 }
    }
}
