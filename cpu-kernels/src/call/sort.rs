//! Sort and top-k on the CPU.
//!
//! A row becomes entries: integers with the keys in the upper half, encoded so that integer order
//! is key order, and the position in the lower half. Equal keys are ordered by position, so no
//! two entries are equal, and every sorting algorithm is stable on them. The standard library's
//! unstable sort of integers allocates nothing. Keys of up to 32 bits in total make entries of 64
//! bits. Longer keys make entries of 128 bits, with 64 bits of keys. Further keys are sorted in
//! rounds, the last ones first, as in a radix sort.
//!
//! Rows are divided among the threads; one thread sorts a row.

use super::{Arguments, Compile, Kernels, array, take};
use crate::memory::Workspace;
use bytemuck::Pod;
use wengert_core::call::{Sort, TopK};
use wengert_core::scalar::Native;
use wengert_core::{DType, Diagnostic, with_native};

/// A sort or a top-k, ready to run.
#[derive(Debug)]
struct CompiledSort {
    outer: usize,
    length: usize,
    inner: usize,
    /// Number of indices returned for each row.
    k: usize,
    descending: bool,
    /// The keys of each round, the last ones first.
    rounds: Vec<Vec<Part>>,
    /// Whether entries have 128 bits.
    wide: bool,
}

/// The part of a round's entries that a key contributes.
#[derive(Debug)]
struct Part {
    /// Position among the operands.
    operand: usize,
    dtype: DType,
    /// Bits of later keys, below this one.
    shift: u32,
}

/// Fewest elements of rows that are worth a task.
const TASK: usize = 1 << 12;

impl Compile for Sort {
    fn compile(&self) -> Result<Box<dyn Kernels>, Diagnostic> {
        let bits: u32 = self.keys.iter().map(|key| key.bits()).sum();
        let mut rounds: Vec<Vec<Part>> = vec![vec![]];
        let mut shift = 0;
        for (operand, dtype) in self.keys.iter().enumerate().rev() {
            if shift + dtype.bits() > u128::CODE {
                rounds.push(vec![]);
                shift = 0;
            }
            let round = rounds.last_mut().expect("there is a first round");
            round.push(Part { operand, dtype: *dtype, shift });
            shift += dtype.bits();
        }
        Ok(Box::new(CompiledSort {
            outer: self.outer,
            length: self.length,
            inner: self.inner,
            k: self.length,
            descending: self.descending,
            rounds,
            wide: bits > u64::CODE,
        }))
    }
}

impl Compile for TopK {
    fn compile(&self) -> Result<Box<dyn Kernels>, Diagnostic> {
        Ok(Box::new(CompiledSort {
            outer: self.outer,
            length: self.length,
            inner: 1,
            k: self.k,
            descending: true,
            rounds: vec![vec![Part { operand: 0, dtype: self.dtype, shift: 0 }]],
            wide: self.dtype.bits() > u64::CODE,
        }))
    }
}

impl Kernels for CompiledSort {
    /// The entries of a row.
    fn scratch(&self) -> usize {
        array(&[self.length, if self.wide { size_of::<u128>() } else { size_of::<u64>() }])
    }

    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        if self.wide {
            self.run_with::<u128>(workspace, arguments)
        } else {
            self.run_with::<u64>(workspace, arguments)
        }
    }
}

impl CompiledSort {
    fn run_with<E: Entry>(
        &self,
        workspace: &Workspace,
        arguments: &Arguments<'_>,
    ) -> Result<(), Diagnostic> {
        if self.k == 0 || self.outer == 0 || self.inner == 0 {
            return Ok(());
        }
        let rows = self.outer * self.inner;
        let group = (TASK / self.length).clamp(1, rows);
        let task = |thread: usize, task: usize| {
            let mut scratch = workspace.scratch(thread);
            let entries = take::<E>(&mut &mut scratch[..], self.length);
            for row in task * group..rows.min((task + 1) * group) {
                // SAFETY: the arguments were checked, the row exists, and it belongs to this task
                // only.
                unsafe { self.row(arguments, entries, row) };
            }
        };
        Ok(workspace.pool().parallel_for(rows.div_ceil(group), task)?)
    }

