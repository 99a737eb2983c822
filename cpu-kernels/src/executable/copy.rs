//! Copies of a plan. Large ones are made by all threads: one alone is too slow to wait for memory, and slower still where the destination's pages are used for the first
//! time and have to be cleared.

use crate::memory::Buffer;
use crate::pool::Pool;
use wengert_core::Diagnostic;

/// Bytes that a task copies, at most.
const TASK: usize = 2 << 20;

/// Copies all bytes of one place to another, which may overlap.
///
/// # Safety
///
/// Both are valid for their bytes, of which there are as many; `to` is valid to write, and nobody else uses it.
pub(super) unsafe fn copy(pool: &Pool, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Diagnostic> {
    let bytes = from.bytes();
    let distance = from.pointer().addr().abs_diff(to.pointer().addr());
    if bytes <= TASK || distance < bytes {
        // SAFETY: the caller vouches for both; `copy` allows them to overlap.
        unsafe { std::ptr::copy(from.pointer(), to.pointer(), bytes) };
        return Ok(());
    }
    let task = |_: usize, task: usize| {
        let start = task * TASK;
        let count = TASK.min(bytes - start);
        // SAFETY: the caller vouches for both, which are apart, and each task has bytes of its own.
        unsafe {
            from.pointer().add(start).copy_to_nonoverlapping(to.pointer().add(start), count);
        }
    };
    pool.parallel_for(bytes.div_ceil(TASK), task).map_err(|e| Diagnostic::new(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::NonNull;

    #[test]
    fn every_byte_is_copied_whether_places_overlap_or_not() {
        let pool = Pool::new(3).expect("starts");
        for bytes in [0, 1, TASK, TASK + 1, 3 * TASK + 17] {
            let numbers: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
            let mut found = vec![0u8; bytes];
            // SAFETY: both vectors have so many bytes.
            unsafe { copy(&pool, &Buffer::reading(&numbers), &Buffer::writing(&mut found)) }
                .expect("no task fails");
            assert!(found == numbers, "{bytes}");
        }
        let mut memory: Vec<u8> = (0..3 * TASK).map(|n| (n % 251) as u8).collect();
        let wanted: Vec<u8> = memory[..2 * TASK + 5].to_vec();
        let at = memory.as_mut_ptr();
        // SAFETY: both places are in the vector.
        unsafe {
            let from = Buffer::from_raw(NonNull::new(at).expect("not null"), 2 * TASK + 5, true);
            let to = Buffer::from_raw(NonNull::new(at.add(100)).expect("not null"), 2 * TASK + 5, true);
            copy(&pool, &from, &to).expect("no task fails");
        }
        assert!(memory[100..2 * TASK + 105] == wanted);
    }
}
