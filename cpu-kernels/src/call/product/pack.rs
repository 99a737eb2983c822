//! Packing: copies of parts of an operand in the order in which the microkernel reads them.
//!
//! For each step of k, a panel holds the numbers of some neighbouring rows of lhs, or columns of
//! rhs, contiguously. Both are called **lines**. If lines lie side by side in memory, a step is
//! copied as it is. If each line is contiguous, squares are transposed in registers.

use super::strip::Ahead;
use crate::call::element::Number;
#[cfg(target_arch = "x86_64")]
use crate::kernels::squares;
use crate::simd::{Simd, multiversioned};

/// Lines of an operand: rows of lhs, or columns of rhs.
pub(in crate::call) struct Lines<T> {
    pub at: *const T,
    /// Distance between lines.
    pub across: usize,
    /// Distance between the elements of a line, which are the steps of k.
    pub along: usize,
}

impl<T> Clone for Lines<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Lines<T> {}

impl<T> Lines<T> {
    /// The same with another element type of the same size.
    pub fn cast<U>(self) -> Lines<U> {
        assert_eq!(size_of::<T>(), size_of::<U>(), "distances are in elements");
        Lines { at: self.at.cast(), across: self.across, along: self.along }
    }

    /// The lines from `line` on, from step `step` on.
    pub fn from(self, line: usize, step: usize) -> Self {
        Lines { at: self.at.wrapping_add(line * self.across + step * self.along), ..self }
    }
}

/// Elements beyond the end of a panel that may be overwritten.
pub(super) const SLACK: usize = 8;
/// Side of the squares that are transposed.
pub(super) const SIDE: usize = 8;
/// Bytes of a cache line.
const CACHE_LINE: usize = 64;
/// Elements that are read at a time of each run: some cache lines.
const RUN: usize = 8 * SIDE;

/// Prefetches a cache line; any address is allowed.
#[inline(always)]
pub(super) fn fetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every machine of the architecture has the instruction, and it has no effect on the
    // program's state.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches contiguous elements, in the order of memory.
#[inline]
pub(super) fn fetch_run<T>(at: *const T, elements: usize) {
    (0..elements).step_by(CACHE_LINE / size_of::<T>()).for_each(|n| fetch(at.wrapping_add(n)));
}

/// Prefetches the lines that are packed next. They are many short runs of memory, which the
/// hardware prefetcher does not follow.
#[inline]
pub(super) fn fetch_lines<T>(source: Lines<T>, [width, depth]: [usize; 2]) {
    if width == 0 {
        return;
    }
    if source.across == 1 {
        let last = source.at.wrapping_add(width - 1);
        (0..depth).for_each(|k| fetch(last.wrapping_add(k * source.along)));
    } else if source.along == 1 {
        for line in 0..width {
            let line = source.at.wrapping_add(line * source.across);
            (0..depth)
                .step_by(CACHE_LINE / size_of::<T>())
                .for_each(|k| fetch(line.wrapping_add(k)));
        }
    }
}

/// The lines that are packed next: a tile prefetches them, one cache line at each of its steps. A
/// loop of prefetches would wait for memory. `None` if neither the lines nor the steps are
/// contiguous.
pub(super) fn ahead<T>(source: Lines<T>, [width, depth]: [usize; 2]) -> Option<Ahead> {
    let Lines { at, across, along } = source;
    let bytes = size_of::<T>();
    match (across, along) {
        _ if width == 0 => None,
        (_, 1) => {
            let at = at.cast();
            Some(Ahead { at, across: across * bytes, side: width, along: CACHE_LINE })
        }
        // The strip before has read the first elements of each step.
        (1, _) => {
            let last = at.wrapping_add(width - 1).cast();
            Some(Ahead { at: last, across: along * bytes, side: depth, along: 0 })
        }
        _ => None,
    }
}

/// `to[k·step + l] = line l at k`, for k in `0..depth` and l in `0..width`.
///
/// # Safety
///
/// The elements are valid to read. `to` is valid to write `depth · step` elements and [`SLACK`]
/// more, which overlap none that are read. The step is not below the width. The machine has the
/// vector instructions.
pub(super) unsafe fn pack<T: Number>(
    simd: Simd,
    source: Lines<T>,
    [width, depth]: [usize; 2],
    to: *mut T,
    step: usize,
) {
    // SAFETY: the indices are below the extents.
    unsafe {
        if source.across == 1 {
            return beside_each_other(simd, source, [width, depth], to, step);
        }
        if source.along == 1 && size_of::<T>() == size_of::<f32>() {
            let across = source.across * size_of::<T>();
            return contiguous(simd, source.at.cast(), across, [width, depth], to.cast(), step);
        }
        for k in 0..depth {
            let from = source.at.add(k * source.along);
            (0..width).for_each(|l| to.add(k * step + l).write(from.add(l * source.across).read()));
        }
    }
}

