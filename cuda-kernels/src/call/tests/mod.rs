//! Calls on the emulator, with all its checks, compared with their reference semantics, within
//! the bounds that the reference states.
//!
//! Results and workspaces are uninitialised at first, so that reads of unwritten bytes are found;
//! each argument is bounded by its own buffer.

#![allow(clippy::unwrap_used)] // They are tests.

mod assemble;
mod convolution;
mod follower;
mod gemm;
mod scatter;

use super::*;
use crate::ptx::Module;
use crate::stage;
use proptest::prelude::*;
use wengert_core::{DType, Literal, Scalar};
use wengert_emulator as emulator;

/// Dtypes that calls compute with.
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

const SM_90: &str = "sm_90";

fn architecture(name: &str) -> Architecture {
    Architecture::from_name(name).unwrap()
}

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

/// Numbers for every operand.
fn operands(call: &Call, seed: u64) -> Vec<Literal> {
    let types = call.operands().into_iter().enumerate();
    types
        .map(|(k, ty)| numbers(ty.dtype, &ty.extents().unwrap(), seed ^ (k as u64) << 50))
        .collect()
}

/// Runs the stages of a call.
fn run(call: &Call, compiled: &Compiled, operands: &[Literal], in_place: Option<usize>) -> Literal {
    run_at(call, compiled, operands, in_place, |_| 0)
}

/// [`run`] with arguments whose addresses have an offset from a multiple of 256, given for each
/// dtype.
fn run_at(
    call: &Call,
    compiled: &Compiled,
    operands: &[Literal],
    in_place: Option<usize>,
    shift: fn(DType) -> u64,
) -> Literal {
    let mut memory = emulator::Memory::new();
    let ty = call.results().remove(0);
    let bytes = (ty.elements().unwrap() * ty.dtype.size()) as u64;
    let far = shift(ty.dtype);
    let result = memory.allocate("result", bytes.max(1) + far).unwrap() + far;
    let workspace = memory.allocate("workspace", compiled.workspace.max(1)).unwrap();
    let mut arguments: Vec<(u64, u64)> = vec![];
    for (n, operand) in operands.iter().enumerate() {
        let data = operand.to_bytes();
        let far = shift(operand.dtype());
        let address = match in_place == Some(n) {
            true => result,
            false => memory.allocate("operand", data.len().max(1) as u64 + far).unwrap() + far,
        };
        memory.write(address, &data).unwrap();
        arguments.push((address, data.len() as u64));
    }
    arguments.push((result, bytes));
    launch(&format!("{call:?}"), compiled, &arguments, workspace, &mut memory);
    assert_eq!(
        memory.first_uninitialised(result, bytes).unwrap(),
        None,
        "{call:?}: a byte of the result is not written"
    );
    let bytes = memory.read(result, bytes as usize).unwrap();
    Literal::from_bytes(ty.dtype, &ty.extents().unwrap(), &bytes).unwrap()
}

/// Launches the stages of a call on the addresses and bytes of its arguments.
fn launch(
    what: &str,
    compiled: &Compiled,
    arguments: &[(u64, u64)],
    workspace: u64,
    memory: &mut emulator::Memory,
) {
    let machine = emulator::Emulator::new(emulator::Options::default());
    for stage in &compiled.stages {
        let name = stage.kernel.name.clone();
        let text =
            Module { functions: stage.functions.clone(), kernels: vec![stage.kernel.clone()] }
                .to_string();
        let module = emulator::Module::parse(&text)
            .unwrap_or_else(|e| panic!("{what}: {name}: {e}\n{text}"));
        let given = stage.arguments.iter().zip(&stage.kernel.parameters);
        let given = given.map(|(slot, parameter)| {
            let (address, bytes) = match slot.memory {
                stage::Memory::Argument(n) => arguments[n],
                stage::Memory::Workspace { offset, bytes } => {
                    assert!(
                        offset % 256 == 0 && offset + bytes <= compiled.workspace,
                        "{name}: {slot:?}"
                    );
                    (workspace + offset, bytes)
                }
            };
            let access = match slot.access {
                stage::Access::Read => emulator::Access::Read,
                stage::Access::Write => emulator::Access::Write,
                stage::Access::ReadWrite => emulator::Access::ReadWrite,
            };
            let name = parameter.name.clone();
            emulator::Argument::Buffer { address, bytes, name, access, expects: None, makes: None }
        });
        let launch = emulator::Launch {
            kernel: name.clone(),
            grid: stage.grid,
            block: [stage.kernel.threads, 1, 1],
            dynamic_shared: stage.dynamic_shared,
            arguments: given.collect(),
        };
        machine
            .run(&module, &launch, memory)
            .unwrap_or_else(|fault| panic!("{what}: {name}: {fault}"));
    }
}

