//! Calls on the emulator against their reference meaning.
//!
//! Results and workspaces start uninitialised, so that the emulator reports a read before a write.
//! Each argument is bounded by its own buffer.

use crate::cases::{Random, forms, sort, top_k};
use wengert_core::call::Call;
use wengert_core::{DType, Literal};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::call::compile;
use wengert_cuda::ptx::Module;
use wengert_cuda::stage::{Access, Compiled, Memory, Stage};
use wengert_cuda::target::workspace;
use wengert_emulator as emulator;

fn compiled(call: &Call) -> Compiled {
    let compiled = compile(call, Architecture::from_name("sm_90").unwrap(), None).unwrap();
    assert!(compiled.workspace <= workspace(call), "{call:?}");
    compiled
}

fn module(stage: &Stage) -> emulator::Module {
    let text = Module { functions: stage.functions.clone(), kernels: vec![stage.kernel.clone()] }
        .to_string();
    emulator::Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"))
}

/// Runs the stages of a call.
fn run(call: &Call, operands: &[Literal]) -> Literal {
    let compiled = compiled(call);
    let mut memory = emulator::Memory::new();
    let workspace = memory.allocate("workspace", compiled.workspace.max(1)).unwrap();
    let mut arguments = vec![];
    for (n, operand) in operands.iter().enumerate() {
        let data = operand.to_bytes();
        let address = memory.allocate(&format!("operand {n}"), data.len().max(1) as u64).unwrap();
        memory.write(address, &data).unwrap();
        arguments.push((address, data.len() as u64));
    }
    let ty = call.results().remove(0);
    let bytes = (ty.elements().unwrap() * ty.dtype.size()) as u64;
    let result = memory.allocate("result", bytes.max(1)).unwrap();
    arguments.push((result, bytes));
    let machine = emulator::Emulator::new(emulator::Options::default());
    for stage in &compiled.stages {
        let given =
            stage.arguments.iter().zip(&stage.kernel.parameters).map(|(slot, parameter)| {
                let (address, bytes) = match slot.memory {
                    Memory::Argument(n) => arguments[n],
                    Memory::Workspace { offset, bytes } => {
                        assert!(
                            offset % 256 == 0 && offset + bytes <= compiled.workspace,
                            "{call:?}: {slot:?}"
                        );
                        (workspace + offset, bytes)
                    }
                };
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
    let unwritten = memory.first_uninitialised(result, bytes).unwrap();
    assert_eq!(unwritten, None, "{call:?}: a byte of the result is not written");
    let bytes = memory.read(result, bytes as usize).unwrap();
    Literal::from_bytes(ty.dtype, &ty.extents().unwrap(), &bytes).unwrap()
}

fn check(call: &Call, random: &mut Random) {
    let operands = random.operands(call);
    let found = run(call, &operands);
    call.reference(&operands).unwrap().check(&found).unwrap_or_else(|e| panic!("{call:?}: {e}"));
}

#[test]
fn every_form() {
    let mut random = Random(1);
    forms().iter().for_each(|call| check(call, &mut random));
}

#[test]
fn small_calls() {
    let mut random = Random(2);
    for _ in 0..150 {
        let keys: Vec<DType> =
            (0..1 + random.below(4)).map(|_| DType::ALL[random.below(11)]).collect();
        let extents = [random.below(7), random.below(80), random.below(5)];
        check(&sort(extents, &keys, random.below(2) == 0), &mut random);
        let length = random.below(90);
        let k = random.below(length + 1);
        check(&top_k(random.below(9), length, k, DType::ALL[random.below(11)]), &mut random);
    }
}

/// The kernels that each call selects.
#[test]
fn kernels_are_those_that_were_meant() {
    let names = |call: &Call| {
        let stages = compiled(call).stages;
        stages.into_iter().map(|s| s.kernel.name).collect::<Vec<_>>()
    };
    let of =
        |call: &Call, prefix: &str| names(call).iter().filter(|n| n.starts_with(prefix)).count();
    let short = sort([7, 4096, 3], &[DType::F64, DType::I8], false);
    assert_eq!(names(&short), ["sort_rows_f64_i8"]);
    // Two words of 32 bits, one of 8 bits, and 3 · 2 rows: nine passes for the words, and one for
    // the rows.
    let long = sort([3, 4097, 2], &[DType::F64, DType::I8], true);
    assert_eq!(
        [of(&long, "sort_words"), of(&long, "sort_row_numbers"), of(&long, "sort_place")],
        [3, 1, 10]
    );
    // 25 pieces give 2500 candidates, which fit into one block.
    assert_eq!(names(&top_k(2, 100_000, 100, DType::F32)), ["sort_rows_f32_descending"; 2]);
    assert_eq!(names(&top_k(2, 1_000_000, 1000, DType::F32)).len(), 5);
    assert_eq!(of(&top_k(1, 5000, 1025, DType::F32), "sort_ranks"), 1);
    for nothing in [sort([0, 5, 1], &[DType::F32], false), top_k(4, 5, 0, DType::F32)] {
        assert!(names(&nothing).is_empty());
    }
    let large = sort([1 << 20, 1 << 12, 1], &[DType::F32], false);
    let error = compile(&large, Architecture::from_name("sm_90").unwrap(), None).unwrap_err();
    assert!(
        error.to_string().contains("call `sort`") && error.to_string().contains("2^31"),
        "{error}"
    );
}
