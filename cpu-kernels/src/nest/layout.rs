//! Where things lie in a thread's scratch memory.

use crate::kernels::CHUNK;
use crate::memory::ALIGNMENT;

/// A bump allocator of offsets.
#[derive(Debug, Default)]
pub(super) struct Layout {
    end: usize,
}

impl Layout {
    /// Room for so many bytes, at an aligned offset.
    pub fn bytes(&mut self, bytes: usize) -> usize {
        let at = self.end;
        self.end = (at + bytes).next_multiple_of(ALIGNMENT);
        at
    }

    /// Room for a block of at least so many elements: whole chunks.
    pub fn block(&mut self, size: usize, lanes: usize) -> usize {
        self.bytes(size * lanes.next_multiple_of(CHUNK))
    }

    /// All of it.
    pub fn end(&self) -> usize {
        self.end
    }
}
