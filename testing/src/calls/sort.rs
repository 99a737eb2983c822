//! Sorting and top-k.

use super::{Device, check, check_random};
use crate::Random;
use crate::random::{extents, literal};
use proptest::prelude::*;
use wengert_core::call::{Call, Sort, TopK};
use wengert_core::{DType, Literal, Scalar};

/// A call that sorts by several keys.
pub fn sort([outer, length, inner]: [usize; 3], keys: &[DType], descending: bool) -> Call {
    Call::Sort(Sort { outer, length, inner, keys: keys.to_vec(), descending })
}

/// A call that finds the greatest `k` elements of each row.
pub fn top_k(outer: usize, length: usize, k: usize, dtype: DType) -> Call {
    Call::TopK(TopK { outer, length, k, dtype })
}

/// Operands with many duplicates and some special values. Some keys have few distinct values, so
/// that the following keys decide.
fn operands(call: &Call, seed: u64) -> Vec<Literal> {
    let mut random = Random(seed);
    let key = |(dtype, shape): (DType, Vec<usize>)| {
        let distinct = *random.pick(&[1, 2, 5, 50, 1000]);
        literal(dtype, &shape, |dtype| {
            let bits = random.bits();
            match random.below(10) {
                0 => Scalar::highest(dtype),
                1 => Scalar::lowest(dtype),
                // Zeros and NaNs of both signs; for integers just large numbers.
                2 => Scalar::from_bits(dtype, 1 << (dtype.bits() - 1)),
                3 => Scalar::from_bits(dtype, !(bits & 0b11_0000_0011)),
                4 => Scalar::from_bits(dtype, (!(bits & 0b11)) >> (65 - dtype.bits())),
                5 => Scalar::from_bits(dtype, bits),
                _ => Scalar::from_i64(dtype, (bits >> 8) as i64 % distinct - 3),
            }
        })
    };
    call.operands().iter().map(|ty| (ty.dtype, extents(ty))).map(key).collect()
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop::sample::select(&DType::IN_KERNELS[..])
}

/// Random sorts.
pub fn small_sorts<D: Device>() {
    let keys = prop::collection::vec(dtypes(), 1..5);
    let calls = ([0usize..7, 0usize..80, 0usize..5], keys, any::<bool>());
    let calls = calls.prop_map(|(extents, keys, descending)| sort(extents, &keys, descending));
    check_random::<D>(300, calls, operands);
}

/// Random top-k.
pub fn small_top_ks<D: Device>() {
    let calls = (0usize..9, 0usize..90, 0usize..90, dtypes());
    let calls =
        calls.prop_map(|(outer, length, k, dtype)| top_k(outer, length, k.min(length), dtype));
    check_random::<D>(300, calls, operands);
}

/// More rows than one task takes, and rows that are longer than a task.
pub fn many_and_long_rows<D: Device>() {
    use DType::*;
    for call in [
        sort([3000, 10, 1], &[F32], false),
        sort([2, 300, 70], &[BF16, Bool], true),
        sort([1, 20_000, 1], &[F64], false),
        sort([2, 5000, 2], &[I8, U64, F16, F64, I32], false),
        top_k(500, 100, 3, F16),
        top_k(2, 30_000, 100, F32),
        top_k(1, 9000, 8999, I64),
    ] {
        check::<D>(&call, || operands(&call, 11));
    }
}

/// A call for every form of kernel of GPUs.
pub fn forms() -> Vec<Call> {
    use DType::*;
    let mut calls = vec![];
    // Lengths around each size of a thread's part, of a team and of a block.
    for length in [1, 2, 3, 5, 8, 9, 17, 33, 65, 130, 256, 257, 700, 1024, 2000, 4095, 4096] {
        let rows = (600 / length).max(1) + 1;
        calls.push(sort([rows, length, 1], &[F32], length % 2 == 1));
    }
    for dtype in DType::IN_KERNELS {
        calls.push(sort([3, 50, 2], &[dtype], false));
        calls.push(sort([2, 21, 3], &[dtype], true));
        calls.push(top_k(5, 40, 7, dtype));
    }
    // Keys that share a word, keys that fill several words, and keys that have a word of their own.
    calls.push(sort([4, 60, 1], &[Bool, U8, F16], false));
    calls.push(sort([2, 300, 3], &[Bool, I8, BF16, I32, F16], true));
    calls.push(sort([1, 2000, 1], &[F64, U8, I64], false));
    calls.push(sort([1, 4096, 1], &[I8, U64], true));
    // Rows longer than a block: one row, several rows, and rows that are not contiguous.
    calls.push(sort([1, 4097, 1], &[F32], false));
    calls.push(sort([3, 5000, 1], &[BF16], true));
    calls.push(sort([2, 4500, 2], &[I8, F64], false));
    calls.push(sort([1, 9000, 1], &[U8, Bool], false));
    // Top-k of pieces of rows, in one round or in several, and a k that is too large for that.
    calls.push(top_k(2, 4096, 4096, F32));
    calls.push(top_k(3, 10_000, 5, F32));
    calls.push(top_k(2, 20_000, 1000, I64));
    calls.push(top_k(1, 8193, 300, BF16));
    calls.push(top_k(2, 5000, 1024, F64));
    calls.push(top_k(2, 5000, 1025, F16));
    calls
}

/// The calls of [`forms`].
pub fn every_form<D: Device>() {
    forms().iter().for_each(|call| check::<D>(call, || operands(call, 1)));
}
