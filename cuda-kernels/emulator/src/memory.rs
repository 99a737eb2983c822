//! Device memory: allocations, their bytes, and shadow state of each byte.
//!
//! Allocations are never adjacent: between any two lies a gap, so that no small overrun of one
//! lands in another. Every word carries four bits that say which of its bytes have been written
//! and, once labels are used, the label of the launch that wrote it last. Words are atomics:
//! blocks run on several threads and share memory without `unsafe`.

use crate::module::Module;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU32};

/// Alignment of allocations, as of `cudaMalloc`'s.
const ALIGNMENT: u64 = 256;
/// Minimum number of bytes between allocations.
const GUARD: u64 = 4096;
/// The first address of global memory.
const FIRST: u64 = 0x1000_0000_0000;
/// Addresses have 48 bits; launches put tags in the bits above them.
pub(crate) const ADDRESS_BITS: u32 = 48;

/// An invalid use of memory by the host.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MemoryError {
    /// The bytes are not in one allocation.
    #[error("{bytes} bytes at {address:#x} are not all of one allocation")]
    OutOfBounds {
        /// First address.
        address: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// Out of memory. Name of the failed allocation.
    #[error("no room for {bytes} bytes for `{name}`")]
    OutOfMemory {
        /// The allocation that was wanted.
        name: String,
        /// Its size.
        bytes: u64,
    },
    /// The module has no such variable.
    #[error("the module has no global or constant variable `{0}`")]
    NoVariable(String),
}

/// One allocation.
#[derive(Debug)]
pub(crate) struct Allocation {
    pub(crate) name: String,
    pub(crate) base: u64,
    pub(crate) bytes: u64,
    pub(crate) read_only: bool,
    words: Box<[AtomicU32]>,
    /// For each word, which of its bytes have been written.
    written: Box<[AtomicU8]>,
    /// For each word: 0 for no label, [`MIXED`], or index of the label plus 1.
    labels: OnceLock<Box<[AtomicU32]>>,
    /// Labels of the bytes of words in which they differ.
    mixed: std::sync::Mutex<HashMap<usize, [u32; 4]>>,
}

/// A word whose bytes have different labels.
const MIXED: u32 = u32::MAX;

/// The device's memory.
#[derive(Debug, Default)]
pub struct Memory {
    pub(crate) allocations: Vec<Allocation>,
    end: u64,
    /// Addresses of each module's variables, once it has been loaded.
    modules: HashMap<u64, Vec<u64>>,
}

impl Allocation {
    /// `None` if the host is out of memory.
    fn new(name: &str, base: u64, bytes: u64) -> Option<Allocation> {
        let words = bytes.div_ceil(4) as usize;
        let (mut data, mut written) = (Vec::new(), Vec::new());
        data.try_reserve_exact(words).ok()?;
        written.try_reserve_exact(words).ok()?;
        data.resize_with(words, || AtomicU32::new(0));
        written.resize_with(words, || AtomicU8::new(0));
        Some(Allocation {
            name: name.to_owned(),
            base,
            bytes,
            read_only: false,
            words: data.into(),
            written: written.into(),
            labels: OnceLock::new(),
            mixed: std::sync::Mutex::new(HashMap::new()),
        })
    }

    /// The word that holds byte `offset`.
    #[inline(always)]
    pub(crate) fn word(&self, offset: u64) -> &AtomicU32 {
        &self.words[(offset / 4) as usize]
    }

    /// Reads 1, 2, 4 or 8 bytes, aligned to their number.
    #[inline(always)]
    pub(crate) fn load(&self, offset: u64, bytes: u32) -> u64 {
        match bytes {
            4 => u64::from(self.word(offset).load(Relaxed)),
            8 => {
                let low = self.word(offset).load(Relaxed);
                u64::from(low) | u64::from(self.word(offset + 4).load(Relaxed)) << 32
            }
            _ => {
                let word = self.word(offset).load(Relaxed) >> (8 * (offset % 4));
                u64::from(word) & ((1 << (8 * bytes)) - 1)
            }
        }
    }

