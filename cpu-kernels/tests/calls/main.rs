//! Calls on the CPU against their reference, within the error bounds that the reference states. The
//! bits are the same for every number of threads and every set of vector instructions.
#![allow(clippy::unwrap_used)]

mod convolutions;
mod halves;
mod memory;
mod refusals;
mod rows;
mod threads;

use proptest::prelude::*;
use std::sync::{Arc, LazyLock};
use wengert_core::call::Call;
use wengert_core::{DType, Literal, Target, TensorType};
use wengert_cpu::{AlignedBytes, Buffer, CompiledCall, Pool, Simd, Workspace};
use wengert_testing::calls::{self, Device};
use wengert_testing::layout::Layout;

/// Pools of 1, 2 and 3 threads.
static POOLS: LazyLock<[Arc<Pool>; 3]> =
    LazyLock::new(|| [1, 2, 3].map(|threads| Arc::new(Pool::new(threads).expect("threads start"))));

fn aligned(bytes: &[u8]) -> AlignedBytes {
    let mut memory = AlignedBytes::new(bytes.len()).unwrap();
    memory.copy_from_slice(bytes);
    memory
}

/// The results of a call: in buffers of their own, or, for a call with one result, over an operand.
fn run(
    call: &Call,
    operands: &[Literal],
    pool: &Arc<Pool>,
    simd: Simd,
    over: Option<usize>,
) -> Vec<Literal> {
    let compiled = CompiledCall::new(call).unwrap();
    let mut workspace = Workspace::new(pool.clone(), simd).unwrap();
    compiled.reserve(&mut workspace).unwrap();
    let given: Vec<AlignedBytes> = operands.iter().map(|o| aligned(&o.to_bytes())).collect();
    let types = call.results();
    // The bytes of a result before the run are arbitrary.
    let before = |ty: &TensorType| match over {
        Some(operand) => operands[operand].to_bytes(),
        None => vec![0xa5; layout(call, ty, &ty.extents().unwrap()).bytes()],
    };
    let mut results: Vec<AlignedBytes> = types.iter().map(|ty| aligned(&before(ty))).collect();
    // Runs twice: the state that a run leaves in the workspace must not affect the next.
    for _ in 0..2 {
        types.iter().zip(&mut results).for_each(|(ty, result)| result.copy_from_slice(&before(ty)));
        let mut buffers: Vec<Buffer<'_>> = given.iter().map(|g| Buffer::reading(&g[..])).collect();
        buffers.extend(results.iter_mut().map(|r| Buffer::writing(&mut r[..])));
        match over {
            Some(operand) => {
                buffers.remove(operand);
                compiled.run_in_place(&workspace, operand, &mut buffers).unwrap();
            }
            None => compiled.run(&workspace, &mut buffers).unwrap(),
        }
    }
    let literal = |(ty, bytes): (&TensorType, &AlignedBytes)| {
        layout(call, ty, &ty.extents().unwrap()).read(|at, count| bytes[at..at + count].to_vec())
    };
    types.iter().zip(&results).map(literal).collect()
}

/// The layout of a result.
fn layout<'a>(call: &Call, ty: &TensorType, shape: &'a [usize]) -> Layout<'a> {
    Layout { dtype: ty.dtype, shape, pitch: call.pitch() }
}

/// The CPU: all pools, sets of vector instructions and in-place operands.
struct Cpu;

impl Device for Cpu {
    fn fits(call: &Call) -> bool {
        Target::cpu().claims(call)
    }

    fn run(call: &Call, operands: &[Literal]) -> Vec<Literal> {
        run(call, operands, &POOLS[0], Simd::Portable, None)
    }

    fn check(call: &Call, operands: &[Literal]) -> Result<(), TestCaseError> {
        let first = Cpu::run(call, operands);
        calls::compare(call, operands, &first)?;
        let bytes = |results: &[Literal]| results.iter().map(Literal::to_bytes).collect::<Vec<_>>();
        let first = bytes(&first);
        for pool in POOLS.iter() {
            for simd in Simd::available() {
                for over in call.in_place().into_iter().map(Some).chain([None]) {
                    let found = run(call, operands, pool, simd, over);
                    let threads = pool.threads();
                    prop_assert!(
                        bytes(&found) == first,
                        "{call:?}: other bits with {threads} threads, {}, over {over:?}",
                        simd.name()
                    );
                }
            }
        }
        Ok(())
    }
}

wengert_testing::conformance!(Cpu);
