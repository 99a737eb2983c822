//! Invalid buffers, sizes and calls, which a run refuses.

use super::*;
use wengert_core::call::{Addends, Gemm, Matrix};

fn call() -> Call {
    Call::Gemm(Gemm {
        batch: 1,
        m: 2,
        n: 2,
        k: 2,
        lhs: Matrix { batch: 0, row: 2, column: 1 },
        rhs: Matrix { batch: 0, row: 2, column: 1 },
        operand: DType::F32,
        rhs_operand: None,
        scales: None,
        accumulate: DType::F32,
        result: DType::F32,
        addends: Addends { residual: true, ..Addends::default() },
        pitch: None,
    })
}

#[test]
fn buffers_are_checked() {
    let compiled = CompiledCall::new(&call()).unwrap();
    let mut workspace = Workspace::new(POOLS[1].clone(), Simd::Portable).unwrap();
    let error = |workspace: &Workspace, buffers: &mut [Buffer<'_>]| {
        compiled.run(workspace, buffers).unwrap_err().to_string()
    };
    let (x, mut y, mut z) = ([1.0f32, 2.0, 3.0, 4.0], [0.0f32; 5], [0.5f32; 4]);
    let added = [10.0f32, 20.0, 30.0, 40.0];
    let given = || Buffer::reading(&x);
    let residual = || Buffer::reading(&added);
    let mut all = [given(), given(), residual(), Buffer::writing(&mut z)];
    assert!(error(&workspace, &mut all).contains("scratch"));
    compiled.reserve(&mut workspace).unwrap();
    assert!(error(&workspace, &mut all[1..]).contains("4 buffers"));
    assert!(
        error(&workspace, &mut [given(), given(), given(), residual()])
            .contains("borrowed for reading")
    );
    all[1] = Buffer::reading(&x[..3]);
    assert!(error(&workspace, &mut all).contains("12"));
    // An operand's buffer may be larger than the operand. A result's buffer may not.
    assert!(
        error(&workspace, &mut [given(), given(), residual(), Buffer::writing(&mut y)])
            .contains("20")
    );
    let mut all = [Buffer::writing(&mut y), given(), residual(), Buffer::writing(&mut z)];
    compiled.run(&workspace, &mut all).unwrap();
    assert_eq!(z, [10.0, 20.0, 30.0, 40.0]);
    // The result may be written over the residual, but not over a factor.
    compiled.run_in_place(&workspace, 2, &mut [given(), given(), Buffer::writing(&mut z)]).unwrap();
    assert_eq!(z, [17.0, 30.0, 45.0, 62.0]);
    let in_place = |operand: usize, z: &mut [f32]| {
        compiled
            .run_in_place(&workspace, operand, &mut [given(), residual(), Buffer::writing(z)])
            .unwrap_err()
    };
    let refused = in_place(1, &mut z).to_string();
    assert!(refused.contains("operand 1 and of result 0 overlap"), "{refused}");
    assert!(in_place(3, &mut z).to_string().contains("4 buffers"));
    assert!(in_place(usize::MAX, &mut z).to_string().contains("4 buffers"));
}

#[test]
fn a_machine_without_the_vector_instructions_is_refused() {
    for simd in Simd::ALL {
        assert_eq!(Workspace::new(POOLS[0].clone(), simd).is_ok(), simd.is_available());
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let Call::Gemm(gemm) = call() else { unreachable!() };
    // The extents of a product without rows are checked too, although it stores nothing.
    let empty = Call::Gemm(Gemm { m: 0, k: 1 << 40, n: 1 << 40, ..gemm.clone() });
    assert!(CompiledCall::new(&empty).unwrap_err().to_string().contains("overflow"));
    // A row of halves is copied to scratch memory. This row does not fit into memory.
    let matrix = Matrix { batch: 0, row: 0, column: 0 };
    let (operand, addends) = (DType::F16, Addends::default());
    let long = Gemm { m: 1, n: 1, k: 1 << 58, lhs: matrix, rhs: matrix, operand, addends, ..gemm };
    let compiled = CompiledCall::new(&Call::Gemm(long)).unwrap();
    let mut workspace = Workspace::new(POOLS[0].clone(), Simd::Portable).unwrap();
    let reserved = compiled.reserve(&mut workspace).unwrap_err().to_string();
    assert!(reserved.contains("cannot allocate"), "{reserved}");
    let (x, mut y) = ([half::f16::ZERO; 1], [0.0f32; 1]);
    let mut buffers = [Buffer::reading(&x), Buffer::reading(&x), Buffer::writing(&mut y)];
    assert!(compiled.run(&workspace, &mut buffers).unwrap_err().to_string().contains("scratch"));
}

#[test]
fn calls_that_break_a_rule_are_refused() {
    let Call::Gemm(gemm) = call() else { unreachable!() };
    let bad = Call::Gemm(Gemm { accumulate: DType::F64, ..gemm });
    assert!(CompiledCall::new(&bad).unwrap_err().to_string().contains("call `gemm`"));
}
