//! Memory of a run: buffers borrowed from the caller, and scratch memory that is allocated once.
//!
//! This module is the boundary between checked and unchecked memory. A [`Buffer`] is made from a
//! slice, so the borrow checker guarantees its validity. Inside the crate it becomes a [`Span`],
//! and functions that read or write through spans are `unsafe`. Each of them checks the length,
//! the alignment and the overlap of its spans before it accesses them. `docs/memory-safety.md`
//! lists all public items that take memory.

mod buffer;
mod pages;

pub use buffer::Buffer;
pub(crate) use buffer::{Span, check_count, spans};

use crate::pool::Pool;
use crate::ranks::Ranks;
use crate::simd::Simd;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use wengert_core::Diagnostic;

/// Alignment of all allocations of this module: a cache line, which is also the widest vector.
pub const ALIGNMENT: usize = 64;

/// Returns freed pages to the system. The GNU C library keeps them for reuse, but a step does not
/// reuse the memory of compilation. Does nothing with other C libraries.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::ffi::c_int;
        // SAFETY: the C library defines the function with this signature; any thread may call it
        // at any time.
        unsafe extern "C" {
            safe fn malloc_trim(keep: usize) -> c_int;
        }
        malloc_trim(0);
    }
}

/// Zeroed bytes at a fixed, aligned address.
///
/// On Linux, all but small allocations are in huge pages where the system has them: small pages
/// cause many TLB misses.
#[derive(Debug)]
pub struct AlignedBytes {
    pointer: NonNull<u8>,
    bytes: usize,
    /// The huge pages that hold the bytes; `None` if they are on the heap.
    pages: Option<pages::Block>,
}

// SAFETY: the value owns its bytes as a `Box<[u8]>` does.
unsafe impl Send for AlignedBytes {}
// SAFETY: as above; a shared reference gives no access to the bytes but through `as_ref`.
unsafe impl Sync for AlignedBytes {}

impl AlignedBytes {
    /// Allocates `bytes` zeros.
    ///
    /// Error: the system does not have this amount of memory.
    pub fn new(bytes: usize) -> Result<Self, Diagnostic> {
        let failed = || Diagnostic::of_device(format!("cannot allocate {bytes} bytes of memory"));
        if bytes == 0 {
            return Ok(AlignedBytes::empty());
        }
        if pages::Block::pays(bytes) {
            let pages = pages::Block::new(bytes).ok_or_else(failed)?;
            return Ok(AlignedBytes { pointer: pages.pointer(), bytes, pages: Some(pages) });
        }
        let layout = Layout::from_size_align(bytes, ALIGNMENT).map_err(|_| failed())?;
        // SAFETY: the layout has a size other than 0.
        let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
        Ok(AlignedBytes { pointer: NonNull::new(pointer).ok_or_else(failed)?, bytes, pages: None })
    }

    const fn empty() -> Self {
        AlignedBytes { pointer: NonNull::<Line>::dangling().cast(), bytes: 0, pages: None }
    }

    /// Address of the first byte.
    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

impl std::ops::Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the bytes are initialised and owned.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.bytes) }
    }
}

impl std::ops::DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the bytes are initialised and owned, and borrowed mutably through `self`.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for AlignedBytes {
    fn drop(&mut self) {
        if self.bytes > 0 && self.pages.is_none() {
            // SAFETY: allocated in `new` with this layout, which was valid there.
            unsafe {
                std::alloc::dealloc(
                    self.pointer.as_ptr(),
                    Layout::from_size_align_unchecked(self.bytes, ALIGNMENT),
                );
            }
        }
    }
}

/// A type with the alignment [`ALIGNMENT`].
#[repr(align(64))]
struct Line;

/// Resources shared by runs: the threads, the vector instructions, and scratch memory. Each thread
/// has as much scratch memory as the largest reservation; so has the memory that the threads share.
#[derive(Debug)]
pub struct Workspace {
    pool: Arc<Pool>,
    simd: Simd,
    scratch: Vec<Mutex<AlignedBytes>>,
    /// Bytes of scratch memory that every thread has at least.
    room: usize,
    /// Scratch memory that all threads use.
    shared: Mutex<AlignedBytes>,
    /// Its bytes.
    shared_room: usize,
    /// The other ranks of the plan that runs in it.
    ranks: Ranks,
}

