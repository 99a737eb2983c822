//! Calls on the CPU against their reference, within the error bounds that the reference states. The
//! bits are the same for every number of threads and every set of vector instructions.
#![allow(clippy::unwrap_used)]

mod attention;
mod convolution;
mod gemm;
mod memory;
mod scatter;
mod sort;

use proptest::prelude::*;
use std::sync::{Arc, LazyLock};
use wengert_core::call::Call;
use wengert_core::{DType, Literal, Scalar, TensorType};
use wengert_cpu::{AlignedBytes, Buffer, CompiledCall, Pool, Simd, Workspace};

/// Pools of 1, 2 and 3 threads.
static POOLS: LazyLock<[Arc<Pool>; 3]> =
    LazyLock::new(|| [1, 2, 3].map(|threads| Arc::new(Pool::new(threads).expect("threads start"))));

/// The dtypes of the calls under test.
const DTYPES: [DType; 10] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::U8,
    DType::I8,
    DType::I32,
    DType::I64,
    DType::U32,
    DType::U64,
];

/// Numbers of a few digits, between −8 and 8, or integers of all sizes.
fn numbers(dtype: DType, shape: &[usize], seed: u64) -> Literal {
    let mut state = seed;
    let values: Vec<Scalar> = (0..shape.iter().product())
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let bits = (state >> 20) as i64;
            if dtype.is_float() {
                Scalar::from_f64(dtype, (bits % (1 << 20)) as f64 / (1 << 17) as f64)
            } else {
                Scalar::from_i64(dtype, bits >> (state % 40))
            }
        })
        .collect();
    Literal::from_scalars(dtype, shape, &values).unwrap()
}

fn aligned(bytes: &[u8]) -> AlignedBytes {
    let mut memory = AlignedBytes::new(bytes.len()).unwrap();
    memory.copy_from_slice(bytes);
    memory
}

/// The results of a call: in buffers of their own, or, for a call with one result, over an operand.
fn run_all(
    call: &Call,
    operands: &[Literal],
    pool: &Arc<Pool>,
    simd: Simd,
    over: Option<usize>,
) -> Vec<Literal> {
    let compiled = CompiledCall::new(call).unwrap();
    let mut workspace = Workspace::new(pool.clone(), simd).unwrap();
    workspace.reserve(compiled.scratch_bytes()).unwrap();
    let given: Vec<AlignedBytes> = operands.iter().map(|o| aligned(&o.to_bytes())).collect();
    let types = call.results();
    // The bytes of a result before the run are arbitrary.
    let before = |ty: &TensorType| match over {
        Some(operand) => operands[operand].to_bytes(),
        None => vec![0xa5; ty.elements().unwrap() * ty.dtype.size()],
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
        Literal::from_bytes(ty.dtype, &ty.extents().unwrap(), bytes).unwrap()
    };
    types.iter().zip(&results).map(literal).collect()
}

/// The result of a call that has one.
fn run(
    call: &Call,
    operands: &[Literal],
    pool: &Arc<Pool>,
    simd: Simd,
    over: Option<usize>,
) -> Literal {
    run_all(call, operands, pool, simd, over).remove(0)
}

/// Runs a call on every pool, with every set of vector instructions and every in-place operand.
/// Compares it with its reference.
fn check(call: &Call, operands: &[Literal]) -> Result<(), TestCaseError> {
    let first = run_all(call, operands, &POOLS[0], Simd::Portable, None);
    for (n, (reference, found)) in call.references(operands).unwrap().iter().zip(&first).enumerate()
    {
        reference
            .check(found)
            .map_err(|e| TestCaseError::fail(format!("{call:?}, result {n}: {e}")))?;
    }
    let bytes = |results: &[Literal]| results.iter().map(Literal::to_bytes).collect::<Vec<_>>();
    for pool in POOLS.iter() {
        for simd in Simd::available() {
            for over in call.in_place().into_iter().map(Some).chain([None]) {
                let found = run_all(call, operands, pool, simd, over);
                let threads = pool.threads();
                prop_assert!(
                    bytes(&found) == bytes(&first),
                    "{call:?}: other bits with {threads} threads, {}, over {over:?}",
                    simd.name()
                );
            }
        }
    }
    Ok(())
}