/// [`pack`] of contiguous lines of four bytes each number, at a distance of `across` bytes. The
/// lines may have any address: pairs of halves have that of a half.
///
/// # Safety
///
/// As for [`pack`].
pub(super) unsafe fn contiguous(
    simd: Simd,
    source: *const f32,
    across: usize,
    [width, depth]: [usize; 2],
    to: *mut f32,
    step: usize,
) {
    // SAFETY: the indices are below the extents.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        let done = if simd >= Simd::Avx2 {
            let whole = depth / SIDE * SIDE;
            let rest = width % squares::SIDE;
            let wide = if simd >= Simd::Avx512 && (rest == 0 || rest > SIDE) {
                let wide = depth / squares::SIDE * squares::SIDE;
                wide_runs(source, across, [width, wide], to, step);
                wide
            } else {
                0
            };
            runs(source.add(wide), across, [width, whole - wide], to.add(wide * step), step);
            whole
        } else {
            0
        };
        #[cfg(not(target_arch = "x86_64"))]
        let (done, _) = (0, simd);
        for k in done..depth {
            for line in 0..width {
                let number = source.add(k).byte_add(line * across).read_unaligned();
                to.add(k * step + line).write(number);
            }
        }
    }
}

multiversioned! {
    /// Packs lines that lie side by side.
    ///
    /// # Safety
    ///
    /// As for [`pack`].
    unsafe fn beside_each_other<T: Number> = copied(
        source: Lines<T>,
        size: [usize; 2],
        to: *mut T,
        step: usize
    );
}

/// The body of [`beside_each_other`].
///
/// # Safety
///
/// As for [`beside_each_other`].
#[inline(always)]
unsafe fn copied<T: Number>(source: Lines<T>, [width, depth]: [usize; 2], to: *mut T, step: usize) {
    macro_rules! by_width {
        ($($w:literal)*) => {
            match width {
                // SAFETY: the caller's promise is the same.
                $($w => unsafe { steps::<T, $w>(source, depth, to, step) },)*
                _ => for k in 0..depth {
                    for line in 0..width {
                        // SAFETY: the steps exist.
                        unsafe {
                            let number = source.at.add(k * source.along + line).read();
                            to.add(k * step + line).write(number);
                        }
                    }
                },
            }
        };
    }
    // Panels of rhs, and strips of lhs.
    by_width!(32 16 14 13 12 11 10 9 8 7 6 5 4 3 2);
}

/// Copies steps of a fixed width by a few instructions each.
///
/// # Safety
///
/// As for [`beside_each_other`], for `W` lines.
#[inline(always)]
unsafe fn steps<T: Number, const W: usize>(
    source: Lines<T>,
    depth: usize,
    to: *mut T,
    step: usize,
) {
    for k in 0..depth {
        // SAFETY: the step exists.
        unsafe {
            let numbers = source.at.add(k * source.along).cast::<[T; W]>().read_unaligned();
            to.add(k * step).cast::<[T; W]>().write_unaligned(numbers);
        }
    }
}

/// Packs contiguous lines in squares of 16 × 16. What a square writes for lines beyond the last
/// one is where the next step, which is written later, or the slack is.
///
/// # Safety
///
/// As for [`contiguous`]; the last square lacks fewer than [`SLACK`] lines, the depth is a
/// multiple of [`squares::SIDE`], and the machine has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn wide_runs(
    source: *const f32,
    across: usize,
    [width, depth]: [usize; 2],
    to: *mut f32,
    step: usize,
) {
    for line in (0..width).step_by(squares::SIDE) {
        for k in (0..depth).step_by(squares::SIDE) {
            // SAFETY: the lines exist, and so do the steps.
            unsafe {
                let from = source.add(k).byte_add(line * across);
                let there = squares::SIDE.min(width - line);
                squares::wide_square(from, across, there, to.add(k * step + line), step);
            }
        }
    }
}

/// Packs contiguous lines.
///
/// The last square overlaps the one before it. With fewer lines than a square has, its last rows
/// are arbitrary. They are written where the next step, which is written later, or the slack is.
///
/// # Safety
///
/// As for [`contiguous`]; the depth is a multiple of [`SIDE`], and the machine has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn runs(
    source: *const f32,
    across: usize,
    [width, depth]: [usize; 2],
    to: *mut f32,
    step: usize,
) {
    let mut start = 0;
    while start < depth {
        let end = depth.min(start + RUN);
        for line in 0..width {
            let next = source.wrapping_add(end).wrapping_byte_add(line * across);
            fetch_run(next, RUN.min(depth - end));
        }
        let mut line = 0;
        while line < width {
            // With fewer lines than a square has, only the existing ones are read.
            let first = line.min(width.saturating_sub(SIDE));
            let there = SIDE.min(width);
            for k in (start..end).step_by(SIDE) {
                // SAFETY: the lines exist, and so do the steps.
                unsafe {
                    let from = source.add(k).byte_add(first * across);
                    square(from, across, there, to.add(k * step + first), step);
                }
            }
            line += SIDE;
        }
        start = end;
    }
}

/// Transposes a square of 8 × 8 numbers, of whose rows, at a distance of `across` bytes, `there`
/// exist.
///
/// # Safety
///
/// `there` rows of 8 numbers are valid to read, and 8 rows of 8 to write, one after the other;
/// the machine has AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
#[inline]
unsafe fn square(source: *const f32, across: usize, there: usize, to: *mut f32, step: usize) {
    use crate::kernels::squares::exchanged;
    use std::arch::x86_64::{_mm256_loadu_ps, _mm256_storeu_ps};
    // SAFETY: the row exists.
    let rows = std::array::from_fn(|l| unsafe {
        _mm256_loadu_ps(source.byte_add(l.min(there - 1) * across))
    });
    for (k, numbers) in exchanged(rows).into_iter().enumerate() {
        // SAFETY: the caller guarantees the eight rows.
        unsafe { _mm256_storeu_ps(to.add(k * step), numbers) };
    }
}
