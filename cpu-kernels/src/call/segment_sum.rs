//! Segmented sums on the CPU. A task has some segments and some columns. It searches the rows of
//! each segment and adds them in order, so the bits do not depend on the division.

use super::element::{Element, Number, with_element};
use super::{Arguments, Compile, Kernels};
use crate::memory::Workspace;
use std::ops::Range;
use wengert_core::call::{SegmentSum, first_row};
use wengert_core::{DType, Diagnostic};

/// A segmented sum, ready to run.
#[derive(Debug)]
struct CompiledSegmentSum {
    call: SegmentSum,
    /// Segments and columns of a task.
    part: [usize; 2],
}

/// Fewest elements of data that are worth a task.
const TASK: usize = 1 << 15;
/// Most tasks. There are more than threads, since segments have different numbers of rows.
const TASKS: usize = 256;
/// Columns that are added at a time.
const CHUNK: usize = 64;

impl Compile for SegmentSum {
    fn compile(&self) -> Result<Box<dyn Kernels>, Diagnostic> {
        let tasks = (self.rows * self.columns / TASK).clamp(1, TASKS);
        let segments = self.segments.div_ceil(tasks).max(1);
        // Columns are divided if there are fewer segments than tasks.
        let tasks = tasks.div_ceil(self.segments.div_ceil(segments).max(1));
        let columns = self.columns.div_ceil(tasks).next_multiple_of(CHUNK);
        Ok(Box::new(CompiledSegmentSum { call: self.clone(), part: [segments, columns] }))
    }
}

impl Kernels for CompiledSegmentSum {
    fn run(&self, workspace: &Workspace, arguments: &Arguments<'_>) -> Result<(), Diagnostic> {
        let SegmentSum { columns, segments, dtype, index, .. } = self.call;
        let across = columns.div_ceil(self.part[1]);
        let task = |_: usize, task: usize| {
            let part = |number: usize, part: usize, extent: usize| {
                number * part..extent.min((number + 1) * part)
            };
            let segments = part(task / across, self.part[0], segments);
            let columns = part(task % across, self.part[1], columns);
            // SAFETY: the arguments were checked, and no other task has these segments and columns.
            with_element!(dtype, T => unsafe {
                match index {
                    DType::I32 => self.add_up::<T, i32>(arguments, segments, columns),
                    _ => self.add_up::<T, i64>(arguments, segments, columns),
                }
            });
        };
        let parts = segments.div_ceil(self.part[0]) * across;
        Ok(workspace.pool().parallel_for(parts, task)?)
    }
}

impl CompiledSegmentSum {
    /// Computes some columns of some segments.
    ///
    /// # Safety
    ///
    /// The arguments are those of the call, checked, with elements `T` and ids `I`. The segments
    /// and columns exist, and no other thread uses their part of the result.
    unsafe fn add_up<T: Element, I: Copy + Into<i64>>(
        &self,
        arguments: &Arguments<'_>,
        segments: Range<usize>,
        columns: Range<usize>,
    ) {
        let (data, ids) = (arguments.operand::<T>(0), arguments.operand::<I>(1));
        let (result, row_length) = (arguments.result::<T>(), self.call.columns);
        // SAFETY: the search asks for rows that exist, and there is an id for each.
        let id = |row: usize| unsafe { ids.add(row).read() }.into();
        let first = |segment: usize| first_row(self.call.rows, id, segment as i64);
        let mut begin = first(segments.start);
        for segment in segments {
            let end = first(segment + 1);
            for start in columns.clone().step_by(CHUNK) {
                let count = CHUNK.min(columns.end - start);
                let mut sums = [T::Wide::ZERO; CHUNK];
                for row in begin..end {
                    // SAFETY: the row and the columns exist; nothing writes data.
                    let terms = unsafe {
                        std::slice::from_raw_parts(data.add(row * row_length + start), count)
                    };
                    sums.iter_mut().zip(terms).for_each(|(sum, x)| *sum = sum.add(x.wide()));
                }
                for (column, sum) in (start..start + count).zip(sums) {
                    // SAFETY: the element exists, and only this task writes it.
                    unsafe { result.add(segment * row_length + column).write(T::round(sum)) };
                }
            }
            begin = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBytes, Buffer, CompiledCall, Pool, Simd};
    use proptest::prelude::*;
    use std::sync::Arc;
    use wengert_core::call::Call;
    use wengert_core::{Literal, Scalar};

    fn run(call: &Call, operands: &[Literal], threads: usize) -> Literal {
        let compiled = CompiledCall::new(call).unwrap();
        let pool = Arc::new(Pool::new(threads).expect("threads start"));
        let workspace = Workspace::new(pool, Simd::Portable).unwrap();
        let memory = |bytes: &[u8]| {
            let mut memory = AlignedBytes::new(bytes.len()).unwrap();
            memory.copy_from_slice(bytes);
            memory
        };
        let ty = call.results().remove(0);
        let given: Vec<_> = operands.iter().map(|o| memory(&o.to_bytes())).collect();
        // Bytes of the result before the run are arbitrary.
        let mut result = memory(&vec![0xa5; ty.bytes().unwrap()]);
        let mut buffers: Vec<_> = given.iter().map(|bytes| Buffer::reading(&bytes[..])).collect();
        buffers.push(Buffer::writing(&mut result[..]));
        compiled.run(&workspace, &mut buffers).unwrap();
        Literal::from_bytes(ty.dtype, &ty.extents().unwrap(), &result).unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 200,
            failure_persistence: None,
            ..Default::default()
        })]

        /// Also with ids that do not ascend.
        #[test]
        fn sums_are_those_of_the_contract(
            extents in prop_oneof![
                [0usize..60, 0usize..5, 0usize..9],
                [0usize..400, 60usize..200, 0usize..4],
                [2000usize..4000, 30usize..70, 1usize..30],
            ],
            dtype in (0..DType::IN_KERNELS.len()).prop_map(|n| DType::IN_KERNELS[n]),
            wide: bool,
            ascending in any::<u8>().prop_map(|n| n % 4 > 0),
            seed: u64,
        ) {
            prop_assume!(dtype != DType::Bool);
            let [rows, columns, segments] = extents;
            let index = if wide { DType::I64 } else { DType::I32 };
            let call = Call::from(SegmentSum { rows, columns, segments, dtype, index });
            let mut state = seed;
            let mut next = |range: i64| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 33) as i64 % range
            };
            let number = |n: i64| match dtype.is_float() {
                true => Scalar::from_f64(dtype, n as f64 / 256.0),
                false => Scalar::from_i64(dtype, n),
            };
            let data: Vec<_> = (0..rows * columns).map(|_| number(next(2048) - 1024)).collect();
            let mut ids: Vec<i64> = (0..rows).map(|_| next(segments as i64 + 4) - 2).collect();
            if ascending {
                ids.sort();
            }
            let ids: Vec<_> = ids.into_iter().map(|id| Scalar::from_i64(index, id)).collect();
            let operands = [
                Literal::from_scalars(dtype, &[rows, columns], &data).unwrap(),
                Literal::from_scalars(index, &[rows], &ids).unwrap(),
            ];
            let found = run(&call, &operands, 1);
            call.reference(&operands).unwrap().check(&found).map_err(|e| {
                TestCaseError::fail(format!("{call:?}: {e}"))
            })?;
            prop_assert_eq!(run(&call, &operands, 3).to_bytes(), found.to_bytes());
        }
    }
}