    /// Sorts one row.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked; the row is one of them, and no other thread
    /// uses its part of the result.
    unsafe fn row<E: Entry>(&self, arguments: &Arguments<'_>, entries: &mut [E], row: usize) {
        let (outer, inner) = (row / self.inner, row % self.inner);
        let first = outer * self.length * self.inner + inner;
        entries.iter_mut().zip(0..).for_each(|(entry, at)| *entry = E::new(at, at));
        for (number, round) in self.rounds.iter().enumerate() {
            if number > 0 {
                entries
                    .iter_mut()
                    .zip(0..)
                    .for_each(|(entry, rank)| *entry = E::new(rank, entry.index()));
            }
            for part in round {
                // A bool is a byte, 0 or 1.
                let dtype = if part.dtype == DType::Bool { DType::U8 } else { part.dtype };
                with_native!(dtype, T => {
                    let key = arguments.operand::<T>(part.operand).wrapping_add(first);
                    for entry in entries.iter_mut() {
                        // SAFETY: an index is below the length of the row, and elements of a row
                        // are `inner` apart.
                        let value = unsafe { key.add(entry.index() as usize * self.inner).read() };
                        let code =
                            if self.descending { !code(value) & mask::<T>() } else { code(value) };
                        entry.put(code, part.shift);
                    }
                });
            }
            if self.k < self.length {
                // Top-k only, which has one round.
                entries.select_nth_unstable(self.k - 1);
            }
            entries[..self.k].sort_unstable();
        }
        let out = arguments.result::<i32>().wrapping_add(outer * self.k * self.inner + inner);
        for (rank, entry) in entries[..self.k].iter().enumerate() {
            // SAFETY: the result has k elements for each row, `inner` apart, and the row belongs
            // to this task.
            unsafe { out.add(rank * self.inner).write(entry.index() as i32) };
        }
    }
}

/// An element of a row during the sort: code, position in the order so far, index.
trait Entry: Pod + Ord {
    /// Bits of the code.
    const CODE: u32;
    /// The entry of the element `index` at a position; code 0.
    fn new(position: u32, index: u32) -> Self;
    /// Writes a part of the code, which must be 0 there.
    fn put(&mut self, code: u64, shift: u32);
    /// The element's index.
    fn index(self) -> u32;
}

/// Code and index: there is one round, so the position is the index.
impl Entry for u64 {
    const CODE: u32 = 32;

    #[inline(always)]
    fn new(_: u32, index: u32) -> u64 {
        u64::from(index)
    }

    #[inline(always)]
    fn put(&mut self, code: u64, shift: u32) {
        *self |= code << (32 + shift);
    }

    #[inline(always)]
    fn index(self) -> u32 {
        self as u32
    }
}

/// Code, position, index.
impl Entry for u128 {
    const CODE: u32 = 64;

    #[inline(always)]
    fn new(position: u32, index: u32) -> u128 {
        u128::from(position) << 32 | u128::from(index)
    }

    #[inline(always)]
    fn put(&mut self, code: u64, shift: u32) {
        *self |= u128::from(code) << (64 + shift);
    }

    #[inline(always)]
    fn index(self) -> u32 {
        self as u32
    }
}

/// A mask of an element's bits.
#[inline(always)]
fn mask<T: Native>() -> u64 {
    u64::MAX >> (64 - T::DTYPE.bits())
}

/// An integer with the bits of the element; integer order is the order of the elements
/// ([`wengert_core::call::compare`]).
#[inline(always)]
fn code<T: Native>(value: T) -> u64 {
    let bits = value.to_bits64();
    let sign = 1 << (T::DTYPE.bits() - 1);
    if T::DTYPE.is_float() {
        let magnitude = bits & (sign - 1);
        if magnitude > T::from_f64(f64::INFINITY).to_bits64() {
            mask::<T>()
        } else if magnitude == bits || magnitude == 0 {
            magnitude | sign
        } else {
            !bits & mask::<T>()
        }
    } else if T::DTYPE.is_signed_integer() {
        bits ^ sign
    } else {
        bits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::Scalar;
    use wengert_core::call::compare;

    #[test]
    fn codes_have_the_order_of_elements() {
        for dtype in DType::IN_KERNELS {
            let bits = (0..64).flat_map(|n| {
                [1u64 << n, (1 << n) - 1, !0 << n, (3 << n) ^ 0x5555, 0xabcd_ef01 << n]
            });
            let bits =
                bits.chain([0x7f80_0000, 0xff80_0000, 0x7c00, 0x7f80, 0x7ff << 52, 0xfff << 52]);
            let scalars: Vec<Scalar> = bits.map(|b| Scalar::from_bits(dtype, b)).collect();
            let code_of = |s: Scalar| with_native!(dtype, T => code(s.get::<T>()));
            for x in &scalars {
                for y in &scalars {
                    assert_eq!(code_of(*x).cmp(&code_of(*y)), compare(*x, *y), "{x:?} {y:?}");
                }
                assert!(code_of(*x) <= u64::MAX >> (64 - dtype.bits()));
            }
        }
    }
}
