//! Calls on the emulator, with all its checks, compared with their reference semantics, within
//! the bounds that the reference states.
//!
//! Results and workspaces are uninitialised at first, so that reads of unwritten bytes are found;
//! each argument is bounded by its own buffer.

#![allow(clippy::unwrap_used)] // They are tests.

pub(super) mod assemble;
mod decoding;
mod follower;
mod gemm;
mod hopper;
mod hopper_attention;
mod kernels;

use super::*;
use crate::ptx::Module;
use crate::stage;
use proptest::prelude::*;
use wengert_core::call::{Addends, Gemm};
use wengert_core::{DType, Literal, TensorType};
use wengert_emulator as emulator;
use wengert_testing::calls::attention::{Kind, attention};
use wengert_testing::calls::{self, Device, FLOATS};
use wengert_testing::layout::Layout;

const SM_90: &str = "sm_90";

fn architecture(name: &str) -> Architecture {
    Architecture::from_name(name).unwrap()
}

/// Runs the stages of a call.
fn run(
    call: &Call,
    compiled: &Compiled,
    operands: &[Literal],
    in_place: Option<usize>,
) -> Vec<Literal> {
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
) -> Vec<Literal> {
    run_with(call, compiled, operands, in_place, shift, emulator::Options::default())
}

/// [`run_at`] on an emulator with other options.
fn run_with(
    call: &Call,
    compiled: &Compiled,
    operands: &[Literal],
    in_place: Option<usize>,
    shift: fn(DType) -> u64,
    options: emulator::Options,
) -> Vec<Literal> {
    let mut memory = emulator::Memory::new();
    let allocate = |memory: &mut emulator::Memory, name: &str, dtype: DType, bytes: u64| {
        let far = shift(dtype);
        (memory.allocate(name, bytes.max(1) + far).unwrap() + far, bytes)
    };
    let workspace = memory.allocate("workspace", compiled.workspace.max(1)).unwrap();
    let types = call.results();
    let results: Vec<(u64, u64)> = types
        .iter()
        .map(|ty| {
            let bytes = layout(call, ty, &ty.extents().unwrap()).bytes();
            allocate(&mut memory, "result", ty.dtype, bytes as u64)
        })
        .collect();
    let mut arguments: Vec<(u64, u64)> = vec![];
    for (n, operand) in operands.iter().enumerate() {
        let data = operand.to_bytes();
        let at = match in_place == Some(n) {
            true => results[0],
            false => allocate(&mut memory, "operand", operand.dtype(), data.len() as u64),
        };
        memory.write(at.0, &data).unwrap();
        arguments.push((at.0, data.len() as u64));
    }
    arguments.extend(&results);
    launch(&format!("{call:?}"), compiled, &arguments, workspace, &mut memory, options);
    let literal = |(ty, (result, _)): (&TensorType, &(u64, u64))| {
        layout(call, ty, &ty.extents().unwrap()).read(|at, count| {
            let at = result + at as u64;
            let unwritten = memory.first_uninitialised(at, count as u64).unwrap();
            assert_eq!(unwritten, None, "{call:?}: a byte of the result is not written");
            memory.read(at, count).unwrap()
        })
    };
    types.iter().zip(&results).map(literal).collect()
}

/// The layout of a result.
fn layout<'a>(call: &Call, ty: &TensorType, shape: &'a [usize]) -> Layout<'a> {
    Layout { dtype: ty.dtype, shape, pitch: call.pitch() }
}

/// Launches the stages of a call on the addresses and bytes of its arguments.
fn launch(
    what: &str,
    compiled: &Compiled,
    arguments: &[(u64, u64)],
    workspace: u64,
    memory: &mut emulator::Memory,
    options: emulator::Options,
) {
    try_launch(what, compiled, arguments, workspace, memory, options)
        .unwrap_or_else(|fault| panic!("{what}: {fault}"));
}

