//! Layout of a thread's scratch memory.
//!
//! Sizes come from the extents of a nest, which come from files. The arithmetic is checked: after
//! an overflow the layout has no end ([`Layout::end`]), so nothing ever runs on its offsets.

use crate::kernels::CHUNK;
use crate::memory::ALIGNMENT;
use wengert_core::Diagnostic;

/// A bump allocator of offsets.
#[derive(Debug)]
pub(super) struct Layout {
    /// Bytes so far; `None` after an overflow.
    end: Option<usize>,
}

impl Default for Layout {
    fn default() -> Self {
        Layout { end: Some(0) }
    }
}

impl Layout {
    /// Reserves an array at an aligned offset; `extents` includes the bytes of an element.
    pub fn array(&mut self, extents: impl IntoIterator<Item = usize>) -> usize {
        let at = self.end.unwrap_or(0);
        let bytes = extents.into_iter().try_fold(1usize, usize::checked_mul);
        let end = bytes.zip(self.end).and_then(|(bytes, end)| end.checked_add(bytes));
        self.end = end.and_then(|end| end.checked_next_multiple_of(ALIGNMENT));
        at
    }

    /// Reserves a block of at least `lanes` elements, rounded up to whole chunks.
    pub fn block(&mut self, size: usize, lanes: usize) -> usize {
        match lanes.checked_next_multiple_of(CHUNK) {
            Some(lanes) => self.array([size, lanes]),
            None => self.array([usize::MAX, usize::MAX]),
        }
    }

    /// The total size.
    ///
    /// Error: it exceeds the address space.
    pub fn end(&self) -> Result<usize, Diagnostic> {
        let end = self.end.filter(|end| isize::try_from(*end).is_ok());
        end.ok_or_else(|| Diagnostic::new("its scratch memory is larger than the address space"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_aligned_and_apart() {
        let mut layout = Layout::default();
        assert_eq!(
            [layout.array([3, 5]), layout.array([64]), layout.array([0]), layout.block(4, 1)],
            [0, 64, 128, 128]
        );
        assert_eq!(layout.end().expect("it fits"), 128 + (4 * CHUNK).next_multiple_of(ALIGNMENT));
    }

    #[test]
    fn what_does_not_fit_spoils_the_layout() {
        let spoilt: [&[&[usize]]; 4] = [
            &[&[1 << 40, 1 << 40]],
            &[&[usize::MAX]],
            &[&[usize::MAX / 2]],
            // Each fits, their sum wraps.
            &[&[usize::MAX - 63], &[128]],
        ];
        for arrays in spoilt {
            let mut layout = Layout::default();
            layout.array([10]);
            for extents in arrays {
                layout.array(extents.iter().copied());
            }
            layout.array([10]);
            assert!(layout.end().expect_err("too large").message.contains("address space"));
        }
        let mut layout = Layout::default();
        layout.block(1, usize::MAX);
        assert!(layout.end().is_err());
    }
}