/// Runs a call with every option, and compares it with the reference.
fn check(call: &Call, operands: &[Literal]) -> std::result::Result<(), TestCaseError> {
    let reference = call.reference(operands).unwrap();
    for in_place in call.in_place().into_iter().map(Some).chain([None]) {
        let compiled = compile(call, architecture(SM_90), in_place).unwrap();
        let found = run(call, &compiled, operands, in_place);
        let failed = |e| TestCaseError::fail(format!("{call:?} over {in_place:?}: {e}"));
        reference.check(&found).map_err(failed)?;
    }
    Ok(())
}

/// The names of a call's kernels, in order.
fn kernels(call: &Call) -> Vec<String> {
    let compiled = compile(call, architecture(SM_90), None).unwrap();
    compiled.stages.into_iter().map(|s| s.kernel.name).collect()
}

/// A slice of a larger value may begin anywhere.
#[test]
fn buffers_that_are_aligned_to_their_elements_only() {
    use wengert_core::call::{
        Addends, Convolution, Direction, Gemm, Matrix, Scatter, ScatterKind, Window,
    };
    let gemm = |[m, n, k]: [usize; 3], dtype: DType| {
        Call::Gemm(Gemm {
            batch: 1,
            m,
            n,
            k,
            lhs: Matrix { batch: 0, row: k, column: 1 },
            rhs: Matrix { batch: 0, row: n, column: 1 },
            operand: dtype,
            accumulate: if dtype.is_half() { DType::F32 } else { dtype },
            result: dtype,
            addends: Addends { bias: true, residual: true },
        })
    };
    let window = Window {
        input: 8,
        filter: 3,
        output: 8,
        stride: 1,
        low: 1,
        lhs_dilation: 1,
        rhs_dilation: 1,
    };
    let convolution = Convolution {
        direction: Direction::Forward,
        batch: 2,
        groups: 1,
        input_channels: 8,
        output_channels: 16,
        window: vec![window],
        dtype: DType::BF16,
    };
    let scatter = Scatter {
        kind: ScatterKind::Add,
        operand: vec![40, 8],
        indices: vec![20, 1],
        updates: vec![20, 8],
        update_window_dims: vec![1],
        inserted_window_dims: vec![0],
        scatter_dims_to_operand_dims: vec![0],
        dtype: DType::F16,
        index: DType::I32,
    };
    let calls = [
        gemm([40, 48, 32], DType::F32),
        gemm([40, 48, 32], DType::BF16),
        gemm([40, 48, 32], DType::F64),
        gemm([40, 48, 32], DType::U8),
        gemm([40, 1, 128], DType::F32),
        gemm([20, 32, 1024], DType::F16),
        Call::Convolution(convolution),
        Call::Scatter(scatter),
    ];
    let bytes = |dtype: DType| dtype.size() as u64;
    for call in calls {
        let operands = operands(&call, 6);
        let alignment = operands.iter().map(|o| bytes(o.dtype())).min().unwrap();
        let options = Options { alignment, ..Options::default() };
        let compiled = compile_with(&call, architecture(SM_90), options).unwrap();
        let found = run_at(&call, &compiled, &operands, None, bytes);
        call.reference(&operands).unwrap().check(&found).unwrap();
    }
}
