//! Whole runs on the fake driver, whose kernels the emulator executes: allocation, staging, capture and replay, products by the (fake)
//! library, variables that move. Results are those of the plan interpreter, bit for bit; inputs are small integers, so that sums are exact.

#![allow(clippy::unwrap_used)] // It is a test.

use super::*;
use crate::driver::fake::{Fake, Launched, bytes_at};
use std::path::Path;
use wengert_core::plan::{interpret, parse_plan, verify};
use wengert_core::{DType, Literal, Scalar};
use wengert_emulator as emulator;

/// Executes kernels on copies of the fake device's memory.
fn emulate(ptx: &str, launched: &Launched) {
    let module = emulator::Module::parse(ptx).unwrap();
    let mut memory = emulator::Memory::new();
    let allocations = Fake::allocations();
    let copies: Vec<u64> = allocations
        .iter()
        .map(|(address, bytes)| {
            let copy = memory.allocate("allocation", *bytes as u64).unwrap();
            memory.write(copy, bytes_at(*address, *bytes)).unwrap();
            copy
        })
        .collect();
    let argument = |address: &u64| {
        let inside = |(start, bytes): &(u64, usize)| (*start..=*start + *bytes as u64).contains(address);
        let n = allocations.iter().rposition(inside).expect("arguments are addresses of allocations");
        let offset = address - allocations[n].0;
        emulator::Argument::Buffer {
            address: copies[n] + offset,
            bytes: allocations[n].1 as u64 - offset,
            name: format!("allocation {n}"),
            access: emulator::Access::ReadWrite,
            expects: None,
            makes: None,
        }
    };
    let launch = emulator::Launch {
        kernel: launched.name.clone(),
        grid: launched.grid,
        block: launched.block,
        dynamic_shared: launched.shared,
        arguments: launched.arguments.iter().map(argument).collect(),
    };
    let emulator = emulator::Emulator::new(emulator::Options::default());
    emulator.run(&module, &launch, &mut memory).unwrap_or_else(|fault| panic!("{fault}"));
    for ((address, bytes), copy) in allocations.iter().zip(copies) {
        bytes_at(*address, *bytes).copy_from_slice(&memory.read(copy, *bytes).unwrap());
    }
}

/// Plans of `core`'s filetests that are right.
fn corpus() -> Vec<Plan> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/plan");
    let mut plans = Vec::new();
    for name in ["straight.plan", "loops.plan", "control.plan", "rare.plan"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let starts: Vec<usize> = (0..lines.len()).filter(|i| lines[*i].starts_with("plan ")).collect();
        for (i, start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(lines.len());
            let mut plan = parse_plan("file", &lines[*start..end].join("\n")).unwrap().0;
            plan.target.name = "sm_90".into();
            verify(&plan).unwrap();
            plans.push(plan);
        }
    }
    plans
}

/// A layer with its gradient: products with what a library does of their epilogues, and what it leaves.
const LAYER: &str = "
func @layer(%x: f32[6,8], %w: f32[8,4], %b: f32[4], %r: f32[6,4]) -> (y: f32[6,4], z: f32[6,4], g: f32[8,4]) {
  %0: f32[6,4] = dot_general %x, %w {contract=[[1],[0]]}
  %1: f32[6,4] = broadcast_in_dim %b {dims=[1], shape=[6,4]}
  %2: f32[6,4] = add %0, %1
  %3: f32[6,4] = tanh %2
  %4: f32[6,4] = dot_general %x, %w {contract=[[1],[0]]}
  %5: f32[6,4] = add %4, %r
  %6: f32[8,4] = dot_general %x, %5 {contract=[[0],[0]]}
  return %2, %3, %6
}
";

fn layer() -> Plan {
    let program = wengert_core::graph::parse_program(LAYER, "layer.ir").unwrap();
    let (binding, target) = (wengert_core::Binding::new(), wengert_core::Target::cuda("sm_90"));
    wengert_compiler::pipeline::compile(&program, "layer", &binding, &target, &Default::default()).unwrap()
}

