//! Sums of products in memory: adds the addends in the dtype of the sums, and rounds to the
//! result's dtype, once. Each step has the bits of the corresponding graph op. The order is that of
//! [`Addends`].
//!
//! The loops are compiled for each set of vector instructions. A chunk of elements is read before
//! it is written, so the sums and the residual may alias the result.

use super::element::{Element, Number};
use crate::simd::Simd;
use std::mem::MaybeUninit;
use wengert_core::call::Addends;

/// Addresses of the operands and the result; distances between rows are in elements.
pub(super) struct Places<R: Element> {
    pub sums: *const R::Wide,
    pub sums_row: usize,
    pub out: *mut R,
    /// Distance between the rows of out, and of the residual.
    pub out_row: usize,
    /// One element for each column; read only if there is one.
    pub bias: *const R,
    /// Laid out as out; read only if there is one.
    pub residual: *const R,
}

/// Finishes `rows × columns` sums.
///
/// # Safety
///
/// All these elements exist. Those that are added are valid to read, and out's to write;
/// no other code uses out's. Rows of the sums are out's or do not overlap it, and likewise the
/// residual's. The machine has the vector instructions.
pub(super) unsafe fn finish<R: Element>(
    simd: Simd,
    addends: Addends,
    [rows, columns]: [usize; 2],
    places: &Places<R>,
) {
    let row = match simd {
        #[cfg(target_arch = "x86_64")]
        Simd::Avx2 => avx2::row::<R>,
        #[cfg(target_arch = "x86_64")]
        Simd::Avx512 | Simd::Avx512Bf16 => avx512::row::<R>,
        _ => portable::row::<R>,
    };
    for i in 0..rows {
        let at = i * places.out_row;
        // SAFETY: row i exists; the caller guarantees the remaining conditions.
        unsafe {
            row(
                addends,
                columns,
                places.sums.wrapping_add(i * places.sums_row),
                places.out.wrapping_add(at),
                places.bias,
                places.residual.wrapping_add(at),
            );
        }
    }
}

/// Elements that are read before any of them is written.
const CHUNK: usize = 32;

/// One row.
///
/// # Safety
///
/// As for [`finish`], for one row.
#[inline(always)]
unsafe fn row<R: Element>(
    addends: Addends,
    columns: usize,
    sums: *const R::Wide,
    out: *mut R,
    bias: *const R,
    residual: *const R,
) {
    let whole = columns / CHUNK * CHUNK;
    // SAFETY: every index is below the number of columns.
    unsafe {
        for j in (0..whole).step_by(CHUNK) {
            chunk::<CHUNK, R>(
                addends,
                sums.add(j),
                out.add(j),
                bias.wrapping_add(j),
                residual.wrapping_add(j),
            );
        }
        for j in whole..columns {
            chunk::<1, R>(
                addends,
                sums.add(j),
                out.add(j),
                bias.wrapping_add(j),
                residual.wrapping_add(j),
            );
        }
    }
}

/// `C` elements.
///
/// # Safety
///
/// As for [`finish`], for these elements.
#[inline(always)]
unsafe fn chunk<const C: usize, R: Element>(
    addends: Addends,
    sums: *const R::Wide,
    out: *mut R,
    bias: *const R,
    residual: *const R,
) {
    // SAFETY: the caller guarantees the elements that are read and written.
    unsafe {
        let mut sums: [R::Wide; C] = load(sums);
        let (bias, residual) = ((addends.bias, bias), (addends.residual, residual));
        let (first, second) = if R::HALF { (residual, bias) } else { (bias, residual) };
        if first.0 {
            let addend: [R; C] = load(first.1);
            sums = map(|k| sums[k].add(addend[k].wide()));
        }
        if second.0 {
            let addend: [R; C] = load(second.1);
            sums = map(|k| sums[k].add(addend[k].wide()));
        }
        let values: [R; C] = map(|k| R::round(sums[k]));
        out.cast::<[R; C]>().write_unaligned(values);
    }
}

/// # Safety
///
/// `C` elements are valid to read.
#[inline(always)]
unsafe fn load<const C: usize, T: Copy>(source: *const T) -> [T; C] {
    // SAFETY: the caller guarantees it.
    unsafe { source.cast::<[T; C]>().read_unaligned() }
}

/// `[f(0), f(1), …]`, as a loop that is vectorised.
#[inline(always)]
fn map<const C: usize, R: Copy>(f: impl Fn(usize) -> R) -> [R; C] {
    let mut out = MaybeUninit::<[R; C]>::uninit();
    let elements = out.as_mut_ptr().cast::<R>();
    for k in 0..C {
        // SAFETY: k is below C, the number of elements of `out`.
        unsafe { elements.add(k).write(f(k)) };
    }
    // SAFETY: all elements are written.
    unsafe { out.assume_init() }
}

/// The loop over a row, compiled for one set of vector instructions.
macro_rules! level {
    ($level:ident $(, $features:literal)?) => {
        mod $level {
            use super::*;

            /// # Safety
            ///
            /// As for [`super::row`]; and the machine has the vector instructions.
            $(#[target_feature(enable = $features)])?
            pub(super) unsafe fn row<R: Element>(
                addends: Addends,
                columns: usize,
                sums: *const R::Wide,
                out: *mut R,
                bias: *const R,
                residual: *const R,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { super::row(addends, columns, sums, out, bias, residual) }
            }
        }
    };
}
level!(portable);
#[cfg(target_arch = "x86_64")]
level!(avx2, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
level!(avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c");
