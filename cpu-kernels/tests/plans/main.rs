//! The plan executor against the plan interpreter, bit for bit, on the plans of `core`'s filetests.
//! Also: the number of allocations of a run.

#![allow(clippy::unwrap_used)] // This is a test.

mod followed;
mod long;
mod together;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use wengert_core::nest::parse_nests;
use wengert_core::plan::{Plan, Run, interpret, parse_plan};
use wengert_core::{Literal, Verified};
use wengert_cpu::{AlignedBytes, Buffer, CompiledNest, CpuExecutable, Pool, RunMemory, Simd};
use wengert_testing::Random;

/// Counts the allocations of the threads that run a plan. It excludes the test harness and threads
/// that are starting.
struct Counting;

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all calls are passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(usize::from(COUNTED.get()), Ordering::Relaxed);
        // SAFETY: the caller obeys the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller obeys the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The valid plans of `core`'s filetests.
fn corpus() -> Vec<Verified<Plan>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/plan");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.sort();
    let mut plans = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let starts: Vec<usize> =
            (0..lines.len()).filter(|i| lines[*i].starts_with("plan ")).collect();
        for (i, start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(lines.len());
            let case = lines[*start..end].join("\n");
            if case.contains("// error:") {
                continue;
            }
            let mut plan = parse_plan("file", &case).unwrap().0;
            plan.target.name = "cpu".into();
            plans.push(Verified::new(plan).unwrap());
        }
    }
    plans
}

struct Host {
    inputs: Vec<AlignedBytes>,
    outputs: Vec<AlignedBytes>,
    variables: Vec<AlignedBytes>,
}

impl Host {
    fn new(plan: &Plan, inputs: &[Literal], variables: &[Option<Literal>]) -> Self {
        let copy = |bytes: &[u8]| {
            let mut memory = AlignedBytes::new(bytes.len()).unwrap();
            memory.copy_from_slice(bytes);
            memory
        };
        let undefined = |bytes: u64| copy(&vec![0xa5; bytes as usize]);
        Host {
            inputs: inputs.iter().map(|l| copy(&l.to_bytes())).collect(),
            outputs: plan.outputs.iter().map(|o| undefined(plan.values[o.value].bytes())).collect(),
            variables: plan
                .variables
                .iter()
                .zip(variables)
                .map(|(v, l)| {
                    l.as_ref().map_or_else(
                        || undefined(plan.values[v.after].bytes()),
                        |l| copy(&l.to_bytes()),
                    )
                })
                .collect(),
        }
    }
}

/// Runs a plan and compares its outputs and variables bit for bit. Returns the number of
/// allocations.
fn compare(
    executable: &mut CpuExecutable,
    inputs: &[Literal],
    variables: &[Option<Literal>],
    expected: &Run,
) -> usize {
    let plan = executable.plan().clone();
    let mut host = Host::new(&plan, inputs, variables);
    let read: Vec<Buffer<'_>> = host.inputs.iter().map(|m| Buffer::reading::<u8>(m)).collect();
    let mut outputs: Vec<Buffer<'_>> =
        host.outputs.iter_mut().map(|m| Buffer::writing::<u8>(m)).collect();
    let mut held: Vec<Buffer<'_>> =
        host.variables.iter_mut().map(|m| Buffer::writing::<u8>(m)).collect();
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    executable
        .run(RunMemory { inputs: &read, outputs: &mut outputs, variables: &mut held })
        .unwrap();
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let found =
        |m: &AlignedBytes, l: &Literal| Literal::from_bytes(l.dtype(), l.shape(), m).unwrap();
    for (memory, literal) in host.outputs.iter().zip(&expected.outputs) {
        assert_eq!(found(memory, literal), *literal, "{plan}");
    }
    for (memory, literal) in host.variables.iter().zip(&expected.variables) {
        assert_eq!(found(memory, literal), *literal, "{plan}");
    }
    allocations
}

