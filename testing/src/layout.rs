//! The rows of a literal in memory with a pitch. Padding is left as it is, so that a sanitizer
//! finds kernels that read it.

use wengert_core::pitch::{PaddedRows, memory_extents};
use wengert_core::{DType, Literal};

/// Type and pitch of a literal in memory.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// Dtype of the elements.
    pub dtype: DType,
    /// Extents.
    pub shape: &'a [usize],
    /// The pitch, if the literal is not dense.
    pub pitch: Option<usize>,
}

impl Layout<'_> {
    /// Bytes of the memory, padding included.
    pub fn bytes(&self) -> usize {
        memory_extents(self.shape, self.pitch).product::<usize>() * self.dtype.size()
    }

    /// Calls `write` with the offset and the bytes of each contiguous part of a literal.
    pub fn write(&self, literal: &Literal, mut write: impl FnMut(usize, &[u8])) {
        let bytes = literal.to_bytes();
        let (row, pitch) = self.rows(bytes.len());
        for (n, row) in bytes.chunks(row.max(1)).enumerate() {
            write(n * pitch, row);
        }
    }

    /// The literal whose parts `read` returns, by their offset and their number of bytes.
    pub fn read(&self, mut read: impl FnMut(usize, usize) -> Vec<u8>) -> Literal {
        let count = self.shape.iter().product::<usize>() * self.dtype.size();
        let (row, pitch) = self.rows(count);
        let parts = (0..count.checked_div(row).unwrap_or(0)).map(|n| read(n * pitch, row));
        let bytes = parts.collect::<Vec<_>>().concat();
        Literal::from_bytes(self.dtype, self.shape, &bytes).expect("as many bytes")
    }

    /// Bytes of a contiguous part, and the distance of parts. A dense literal of `count` bytes is
    /// one part.
    fn rows(&self, count: usize) -> (usize, usize) {
        let size = self.dtype.size();
        match PaddedRows::of(self.shape, self.pitch) {
            Some(PaddedRows { extent, pitch }) => (extent * size, pitch * size),
            None => (count, count),
        }
    }
}