    /// Writes 1, 2, 4 or 8 bytes, aligned to their number.
    #[inline(always)]
    pub(crate) fn store(&self, offset: u64, bytes: u32, value: u64) {
        match bytes {
            4 => self.word(offset).store(value as u32, Relaxed),
            8 => {
                self.word(offset).store(value as u32, Relaxed);
                self.word(offset + 4).store((value >> 32) as u32, Relaxed);
            }
            _ => {
                let shift = 8 * (offset % 4);
                let mask = (((1u64 << (8 * bytes)) - 1) as u32) << shift;
                let put = |word: u32| Some(word & !mask | ((value as u32) << shift) & mask);
                self.word(offset)
                    .fetch_update(Relaxed, Relaxed, put)
                    .expect("the closure always gives a word");
            }
        }
    }

    /// Bit mask of the bytes `offset..offset + bytes` of one word.
    fn part(offset: u64, bytes: u32) -> u8 {
        (((1u32 << bytes) - 1) << (offset % 4)) as u8
    }

    /// Marks bytes as written: bytes within one word, or whole words.
    #[inline(always)]
    pub(crate) fn mark_written(&self, offset: u64, bytes: u32) {
        let first = (offset / 4) as usize;
        if bytes.is_multiple_of(4) {
            for word in &self.written[first..][..(bytes / 4) as usize] {
                word.store(15, Relaxed);
            }
        } else {
            let part = Self::part(offset, bytes);
            if self.written[first].load(Relaxed) & part != part {
                self.written[first].fetch_or(part, Relaxed);
            }
        }
    }

    /// Whether all bytes are written; same ranges as [`Allocation::mark_written`].
    #[inline(always)]
    pub(crate) fn is_written(&self, offset: u64, bytes: u32) -> bool {
        let first = (offset / 4) as usize;
        if bytes.is_multiple_of(4) {
            self.written[first..][..(bytes / 4) as usize]
                .iter()
                .all(|word| word.load(Relaxed) == 15)
        } else {
            let part = Self::part(offset, bytes);
            self.written[first].load(Relaxed) & part == part
        }
    }

    fn byte_is_written(&self, offset: u64) -> bool {
        self.written[(offset / 4) as usize].load(Relaxed) >> (offset % 4) & 1 == 1
    }

    fn label_words(&self) -> &[AtomicU32] {
        self.labels.get_or_init(|| (0..self.words.len()).map(|_| AtomicU32::new(0)).collect())
    }

    /// Sets the label of bytes (0: none).
    #[inline(always)]
    pub(crate) fn set_label(&self, offset: u64, bytes: u32, label: u32) {
        if label == 0 && self.labels.get().is_none() {
            return;
        }
        let labels = self.label_words();
        let first = (offset / 4) as usize;
        if bytes.is_multiple_of(4) && offset.is_multiple_of(4) {
            for word in &labels[first..][..(bytes / 4) as usize] {
                word.store(label, Relaxed);
            }
            return;
        }
        for byte in offset..offset + u64::from(bytes) {
            let index = (byte / 4) as usize;
            let old = labels[index].load(Relaxed);
            if old == label {
                continue;
            }
            let mut mixed = self.mixed.lock().expect("no holder of the lock panics");
            let old = labels[index].load(Relaxed);
            let parts = if old == MIXED {
                mixed.get(&index).copied().unwrap_or_default()
            } else {
                [old; 4]
            };
            let mut parts = parts;
            parts[(byte % 4) as usize] = label;
            if parts == [label; 4] {
                mixed.remove(&index);
                labels[index].store(label, Relaxed);
            } else {
                mixed.insert(index, parts);
                labels[index].store(MIXED, Relaxed);
            }
        }
    }

