//! Calls on the emulator with all of its checks, compared with their reference within the bounds
//! that it states.
//!
//! Results start uninitialised, so that the emulator reports a read before a write. Each argument
//! is bounded by its own buffer.

use crate::cases::{FLOATS, Kind, attended, attention, biased};
use proptest::prelude::*;
use wengert_core::call::{Attention, Call};
use wengert_core::{DType, Literal, TensorType};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::call::{Options, compile, compile_with};
use wengert_cuda::ptx::Module;
use wengert_cuda::stage::{Access, Compiled, Memory, Stage};
use wengert_cuda::target::target;
use wengert_emulator as emulator;

fn sm_90() -> Architecture {
    Architecture::from_name("sm_90").unwrap()
}

fn module(stage: &Stage) -> emulator::Module {
    let text = Module { functions: stage.functions.clone(), kernels: vec![stage.kernel.clone()] }
        .to_string();
    emulator::Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Runs the stages of a call. `shift` gives for each dtype the offset of an argument from a
/// multiple of 256 bytes.
fn run(
    call: &Call,
    compiled: &Compiled,
    operands: &[Literal],
    shift: fn(DType) -> u64,
) -> Vec<Literal> {
    assert_eq!(compiled.workspace, 0);
    let mut memory = emulator::Memory::new();
    let mut arguments = vec![];
    for (n, operand) in operands.iter().enumerate() {
        let (data, far) = (operand.to_bytes(), shift(operand.dtype()));
        let address =
            memory.allocate(&format!("operand {n}"), data.len() as u64 + far).unwrap() + far;
        memory.write(address, &data).unwrap();
        arguments.push((address, data.len() as u64));
    }
    let types = call.results();
    for ty in &types {
        let (bytes, far) = ((ty.elements().unwrap() * ty.dtype.size()) as u64, shift(ty.dtype));
        arguments.push((memory.allocate("result", bytes + far).unwrap() + far, bytes));
    }
    let machine = emulator::Emulator::new(emulator::Options::default());
    for stage in &compiled.stages {
        let given =
            stage.arguments.iter().zip(&stage.kernel.parameters).map(|(slot, parameter)| {
                let Memory::Argument(n) = slot.memory else { panic!("{call:?}: {slot:?}") };
                let (address, bytes) = arguments[n];
                let access = match slot.access {
                    Access::Read => emulator::Access::Read,
                    Access::Write => emulator::Access::Write,
                    Access::ReadWrite => emulator::Access::ReadWrite,
                };
                let name = parameter.name.clone();
                emulator::Argument::Buffer {
                    address,
                    bytes,
                    name,
                    access,
                    expects: None,
                    makes: None,
                }
            });
        let launch = emulator::Launch {
            kernel: stage.kernel.name.clone(),
            grid: stage.grid,
            block: [stage.kernel.threads, 1, 1],
            dynamic_shared: stage.dynamic_shared,
            arguments: given.collect(),
        };
        machine
            .run(&module(stage), &launch, &mut memory)
            .unwrap_or_else(|fault| panic!("{call:?}: {fault}"));
    }
    let literal = |(ty, (result, bytes)): (&TensorType, &(u64, u64))| {
        let unwritten = memory.first_uninitialised(*result, *bytes).unwrap();
        assert_eq!(unwritten, None, "{call:?}: a byte of the result is not written");
        let bytes = memory.read(*result, *bytes as usize).unwrap();
        Literal::from_bytes(ty.dtype, &ty.extents().unwrap(), &bytes).unwrap()
    };
    types.iter().zip(&arguments[operands.len()..]).map(literal).collect()
}

fn compared(call: &Attention, operands: &[Literal], options: Options, shift: fn(DType) -> u64) {
    let call = Call::Attention(call.clone());
    let compiled = compile_with(&call, sm_90(), options).unwrap();
    let found = run(&call, &compiled, operands, shift);
    let references = call.references(operands).unwrap();
    assert_eq!(found.len(), references.len());
    for (n, (reference, found)) in references.iter().zip(&found).enumerate() {
        reference.check(found).unwrap_or_else(|e| panic!("{call:?}, result {n}: {e}"));
    }
}

fn checked(call: Attention, seed: u64) {
    let operands = attended(&call, seed);
    compared(&call, &operands, Options::default(), |_| 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn small_attentions(
        extents in [1usize..3, 1usize..20, 1usize..20, 1usize..4, 1usize..20],
        flags in [any::<bool>(); 3],
        dtype in 0usize..4,
        repeats in prop::option::of([any::<bool>(); 3]),
        seed in 0u64..1 << 40,
    ) {
        let [packed, causal, backward] = flags;
        let call = attention(extents, Kind { packed, causal, backward }, FLOATS[dtype]);
        checked(repeats.into_iter().fold(call, biased), seed);
    }
}

/// Several blocks of queries and of keys, of which the last are partial. There are more keys than
/// queries, and fewer.
#[test]
fn many_blocks() {
    for dtype in FLOATS {
        for (queries, keys) in [(131, 131), (150, 70), (70, 150), (64, 128), (1, 200), (200, 1)] {
            for (causal, backward) in [(false, false), (false, true), (true, false), (true, true)] {
                let kind = Kind { packed: queries == keys, causal, backward };
                let call = attention([1, queries, keys, 2, 24], kind, dtype);
                checked(call.clone(), 7);
                if dtype == DType::F32 || queries == 70 {
                    checked(biased(call.clone(), [true, false, false]), 8);
                    checked(biased(call, [false, true, true]), 9);
                }
            }
        }
    }
}

/// From one number to the greatest width that the target claims.
#[test]
fn widths() {
    for dtype in FLOATS {
        let widest = if dtype == DType::F64 { 128 } else { 256 };
        for width in [1, 16, 40, 64, 80, 96, 128, 256] {
            for backward in [false, true] {
                let kind = Kind { packed: width != 40, causal: width != 64, backward };
                let call = attention([1, 90, 33, 2, width.min(widest)], kind, dtype);
                checked(call, width as u64);
            }
        }
    }
    let kind = Kind { packed: false, causal: false, backward: false };
    for (width, dtype) in [(257, DType::F32), (257, DType::BF16), (129, DType::F64)] {
        let call = Call::Attention(attention([1, 4, 4, 1, width], kind, dtype));
        assert!(!target("sm_90").claims(&call));
        let error = compile(&call, sm_90(), None).unwrap_err().to_string();
        assert!(error.contains("too wide"), "{error}");
    }
}

/// An argument may be a part of a larger value, and start at any element.
#[test]
fn addresses_that_are_aligned_to_elements_only() {
    for dtype in FLOATS {
        for backward in [false, true] {
            let call = attention(
                [1, 40, 30, 2, 32],
                Kind { packed: false, causal: true, backward },
                dtype,
            );
            let options = Options { alignment: dtype.size() as u64, ..Options::default() };
            compared(&call, &attended(&call, 5), options, |dtype| dtype.size() as u64);
        }
    }
}

/// A bias of −∞ masks keys in the same way as a shorter sequence does, forward and backward. It
/// masks the first block, or a part of a block and the last.
#[test]
fn a_bias_hides_keys() {
    for dtype in [DType::F32, DType::BF16] {
        for backward in [false, true] {
            let kind = Kind { packed: false, causal: false, backward };
            let call = biased(attention([2, 70, 150, 2, 16], kind, dtype), [false, true, true]);
            let mut operands = attended(&call, 3);
            let hidden = |s: usize, example: usize| if example == 0 { s < 70 } else { s >= 131 };
            let bias: Vec<f32> = (0..300)
                .map(|at| if hidden(at % 150, at / 150) { f32::NEG_INFINITY } else { 0.0 })
                .collect();
            operands[3] = Literal::from_vec(&[2, 1, 1, 150], bias).unwrap();
            if backward {
                let forward = Call::Attention(Attention { backward: false, ..call.clone() });
                operands[4] = forward.references(&operands[..4]).unwrap()[1].literal();
            }
            compared(&call, &operands, Options::default(), |_| 0);
        }
    }
}
