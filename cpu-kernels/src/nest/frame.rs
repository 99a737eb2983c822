//! The mutable state of a thread that runs a nest: counters, the current block, and the address
//! of each register's block.
//!
//! A frame is a view of a thread's scratch memory. Its safe methods rely on two guarantees of the
//! compiled nest, which they check in debug builds only: register numbers are valid, and a
//! register's block has as many lanes as the frame's block.

use crate::kernels::moves::Run;
use crate::memory::Span;
use wengert_core::DType;

/// The state of one thread.
pub(super) struct Frame<'a> {
    /// The counter of every axis that is a scalar loop, and of the first vector axis.
    pub counters: &'a mut [i64],
    /// The current address of every register's block.
    pub pointers: &'a mut [*mut u8],
    /// The parameters.
    pub buffers: &'a [Span],
    /// Bit k: parameter k shares its memory with another one.
    pub aliased: u64,
    /// Start of the thread's scratch memory.
    pub scratch: *mut u8,
    /// Index vectors of `lanes` each.
    pub indices: &'a mut [i64],
    /// One byte per lane.
    pub masks: &'a mut [u8],
    /// Tables of lane differences.
    pub tables: &'a [Vec<i64>],
    pub runs: &'a [Vec<Run>],
    /// Lanes of a full block.
    pub lanes: usize,
    /// Position of the block's first lane on the vector axes.
    pub position: i64,
    /// That position modulo the vector axes' period.
    pub phase: usize,
    /// Lanes of the block.
    pub count: usize,
    /// Lanes that kernels process: the next multiple of a chunk.
    pub padded: usize,
}

impl Frame<'_> {
    /// The counter of an axis.
    pub fn counter(&self, axis: u32) -> i64 {
        self.counters[axis as usize]
    }

    /// Sets the block.
    pub fn set_block(&mut self, position: usize, count: usize, period: usize) {
        self.position = position as i64;
        self.phase = if period > 1 { position % period } else { 0 };
        self.count = count;
        self.padded = count.next_multiple_of(crate::kernels::CHUNK);
    }

    /// The index vector of a level.
    pub fn index(&mut self, level: usize) -> &mut [i64] {
        &mut self.indices[level * self.lanes..][..self.count]
    }

    /// The index vectors of a level and of the next one.
    pub fn index_pair(&mut self, level: usize) -> (&mut [i64], &[i64]) {
        let (a, b) = self.indices[level * self.lanes..].split_at_mut(self.lanes);
        (&mut a[..self.count], &b[..self.count])
    }

    /// The mask.
    pub fn mask(&mut self) -> &mut [u8] {
        &mut self.masks[..self.count]
    }

    /// The first index vector and the mask.
    pub fn index_and_mask(&mut self) -> (&[i64], &mut [u8]) {
        (&self.indices[..self.count], &mut self.masks[..self.count])
    }

    /// The first lane of an integer register.
    pub fn integer(&self, reg: u32, dtype: DType) -> i64 {
        let pointer = self.pointers[reg as usize];
        // SAFETY: a register's block has at least one lane, of its dtype, written before an
        // expression uses it (the order of a verified body); indices use i32 and i64 only.
        unsafe {
            match dtype {
                DType::I32 => i64::from(pointer.cast::<i32>().read()),
                _ => pointer.cast::<i64>().read(),
            }
        }
    }

    /// Copies all lanes of an integer register to an index vector.
    pub fn integers(&mut self, reg: u32, dtype: DType, level: usize) {
        let pointer = self.pointers[reg as usize];
        let out = self.index(level);
        // SAFETY: as in `integer`; a register whose lanes differ has as many as the block.
        unsafe {
            match dtype {
                DType::I32 => {
                    for (lane, value) in out.iter_mut().enumerate() {
                        *value = i64::from(pointer.cast::<i32>().add(lane).read());
                    }
                }
                _ => {
                    for (lane, value) in out.iter_mut().enumerate() {
                        *value = pointer.cast::<i64>().add(lane).read();
                    }
                }
            }
        }
    }

    /// An address in the thread's scratch memory.
    pub fn at(&self, offset: usize) -> *mut u8 {
        self.scratch.wrapping_add(offset)
    }
}