impl Workspace {
    /// A workspace for these threads, without scratch memory.
    ///
    /// Error: the machine lacks the vector instructions.
    pub fn new(pool: Arc<Pool>, simd: Simd) -> Result<Self, Diagnostic> {
        if !simd.is_available() {
            return Err(Diagnostic::new(format!("this machine does not have {}", simd.name())));
        }
        let scratch = (0..pool.threads()).map(|_| Mutex::new(AlignedBytes::empty())).collect();
        let shared = Mutex::new(AlignedBytes::empty());
        let ranks = Ranks::default();
        Ok(Workspace { pool, simd, scratch, room: 0, shared, shared_room: 0, ranks })
    }

    /// Joins the ranks with which collectives exchange data.
    pub(crate) fn join(&mut self, ranks: Ranks) {
        self.ranks = ranks;
    }

    /// The ranks that [`join`](Self::join) has given it.
    pub(crate) fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// Grows the scratch memory of every thread to at least `bytes`.
    ///
    /// Error: the system does not have this amount of memory.
    pub fn reserve(&mut self, bytes: usize) -> Result<(), Diagnostic> {
        for scratch in &mut self.scratch {
            let scratch = scratch.get_mut().unwrap_or_else(PoisonError::into_inner);
            if scratch.len() < bytes {
                *scratch = AlignedBytes::new(bytes)?;
            }
        }
        self.room = self.room.max(bytes);
        Ok(())
    }

    /// Grows the scratch memory that the threads share to at least `bytes`.
    ///
    /// Error: the system does not have this amount of memory.
    pub(crate) fn reserve_shared(&mut self, bytes: usize) -> Result<(), Diagnostic> {
        if self.shared_room < bytes {
            self.shared = Mutex::new(AlignedBytes::new(bytes)?);
            self.shared_room = bytes;
        }
        Ok(())
    }

    /// An error if a thread has less scratch memory than this, or the threads share less.
    pub(crate) fn check(&self, bytes: usize, shared: usize) -> Result<(), Diagnostic> {
        if self.room >= bytes && self.shared_room >= shared {
            return Ok(());
        }
        let shared = if shared > 0 { format!(" and {shared} shared bytes") } else { String::new() };
        let message = format!("the workspace has less scratch memory than {bytes} bytes{shared}");
        Err(Diagnostic::new(message).help("reserve it first"))
    }

    /// Bytes of scratch memory: of all threads, and shared.
    pub fn bytes(&self) -> usize {
        self.scratch
            .iter()
            .map(|s| s.lock().unwrap_or_else(PoisonError::into_inner).len())
            .fold(self.shared_room, usize::saturating_add)
    }

    /// The threads.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// The vector instructions.
    pub fn simd(&self) -> Simd {
        self.simd
    }

    /// The scratch memory that the threads share; used by one run of a call at a time.
    pub(crate) fn shared(&self) -> MutexGuard<'_, AlignedBytes> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The scratch memory of a thread of the pool. Blocks only if two runs of one workspace
    /// overlap.
    pub(crate) fn scratch(&self, thread: usize) -> MutexGuard<'_, AlignedBytes> {
        // A poisoned lock is fine: no later code relies on the contents of scratch memory.
        self.scratch[thread].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_zeros() {
        for bytes in [0, 1, 63, 64, 100_000, 128 << 10, (2 << 20) + 1, 5 << 20, (9 << 20) + 5] {
            let memory = AlignedBytes::new(bytes).expect("little memory");
            assert_eq!(memory.len(), bytes);
            assert!(memory.pointer().addr().get().is_multiple_of(ALIGNMENT));
            assert!(memory.iter().all(|b| *b == 0));
        }
        assert!(AlignedBytes::new(usize::MAX - 5).is_err());
        assert!(AlignedBytes::new(usize::MAX / 2).is_err());
    }

    #[test]
    fn scratch_grows_for_every_thread() {
        let pool = Arc::new(Pool::new(2).expect("threads start"));
        let mut workspace = Workspace::new(pool, Simd::Portable).expect("every machine has them");
        workspace.reserve(100).expect("little memory");
        workspace.reserve(10).expect("little memory");
        assert!((0..2).all(|t| workspace.scratch(t).len() == 100) && workspace.room == 100);
        // A failed reservation leaves the room as it was.
        assert!(workspace.reserve(usize::MAX).is_err() && workspace.room == 100);
    }
}
