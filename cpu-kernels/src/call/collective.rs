//! Collectives on the CPU: bytes go through the transport, and every rank adds by itself.
//!
//! A reduction is divided among the ranks of the group. Each rank receives its share of every
//! operand by an all-to-all, combines the shares in the tree that the
//! [contract](wengert_core::call::Collective) defines, and receives the other shares of the result
//! by an all-gather. Operands of few bytes are gathered whole and combined by every rank: the bits
//! are the same, and one exchange is saved.
//!
//! A collective blocks its rank. Unlike other calls it allocates in a run: operations of the
//! transport own their buffers, since another rank may still read them after an error.

use super::{Arguments, Compile, Kernels};
use crate::memory::Workspace;
use crate::ranks::Group;
use bytemuck::Pod;
use half::{bf16, f16};
use wengert_core::call::{Collective, CollectiveKind};
use wengert_core::{DType, Diagnostic};

/// A reduction of at most so many bytes, those of all ranks together, is one exchange.
const SMALL: usize = 1 << 14;

/// Combines the operands of ranks, which are one after another, into a result.
type Combine = fn(CollectiveKind, &[u8], &mut [u8]);

#[derive(Debug)]
struct CompiledCollective {
    call: Collective,
    /// For reductions.
    combine: Option<Combine>,
}

impl Compile for Collective {
    fn compile(&self) -> Result<Box<dyn Kernels>, Diagnostic> {
        let combine = match self.kind.is_reduction() {
            true => Some(combine(self.dtype)?),
            false => None,
        };
        Ok(Box::new(CompiledCollective { call: self.clone(), combine }))
    }
}

impl Kernels for CompiledCollective {
    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        let group = workspace.ranks().group(&self.call.over)?;
        let [result] = arguments.buffers.last_chunk().expect("a call has a result");
        // SAFETY: the run has checked that the result may be written, and that it overlaps no
        // operand. No other thread takes part in this call.
        let result = unsafe { std::slice::from_raw_parts_mut(result.pointer(), result.bytes()) };
        if self.call.kind == CollectiveKind::AxisIndex {
            let position = i32::try_from(group.position).expect("a mesh has at most 2²⁰ ranks");
            result.copy_from_slice(&position.to_ne_bytes());
            return Ok(());
        }
        let operand = &arguments.buffers[0];
        // SAFETY: the run has checked that the operand may be read, and nothing writes it now.
        let operand =
            unsafe { std::slice::from_raw_parts(operand.pointer().cast_const(), operand.bytes()) };
        self.exchange(group, operand, result)
    }
}

impl CompiledCollective {
    fn exchange(&self, group: &Group, operand: &[u8], result: &mut [u8]) -> Result<(), Diagnostic> {
        use CollectiveKind::{AllGather, AllToAll, AxisIndex, Max, Min, Permute, Sum, SumScatter};
        let Collective { kind, outer, rows, .. } = self.call;
        let part = self.call.part() * self.call.dtype.size();
        let each = || vec![part; group.size];
        match kind {
            Sum | Max | Min => self.reduce(group, operand, result)?,
            SumScatter => {
                let parts = apart(operand, outer, group.size);
                let received = group.all_to_all(parts, each(), each())?;
                self.combine(&received, result);
            }
            AllGather => {
                let received = group.all_gather(operand.to_vec())?;
                together(&received, outer, group.size, result);
            }
            AllToAll => {
                let parts = apart(operand, outer, group.size);
                let received = group.all_to_all(parts, each(), each())?;
                together(&received, rows, group.size, result);
            }
            Permute => {
                let (mut send, mut receive) = (vec![0; group.size], vec![0; group.size]);
                for (source, destination) in &self.call.perm {
                    if *source == group.position {
                        send[*destination] = part;
                    }
                    if *destination == group.position {
                        receive[*source] = part;
                    }
                }
                let sends = send.iter().any(|bytes| *bytes > 0);
                let bytes = if sends { operand.to_vec() } else { vec![] };
                let received = group.all_to_all(bytes, send, receive)?;
                match received.is_empty() {
                    true => result.fill(0),
                    false => result.copy_from_slice(&received),
                }
            }
            AxisIndex => unreachable!("it has no operand"),
        }
        Ok(())
    }