fn random(dtype: DType, shape: &[usize], state: &mut u64) -> Literal {
    let values: Vec<Scalar> = (0..shape.iter().product())
        .map(|_| {
            *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let small = (*state >> 60) as i64 - 3;
            if dtype == DType::Bool { Scalar::of(small > 4) } else { Scalar::from_i64(dtype, small) }
        })
        .collect();
    Literal::from_scalars(dtype, shape, &values).unwrap()
}

/// Several runs of a plan, of which the last has its variables elsewhere.
fn runs(device: &Device, plan: &Plan, capture: bool) {
    let mut executable =
        Executable::new(device, plan, &mut Options { capture, ..Options::default() }).unwrap();
    let place = |name: &str| {
        let allocate = |v: &wengert_core::plan::Variable| device.allocate(plan.values[v.after].bytes(), name);
        plan.variables.iter().map(allocate).collect::<Result<Vec<_>, _>>().unwrap()
    };
    let (here, there) = (place("variables"), place("variables elsewhere"));
    for seed in 1..6 {
        let mut state = seed;
        let values = plan.inputs.iter().map(|i| &plan.values[i.value]);
        let inputs: Vec<Literal> = values.map(|v| random(v.dtype, &v.shape, &mut state)).collect();
        let before =
            |v: &wengert_core::plan::Variable| v.before.map(|_| random(v.dtype, &v.shape, &mut state));
        let variables: Vec<Option<Literal>> = plan.variables.iter().map(before).collect();
        let expected = interpret(plan, &inputs, &variables).unwrap();
        let memories = if seed < 5 { &here } else { &there };
        for (memory, value) in memories.iter().zip(&variables) {
            if let Some(value) = value {
                device.write(memory.address(), &value.to_bytes()).unwrap();
            }
        }
        let bytes: Vec<Vec<u8>> = inputs.iter().map(Literal::to_bytes).collect();
        let bytes: Vec<&[u8]> = bytes.iter().map(|b| &b[..]).collect();
        let addresses: Vec<Address> = memories.iter().map(Memory::address).collect();
        let found = executable.run(&bytes, &addresses).unwrap_or_else(|e| panic!("{}\n{plan}", e.error));
        for (found, expected) in found.iter().zip(&expected.outputs) {
            assert_eq!(*found, expected.to_bytes(), "capture {capture}, run {seed}\n{plan}");
        }
        for (memory, expected) in memories.iter().zip(&expected.variables) {
            let mut found = vec![0; expected.to_bytes().len()];
            device.read(memory.address(), &mut found).unwrap();
            assert_eq!(found, expected.to_bytes(), "capture {capture}, run {seed}\n{plan}");
        }
    }
}

#[test]
fn runs_give_the_bits_of_the_interpreter_with_and_without_capture() {
    let (mut straight, mut products) = (0, 0);
    for plan in corpus().into_iter().chain([layer()]) {
        for capture in [false, true] {
            let fake = Fake::new();
            fake.executor(emulate);
            let device = fake.device();
            runs(&device, &plan, capture);
            if capture {
                let captured = fake.count("cuGraphLaunch");
                straight += usize::from(captured > 0);
                assert!(captured == 0 || captured == 4, "the first run is not captured, the others are");
            }
            products += fake.count("cublasLtMatmul");
            drop(device);
            fake.nothing_left();
        }
    }
    assert!(straight >= 5 && products > 0, "{straight} captured plans, {products} products by the library");
}