    /// A label other than `wanted` that one of the bytes has.
    #[inline(always)]
    pub(crate) fn other_label(&self, offset: u64, bytes: u32, wanted: u32) -> Option<u32> {
        let Some(labels) = self.labels.get() else {
            return if wanted == 0 { None } else { Some(0) };
        };
        let first = (offset / 4) as usize;
        for word in 0..bytes.div_ceil(4) as usize {
            let found = labels[first + word].load(Relaxed);
            if found == wanted {
                continue;
            }
            if found != MIXED {
                return Some(found);
            }
            let mixed = self.mixed.lock().expect("no holder of the lock panics");
            let parts = mixed.get(&(first + word)).copied().unwrap_or_default();
            let begin = offset.max((first + word) as u64 * 4);
            let end = (offset + u64::from(bytes)).min((first + word) as u64 * 4 + 4);
            for byte in begin..end {
                if parts[(byte % 4) as usize] != wanted {
                    return Some(parts[(byte % 4) as usize]);
                }
            }
        }
        None
    }
}

impl Memory {
    /// Memory without allocations.
    pub fn new() -> Memory {
        Memory { allocations: Vec::new(), end: FIRST, modules: HashMap::new() }
    }

    /// Allocates `bytes` bytes, aligned to 256, uninitialised; returns the address. Allocations
    /// are never adjacent.
    pub fn allocate(&mut self, name: &str, bytes: u64) -> Result<u64, MemoryError> {
        let base = self.end.max(FIRST);
        let none = || MemoryError::OutOfMemory { name: name.to_owned(), bytes };
        // Half the address space exceeds the memory of any host.
        if bytes > 1 << (ADDRESS_BITS - 2) || base + bytes > 1 << (ADDRESS_BITS - 1) {
            return Err(none());
        }
        self.allocations.push(Allocation::new(name, base, bytes).ok_or_else(none)?);
        self.end = (base + bytes).next_multiple_of(ALIGNMENT) + GUARD;
        Ok(base)
    }

    /// Frees an allocation; its address must be that of [`Memory::allocate`].
    pub fn free(&mut self, address: u64) -> Result<(), MemoryError> {
        match self.allocations.iter().position(|a| a.base == address) {
            Some(index) => {
                self.allocations.remove(index);
                Ok(())
            }
            None => Err(MemoryError::OutOfBounds { address, bytes: 0 }),
        }
    }