/// [`launch`], or the fault that the emulator finds.
fn try_launch(
    what: &str,
    compiled: &Compiled,
    arguments: &[(u64, u64)],
    workspace: u64,
    memory: &mut emulator::Memory,
    options: emulator::Options,
) -> std::result::Result<(), String> {
    let machine = emulator::Emulator::new(options);
    for stage in &compiled.stages {
        let name = stage.kernel.name.clone();
        let text = text(stage);
        let module = emulator::Module::parse(&text)
            .unwrap_or_else(|e| panic!("{what}: {name}: {e}\n{text}"));
        let given = stage.arguments.iter().zip(&stage.kernel.parameters);
        let given = given.map(|(slot, parameter)| {
            let (address, bytes) = match slot.memory {
                stage::Memory::Argument(n) => arguments[n],
                stage::Memory::Workspace { offset, bytes } => {
                    let fits = offset + bytes <= compiled.workspace;
                    assert!(offset % 256 == 0 && fits, "{name}: {slot:?}");
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
        machine.run(&module, &launch, memory).map_err(|fault| format!("{name}: {fault}"))?;
    }
    Ok(())
}

/// The module of a stage.
fn text(stage: &stage::Stage) -> String {
    Module::new(stage.functions.clone(), vec![stage.kernel.clone()]).to_string()
}

/// The emulator.
pub(super) struct Emulated;

impl Device for Emulated {
    fn cases(usual: u32) -> u32 {
        usual * 2 / 3
    }

    fn fits(call: &Call) -> bool {
        let most = match call {
            Call::Attention(_) => 20 << 20,
            Call::Gemm(_) | Call::Convolution(_) => 4 << 20,
            _ => 100_000,
        };
        crate::target::target(SM_90).claims(call) && call.iterations() <= most
    }

    fn run(call: &Call, operands: &[Literal]) -> Vec<Literal> {
        run(call, &compile(call, architecture(SM_90), None).unwrap(), operands, None)
    }

    /// Scatters are done in every way that is possible.
    fn check(call: &Call, operands: &[Literal]) -> std::result::Result<(), TestCaseError> {
        for in_place in call.in_place().into_iter().map(Some).chain([None]) {
            let compiled = compile(call, architecture(SM_90), in_place).unwrap();
            let others = match call {
                Call::Scatter(s) => scatter::all_ways(s, in_place).unwrap(),
                _ => vec![],
            };
            for compiled in [compiled].into_iter().chain(others) {
                let found = run(call, &compiled, operands, in_place);
                calls::compare(call, operands, &found)?;
            }
        }
        Ok(())
    }
}

wengert_testing::conformance!(Emulated);

/// The names of a call's kernels, in order.
fn kernels(call: &Call) -> Vec<String> {
    let compiled = compile(call, architecture(SM_90), None).unwrap();
    compiled.stages.into_iter().map(|s| s.kernel.name).collect()
}

/// The message of a call that is refused.
fn refused(call: &Call, in_place: Option<usize>) -> String {
    compile(call, architecture(SM_90), in_place).unwrap_err().to_string()
}

/// A slice of a larger value may begin anywhere.
#[test]
fn buffers_that_are_aligned_to_their_elements_only() {
    let gemm = |extents: [usize; 3], dtype: DType| {
        let addends = Addends { bias: true, residual: true };
        Call::Gemm(Gemm { addends, ..calls::gemm::product(1, extents, dtype, dtype) })
    };
    let window = vec![calls::convolution::same(8, 3, 1)];
    let [convolution, ..] = calls::convolution::directions(2, 1, [8, 16], window, DType::BF16);
    let mut all = vec![
        gemm([40, 48, 32], DType::F32),
        gemm([40, 48, 32], DType::BF16),
        gemm([40, 48, 32], DType::F64),
        gemm([40, 48, 32], DType::U8),
        gemm([40, 1, 128], DType::F32),
        gemm([20, 32, 1024], DType::F16),
        convolution,
        Call::Scatter(calls::scatter::rows([40, 8], 20, DType::F16)),
    ];
    for (dtype, backward) in FLOATS.into_iter().flat_map(|d| [false, true].map(|b| (d, b))) {
        let kind = Kind { packed: false, causal: true, backward };
        all.push(Call::Attention(attention([1, 40, 30, 2, 32], kind, dtype)));
        all.push(Call::Attention(attention([1, 3, 200, 2, 32], kind, dtype)));
    }
    let bytes = |dtype: DType| dtype.size() as u64;
    for call in all {
        let operands = match &call {
            Call::Attention(attention) => calls::attention::operands(attention, 5),
            _ => calls::operands(&call, 6),
        };
        let alignment = operands.iter().map(|o| bytes(o.dtype())).min().unwrap();
        let options = Options { alignment, ..Options::default() };
        let compiled = compile_with(&call, architecture(SM_90), options).unwrap();
        let found = run_at(&call, &compiled, &operands, None, bytes);
        calls::compare(&call, &operands, &found).unwrap();
    }
}