    fn reduce(&self, group: &Group, operand: &[u8], result: &mut [u8]) -> Result<(), Diagnostic> {
        if operand.len().saturating_mul(group.size) <= SMALL {
            let all = group.all_gather(operand.to_vec())?;
            self.combine(&all, result);
            return Ok(());
        }
        let element = self.call.dtype.size();
        let share = (operand.len() / element).div_ceil(group.size) * element;
        let bytes_of = |rank: usize| operand.len().saturating_sub(rank * share).min(share);
        let counts: Vec<usize> = (0..group.size).map(bytes_of).collect();
        let own = counts[group.position];
        let received = group.all_to_all(operand.to_vec(), counts.clone(), vec![own; group.size])?;
        let mut combined = vec![0; own];
        self.combine(&received, &mut combined);
        result.copy_from_slice(&group.all_gather_counts(combined, counts)?);
        Ok(())
    }

    fn combine(&self, operands: &[u8], result: &mut [u8]) {
        let combine = self.combine.expect("a reduction was compiled with it");
        combine(self.call.kind, operands, result);
    }
}

/// The parts of an array `[outer, parts, ·]`, one after another.
fn apart(array: &[u8], outer: usize, parts: usize) -> Vec<u8> {
    let row = array.len() / (outer * parts).max(1);
    let mut all = Vec::with_capacity(array.len());
    for part in 0..parts {
        for o in 0..outer {
            all.extend_from_slice(&array[(o * parts + part) * row..][..row]);
        }
    }
    all
}

/// The inverse of [`apart`].
fn together(all: &[u8], outer: usize, parts: usize, array: &mut [u8]) {
    let row = array.len() / (outer * parts).max(1);
    for part in 0..parts {
        for o in 0..outer {
            let from = &all[(part * outer + o) * row..][..row];
            array[(o * parts + part) * row..][..row].copy_from_slice(from);
        }
    }
}

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
fn tree<T: Number>(kind: CollectiveKind, operands: &[u8], result: &mut [u8]) {
    if result.is_empty() {
        return;
    }
    let join: fn(T::Wide, T::Wide) -> T::Wide = match kind {
        CollectiveKind::Max => |a, b| if T::precedes(a, b, true) { a } else { b },
        CollectiveKind::Min => |a, b| if T::precedes(a, b, false) { a } else { b },
        _ => T::add,
    };
    let wide = |bytes: &[u8]| {
        let elements = bytes.chunks_exact(size_of::<T>());
        elements.map(|x| bytemuck::pod_read_unaligned::<T>(x).widen()).collect()
    };
    let mut level: Vec<Vec<T::Wide>> = operands.chunks_exact(result.len()).map(wide).collect();
    while level.len() > 1 {
        let mut next = Vec::with_capacity(level.len().div_ceil(2));
        let mut operands = level.into_iter();
        while let Some(mut left) = operands.next() {
            if let Some(right) = operands.next() {
                left.iter_mut().zip(right).for_each(|(a, b)| *a = join(*a, b));
            }
            next.push(left);
        }
        level = next;
    }
    for (to, x) in result.chunks_exact_mut(size_of::<T>()).zip(&level[0]) {
        to.copy_from_slice(bytemuck::bytes_of(&T::narrow(*x)));
    }
}

fn combine(dtype: DType) -> Result<Combine, Diagnostic> {
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
        tree::<T>(kind, bytemuck::cast_slice(operands), &mut result);
        result
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

    #[test]
    fn parts_come_apart_and_together() {
        // [2, 3, 2]
        let array: Vec<u8> = (0..12).collect();
        let parts = apart(&array, 2, 3);
        assert_eq!(parts, [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        let mut back = vec![0; 12];
        together(&parts, 2, 3, &mut back);
        assert_eq!(back, array);
    }
}