    /// The allocation that holds an address.
    #[inline(always)]
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        let index = self.allocations.partition_point(|a| a.base <= address).checked_sub(1)?;
        let allocation = &self.allocations[index];
        (address - allocation.base < allocation.bytes).then_some(index)
    }

    /// The allocation of a range, and its offset there.
    pub(crate) fn range(
        &self,
        address: u64,
        bytes: u64,
    ) -> Result<(&Allocation, u64), MemoryError> {
        let error = MemoryError::OutOfBounds { address, bytes };
        let index = self.allocations.partition_point(|a| a.base <= address).checked_sub(1);
        let allocation = &self.allocations[index.ok_or_else(|| error.clone())?];
        let offset = address - allocation.base;
        match offset.checked_add(bytes) {
            Some(end) if end <= allocation.bytes => Ok((allocation, offset)),
            _ => Err(error),
        }
    }

    /// Writes bytes, which are initialised from then on and have no label.
    pub fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let (allocation, offset) = self.range(address, bytes.len() as u64)?;
        pieces(offset, bytes.len() as u64, |at, count| {
            let start = (at - offset) as usize;
            let mut value = [0; 8];
            value[..count as usize].copy_from_slice(&bytes[start..start + count as usize]);
            allocation.store(at, count, u64::from_le_bytes(value));
            allocation.mark_written(at, count);
            allocation.set_label(at, count, 0);
        });
        Ok(())
    }

    /// Reads bytes; uninitialised bytes have arbitrary values.
    pub fn read(&self, address: u64, bytes: usize) -> Result<Vec<u8>, MemoryError> {
        let (allocation, offset) = self.range(address, bytes as u64)?;
        let mut result = Vec::with_capacity(bytes);
        pieces(offset, bytes as u64, |at, count| {
            result.extend_from_slice(&allocation.load(at, count).to_le_bytes()[..count as usize]);
        });
        Ok(result)
    }

    /// Marks bytes as uninitialised, and removes their label.
    pub fn forget(&mut self, address: u64, bytes: u64) -> Result<(), MemoryError> {
        let (allocation, offset) = self.range(address, bytes)?;
        pieces(offset, bytes, |at, count| {
            allocation.written[(at / 4) as usize].fetch_and(!Allocation::part(at, count), Relaxed);
            allocation.set_label(at, count, 0);
        });
        Ok(())
    }

    /// The offset of the first of these bytes that is uninitialised.
    pub fn first_uninitialised(
        &self,
        address: u64,
        bytes: u64,
    ) -> Result<Option<u64>, MemoryError> {
        let (allocation, offset) = self.range(address, bytes)?;
        Ok((0..bytes).find(|&byte| !allocation.byte_is_written(offset + byte)))
    }

    /// Sets the label of bytes, as a launch with `makes` does.
    pub fn label(
        &mut self,
        address: u64,
        bytes: u64,
        label: Option<u32>,
    ) -> Result<(), MemoryError> {
        let (allocation, offset) = self.range(address, bytes)?;
        pieces(offset, bytes, |at, count| allocation.set_label(at, count, stored_label(label)));
        Ok(())
    }

    /// The address of a `.global` or `.const` variable of `module`, which is loaded if it is not
    /// yet.
    pub fn variable(&mut self, module: &Module, name: &str) -> Result<u64, MemoryError> {
        let addresses = self.load(module)?;
        match module.tree.variables.iter().position(|v| v.name == name) {
            Some(index) if addresses[index] != 0 => Ok(addresses[index]),
            _ => Err(MemoryError::NoVariable(name.to_owned())),
        }
    }

    /// Places a module's variables at the first call; returns their addresses (0 for those of
    /// other spaces).
    pub(crate) fn load(&mut self, module: &Module) -> Result<Vec<u64>, MemoryError> {
        use crate::parse::syntax::{Initial, Space};
        if let Some(addresses) = self.modules.get(&module.id) {
            return Ok(addresses.clone());
        }
        let mut addresses = Vec::new();
        for variable in &module.tree.variables {
            addresses.push(match variable.space {
                Space::Global | Space::Const => self.allocate(&variable.name, variable.bytes)?,
                _ => 0,
            });
        }
        for (variable, &address) in module.tree.variables.iter().zip(&addresses) {
            if address == 0 {
                continue;
            }
            // Without an initialiser, PTX variables are zero.
            let mut bytes = Vec::new();
            for part in &variable.initial {
                match part {
                    Initial::Bytes(data) => bytes.extend_from_slice(data),
                    Initial::Address { variable, offset, bytes: width } => {
                        let value = addresses[*variable as usize].wrapping_add(*offset as u64);
                        bytes.extend_from_slice(&value.to_le_bytes()[..(*width as usize).min(8)]);
                    }
                }
            }
            bytes.resize(variable.bytes as usize, 0);
            self.write(address, &bytes)?;
            let index = self.find(address).expect("it was allocated above");
            self.allocations[index].read_only = variable.space == Space::Const;
        }
        self.modules.insert(module.id, addresses.clone());
        Ok(addresses)
    }
}

/// Labels are stored plus 1; 0 is none. The two highest labels are not distinguished from none
/// and mixed.
pub(crate) fn stored_label(label: Option<u32>) -> u32 {
    label.map_or(0, |label| label.saturating_add(1).min(MIXED - 1))
}

/// Splits a range into whole words and bytes.
fn pieces(offset: u64, bytes: u64, mut f: impl FnMut(u64, u32)) {
    let (mut at, end) = (offset, offset + bytes);
    while at < end {
        let count = if at.is_multiple_of(4) && end - at >= 4 { 4 } else { 1 };
        f(at, count);
        at += u64::from(count);
    }
}
