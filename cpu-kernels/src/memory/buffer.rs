//! Memory borrowed for a run, and its representation inside the crate: addresses.
//!
//! A [`Buffer`] is a borrow with its type erased: `&[T]` or `&mut [T]`. A writable buffer is
//! unique, as `&mut [T]` is: it is neither `Copy` nor `Clone`, and a run takes it mutably. So no
//! two runs can have the same writable bytes, on any number of threads, and a caller needs no
//! `unsafe`:
//!
//! ```compile_fail,E0499
//! use wengert_cpu::{Buffer, CompiledNest, Workspace};
//! fn race(nest: &CompiledNest, first: &Workspace, second: &Workspace, x: &[f32], y: &mut [f32]) {
//!     let mut buffers = [Buffer::reading(x), Buffer::writing(y)];
//!     std::thread::scope(|threads| {
//!         threads.spawn(|| nest.run(first, &mut buffers));
//!         threads.spawn(|| nest.run(second, &mut buffers));
//!     });
//! }
//! ```
//!
//! ```compile_fail,E0382
//! use wengert_cpu::Buffer;
//! let mut y = [0.0f32; 4];
//! let first = Buffer::writing(&mut y);
//! let second = first;
//! drop(first);
//! ```
//!
//! A [`Span`] is an address and a length. A span may be `Copy`, because accesses through it are
//! `unsafe`: functions that take spans state what their callers must guarantee.

use std::marker::PhantomData;
use std::ptr::NonNull;
use wengert_core::Diagnostic;

/// Memory borrowed for a run: to read, or to read and write. Unique if it is writable.
#[derive(Debug)]
pub struct Buffer<'a> {
    span: Span,
    borrow: PhantomData<&'a mut [u8]>,
}

impl<'a> Buffer<'a> {
    /// Elements that are only read.
    pub fn reading<T: bytemuck::NoUninit>(elements: &'a [T]) -> Self {
        let bytes: &[u8] = bytemuck::cast_slice(elements);
        let span =
            Span { pointer: NonNull::from_ref(bytes).cast(), bytes: bytes.len(), writable: false };
        Buffer { span, borrow: PhantomData }
    }

    /// Elements that may be read and written.
    pub fn writing<T: bytemuck::NoUninit + bytemuck::AnyBitPattern>(elements: &'a mut [T]) -> Self {
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(elements);
        let span =
            Span { bytes: bytes.len(), pointer: NonNull::from_mut(bytes).cast(), writable: true };
        Buffer { span, borrow: PhantomData }
    }

    /// The span of the buffer's bytes, valid during the borrow. A read through it requires a shared
    /// borrow of the buffer at that time, a write an exclusive borrow.
    pub(crate) fn span(&self) -> Span {
        self.span
    }
}

/// An address, a length, and whether the bytes may be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pointer: NonNull<u8>,
    bytes: usize,
    writable: bool,
}

// SAFETY: a span is an address. The `SAFETY` argument of each access through it includes data
// races. The memory of a `Buffer` is plain bytes, which are not bound to a thread.
unsafe impl Send for Span {}
// SAFETY: as above.
unsafe impl Sync for Span {}

impl Span {
    /// No bytes.
    pub const EMPTY: Span = Span { pointer: NonNull::dangling(), bytes: 0, writable: false };

    /// The bytes at an address.
    pub const fn new(pointer: NonNull<u8>, bytes: usize, writable: bool) -> Self {
        Span { pointer, bytes, writable }
    }

    /// The same bytes, read-only.
    pub fn read_only(self) -> Span {
        Span { writable: false, ..self }
    }

    /// Its address.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// True if the two share a byte.
    pub fn overlaps(&self, other: &Span) -> bool {
        let (a, b) = (self.pointer.addr().get(), other.pointer.addr().get());
        a < b.saturating_add(other.bytes) && b < a.saturating_add(self.bytes)
    }

    /// Checks that the span meets the requirements of a run for `name`.
    pub fn check(
        &self,
        name: &str,
        bytes: usize,
        align: usize,
        write: bool,
    ) -> Result<(), Diagnostic> {
        if self.bytes != bytes {
            return Err(Diagnostic::new(format!(
                "`{name}` has {bytes} bytes, its buffer has {}",
                self.bytes
            )));
        }
        if !self.pointer.addr().get().is_multiple_of(align) && bytes > 0 {
            return Err(Diagnostic::new(format!(
                "the buffer of `{name}` is not aligned to its elements"
            )));
        }
        if write && !self.writable {
            return Err(Diagnostic::new(format!(
                "`{name}` is written, but its buffer is borrowed for reading"
            )));
        }
        Ok(())
    }
}

/// The spans of buffers. The borrow is exclusive, so no other code accesses the writable buffers
/// during the borrow.
pub(crate) fn spans(buffers: &mut [Buffer<'_>]) -> Vec<Span> {
    buffers.iter().map(Buffer::span).collect()
}

/// An error if there are not as many buffers as wanted.
pub(crate) fn check_count(wanted: usize, buffers: &[Span]) -> Result<(), Diagnostic> {
    match buffers.len() {
        given if given == wanted => Ok(()),
        given => Err(Diagnostic::new(format!("takes {wanted} buffers, not {given}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_the_bytes_and_the_access_of_their_buffers() {
        let mut memory = [0u32; 8];
        let address = memory.as_ptr().addr();
        let span = Buffer::writing(&mut memory[2..4]).span();
        assert_eq!((span.bytes(), span.is_writable()), (8, true));
        assert_eq!(span.pointer().addr(), address + 8);
        assert!(span.check("x", 8, 4, true).is_ok());
        assert!(span.check("x", 4, 4, true).is_err());
        let (a, b) = memory.split_at_mut(4);
        let (a, b, c) = (Buffer::writing(a).span(), Buffer::writing(b).span(), Span::EMPTY);
        assert!(a.overlaps(&a) && !a.overlaps(&b) && !b.overlaps(&a) && !a.overlaps(&c));
        assert!(Buffer::reading(&[1u8, 2]).span().check("x", 2, 1, true).is_err());
    }
}
