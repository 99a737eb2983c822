//! Allocations in huge pages.
//!
//! With pages of 4 KiB, reading a matrix of 1 MB misses the TLB 288 times, and each miss costs
//! about a quarter of a microsecond on a virtual machine. The reading itself takes 70 µs. So
//! variables and arenas are in huge pages where the system has them. A huge page holds 2 MiB,
//! more than most variables. Therefore small allocations lie one after the other in a mapping
//! that they share.
//!
//! A mapping ends with its last allocation. An allocation that ends before returns its pages to
//! the system at once. Its addresses are not used again, so new allocations are zeros.

use memmap2::{MmapMut, MmapOptions};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;
/// Bytes of a small page.
const PAGE: usize = 4 << 10;
/// Fewest bytes of an allocation in huge pages.
const FEWEST: usize = 128 << 10;
/// Most bytes of an allocation that shares its mapping.
const SMALL: usize = 8 << 20;
/// Bytes of a mapping for small allocations. Bytes that are never touched take no memory, except
/// the rest of the last huge page. So fewer and larger mappings take less memory.
const SHARED: usize = 128 << 20;

/// A memory mapping.
#[derive(Debug)]
struct Mapping {
    pages: MmapMut,
    /// Offset of the first huge page. The bytes before it are never touched.
    start: usize,
}

impl Mapping {
    /// A mapping of `bytes` zeros from its first huge page on.
    fn new(bytes: usize) -> Option<Self> {
        let pages = MmapOptions::new().len(bytes.checked_add(HUGE_PAGE)?).map_anon().ok()?;
        let start = pages.as_ptr().addr().wrapping_neg() % HUGE_PAGE;
        // Excludes the partial huge page at the end, which would take a whole one. A system
        // without huge pages returns an error; the bytes are then in small pages.
        #[cfg(target_os = "linux")]
        let _ = pages.advise_range(memmap2::Advice::HugePage, start, bytes / HUGE_PAGE * HUGE_PAGE);
        Some(Mapping { pages, start })
    }
}

/// The mapping for the next small allocation, and the bytes of it that are taken.
static OPEN: Mutex<(Weak<Mapping>, usize)> = Mutex::new((Weak::new(), 0));

/// Bytes in huge pages: a part of a mapping that belongs to one owner.
#[derive(Debug)]
pub(super) struct Block {
    mapping: Arc<Mapping>,
    /// Offset from the first huge page.
    offset: usize,
    /// A multiple of [`PAGE`] if the mapping is shared.
    bytes: usize,
}

impl Block {
    /// True if huge pages pay for so many bytes, and the system has them.
    pub fn pays(bytes: usize) -> bool {
        bytes >= FEWEST && cfg!(target_os = "linux")
    }

    /// Allocates `bytes` zeros; `None` if the system does not have this amount of memory.
    pub fn new(bytes: usize) -> Option<Self> {
        if bytes > SMALL {
            return Some(Block { mapping: Arc::new(Mapping::new(bytes)?), offset: 0, bytes });
        }
        let bytes = bytes.next_multiple_of(PAGE);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let (mapping, taken) = match open.0.upgrade() {
            Some(mapping) if open.1 + bytes <= SHARED => (mapping, open.1),
            _ => (Arc::new(Mapping::new(SHARED)?), 0),
        };
        *open = (Arc::downgrade(&mapping), taken + bytes);
        Some(Block { mapping, offset: taken, bytes })
    }

    /// Address of the first byte: that of a page.
    pub fn pointer(&self) -> NonNull<u8> {
        let first = self.mapping.pages.as_ptr().wrapping_add(self.mapping.start + self.offset);
        NonNull::new(first.cast_mut()).expect("a mapping is not at address 0")
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // A system that refuses keeps the pages until the mapping ends.
        #[cfg(target_os = "linux")]
        if Arc::strong_count(&self.mapping) > 1 {
            let first = self.mapping.start + self.offset;
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the pages belong to this block, and no code reads them again.
            let _ = unsafe { self.mapping.pages.unchecked_advise_range(advice, first, self.bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a block.
    fn bytes_of(block: &mut Block) -> &mut [u8] {
        // SAFETY: the block owns its bytes, which are initialised.
        unsafe { std::slice::from_raw_parts_mut(block.pointer().as_ptr(), block.bytes) }
    }

    #[test]
    fn small_blocks_share_a_mapping_without_overlap() {
        let mut blocks: Vec<_> =
            [FEWEST, FEWEST + 1, SMALL, 5 * PAGE + 3, SMALL, SMALL, SMALL, SMALL]
                .map(|bytes| Block::new(bytes).expect("little memory"))
                .into();
        for (i, block) in blocks.iter_mut().enumerate() {
            assert!(block.pointer().addr().get().is_multiple_of(PAGE));
            assert!(bytes_of(block).iter().all(|byte| *byte == 0));
            bytes_of(block).fill(i as u8 + 1);
        }
        // Every second one ends; the others keep their bytes, and new ones are zeros.
        let mut left: Vec<_> = blocks.into_iter().enumerate().filter(|(i, _)| i % 2 == 0).collect();
        let mut new = Block::new(SMALL).expect("little memory");
        assert!(bytes_of(&mut new).iter().all(|byte| *byte == 0));
        for (i, block) in &mut left {
            let expected = *i as u8 + 1;
            assert!(bytes_of(block).iter().all(|byte| *byte == expected));
        }
    }

    #[test]
    fn a_large_block_has_its_own_mapping() {
        let mut block = Block::new(SMALL + 5).expect("little memory");
        assert!(block.pointer().addr().get().is_multiple_of(HUGE_PAGE));
        assert!(block.offset == 0 && bytes_of(&mut block).len() == SMALL + 5);
        assert_eq!(Arc::strong_count(&block.mapping), 1);
        assert!(Block::new(usize::MAX - 5).is_none() && Block::new(usize::MAX / 2).is_none());
    }
}
