//! An allocator that places inaccessible pages before and after each allocation that is aligned to
//! a cache line. These are the allocations of runs. All other allocations come from the system.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

const PAGE: usize = 4096;
/// Alignment of guarded memory.
const LINE: usize = 64;

const NO_ACCESS: c_int = 0;
const READ_AND_WRITE: c_int = 1 | 2;
const PRIVATE_AND_ANONYMOUS: c_int = 0x02 | 0x20;

// SAFETY: these functions of the C library have these signatures.
unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        access: c_int,
        flags: c_int,
        file: c_int,
        offset: i64,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
    fn mprotect(at: *mut c_void, bytes: usize, access: c_int) -> c_int;
    fn clock() -> std::ffi::c_long;
    fn getenv(name: *const std::ffi::c_char) -> *const std::ffi::c_char;
}

/// The processor time that the process has used.
pub fn processor_time() -> Duration {
    // SAFETY: `clock` takes no arguments and returns a number. POSIX fixes its unit at a
    // microsecond.
    Duration::from_micros(u64::try_from(unsafe { clock() }).unwrap_or(0))
}

/// See the module.
pub struct Guarded;

/// 0: not yet known; 1: pages; 2: no pages.
static MODE: AtomicU8 = AtomicU8::new(0);

/// True if the allocation has guard pages. The answer is the same for the whole life of the
/// process.
fn is_guarded(layout: Layout) -> bool {
    if layout.align() != LINE || !cfg!(target_os = "linux") {
        return false;
    }
    let mode = match MODE.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: the name ends with 0, and so does a value. The environment is not changed.
            // (The standard library allocates when it reads the environment.)
            let off = unsafe {
                let value = getenv(c"WENGERT_GUARD".as_ptr());
                !value.is_null() && value.read() == b'0' as std::ffi::c_char
            };
            let mode = if off { 2 } else { 1 };
            MODE.store(mode, Ordering::Relaxed);
            mode
        }
        mode => mode,
    };
    mode == 1
}

/// Bytes of the pages that contain an allocation, without the two guard pages.
fn pages(layout: Layout) -> usize {
    layout.size().next_multiple_of(LINE).next_multiple_of(PAGE)
}

// SAFETY: unguarded memory comes from the system. Guarded memory is a mapping of its own, and it is
// zeroed. It has room for the layout, and it ends at the end of the readable pages up to alignment.
unsafe impl GlobalAlloc for Guarded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_guarded(layout) {
            // SAFETY: the caller obeys the contract.
            return unsafe { System.alloc(layout) };
        }
        let inner = pages(layout);
        // SAFETY: the mapping is new, and its inner pages are made accessible.
        unsafe {
            let whole = mmap(
                std::ptr::null_mut(),
                inner + 2 * PAGE,
                NO_ACCESS,
                PRIVATE_AND_ANONYMOUS,
                -1,
                0,
            );
            if whole.addr() == usize::MAX {
                return std::ptr::null_mut();
            }
            let start = whole.cast::<u8>().add(PAGE);
            if mprotect(start.cast(), inner, READ_AND_WRITE) != 0 {
                munmap(whole, inner + 2 * PAGE);
                return std::ptr::null_mut();
            }
            start.add(inner - layout.size().next_multiple_of(LINE))
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_guarded(layout) {
            // SAFETY: the caller obeys the contract. Fresh pages are zero.
            unsafe { self.alloc(layout) }
        } else {
            // SAFETY: as above.
            unsafe { System.alloc_zeroed(layout) }
        }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        if !is_guarded(layout) {
            // SAFETY: the caller obeys the contract.
            return unsafe { System.dealloc(pointer, layout) };
        }
        let inner = pages(layout);
        // SAFETY: this is the mapping of `alloc`; its address follows from the same layout.
        unsafe {
            let start = pointer.sub(inner - layout.size().next_multiple_of(LINE));
            munmap(start.sub(PAGE).cast(), inner + 2 * PAGE);
        }
    }
}

#[test]
fn what_lies_behind_an_allocation_cannot_be_read() {
    if std::env::var_os("WENGERT_TEST_GUARD").is_some() {
        let memory = wengert_cpu::AlignedBytes::new(64).unwrap();
        // SAFETY: none. This read must end the process.
        let byte = unsafe { memory.as_ptr().add(64).read_volatile() };
        println!("read {byte}");
        return;
    }
    if !is_guarded(Layout::from_size_align(64, LINE).unwrap()) {
        wengert_testing::skipped("no guard pages beside AddressSanitizer");
        return;
    }
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "guard::what_lies_behind_an_allocation_cannot_be_read"]);
    let ended = child.env("WENGERT_TEST_GUARD", "1").output().unwrap();
    assert!(ended.status.code().is_none(), "a signal ends it: {ended:?}");
}
