//! Collectives on the CPU: bytes go through the transport, and every rank adds by itself.
//!
//! A reduction is divided among the ranks of the group. Each rank receives its share of every
//! operand by an all-to-all, combines the shares in the tree that the
//! [contract](wengert_core::call::Collective) defines, and receives the other shares of the result
//! by an all-gather. Operands of few bytes are gathered whole and combined by every rank: the bits
//! are the same, and one exchange is saved.
//!
//! This module says what is exchanged and what becomes of it. [`crate::transfers`] exchanges: a
//! call starts its transfer and waits for it. Unlike other calls, collectives allocate in a run:
//! operations of the transport own their buffers, since another rank may still read them after an
//! error.

use super::{Arguments, Compile, Kernels};
use crate::memory::Workspace;
use crate::ranks::Group;
use bytemuck::Pod;
use half::{bf16, f16};
use wengert_core::call::{Collective, CollectiveKind};
use wengert_core::{DType, Diagnostic};
use wengert_transport::Operation;

/// A reduction of at most so many bytes, those of all ranks together, is one exchange.
const SMALL: usize = 1 << 14;

/// Combines the operands of ranks, which are one after another, into a result.
type Combine = fn(CollectiveKind, &[u8], &mut [u8]);

/// A collective that exchanges data, ready to be started.
#[derive(Clone, Debug)]
pub(crate) struct CompiledCollective {
    call: Collective,
    /// For reductions.
    combine: Option<Combine>,
}

impl Compile for Collective {
    fn compile(&self) -> Result<Box<dyn Kernels>, Diagnostic> {
        Ok(Box::new(CompiledCollective::new(self)?))
    }
}

impl Kernels for CompiledCollective {
    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        let ranks = workspace.ranks();
        let [result] = arguments.buffers.last_chunk().expect("a call has a result");
        // SAFETY: the run has checked that the result may be written, and that it overlaps no
        // operand. No other thread takes part in this call.
        let result = unsafe { std::slice::from_raw_parts_mut(result.pointer(), result.bytes()) };
        if self.call.kind == CollectiveKind::AxisIndex {
            let position = ranks.group(&self.call.over)?.position;
            let position = i32::try_from(position).expect("a mesh has at most 2²⁰ ranks");
            result.copy_from_slice(&position.to_ne_bytes());
            return Ok(());
        }
        let operand = &arguments.buffers[0];
        // SAFETY: the run has checked that the operand may be read, and nothing writes it now.
        let operand =
            unsafe { std::slice::from_raw_parts(operand.pointer().cast_const(), operand.bytes()) };
        ranks.start(None, self, operand)?;
        ranks.wait(None, result)
    }
}

/// Whether a collective has two exchanges in a group of `ranks`.
pub(crate) fn has_two_exchanges(call: &Collective, ranks: usize) -> bool {
    use CollectiveKind::{Max, Min, Sum};
    let bytes = call.part() * call.dtype.size();
    matches!(call.kind, Sum | Max | Min) && bytes.saturating_mul(ranks) > SMALL
}

impl CompiledCollective {
    /// Error: ranks do not combine this dtype.
    pub fn new(call: &Collective) -> Result<Self, Diagnostic> {
        let combine = match call.kind.is_reduction() {
            true => Some(combine(call.dtype)?),
            false => None,
        };
        Ok(CompiledCollective { call: call.clone(), combine })
    }

    /// Whether it has two exchanges in this group.
    pub fn has_two_exchanges(&self, group: &Group) -> bool {
        has_two_exchanges(&self.call, group.size)
    }

    /// The axes along which the ranks exchange.
    pub fn over(&self) -> &[String] {
        &self.call.over
    }

    /// The first exchange.
    pub fn first(&self, group: &Group, operand: &[u8]) -> Operation {
        use CollectiveKind::{AllGather, AllToAll, AxisIndex, Max, Min, Permute, Sum, SumScatter};
        let part = self.call.part() * self.call.dtype.size();
        let whole = || Operation::AllGather {
            bytes: operand.to_vec(),
            counts: vec![operand.len(); group.size],
        };
        match self.call.kind {
            Sum | Max | Min if has_two_exchanges(&self.call, group.size) => {
                let send = self.shares(group);
                let receive = vec![send[group.position]; group.size];
                Operation::AllToAllCounts { bytes: operand.to_vec(), send, receive }
            }
            Sum | Max | Min | AllGather => whole(),
            SumScatter | AllToAll => Operation::AllToAllCounts {
                bytes: apart(operand, self.call.outer, group.size),
                send: vec![part; group.size],
                receive: vec![part; group.size],
            },
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
                Operation::AllToAllCounts { bytes, send, receive }
            }
            AxisIndex => unreachable!("nothing is exchanged for it"),
        }
    }

    /// The second exchange, from what the first has received, if there is one.
    pub fn second(&self, group: &Group, received: &[u8]) -> Option<Operation> {
        has_two_exchanges(&self.call, group.size).then(|| {
            let counts = self.shares(group);
            let mut bytes = vec![0; counts[group.position]];
            self.combine(received, &mut bytes);
            Operation::AllGather { bytes, counts }
        })
    }

    /// Writes the result, from what the last exchange has received.
    pub fn finish(&self, group: &Group, received: &[u8], result: &mut [u8]) {
        use CollectiveKind::{AllGather, AllToAll, AxisIndex, Max, Min, Permute, Sum, SumScatter};
        let Collective { kind, outer, rows, .. } = self.call;
        match kind {
            Sum | Max | Min if has_two_exchanges(&self.call, group.size) => {
                result.copy_from_slice(received);
            }
            Sum | Max | Min | SumScatter => self.combine(received, result),
            AllGather => together(received, outer, group.size, result),
            AllToAll => together(received, rows, group.size, result),
            Permute => match received.is_empty() {
                true => result.fill(0),
                false => result.copy_from_slice(received),
            },
            AxisIndex => unreachable!("nothing is exchanged for it"),
        }
    }

    /// Bytes of the share of each rank in a reduction of two exchanges.
    fn shares(&self, group: &Group) -> Vec<usize> {
        let (elements, element) = (self.call.part(), self.call.dtype.size());
        let share = elements.div_ceil(group.size);
        let of_rank = |rank: usize| elements.saturating_sub(rank * share).min(share) * element;
        (0..group.size).map(of_rank).collect()
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