#[test]
fn what_fails_says_so_and_leaves_nothing() {
    let plan = corpus().into_iter().find(|p| !p.nests.is_empty() && !p.inputs.is_empty()).unwrap();
    let fake = Fake::new();
    fake.executor(emulate);
    let device = fake.device();
    let mut options = Options::default();
    let mut executable = Executable::new(&device, &plan, &mut options).unwrap();
    let refused = executable.run(&[], &[]).unwrap_err();
    assert!(refused.error.message.contains("wanted"), "{}", refused.error);
    let zeros: Vec<Vec<u8>> =
        plan.inputs.iter().map(|i| vec![0; plan.values[i.value].bytes() as usize]).collect();
    let zeros: Vec<&[u8]> = zeros.iter().map(|z| &z[..]).collect();
    let memories: Vec<Memory> =
        plan.variables.iter().map(|v| device.allocate(plan.values[v.after].bytes(), "v").unwrap()).collect();
    let addresses: Vec<Address> = memories.iter().map(Memory::address).collect();
    // 719: a kernel did something that it must not.
    fake.fail("cuLaunchKernel", 719);
    let failed = executable.run(&zeros, &addresses).unwrap_err();
    let text = failed.error.to_string();
    for wanted in ["plan @", "step 0 `run @", "kernel `", "cuLaunchKernel", "719"] {
        assert!(text.contains(wanted), "{text}");
    }
    assert_eq!(failed.error.kind, wengert_core::diagnostic::Kind::Device);
    drop((executable, memories, device));
    // Another target, and more memory than there is.
    let fake = Fake::new();
    let device = fake.device();
    let mut other = plan.clone();
    other.target.name = "sm_120".into();
    let refused = Executable::new(&device, &other, &mut options).err().unwrap();
    assert!(refused.message.contains("`sm_120`"), "{refused}");
    let mut large = plan;
    large.arena = 1 << 40;
    let refused = Executable::new(&device, &large, &mut options).err().unwrap();
    assert!(refused.to_string().contains("arena"), "{refused}");
}

#[test]
fn variables_that_lie_nowhere_are_refused() {
    let has_variable = |p: &Plan| p.variables.iter().any(|v| p.values[v.after].bytes() > 0);
    let plan = corpus().into_iter().find(has_variable).unwrap();
    let fake = Fake::new();
    fake.executor(emulate);
    let device = fake.device();
    let mut executable = Executable::new(&device, &plan, &mut Options::default()).unwrap();
    let zeros: Vec<Vec<u8>> =
        plan.inputs.iter().map(|i| vec![0; plan.values[i.value].bytes() as usize]).collect();
    let zeros: Vec<&[u8]> = zeros.iter().map(|z| &z[..]).collect();
    let bytes = plan.variables.iter().map(|v| plan.values[v.after].bytes()).max().unwrap();
    let memory = device.allocate(bytes, "variables").unwrap();
    let at = memory.address();
    let before = fake.launches().len();
    let mut refused = |address: Address| {
        let error = executable.run(&zeros, &vec![address; plan.variables.len()]).unwrap_err().error;
        assert!(error.message.contains("not in one allocation"), "{error}");
    };
    refused(Address(4096));
    refused(at.offset(bytes));
    drop(memory);
    refused(at);
    assert_eq!(fake.launches().len(), before);
}

#[test]
fn a_run_takes_no_more_than_its_limit() {
    let plan = corpus().into_iter().find(|p| p.variables.is_empty() && !p.nests.is_empty()).unwrap();
    let fake = Fake::new();
    fake.executor(emulate);
    let device = fake.device();
    let mut executable = Executable::new(&device, &plan, &mut Options::default()).unwrap();
    executable.limit(100);
    let zeros: Vec<Vec<u8>> =
        plan.inputs.iter().map(|i| vec![0; plan.values[i.value].bytes() as usize]).collect();
    let zeros: Vec<&[u8]> = zeros.iter().map(|z| &z[..]).collect();
    let error = executable.run(&zeros, &[]).unwrap_err().error;
    assert!(error.message.contains("more than the 100 operations"), "{error}");
    executable.limit(u64::MAX);
    executable.run(&zeros, &[]).unwrap_or_else(|e| panic!("{}", e.error));
}
