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
pub(crate) const RUN: usize = 16;

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

/// How the elements of a run of lanes lie in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Run {
    /// Side by side.
    Contiguous,
    /// Lanes 2q and 2q + 1 have element q of two contiguous parts.
    OfTwo,
    /// Lanes 4q to 4q + 3 have element q of four contiguous parts: channels that are shuffled among
    /// four groups.
    OfFour,
    /// In no order that is known.
    Apart,
}

/// How the elements of each run lie, if their offsets are these.
pub(crate) fn runs(offsets: &[i64]) -> Vec<Run> {
    let of = |offsets: &[i64]| {
        let parts = |count: usize| {
            let first = |k: usize| offsets[k % count].wrapping_add((k / count) as i64);
            offsets.len() == RUN && offsets.iter().enumerate().all(|(k, o)| *o == first(k))
        };
        match () {
            () if parts(1) => Run::Contiguous,
            () if parts(2) => Run::OfTwo,
            () if parts(4) => Run::OfFour,
            () => Run::Apart,
        }
    };
    offsets.chunks(RUN).map(of).collect()
}

/// [`gather`] of lanes whose [`runs`] are known: one for each [`RUN`] offsets.
///
/// # Safety
///
/// As for [`gather`]; the runs are those of the offsets.
pub(crate) unsafe fn gather_runs(
    destination: *mut u8,
    base: *const u8,
    offsets: &[i64],
    runs: &[Run],
    size: usize,
) {
    // SAFETY: the caller's promise.
    with_size!(size, T => unsafe {
        let (mut destination, base) = (destination.cast::<T>(), base.cast::<T>());
        for (offsets, run) in offsets.chunks(RUN).zip(runs) {
            let element = |lane: usize| base.wrapping_offset(offsets[lane] as isize);
            let is_whole = offsets.len() == RUN;
            match if is_whole { *run } else { Run::Apart } {
                Run::Contiguous => {
                    let run = element(0).cast::<[T; RUN]>().read_unaligned();
                    destination.cast::<[T; RUN]>().write_unaligned(run);
                }
                Run::OfTwo => {
                    let parts = [0, 1].map(|p| element(p).cast::<[T; RUN / 2]>().read_unaligned());
                    let lanes: [T; RUN] = std::array::from_fn(|k| parts[k % 2][k / 2]);
                    destination.cast::<[T; RUN]>().write_unaligned(lanes);
                }
                #[cfg(target_arch = "x86_64")]
                Run::OfFour if size_of::<T>() == size_of::<f32>() => {
                    let parts = [0, 1, 2, 3].map(|p| element(p).cast::<f32>());
                    of_four(destination.cast(), parts);
                }
                Run::OfFour => {
                    let parts =
                        [0, 1, 2, 3].map(|p| element(p).cast::<[T; RUN / 4]>().read_unaligned());
                    let lanes: [T; RUN] = std::array::from_fn(|k| parts[k % 4][k / 4]);
                    destination.cast::<[T; RUN]>().write_unaligned(lanes);
                }
                Run::Apart => {
                    for k in 0..offsets.len() {
                        destination.add(k).write(element(k).read());
                    }
                }
            }
            destination = destination.add(offsets.len());
        }
    });
}

/// `destination[4q + p] = parts[p][q]` for q and p in `0..4`: a square of 4 × 4 is transposed. The
/// compiler moves elements one by one if it is written as [`gather_runs`] writes others.
///
/// # Safety
///
/// Four numbers of each part are valid to read, and sixteen to write.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn of_four(destination: *mut f32, parts: [*const f32; 4]) {
    use std::arch::x86_64::{_MM_TRANSPOSE4_PS, _mm_loadu_ps, _mm_storeu_ps};
    // SAFETY: the caller guarantees the memory; every machine of the architecture has SSE.
    unsafe {
        let [mut a, mut b, mut c, mut d] = parts.map(|part| _mm_loadu_ps(part));
        _MM_TRANSPOSE4_PS(&mut a, &mut b, &mut c, &mut d);
        for (q, lanes) in [a, b, c, d].into_iter().enumerate() {
            _mm_storeu_ps(destination.add(4 * q), lanes);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The offsets of channels that are shuffled: those of `groups` groups of `length` channels.
    fn shuffled(groups: i64, length: i64) -> Vec<i64> {
        (0..groups * length).map(|k| k / groups + length * (k % groups)).collect()
    }

    #[test]
    fn runs_are_gathered_as_single_elements_are() {
        let tables = [
            (shuffled(1, 40), Run::Contiguous),
            (shuffled(2, 20), Run::OfTwo),
            (shuffled(4, 34), Run::OfFour),
            (shuffled(8, 4), Run::Apart),
            ((0..40).rev().collect(), Run::Apart),
        ];
        for (table, first) in tables {
            let runs = runs(&table);
            assert_eq!((runs[0], runs.len()), (first, table.len().div_ceil(RUN)));
            for size in [1, 2, 4, 8] {
                let source: Vec<u64> = (0..table.len() as u64).map(|n| n * 0x0101_0307).collect();
                // The last run may be shorter than in the table.
                for count in [table.len(), table.len() - 5] {
                    let mut found = [vec![0u64; table.len()], vec![0u64; table.len()]];
                    let [plain, by_runs] = found.each_mut().map(|v| v.as_mut_ptr().cast::<u8>());
                    let base = source.as_ptr().cast::<u8>();
                    // SAFETY: both have as many elements as the table, each of at most 8 bytes.
                    unsafe {
                        gather(plain, base, &table[..count], size);
                        gather_runs(by_runs, base, &table[..count], &runs, size);
                    }
                    assert_eq!(found[0], found[1], "{first:?} of {size} bytes");
                }
            }
        }
    }
}
