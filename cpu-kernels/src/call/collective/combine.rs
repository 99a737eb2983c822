//! The tree in which ranks add, or take the extremum, of their operands.
//!
//! Neighbours are joined, until one is left ([contract](wengert_core::call::Collective)). Halves
//! are carried in f32 and rounded at the end.

use bytemuck::Pod;
use half::{bf16, f16};
use wengert_core::call::CollectiveKind;
use wengert_core::{DType, Diagnostic};

/// Elements that are combined at a time where there are more than two operands.
const BLOCK: usize = 1 << 10;

/// Combines the operands of ranks into a result of their length.
pub(super) type Combine = fn(CollectiveKind, &[&[u8]], &mut [u8]);

/// Numbers that ranks combine, in the dtype in which they are carried.
trait Number: Pod {
    type Wide: Copy;

    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
    fn add(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// Whether `a` is the extremum, not `b`.
    fn precedes(a: Self::Wide, b: Self::Wide, greatest: bool) -> bool;
}

macro_rules! numbers {
    (integers $($t:ty)*) => {
        $(impl Number for $t {
            type Wide = $t;

            fn widen(self) -> $t {
                self
            }

            fn narrow(wide: $t) -> $t {
                wide
            }

            fn add(a: $t, b: $t) -> $t {
                a.wrapping_add(b)
            }

            fn precedes(a: $t, b: $t, greatest: bool) -> bool {
                if greatest { a > b } else { a < b }
            }
        })*
    };
    (floats $($t:ty as $wide:ty: $widen:expr, $narrow:expr;)*) => {
        $(impl Number for $t {
            type Wide = $wide;

            fn widen(self) -> $wide {
                $widen(self)
            }

            fn narrow(wide: $wide) -> $t {
                $narrow(wide)
            }

            fn add(a: $wide, b: $wide) -> $wide {
                a + b
            }

            fn precedes(a: $wide, b: $wide, greatest: bool) -> bool {
                a.is_nan() || if greatest { a > b } else { a < b }
            }
        })*
    };
}

numbers!(integers u8 i8 i32 i64 u32 u64);
numbers!(floats
    f32 as f32: std::convert::identity, std::convert::identity;
    f64 as f64: std::convert::identity, std::convert::identity;
    f16 as f32: f16::to_f32, f16::from_f32;
    bf16 as f32: bf16::to_f32, bf16::from_f32;
);

/// The tree over the operands of a group.
fn tree<T: Number>(kind: CollectiveKind, operands: &[&[u8]], result: &mut [u8]) {
    match kind {
        CollectiveKind::Max => {
            joined::<T>(operands, result, |a, b| if T::precedes(a, b, true) { a } else { b });
        }
        CollectiveKind::Min => {
            joined::<T>(operands, result, |a, b| if T::precedes(a, b, false) { a } else { b });
        }
        _ => joined::<T>(operands, result, T::add),
    }
}

/// The tree whose nodes are `join`.
fn joined<T: Number>(
    operands: &[&[u8]],
    result: &mut [u8],
    join: impl Fn(T::Wide, T::Wide) -> T::Wide,
) {
    let size = size_of::<T>();
    let read = |bytes: &[u8]| bytemuck::pod_read_unaligned::<T>(bytes).widen();
    if let [first, second] = operands {
        let pairs = first.chunks_exact(size).zip(second.chunks_exact(size));
        for (to, (a, b)) in result.chunks_exact_mut(size).zip(pairs) {
            to.copy_from_slice(bytemuck::bytes_of(&T::narrow(join(read(a), read(b)))));
        }
        return;
    }
    let mut level: Vec<Vec<T::Wide>> = operands.iter().map(|_| Vec::with_capacity(BLOCK)).collect();
    for (block, to) in result.chunks_mut(BLOCK * size).enumerate() {
        for (row, operand) in level.iter_mut().zip(operands) {
            let elements = operand[block * BLOCK * size..][..to.len()].chunks_exact(size);
            row.clear();
            row.extend(elements.map(read));
        }
        // Row i holds the node over the operands from i on: first one operand, then two, then four.
        let mut step = 1;
        while step < level.len() {
            for at in (step..level.len()).step_by(2 * step) {
                let (left, right) = level.split_at_mut(at);
                let left = left[at - step].iter_mut();
                left.zip(&right[0]).for_each(|(a, b)| *a = join(*a, *b));
            }
            step *= 2;
        }
        for (to, x) in to.chunks_exact_mut(size).zip(&level[0]) {
            to.copy_from_slice(bytemuck::bytes_of(&T::narrow(*x)));
        }
    }
}

/// The tree of a dtype.
///
/// Error: ranks do not combine this dtype.
pub(super) fn combine(dtype: DType) -> Result<Combine, Diagnostic> {
    Ok(match dtype {
        DType::U8 => tree::<u8>,
        DType::I8 => tree::<i8>,
        DType::I32 => tree::<i32>,
        DType::I64 => tree::<i64>,
        DType::U32 => tree::<u32>,
        DType::U64 => tree::<u64>,
        DType::F16 => tree::<f16>,
        DType::BF16 => tree::<bf16>,
        DType::F32 => tree::<f32>,
        DType::F64 => tree::<f64>,
        DType::Bool | DType::F8E4M3FN | DType::F8E5M2 => {
            return Err(Diagnostic::new(format!("ranks add no {dtype}")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn combined<T: Number>(kind: CollectiveKind, operands: &[T]) -> Vec<u8> {
        let mut result = vec![0; size_of::<T>()];
        let operands: Vec<&[u8]> = operands.iter().map(bytemuck::bytes_of).collect();
        tree::<T>(kind, &operands, &mut result);
        result
    }

    /// The tree is that of the definition: neighbours are joined, until one is left.
    #[test]
    fn every_number_of_operands_has_the_balanced_tree() {
        let elements = 2 * BLOCK + 7;
        let value = |rank: usize, at: usize| {
            let bits = (rank * 7919 + at * 104_729) as u32;
            f32::from_bits(0x3f80_0000 | bits.wrapping_mul(0x9e37_79b9) >> 9) - 1.5
        };
        for ranks in 1..=9 {
            let operands: Vec<Vec<f32>> =
                (0..ranks).map(|rank| (0..elements).map(|at| value(rank, at)).collect()).collect();
            let wanted: Vec<f32> = (0..elements)
                .map(|at| {
                    let mut level: Vec<f32> = operands.iter().map(|row| row[at]).collect();
                    while level.len() > 1 {
                        level = level.chunks(2).map(|c| c.iter().copied().sum()).collect();
                    }
                    level[0]
                })
                .collect();
            let bytes: Vec<&[u8]> = operands.iter().map(|row| bytemuck::cast_slice(row)).collect();
            let mut result = vec![0; 4 * elements];
            tree::<f32>(CollectiveKind::Sum, &bytes, &mut result);
            let wanted: &[u8] = bytemuck::cast_slice(&wanted);
            assert!(result == wanted, "{ranks} ranks");
        }
    }

    #[test]
    fn sums_are_a_balanced_tree() {
        // From left to right, the sum would be 1.
        let big = 2f32.powi(24);
        let sum = combined(CollectiveKind::Sum, &[big, 1.0, 1.0, -big, 1.0]);
        let wanted = ((big + 1.0) + (1.0 - big)) + 1.0;
        assert_eq!(sum, wanted.to_ne_bytes());
        assert_ne!(wanted, big + 1.0 + 1.0 - big + 1.0);
        // Halves are carried in f32: 2048 + 1 is no f16.
        let halves = [2048.0, 1.0, 1.0, 0.0].map(f16::from_f32);
        assert_eq!(combined(CollectiveKind::Sum, &halves), f16::from_f32(2050.0).to_ne_bytes());
        assert_eq!(combined(CollectiveKind::Sum, &[i8::MAX, 1]), i8::MIN.to_ne_bytes());
    }

    #[test]
    fn extrema_take_the_second_of_equals_and_any_nan() {
        let of =
            |kind, x: &[f32]| f32::from_ne_bytes(combined(kind, x).try_into().expect("four bytes"));
        assert_eq!(of(CollectiveKind::Max, &[0.0, -0.0]).to_bits(), (-0.0f32).to_bits());
        assert_eq!(of(CollectiveKind::Min, &[-0.0, 0.0]).to_bits(), 0.0f32.to_bits());
        assert!(of(CollectiveKind::Max, &[f32::NAN, 1.0, 2.0]).is_nan());
        assert!(of(CollectiveKind::Min, &[1.0, f32::NAN, 2.0]).is_nan());
        assert_eq!(of(CollectiveKind::Min, &[3.0, 1.0, 2.0]), 1.0);
        assert_eq!(combined(CollectiveKind::Max, &[1u64, u64::MAX]), u64::MAX.to_ne_bytes());
    }
}
