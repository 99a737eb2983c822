//! Loops over blocks of elements: one function for each scalar instruction, dtype and set of
//! vector instructions.
//!
//! A [`Kernel`] reads up to three blocks and writes one, all with the same number of elements, a
//! multiple of [`CHUNK`]. Only kernels depend on the set of vector instructions. The loops are
//! written once, over chunks of fixed size, and compiled for each set by `#[target_feature]`. A
//! chunk is loaded before anything is stored, so blocks may be the same memory, and the compiler
//! needs no alias check. The operations are written once, in [`operations`] and [`convert`], and
//! have the same bits everywhere.

pub(crate) mod chain;
pub(crate) mod convert;
#[cfg(target_arch = "x86_64")]
mod half_precision;
mod lanes;
mod lookup;
pub(crate) mod moves;
pub(crate) mod operations;
pub(crate) mod squares;

pub(crate) use lookup::{convert, copy, fold, lane_fold, scalar, scan, zero_or_product};

/// Fewest elements of a kernel: blocks are padded to a multiple.
pub(crate) const CHUNK: usize = 16;

/// Elements that a kernel processes at a time, if there are as many: several vectors, so that
/// their latencies overlap.
pub(crate) const TURN: usize = 4 * CHUNK;

/// `destination[k] = f(a[k], b[k], c[k])` for k in `0..count`; an operand that a kernel does not
/// read may be null.
///
/// If bit n of `repeat` is set, operand n is a block of [`TURN`] equal elements, which is read
/// repeatedly: so a constant takes few cache lines.
///
/// # Safety
///
/// `count` is a multiple of [`CHUNK`]. Each block that the kernel reads or writes has `count`
/// elements (or is repeated) of the dtype that it was looked up for, is aligned to an element,
/// and is valid to read or write. A block that is read is the written one or does not overlap it,
/// unless the count is [`CHUNK`]. The machine has the vector instructions that the kernel was
/// looked up for.
pub(crate) type Kernel = unsafe fn(
    destination: *mut u8,
    a: *const u8,
    b: *const u8,
    c: *const u8,
    count: usize,
    repeat: u32,
);

/// `accumulators[k % CHUNK] = combine(accumulators[k % CHUNK], values[k])` for k in `0..count`,
/// in order.
///
/// # Safety
///
/// As for [`Kernel`]; `accumulators` has [`CHUNK`] elements and does not overlap the values.
pub(crate) type Fold = unsafe fn(accumulators: *mut u8, values: *const u8, count: usize);

/// `accumulators[(lane + k) % lanes] = combine(that, values[k])` for k in `0..count`, in order;
/// for any count, and a number of lanes that is a power of two.
///
/// # Safety
///
/// As for [`Kernel`], except for the count; there are `lanes` accumulators, which do not overlap
/// the values.
pub(crate) type LaneFold =
    unsafe fn(accumulators: *mut u8, values: *const u8, count: usize, lane: usize, lanes: usize);

/// `state = combine(state, values[k]); destination[k] = state` for k in `0..count`, or from the
/// last to the first; for any count.
///
/// # Safety
///
/// As for [`Kernel`], except for the count; `state` is one element outside both blocks.
pub(crate) type Scan =
    unsafe fn(destination: *mut u8, values: *const u8, state: *mut u8, count: usize, reverse: bool);

#[cfg(test)]
mod tests;
