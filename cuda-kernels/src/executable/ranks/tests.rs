//! Plans with collectives on several fake drivers, whose kernels the emulator executes, against
//! the interpreter of all ranks, bit for bit.

#![allow(clippy::unwrap_used)] // It is a test.

use super::super::tests::emulate;
use super::super::{CudaExecutable, Options};
use super::Ranks;
use crate::driver::fake::Fake;
use crate::driver::nccl::Group;
use crate::driver::nccl::tests::{Meeting, on_ranks};
use crate::driver::{Device, DeviceError};
use crate::lowered::{LoweredPlan, NoLibrary};
use std::collections::BTreeMap;
use std::time::Duration;
use wengert_ci::gate::{Allowed, Source, assemble};
use wengert_core::build::FunctionBuilder;
use wengert_core::graph::{Function, Program};
use wengert_core::interpret::run_ranks;
use wengert_core::op::{
    AllGather, AllToAll, AxisIndex, PPermute, PReduce, PReduceKind, PsumScatter,
};
use wengert_core::plan::{Plan, Step};
use wengert_core::{DType, Literal, Mesh, Op, Tensor, TensorType, Verified};
use wengert_testing::Random;

const LONG: Duration = Duration::from_secs(50);

fn build(mesh: &Mesh, body: impl FnOnce(&mut FunctionBuilder)) -> Function {
    let built = FunctionBuilder::build("f", |f| {
        f.mesh(mesh.axes().iter().cloned());
        body(f);
    });
    built.unwrap_or_else(|e| panic!("{e}"))
}

fn plan(function: &Function) -> Verified<Plan> {
    let program = Program::from_functions(vec![function.clone()]).unwrap();
    let (binding, target) = (wengert_core::Binding::new(), crate::target::target("sm_90"));
    wengert_compiler::pipeline::compile(&program, "f", &binding, &target, &Default::default())
        .unwrap_or_else(|e| panic!("{e}\n{function}"))
}

/// Joins the ranks of a plan.
fn join(device: &Device, plan: &Plan, rank: usize, meeting: &Meeting, timeout: Duration) -> Ranks {
    let exchanges = device.exchanges(timeout).unwrap();
    let mut lists = BTreeMap::new();
    plan.visit(&mut |step| {
        if let Step::Call { call, .. } = step
            && let Some(collective) = call.collective()
        {
            lists.insert(collective.over.clone(), ());
        }
    });
    let mut groups = BTreeMap::new();
    for over in lists.into_keys() {
        let members = plan.mesh.group(rank, &over);
        let position = members.iter().position(|member| *member == rank).unwrap();
        let (size, key) = (members.len(), format!("{over:?} {members:?}"));
        let gather = |own| Ok(meeting.gather(&key, position, size, own));
        let group = exchanges.join(&over.join(","), position, size, &gather).unwrap();
        groups.insert(over, group);
    }
    Ranks { exchanges, groups }
}

/// Runs of a function on one rank: the outputs of each.
fn runs(
    function: &Function,
    rank: usize,
    meeting: &Meeting,
    inputs: &[Vec<Vec<Literal>>],
    prepare: &(dyn Fn(&Fake) + Sync),
) -> (Vec<Vec<Literal>>, Vec<String>) {
    let fake = Fake::new();
    fake.executor(emulate);
    let device = fake.device();
    let plan = plan(function);
    let ranks = join(&device, &plan, rank, meeting, LONG);
    prepare(&fake);
    let mut options = Options::default();
    let mut executable = CudaExecutable::among(&device, &plan, &mut options, &ranks).unwrap();
    let found = inputs.iter().map(|inputs| {
        let bytes: Vec<Vec<u8>> = inputs[rank].iter().map(Literal::to_bytes).collect();
        let bytes: Vec<&[u8]> = bytes.iter().map(|b| &b[..]).collect();
        let outputs = executable.run(&bytes, &[]).unwrap_or_else(|e| panic!("{}", e.error));
        let outputs = outputs.wait().unwrap().into_iter().zip(&plan.outputs);
        let literal = |(bytes, output): (&[u8], &wengert_core::plan::Output)| {
            Literal::from_bytes(plan.values[output.value].dtype, &output.shape, bytes).unwrap()
        };
        outputs.map(literal).collect()
    });
    let found = found.collect();
    assert_eq!(fake.count("cuGraphLaunch"), 0, "runs with exchanges are not captured");
    drop((executable, ranks, device));
    let violations = fake.violations();
    fake.nothing_left();
    (found, violations)
}

/// Random inputs of some runs, by rank. Some elements are ±0, infinite or NaN.
fn random(function: &Function, seed: u64, runs: usize) -> Vec<Vec<Vec<Literal>>> {
    let mut random = Random(seed);
    let mut rank = || -> Vec<Literal> {
        let types = (0..function.inputs.len()).map(|i| function.input_type(i).invariant());
        types.map(|ty| random.elements(&ty)).collect()
    };
    (0..runs).map(|_| (0..function.mesh.ranks()).map(|_| rank()).collect()).collect()
}

