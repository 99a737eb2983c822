//! Copies of a plan. All threads share a copy. A single thread waits too long for memory and for
//! lines in other threads' caches, and longer still if the destination's pages are new and must
//! be cleared. Copies that no cache holds are stored past the caches, since an ordinary store
//! first reads the line.

use crate::memory::Span;
use crate::pool::Pool;
use wengert_core::Diagnostic;

/// Most bytes that a task copies: some ten microseconds.
const TASK: usize = 512 << 10;
/// Fewest bytes that a task copies: less is copied before another thread has begun.
const LEAST: usize = 16 << 10;
/// Fewest bytes of a copy that is stored past the caches.
const PAST: usize = 32 << 20;

/// Copies all bytes of one place to another; the two may overlap.
///
/// # Safety
///
/// Both spans are valid for their bytes, and have the same number of them; `to` is valid to
/// write, and no other code uses it.
pub(super) unsafe fn copy(pool: &Pool, from: Span, to: Span) -> Result<(), Diagnostic> {
    let bytes = from.bytes();
    let distance = from.pointer().addr().abs_diff(to.pointer().addr());
    let size = bytes.div_ceil(pool.threads()).next_multiple_of(LEAST).min(TASK);
    if bytes <= size || distance < bytes {
        // SAFETY: the caller guarantees both; `copy` allows them to overlap.
        unsafe { std::ptr::copy(from.pointer(), to.pointer(), bytes) };
        return Ok(());
    }
    let task = |_: usize, task: usize| {
        let start = task * size;
        let count = size.min(bytes - start);
        // SAFETY: the caller guarantees both, which do not overlap, and each task has its own
        // bytes.
        unsafe {
            let (from, to) = (from.pointer().add(start), to.pointer().add(start));
            if bytes >= PAST {
                copy_past_caches(from, to, count);
            } else {
                from.copy_to_nonoverlapping(to, count);
            }
        }
    };
    Ok(pool.parallel_for(bytes.div_ceil(size), task)?)
}

/// Copies bytes with non-temporal stores, where the machine has them.
///
/// # Safety
///
/// `bytes` bytes are valid to read and to write; they do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_past_caches(from: *const u8, to: *mut u8, bytes: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    const WIDE: usize = size_of::<__m128i>();
    let before = to.align_offset(WIDE).min(bytes);
    let vectors = (bytes - before) / WIDE;
    let after = before + vectors * WIDE;
    // SAFETY: all accesses are within the bytes that the caller guarantees. Non-temporal stores
    // are aligned to their size; every machine of this architecture has them. The fence orders
    // them before all later accesses.
    unsafe {
        from.copy_to_nonoverlapping(to, before);
        let (source, destination) =
            (from.add(before).cast::<__m128i>(), to.add(before).cast::<__m128i>());
        for k in 0..vectors {
            _mm_stream_si128(destination.add(k), _mm_loadu_si128(source.add(k)));
        }
        from.add(after).copy_to_nonoverlapping(to.add(after), bytes - after);
        _mm_sfence();
    }
}

/// Copies bytes.
///
/// # Safety
///
/// `bytes` bytes are valid to read and to write; they do not overlap.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn copy_past_caches(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise is the same.
    unsafe { from.copy_to_nonoverlapping(to, bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Buffer;
    use std::ptr::NonNull;

    #[test]
    fn every_byte_is_copied_whether_places_overlap_or_not() {
        let pool = Pool::new(3).expect("starts");
        for (bytes, offset) in [
            (0, 0),
            (1, 0),
            (LEAST, 0),
            (2 * LEAST, 0),
            (2 * LEAST + 3, 1),
            (TASK, 0),
            (TASK + 1, 0),
            (3 * TASK + 17, 0),
            (PAST, 0),
            (PAST + 5, 3),
        ] {
            let numbers: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
            let mut found = vec![0u8; bytes + offset];
            let (from, to) = (Buffer::reading(&numbers), Buffer::writing(&mut found[offset..]));
            // SAFETY: both vectors have `bytes` bytes.
            unsafe { copy(&pool, from.span(), to.span()) }.expect("no task fails");
            assert!(found[offset..] == numbers, "{bytes}");
        }
        let mut memory: Vec<u8> = (0..3 * TASK).map(|n| (n % 251) as u8).collect();
        let wanted: Vec<u8> = memory[..2 * TASK + 5].to_vec();
        let at = memory.as_mut_ptr();
        // SAFETY: both places are in the vector.
        unsafe {
            let from = Span::new(NonNull::new(at).expect("not null"), 2 * TASK + 5, true);
            let to = Span::new(NonNull::new(at.add(100)).expect("not null"), 2 * TASK + 5, true);
            copy(&pool, from, to).expect("no task fails");
        }
        assert!(memory[100..2 * TASK + 105] == wanted);
    }
}
