//! Sort and top-k calls and their operands.

use wengert_core::call::{Call, Sort, TopK};
use wengert_core::{DType, Literal, Scalar};

/// Pseudorandom numbers.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 ^ (self.0 >> 33)
    }

    pub fn below(&mut self, end: usize) -> usize {
        (self.next() >> 20) as usize % end
    }

    /// Elements with many duplicates and some special values.
    pub fn key(&mut self, dtype: DType, shape: &[usize]) -> Literal {
        let distinct = 1 + self.below(50) as u64;
        let element = |_| {
            let bits = self.next();
            match bits % 11 {
                0 => Scalar::highest(dtype),
                1 => Scalar::lowest(dtype),
                // Zeros and NaNs of both signs; for integers just large numbers.
                2 => Scalar::from_bits(dtype, 1 << (dtype.bits() - 1)),
                3 => Scalar::from_bits(dtype, !(bits & 0b11_0000_0011)),
                4 => Scalar::from_bits(dtype, (!(bits & 0b11)) >> (65 - dtype.bits())),
                5 => Scalar::from_bits(dtype, bits.rotate_left(17)),
                _ => Scalar::from_i64(dtype, (bits >> 30) as i64 % distinct as i64 - 3),
            }
        };
        let values: Vec<Scalar> = (0..shape.iter().product::<usize>()).map(element).collect();
        Literal::from_scalars(dtype, shape, &values).unwrap()
    }

    /// Random operands of a call.
    pub fn operands(&mut self, call: &Call) -> Vec<Literal> {
        call.operands().iter().map(|ty| self.key(ty.dtype, &ty.extents().unwrap())).collect()
    }
}

pub fn sort(extents: [usize; 3], keys: &[DType], descending: bool) -> Call {
    let [outer, length, inner] = extents;
    Call::Sort(Sort { outer, length, inner, keys: keys.to_vec(), descending })
}

pub fn top_k(outer: usize, length: usize, k: usize, dtype: DType) -> Call {
    Call::TopK(TopK { outer, length, k, dtype })
}

/// A call for every form of kernel.
pub fn forms() -> Vec<Call> {
    use DType::*;
    let mut calls = vec![];
    // Lengths around each size of a thread's part, of a team and of a block.
    for length in [1, 2, 3, 5, 8, 9, 17, 33, 65, 130, 256, 257, 700, 1024, 2000, 4095, 4096] {
        let rows = (600 / length).max(1) + 1;
        calls.push(sort([rows, length, 1], &[F32], length % 2 == 1));
    }
    for dtype in DType::ALL {
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