/// Compares two runs on all ranks with the interpreter. NaNs are equal.
fn check(function: &Function, seed: u64) {
    let inputs = random(function, seed, 2);
    let found = on_ranks(function.mesh.ranks(), |rank, meeting| {
        runs(function, rank, meeting, &inputs, &|fake| fake.interleave(seed))
    });
    let bits = |literal: &Literal| -> Vec<u64> {
        literal.scalars().map(|s| if s.to_f64().is_nan() { u64::MAX } else { s.bits() }).collect()
    };
    for (run, inputs) in inputs.iter().enumerate() {
        let wanted = run_ranks(function, inputs).unwrap_or_else(|e| panic!("{e}\n{function}"));
        for (rank, wanted) in wanted.iter().enumerate() {
            let (found, violations) = &found[rank];
            assert_eq!(*violations, [""; 0], "{function}");
            assert_eq!(found[run].len(), wanted.len());
            for (i, (found, wanted)) in found[run].iter().zip(wanted).enumerate() {
                let same = found.shape() == wanted.shape() && bits(found) == bits(wanted);
                let output = &function.outputs[i].name;
                assert!(same, "rank {rank}, `{output}`: {found:?}, not {wanted:?}\n{function}");
            }
        }
    }
}

/// Collectives of each kind over axes, of `size` ranks together, with the shapes of their operands.
fn collectives(over: &[&str], size: usize, dtype: DType) -> Vec<(Op, Option<Vec<usize>>)> {
    let over = || over.iter().map(|axis| axis.to_string()).collect::<Vec<String>>();
    let mut all: Vec<(Op, Option<Vec<usize>>)> = Vec::new();
    let mut add = |op: Op, shape: &[usize]| all.push((op, Some(shape.to_vec())));
    let has_sums = dtype.is_integer() || dtype.is_float();
    for kind in PReduceKind::ALL.into_iter().filter(|_| has_sums) {
        add(PReduce { kind, over: over() }.into(), &[3, 5]);
    }
    if has_sums {
        // More than one exchange takes, and a prime number.
        add(PReduce { kind: PReduceKind::ALL[0], over: over() }.into(), &[17_011]);
    }
    for axis in 0..2 {
        for tiled in [false, true] {
            let gather = AllGather { over: over(), axis, size, tiled, invariant: false };
            add(gather.into(), &[2, 3]);
            let mut shape = [2, 3];
            shape[axis] = if tiled { 2 * size } else { size };
            if has_sums {
                add(PsumScatter { over: over(), axis, size, tiled }.into(), &shape);
            }
            let (split_axis, concat_axis) = (axis, 1 - axis);
            for concat_axis in [axis, concat_axis] {
                let op = AllToAll { over: over(), split_axis, concat_axis, size, tiled };
                add(op.into(), &shape);
            }
        }
    }
    if !dtype.is_float8() {
        let rotation = (0..size).map(|rank| (rank, (rank + 1) % size)).collect();
        add(PPermute { over: over(), perm: rotation }.into(), &[2, 3]);
        add(PPermute { over: over(), perm: vec![(1, 0)] }.into(), &[2, 3]);
    }
    all.push((AxisIndex { over: over() }.into(), None));
    all
}

/// One function with all collectives over the axes.
fn every(mesh: &Mesh, over: &[&str], dtype: DType) -> Function {
    let axes: Vec<&str> = mesh.axes().iter().map(|(axis, _)| &**axis).collect();
    build(mesh, |f| {
        let size = mesh.size(over).unwrap();
        for (i, (op, shape)) in collectives(over, size, dtype).into_iter().enumerate() {
            let input = |shape: Vec<usize>| {
                f.input(&format!("x{i}"), TensorType::new(dtype, shape).varying_over(&axes))
            };
            let x = shape.map(input);
            let operands: Vec<&Tensor> = x.iter().collect();
            f.output(&format!("y{i}"), Tensor::apply(op, &operands));
        }
    })
}

#[test]
fn a_sum_over_two_ranks_has_the_bits_of_the_interpreter() {
    let mesh = Mesh::new([("data", 2)]).unwrap();
    for count in [1, 7, 4099] {
        let function = build(&mesh, |f| {
            let ty = TensorType::new(DType::F32, [count]).varying_over(&["data"]);
            let x = f.input("x", ty);
            f.output("y", x.psum("data"));
        });
        check(&function, count as u64);
    }
}

#[test]
fn each_collective_on_two_and_four_ranks() {
    for (ranks, dtypes) in [(2, &DType::ALL[..]), (4, &[DType::F32, DType::BF16, DType::I32])] {
        let mesh = Mesh::new([("data", ranks)]).unwrap();
        for dtype in dtypes {
            check(&every(&mesh, &["data"], *dtype), 5);
        }
    }
}

