//! What a run refuses.

use super::*;
use wengert_core::call::{Epilogue, Gemm, Matrix};

fn call() -> Call {
    Call::Gemm(Gemm {
        batch: 1,
        m: 2,
        n: 2,
        k: 2,
        lhs: Matrix { batch: 0, row: 2, column: 1 },
        rhs: Matrix { batch: 0, row: 2, column: 1 },
        operand: DType::F32,
        accumulate: DType::F32,
        result: DType::F32,
        epilogue: Epilogue { residual: true, ..Epilogue::default() },
    })
}

#[test]
fn buffers_are_checked() {
    let compiled = CompiledCall::new(&call()).unwrap();
    let mut workspace = Workspace::new(POOLS[1].clone(), Simd::Portable);
    let error = |workspace: &Workspace, buffers: &[Buffer<'_>]| {
        compiled.run(workspace, buffers).unwrap_err().to_string()
    };
    let (x, mut y, mut z) = ([1.0f32, 2.0, 3.0, 4.0], [0.0f32; 5], [0.5f32; 4]);
    let given = Buffer::reading(&x);
    let residual = Buffer::reading(&[10.0f32, 20.0, 30.0, 40.0]);
    let result = Buffer::writing(&mut z);
    assert!(error(&workspace, &[given, given, residual, result]).contains("scratch"));
    workspace.reserve(compiled.scratch_bytes()).unwrap();
    assert!(error(&workspace, &[given, given, result]).contains("4 buffers"));
    assert!(error(&workspace, &[given, given, given, residual]).contains("lent for reading"));
    assert!(error(&workspace, &[given, Buffer::reading(&x[..3]), residual, result]).contains("12"));
    assert!(error(&workspace, &[given, result, residual, result]).contains("overlap"));
    // A larger operand is right, a larger result is not.
    let larger = Buffer::writing(&mut y);
    assert!(error(&workspace, &[given, given, residual, larger]).contains("20"));
    let shifted = Buffer::reading(&x[..]);
    compiled.run(&workspace, &[larger, shifted, residual, result]).unwrap();
    assert_eq!(z, [10.0, 20.0, 30.0, 40.0]);
    // The residual's place is the result's.
    let result = Buffer::writing(&mut z);
    compiled.run(&workspace, &[given, given, result, result]).unwrap();
    assert_eq!(z, [17.0, 30.0, 45.0, 62.0]);
    let apart = Buffer::writing(&mut y[..4]);
    assert_eq!(apart.bytes(), 16);
}

#[test]
fn a_residual_that_overlaps_in_part_is_refused() {
    let compiled = CompiledCall::new(&call()).unwrap();
    let mut workspace = Workspace::new(POOLS[0].clone(), Simd::Portable);
    workspace.reserve(compiled.scratch_bytes()).unwrap();
    let x = [1.0f32; 4];
    let mut memory = AlignedBytes::new(64).unwrap();
    let whole = Buffer::writing(&mut memory[..16]);
    // Lent twice on purpose: a buffer may be copied, so a caller can do this.
    let shifted = Buffer::reading(&x);
    let result = compiled.run(&workspace, &[shifted, whole, shifted, whole]);
    assert!(result.unwrap_err().to_string().contains("operand 1 and of result 0 overlap"));
}

#[test]
fn calls_that_break_a_rule_are_refused() {
    let Call::Gemm(gemm) = call() else { unreachable!() };
    let bad = Call::Gemm(Gemm { accumulate: DType::F64, ..gemm });
    assert!(CompiledCall::new(&bad).unwrap_err().to_string().contains("call `gemm`"));
}
