//! Moves of elements between memory and blocks: they depend only on the size of an element.

use super::CHUNK;

/// Runs `$body` with `$t` standing for an unsigned integer of `$size` bytes.
macro_rules! with_size {
    ($size:expr, $t:ident => $body:expr) => {
        with_size!(@ $size, $t => $body; 1 => u8, 2 => u16, 4 => u32, _ => u64)
    };
    (@ $size:expr, $t:ident => $body:expr; $($bytes:pat => $type:ident),*) => {
        match $size { $($bytes => { type $t = $type; $body })* }
    };
}

/// `destination[k] = source[0]` for k in `0..count`. The source may be the first element of the
/// destination.
///
/// # Safety
///
/// Both are valid and aligned for elements of `size` bytes (1, 2, 4 or 8).
pub(crate) unsafe fn splat(destination: *mut u8, source: *const u8, size: usize, count: usize) {
    // SAFETY: the caller's promise.
    with_size!(size, T => unsafe {
        let value = source.cast::<T>().read();
        let destination = destination.cast::<T>();
        for k in 0..count {
            destination.add(k).write(value);
        }
    });
}

/// `destination[k] = base + k · step` for k in `0..count`, with wrapping integers.
///
/// # Safety
///
/// The destination is valid and aligned for `count` elements of `size` bytes (1, 2, 4 or 8).
pub(crate) unsafe fn ramp(destination: *mut u8, base: i64, step: i64, size: usize, count: usize) {
    // SAFETY: the caller's promise: the chunks and the elements after them stay within the count.
    with_size!(size, T => unsafe {
        let destination = destination.cast::<T>();
        let (base, step) = (base as T, step as T);
        let mut values: [T; CHUNK] =
            std::array::from_fn(|k| base.wrapping_add(step.wrapping_mul(k as T)));
        let turn = step.wrapping_mul(CHUNK as T);
        let mut k = 0;
        while k + CHUNK <= count {
            destination.add(k).cast::<[T; CHUNK]>().write_unaligned(values);
            values = values.map(|value| value.wrapping_add(turn));
            k += CHUNK;
        }
        for (rest, value) in (k..count).zip(values) {
            destination.add(rest).write(value);
        }
    });
}

/// `destination[k] = source[k · stride]` for k in `0..count`.
///
/// # Safety
///
/// All these elements, of `size` bytes, are valid and aligned, and the blocks do not overlap.
pub(crate) unsafe fn load_strided(
    destination: *mut u8,
    source: *const u8,
    stride: isize,
    size: usize,
    count: usize,
) {
    // SAFETY: the caller's promise. `wrapping_offset` lets the last, unused step leave the
    // allocation.
    with_size!(size, T => unsafe {
        let mut source = source.cast::<T>();
        let destination = destination.cast::<T>();
        for k in 0..count {
            destination.add(k).write(source.read());
            source = source.wrapping_offset(stride);
        }
    });
}

/// `destination[k · stride] = source[k]` for k in `0..count`.
///
/// # Safety
///
/// As for [`load_strided`].
pub(crate) unsafe fn store_strided(
    destination: *mut u8,
    source: *const u8,
    stride: isize,
    size: usize,
    count: usize,
) {
    // SAFETY: the caller's promise. `wrapping_offset` lets the last, unused step leave the
    // allocation.
    with_size!(size, T => unsafe {
        let source = source.cast::<T>();
        let mut destination = destination.cast::<T>();
        for k in 0..count {
            destination.write(source.add(k).read());
            destination = destination.wrapping_offset(stride);
        }
    });
}

/// Lanes that are tested together: if several axes are combined, the elements along the last one
/// are contiguous.
const RUN: usize = 16;

/// `destination[k] = base[offsets[k]]` for every k.
///
/// # Safety
///
/// All these elements, of `size` bytes, are valid and aligned, and the blocks do not overlap. The
/// base itself need not be an element.
pub(crate) unsafe fn gather(destination: *mut u8, base: *const u8, offsets: &[i64], size: usize) {
    // SAFETY: the caller's promise.
    with_size!(size, T => unsafe {
        let (mut destination, base) = (destination.cast::<T>(), base.cast::<T>());
        for offsets in offsets.chunks(RUN) {
            let first = offsets[0];
            let apart = offsets
                .iter()
                .zip(first..)
                .fold(0, |apart, (offset, next)| apart | (offset ^ next));
            if apart == 0 && offsets.len() == RUN {
                let run = base.wrapping_offset(first as isize).cast::<[T; RUN]>().read_unaligned();
                destination.cast::<[T; RUN]>().write_unaligned(run);
            } else {
                for (k, offset) in offsets.iter().enumerate() {
                    destination.add(k).write(base.wrapping_offset(*offset as isize).read());
                }
            }
            destination = destination.add(offsets.len());
        }
    });
}

/// `destination[k] = base[offsets[k]]` where `mask[k]` is not 0.
///
/// # Safety
///
/// As for [`gather`], where the mask is not 0; the mask has as many elements as the offsets.
pub(crate) unsafe fn gather_masked(
    destination: *mut u8,
    base: *const u8,
    offsets: &[i64],
    mask: &[u8],
    size: usize,
) {
    // SAFETY: the caller's promise.
    with_size!(size, T => unsafe {
        let (destination, base) = (destination.cast::<T>(), base.cast::<T>());
        for (k, (offset, pass)) in offsets.iter().zip(mask).enumerate() {
            if *pass != 0 {
                destination.add(k).write(base.offset(*offset as isize).read());
            }
        }
    });
}

/// `base[offsets[k]] = source[k]` where `mask[k]` is not 0.
///
/// # Safety
///
/// As for [`gather_masked`].
pub(crate) unsafe fn scatter_masked(
    base: *mut u8,
    source: *const u8,
    offsets: &[i64],
    mask: &[u8],
    size: usize,
) {
    // SAFETY: the caller's promise.
    with_size!(size, T => unsafe {
        let (source, base) = (source.cast::<T>(), base.cast::<T>());
        for (k, (offset, pass)) in offsets.iter().zip(mask).enumerate() {
            if *pass != 0 {
                base.offset(*offset as isize).write(source.add(k).read());
            }
        }
    });
}