#[test]
fn each_collective_over_axes_of_a_square() {
    let mesh = Mesh::new([("data", 2), ("tensor", 2), ("one", 1)]).unwrap();
    let groups: [&[&str]; 3] = [&["tensor"], &["tensor", "data"], &["data", "one"]];
    for over in groups {
        check(&every(&mesh, over, DType::F32), 3);
    }
    // One rank alone.
    let function = build(&mesh, |f| {
        let ty = TensorType::new(DType::F32, [6]).varying_over(&["data", "tensor", "one"]);
        let x = f.input("x", ty);
        f.output("y", x.psum("one"));
    });
    check(&function, 4);
}

/// The modules of all collectives, by the assembler.
#[test]
fn kernels_of_collectives_assemble_and_spill_nothing() {
    let mesh = Mesh::new([("data", 4)]).unwrap();
    let sources: Vec<Source> = DType::ALL
        .into_iter()
        .map(|dtype| {
            let plan = plan(&every(&mesh, &["data"], dtype));
            let sm_90 = crate::architecture::Architecture::from_name("sm_90").unwrap();
            let lowered = LoweredPlan::new(&plan, sm_90, &mut NoLibrary).unwrap();
            assert!(lowered.exchanges > 0 && lowered.ptx.contains("exchange_"), "{plan}");
            Source::new(format!("collectives of {dtype}"), lowered.ptx)
        })
        .collect();
    let report = assemble(&sources, &Allowed::nothing()).unwrap();
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    let kernels = report.measures.len();
    // Each permutes axes, and most combine operands.
    assert!(kernels > 40, "{kernels}");
}

/// Kernels before, between and after collectives.
fn chain() -> Function {
    let mesh = Mesh::new([("data", 2)]).unwrap();
    build(&mesh, |f| {
        let ty = TensorType::new(DType::F32, [5003]).varying_over(&["data"]);
        let x = f.input("x", ty);
        let y = (&x * 2.0).psum("data");
        f.output("y", (&y + &x).psum("data") * 0.5);
    })
}

/// Each order between streams is needed: without any one of them the watch finds, on both ranks,
/// what is not ordered.
#[test]
fn every_order_of_a_collective_is_needed() {
    let function = chain();
    let inputs = random(&function, 1, 1);
    let found_without = |skipped: Option<usize>| -> Vec<String> {
        let skip = move |fake: &Fake| fake.skip_waits(move |n| Some(n) == skipped);
        let all = on_ranks(2, |rank, meeting| runs(&function, rank, meeting, &inputs, &skip).1);
        assert_eq!(all[0].is_empty(), all[1].is_empty(), "{all:?}");
        all.concat()
    };
    assert_eq!(found_without(None), [""; 0]);
    // Two for each of four exchanges, one for the input, one for the output.
    for skipped in 0..10 {
        let found = found_without(Some(skipped)).join(", ");
        assert!(found.contains("does not wait for"), "order {skipped}: {found:?}");
    }
    assert_eq!(found_without(Some(10)), [""; 0]);
}

#[test]
fn a_rank_that_ends_before_its_collectives_is_an_error_of_the_run() {
    let function = chain();
    let inputs = random(&function, 1, 1);
    let errors = on_ranks(2, |rank, meeting| -> Option<DeviceError> {
        let fake = Fake::new();
        fake.executor(emulate);
        let device = fake.device();
        let plan = plan(&function);
        let ranks = join(&device, &plan, rank, meeting, LONG);
        let mut options = Options::default();
        let mut executable = CudaExecutable::among(&device, &plan, &mut options, &ranks).unwrap();
        let says = executable.decisions().join("\n");
        assert!(says.contains("collectives: 4 exchanges by NCCL 2.27.3 (fake)"), "{says}");
        let error = (rank == 0).then(|| {
            let bytes = inputs[0][0][0].to_bytes();
            executable.run(&[&bytes], &[]).unwrap().wait().unwrap_err()
        });
        drop((executable, ranks, device));
        fake.nothing_left();
        error
    });
    let text = errors[0].as_ref().unwrap().to_string();
    assert!(text.contains("run 1 of @f") && text.contains("remote process exited"), "{text}");
}

#[test]
fn a_plan_with_collectives_needs_ranks() {
    let fake = Fake::new();
    let device = fake.device();
    let plan = plan(&chain());
    let mut options = Options::default();
    let error = CudaExecutable::new(&device, &plan, &mut options).err().unwrap().to_string();
    assert!(error.contains("@f runs on the ranks of mesh(data=2)"), "{error}");
    let exchanges = device.exchanges(LONG).unwrap();
    let none = Ranks { exchanges, groups: BTreeMap::new() };
    let error = CudaExecutable::among(&device, &plan, &mut options, &none).err().unwrap();
    assert!(error.to_string().contains("no group of ranks over data"), "{error}");
    let three = Group { position: 0, size: 3, communicator: None };
    let wrong = Ranks { groups: [(vec!["data".into()], three)].into(), ..none.clone() };
    let error = CudaExecutable::among(&device, &plan, &mut options, &wrong).err().unwrap();
    assert!(error.to_string().contains("has 2 ranks, position 0 of 3 is given"), "{error}");
    drop((none, wrong, device));
    fake.nothing_left();
}