#[test]
fn the_executor_equals_the_interpreter_and_allocates_nothing() {
    let simd = Simd::available().last().unwrap();
    let mut compared = 0;
    for plan in corpus() {
        for threads in [1, 2] {
            let pool = Arc::new(Pool::new(threads).unwrap());
            // Each task waits for all others, so every thread runs exactly one of them.
            let all = Barrier::new(threads);
            let task = |_, _| {
                COUNTED.set(true);
                all.wait();
            };
            pool.parallel_for(threads, task).unwrap();
            let mut executable = CpuExecutable::on(&plan, pool, simd).unwrap();
            for seed in 1..6 {
                let mut random = Random(seed);
                let value = |v| (plan.values[v].dtype, plan.values[v].shape.clone());
                let inputs: Vec<Literal> = plan
                    .inputs
                    .iter()
                    .map(|i| value(i.value))
                    .map(|(dtype, shape)| random.integers(dtype, &shape))
                    .collect();
                let variables: Vec<Option<Literal>> = plan
                    .variables
                    .iter()
                    .map(|v| v.before.map(|_| random.integers(v.dtype, &v.shape)))
                    .collect();
                let expected = interpret(&plan, &inputs, &variables).unwrap();
                let allocations = compare(&mut executable, &inputs, &variables, &expected);
                assert_eq!(allocations, 0, "{plan}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 50, "{compared} runs compared");
}

/// A nest whose row buffers are each smaller than 2^63 bytes, while their sum wraps.
#[test]
fn row_storages_that_wrap_are_refused() {
    for rows in [1, 2, 4] {
        let storages: String =
            (0..rows).map(|n| format!("  row %r{n}: f32[2305843009213693888]\n")).collect();
        let stores: String = (0..rows).map(|n| format!("    store %r{n}[j], %v\n")).collect();
        let text = format!(
            "nest @f(in %x: f32[8,10], out %y: f32[8,10]) {{\n{storages}  parallel i: 8\n  \
             phase j: 10 {{\n    %v: f32 = load %x[i, j]\n{stores}  }}\n  phase j: 10 {{\n    \
             %w: f32 = load %r0[j]\n    store %y[i, j], %w\n  }}\n}}\n"
        );
        let nest = parse_nests("wraps", &text).unwrap().remove(0).0;
        let error = CompiledNest::new(&nest, Simd::Portable).unwrap_err().to_string();
        assert!(error.contains("(N20)"), "{error}");
    }
}

/// A run of 2^31 iterations is refused before the first iteration, if the executable has a limit.
#[test]
fn a_run_takes_no_more_than_its_limit() {
    let text = "plan @long {
  target @cpu {alignment=64, calls=[], gemm_epilogue=false, reduction_block=0, reduction_lanes=1, \
    row_bytes=0, row_storage=0}
  arena 64 bound 64
  value %0: i32[] \"x\"
  value %1: i32[] \"before\"
  value %2: i32[] \"next\"
  value %3: i32[] \"y\"
  input x = %0
  output y: [] = %3
  nest @add(in %x: i32[], out %y: i32[]) {
    phase {
      %0: i32 = load %x[]
      %1: i32 = add %0, %0
      store %y[], %1
    }
  }
  steps {
    copy %0 from input.0 to arena
    loop l0 trip COUNT {
      carry %0 -> %1, %2 -> %3 at arena
      run @add(%1 at arena, %2 at arena)
    }
    copy %3 from arena to output.0
  }
}
";
    let run = |count: &str, limit: u64| {
        let plan = parse_plan("long", &text.replace("COUNT", count)).unwrap().0;
        let plan = Verified::new(plan).unwrap();
        let mut executable =
            CpuExecutable::on(&plan, Arc::new(Pool::new(1).unwrap()), Simd::Portable).unwrap();
        executable.limit(limit);
        let (x, mut y) = ([3i32], [0i32]);
        let mut outputs = [Buffer::writing(&mut y)];
        executable.run(RunMemory {
            inputs: &[Buffer::reading(&x)],
            outputs: &mut outputs,
            variables: &mut [],
        })?;
        Ok::<(i32, u64), wengert_core::Diagnostic>((y[0], executable.launches()[0]))
    };
    assert_eq!(run("10", 1 << 20).unwrap(), (3 << 10, 10));
    let error = run("2147483648", 1 << 40).unwrap_err().to_string();
    assert!(error.contains("more than the 1099511627776 operations"), "{error}");
    assert!(run("10", 1 << 12).is_err());
}

#[test]
fn wrong_memory_is_refused() {
    let plan =
        corpus().into_iter().find(|p| !p.inputs.is_empty() && !p.outputs.is_empty()).unwrap();
    let mut executable =
        CpuExecutable::on(&plan, Arc::new(Pool::new(1).unwrap()), Simd::Portable).unwrap();
    let none = RunMemory { inputs: &[], outputs: &mut [], variables: &mut [] };
    assert!(executable.run(none).unwrap_err().message.contains("wanted"));
    let mut other = plan.into_inner();
    other.target.name = "sm_90".into();
    let refused = CpuExecutable::new(&Verified::new(other).unwrap()).unwrap_err();
    assert!(refused.to_string().contains("`sm_90`"), "{refused}");
}
