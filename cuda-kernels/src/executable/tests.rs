//! Whole runs on the fake driver, whose kernels the emulator executes: allocation, staging,
//! capture and replay, products by the (fake) library, variables that move. Results equal those
//! of the plan interpreter, bit for bit; inputs are small integers, so that sums are exact.

#![allow(clippy::unwrap_used)] // It is a test.

use super::*;
use crate::condition;
use crate::driver::fake::{Fake, Launched, bytes_at};
use std::path::Path;
use wengert_core::plan::{interpret, parse_plan};
use wengert_core::{DType, Literal, Verified};
use wengert_emulator as emulator;
use wengert_testing::Random;

/// Executes kernels on copies of the fake device's memory.
pub(super) fn emulate(ptx: &str, launched: &Launched) {
    // The values of conditions are memory, and a kernel that sets one stores there.
    let sets_conditions = ptx.contains(condition::SET);
    let text = if sets_conditions { condition::tests::defined(ptx) } else { ptx.to_string() };
    let module = emulator::Module::parse(&text).unwrap();
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
        let inside =
            |(start, bytes): &(u64, usize)| (*start..=*start + *bytes as u64).contains(address);
        let Some(n) = allocations.iter().rposition(inside) else {
            assert!(sets_conditions, "arguments are addresses of allocations");
            return emulator::Argument::Bytes(address.to_le_bytes().to_vec());
        };
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

/// The valid plans of `core`'s filetests.
pub(super) fn corpus() -> Vec<Verified<Plan>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/plan");
    let mut plans = Vec::new();
    for name in ["straight.plan", "loops.plan", "control.plan", "rare.plan"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let starts: Vec<usize> =
            (0..lines.len()).filter(|i| lines[*i].starts_with("plan ")).collect();
        for (i, start) in starts.iter().enumerate() {
            let end = starts.get(i + 1).copied().unwrap_or(lines.len());
            let mut plan = parse_plan("file", &lines[*start..end].join("\n")).unwrap().0;
            plan.target.name = "sm_90".into();
            plans.push(Verified::new(plan).unwrap());
        }
    }
    plans
}

/// A layer with its gradient: products, with addends that a library adds, and a nest that follows
/// one.
const LAYER: &str = "
func @layer(%x: f32[6,8], %w: f32[8,4], %b: f32[4], %r: f32[6,4]) \
    -> (y: f32[6,4], z: f32[6,4], g: f32[8,4]) {
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

/// Two products of halves: one with a bias and a residual that its result replaces, one with a
/// residual that stays.
const HALVES: &str = "
func @halves(%x: bf16[6,8], %w: bf16[8,4], %b: bf16[4], %v: bf16[8,4], state %r: bf16[6,4]) \
    -> (y: bf16[6,4], state r: bf16[6,4]) {
  %0: bf16[6,4] = dot_general %x, %w {contract=[[1],[0]]}
  %1: bf16[6,4] = broadcast_in_dim %b {dims=[1], shape=[6,4]}
  %2: bf16[6,4] = add %0, %1
  %3: bf16[6,4] = add %2, %r
  %4: bf16[6,4] = dot_general %x, %v {contract=[[1],[0]]}
  %5: bf16[6,4] = add %4, %3
  return %5, %3
}
";

/// A plan whose arena has 1 TiB, more than the fake device.
const LARGE: &str = "
plan @large {
  target @sm_90 {alignment=8, calls=[], gemm_epilogue=false, reduction_block=0, \
    reduction_lanes=1, row_bytes=0, row_storage=0}
  arena 1099511627776 bound 1099511627776
  value %0: f32[1] \"x\"
  value %1: f32[274877906944] \"a\"
  value %2: f32[1] \"y\"
  input x = %0
  output y: [1] = %2
  nest @repeat(in %x: f32[1], out %y: f32[274877906944]) {
    parallel i: 274877906944
    phase {
      %0: f32 = load %x[0]
      store %y[i], %0
    }
  }
  nest @first(in %x: f32[274877906944], out %y: f32[1]) {
    parallel i: 1
    phase {
      %0: f32 = load %x[i]
      store %y[i], %0
    }
  }
  steps {
    run @repeat(%0 at input.0, %1 at arena)
    run @first(%1 at arena, %2 at output.0)
  }
}
";

/// The plan of the first function of a text, for the fake device.
pub(super) fn compiled(text: &str) -> Verified<Plan> {
    let program = wengert_core::graph::parse_program(text, "test.ir").unwrap();
    let (binding, target) = (wengert_core::Binding::new(), crate::target::target("sm_90"));
    let name = &program.functions()[0].name;
    wengert_compiler::pipeline::compile(&program, name, &binding, &target, &Default::default())
        .unwrap()
}

/// Several runs of a plan; in the last one its variables are at other addresses.
pub(super) fn runs(device: &Device, plan: &Verified<Plan>, capture: bool) {
    let mut executable =
        CudaExecutable::new(device, plan, &mut Options { capture, ..Options::default() }).unwrap();
    let place = |name: &str| {
        let allocate =
            |v: &wengert_core::plan::Variable| device.allocate(plan.values[v.after].bytes(), name);
        plan.variables.iter().map(allocate).collect::<Result<Vec<_>, _>>().unwrap()
    };
    let (here, there) = (place("variables"), place("variables elsewhere"));
    for seed in 1..6 {
        let mut random = Random(seed);
        let values = plan.inputs.iter().map(|i| &plan.values[i.value]);
        let inputs: Vec<Literal> = values.map(|v| random.integers(v.dtype, &v.shape)).collect();
        let before =
            |v: &wengert_core::plan::Variable| v.before.map(|_| random.integers(v.dtype, &v.shape));
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
        let found =
            executable.run(&bytes, &addresses).unwrap_or_else(|e| panic!("{}\n{plan}", e.error));
        for (found, expected) in found.wait().unwrap().into_iter().zip(&expected.outputs) {
            assert_eq!(found, expected.to_bytes(), "capture {capture}, run {seed}\n{plan}");
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
    for plan in corpus().into_iter().chain([compiled(LAYER)]) {
        for capture in [false, true] {
            let fake = Fake::new();
            fake.executor(emulate);
            let device = fake.device();
            runs(&device, &plan, capture);
            if capture {
                let captured = fake.count("cuGraphLaunch");
                straight += usize::from(captured > 0);
                assert!(
                    captured == 0 || captured == 4,
                    "the first run is not captured, the others are"
                );
            }
            products += fake.count("cublasLtMatmul");
            drop(device);
            fake.nothing_left();
        }
    }
    assert!(
        straight >= 5 && products > 0,
        "{straight} captured plans, {products} products by the library"
    );
}

#[test]
fn the_library_adds_all_addends_of_halves() {
    let plan = compiled(HALVES);
    for capture in [false, true] {
        let fake = Fake::new();
        fake.executor(emulate);
        let device = fake.device();
        runs(&device, &plan, capture);
        let executable = CudaExecutable::new(&device, &plan, &mut Options::default()).unwrap();
        let LoweredPlan { kernels, products, .. } = &executable.lowered;
        assert!(kernels.is_empty(), "{kernels:?}\n{plan}");
        let of = |p: &crate::lowered::ProductChoice| (p.library.is_ok(), p.in_place, p.beside);
        let found: Vec<_> = products.iter().map(of).collect();
        assert_eq!(found, [(true, Some(3), 0), (true, None, 0)], "{plan}");
        drop((executable, device));
        fake.nothing_left();
    }
}

/// Measured times decide, with the nest that follows a product and without one. A tuning file
/// gives the same choice again, without a measurement.
#[test]
fn the_faster_implementation_computes_a_product() {
    let plan = compiled(LAYER);
    // The fake library takes 10 ticks for a product.
    for (ticks, own) in [(0, 2), (1000, 0)] {
        let fake = Fake::new();
        fake.executor(move |ptx, launched| {
            // The remark of a kernel of a product.
            Fake::spend(if ptx.contains("of sums") { ticks } else { 0 });
            emulate(ptx, launched);
        });
        let device = fake.device();
        let mut options = Options { autotune: true, ..Options::default() };
        let measured = CudaExecutable::new(&device, &plan, &mut options).unwrap();
        let text = options.tuning.to_text();
        let launches = fake.launches().len();
        let tuning = Tuning::from_text(&text).unwrap();
        let mut options = Options { tuning, ..Options::default() };
        let read = CudaExecutable::new(&device, &plan, &mut options).unwrap();
        assert_eq!(fake.launches().len(), launches, "nothing is measured again");
        for executable in [&measured, &read] {
            let by_own = executable.lowered.products.iter().filter(|p| p.library.is_err()).count();
            assert_eq!(by_own, own, "{text}");
            let says = executable.decisions().iter().filter(|d| d.contains("they take")).count();
            assert_eq!(says, own, "{:?}", executable.decisions());
        }
        assert_eq!(text.matches("followed at").count(), 1, "{text}");
        assert_eq!(text.matches("\"own\"").count(), 2, "{text}");
        drop((measured, read, device));
        fake.nothing_left();
    }
}

/// A function of one input and a variable, which it replaces.
const COUNTING: &str = "
func @step(%x: f32[300], state %s: f32[300]) -> (y: f32[300], state s: f32[300]) {
  %0: f32[300] = add %s, %x
  %1: f32[300] = mul %0, %x
  return %1, %0
}
";

/// [`COUNTING`] on a fake device whose kernels the emulator executes.
struct Counting {
    fake: Fake,
    device: Device,
    executable: CudaExecutable,
    state: Memory,
}

impl Counting {
    fn new() -> Counting {
        let fake = Fake::new();
        fake.executor(emulate);
        let device = fake.device();
        let plan = compiled(COUNTING);
        let executable = CudaExecutable::new(&device, &plan, &mut Options::default()).unwrap();
        let state = device.allocate(1200, "the state").unwrap();
        device.write(state.address(), &[0; 1200]).unwrap();
        Counting { fake, device, executable, state }
    }

    /// Adds `x` to all of the state.
    fn run(&mut self, x: f32) -> Result<Outputs, StepError> {
        let x: Vec<u8> = std::iter::repeat_n(x.to_le_bytes(), 300).flatten().collect();
        self.executable.run(&[&x], &[self.state.address()])
    }

    fn waits(&self) -> [usize; 2] {
        ["cuStreamSynchronize", "cuEventSynchronize"].map(|call| self.fake.count(call))
    }

    fn close(self) {
        let Counting { fake, device, executable, state } = self;
        drop((executable, state, device));
        fake.nothing_left();
    }
}

fn floats(outputs: &Outputs) -> Vec<f32> {
    let bytes = outputs.wait().unwrap()[0].to_vec();
    bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn a_run_waits_for_nothing_that_is_not_read() {
    let mut counting = Counting::new();
    let before = counting.waits();
    // Two runs may be ahead of the device. From the third on, a run waits for the input's buffer,
    // and for nothing else.
    for n in 1..=10 {
        drop(counting.run(1.0).unwrap());
        assert_eq!(counting.waits(), [before[0], before[1] + usize::max(n, 2) - 2], "run {n}");
    }
    let read = counting.run(2.0).unwrap();
    drop((counting.run(5.0).unwrap(), counting.run(5.0).unwrap()));
    assert_eq!(floats(&read), [24.0; 300], "(10 + 2) · 2, whatever came after it");
    drop(read);
    // Dropped while runs are in progress.
    drop(counting.run(1.0).unwrap());
    counting.close();
}

/// A plan that adds to the state and one that reads it take turns, without waiting: each sees what
/// the runs before it have left, whatever the streams of copies do meanwhile.
#[test]
fn plans_over_the_same_variables_run_in_order() {
    for seed in 0..6 {
        let mut counting = Counting::new();
        counting.fake.interleave(seed);
        let reading = compiled(
            "func @read(%x: f32[300], param %s: f32[300]) -> (y: f32[300]) {
                %0: f32[300] = sub %s, %x
                return %0
            }",
        );
        let device = counting.device.clone();
        let mut reader = CudaExecutable::new(&device, &reading, &mut Options::default()).unwrap();
        let mut kept = Vec::new();
        let mut sum = 0.0;
        for n in 1..12u8 {
            let x = f32::from(n);
            sum += x;
            let added = counting.run(x).unwrap();
            let bytes: Vec<u8> = std::iter::repeat_n(x.to_le_bytes(), 300).flatten().collect();
            let read = reader.run(&[&bytes], &[counting.state.address()]).unwrap();
            kept.push((added, sum * x, read, sum - x));
            if n % 3 == 0 {
                for (added, product, read, rest) in kept.drain(..) {
                    assert_eq!(floats(&added), [product; 300], "seed {seed}, run {n}");
                    assert_eq!(floats(&read), [rest; 300], "seed {seed}, run {n}");
                }
            }
        }
        drop((kept, reader, device));
        counting.close();
    }
}

#[test]
fn a_run_of_no_inputs_and_outputs_waits_for_nothing() {
    let fake = Fake::new();
    let device = fake.device();
    let plan = compiled(
        "func @tick(state %s: f32[300]) -> (state s: f32[300]) {
            %0: f32[300] = add %s, %s
            return %0
        }",
    );
    let mut executable = CudaExecutable::new(&device, &plan, &mut Options::default()).unwrap();
    let state = device.allocate(plan.values[plan.variables[0].after].bytes(), "the state").unwrap();
    let waits = || fake.count("cuStreamSynchronize") + fake.count("cuEventSynchronize");
    let before = waits();
    for _ in 0..50 {
        assert!(executable.run(&[], &[state.address()]).unwrap().wait().unwrap().is_empty());
    }
    assert_eq!(waits(), before);
    drop((executable, state, device));
    fake.nothing_left();
}

/// Variables of several shapes, some of which have one kernel, some one template, and two others,
/// are updated by one launch.
#[test]
fn updates_of_several_shapes_share_a_launch() {
    const SHAPES: [(&str, usize); 7] = [
        ("2048", 2048),
        ("4096", 4096),
        ("16,128", 2048),
        ("7", 7),
        ("1030", 1030),
        ("2048", 2048),
        ("3,2049", 6147),
    ];
    let fake = Fake::new();
    fake.executor(emulate);
    let device = fake.device();
    let list = |one: &dyn Fn(usize, &str) -> String, between: &str| {
        let all = SHAPES.iter().enumerate().map(|(n, (shape, _))| one(n, shape));
        all.collect::<Vec<_>>().join(between)
    };
    let inputs = list(&|n, of| format!("%x{n}: f32[{of}], state %s{n}: f32[{of}]"), ", ");
    let results = list(&|n, of| format!("state s{n}: f32[{of}]"), ", ");
    let body = list(&|n, of| format!("%{n}: f32[{of}] = sub %s{n}, %x{n}"), "\n");
    let returned = list(&|n, _| format!("%{n}"), ", ");
    let plan =
        compiled(&format!("func @f({inputs}) -> ({results}) {{ {body} return {returned} }}"));
    let mut executable = CudaExecutable::new(&device, &plan, &mut Options::default()).unwrap();
    let value = |n: usize, i: usize| (1000 * n + i) as f32;
    let bytes = |f: &dyn Fn(usize) -> f32, count: usize| -> Vec<u8> {
        (0..count).flat_map(|i| f(i).to_le_bytes()).collect()
    };
    let mut memory = Vec::new();
    let mut given = Vec::new();
    for (n, (_, count)) in SHAPES.iter().enumerate() {
        let state = device.allocate(4 * *count as u64, "a variable").unwrap();
        device.write(state.address(), &bytes(&|i| value(n, i), *count)).unwrap();
        memory.push(state);
        given.push(bytes(&|i| (i % 10) as f32, *count));
    }
    let given: Vec<&[u8]> = given.iter().map(Vec::as_slice).collect();
    let addresses: Vec<_> = memory.iter().map(Memory::address).collect();
    executable.run(&given, &addresses).unwrap().wait().unwrap();
    for (n, (state, (_, count))) in memory.iter().zip(SHAPES).enumerate() {
        let mut found = vec![0; 4 * count];
        device.read(state.address(), &mut found).unwrap();
        assert_eq!(found, bytes(&|i| value(n, i) - (i % 10) as f32, count), "variable {n}");
    }
    let launches = fake.launches();
    assert_eq!(launches.len(), 1, "{launches:?}");
    assert!(launches[0].starts_with("bundle_0 "), "{launches:?}");
    drop((executable, memory, device));
    fake.nothing_left();
}

#[test]
fn the_first_run_is_captured_where_many_follow() {
    let mut counting = Counting::new();
    counting.executable.expect_repeats();
    assert_eq!(floats(&counting.run(3.0).unwrap()), [9.0; 300]);
    assert_eq!(floats(&counting.run(3.0).unwrap()), [18.0; 300]);
    assert_eq!(
        [counting.fake.count("cuStreamBeginCapture_v2"), counting.fake.count("cuGraphLaunch")],
        [1, 2]
    );
    counting.close();
    // A library that cannot be captured when it is first used: the first run goes step by step,
    // and the second is captured.
    for call in ["cuLaunchKernelEx", "cuGraphInstantiateWithFlags"] {
        let mut counting = Counting::new();
        counting.executable.expect_repeats();
        counting.fake.fail(call, 900);
        assert_eq!(floats(&counting.run(3.0).unwrap()), [9.0; 300], "{call}");
        assert_eq!(counting.fake.count("cuGraphLaunch"), 0);
        assert_eq!(floats(&counting.run(3.0).unwrap()), [18.0; 300], "{call}");
        assert_eq!(counting.fake.count("cuGraphLaunch"), 1);
        counting.close();
    }
    // A failure both in the capture and step by step is an error of the step.
    let mut counting = Counting::new();
    counting.executable.expect_repeats();
    counting.fake.fail("cuLaunchKernelEx", 900);
    counting.fake.fail("cuLaunchKernelEx", 1);
    let failure = counting.run(3.0).unwrap_err();
    assert!(failure.error.to_string().contains("step 0"), "{}", failure.error);
    counting.close();
}

#[test]
fn a_fault_that_shows_late_names_the_run() {
    let mut counting = Counting::new();
    for _ in 0..3 {
        drop(counting.run(1.0).unwrap());
    }
    let fourth = counting.run(1.0).unwrap();
    counting.fake.fail("cuEventSynchronize", 700);
    let text = fourth.wait().unwrap_err().to_string();
    for wanted in ["run 4 of @step", "cuEventSynchronize", "faults show late"] {
        assert!(text.contains(wanted), "{text}");
    }
    // The next run reports it, too.
    counting.fake.fail("cuEventSynchronize", 700);
    let text = counting.run(1.0).unwrap_err().error.to_string();
    assert!(text.contains("run 5 of @step") && text.contains("the first fault: "), "{text}");
    drop(fourth);
    counting.close();
}

#[test]
fn cublas_is_started_for_products_only() {
    let counting = Counting::new();
    assert_eq!(counting.fake.count("cublasLtCreate"), 0);
    counting.close();
    let fake = Fake::new();
    let device = fake.device();
    let made = [(); 2]
        .map(|()| CudaExecutable::new(&device, &compiled(LAYER), &mut Options::default()).unwrap());
    assert_eq!(fake.count("cublasLtCreate"), 1);
    drop((made, device));
    fake.nothing_left();
}

#[test]
fn what_fails_says_so_and_leaves_nothing() {
    let plan = corpus().into_iter().find(|p| !p.nests.is_empty() && !p.inputs.is_empty()).unwrap();
    let fake = Fake::new();
    fake.executor(emulate);
    let device = fake.device();
    let mut options = Options::default();
    let mut executable = CudaExecutable::new(&device, &plan, &mut options).unwrap();
    let refused = executable.run(&[], &[]).unwrap_err();
    assert!(refused.error.message.contains("wanted"), "{}", refused.error);
    let zeros: Vec<Vec<u8>> =
        plan.inputs.iter().map(|i| vec![0; plan.values[i.value].bytes() as usize]).collect();
    let zeros: Vec<&[u8]> = zeros.iter().map(|z| &z[..]).collect();
    let memories: Vec<Memory> = plan
        .variables
        .iter()
        .map(|v| device.allocate(plan.values[v.after].bytes(), "v").unwrap())
        .collect();
    let addresses: Vec<Address> = memories.iter().map(Memory::address).collect();
    // 719: a fault of a kernel.
    fake.fail("cuLaunchKernelEx", 719);
    let failed = executable.run(&zeros, &addresses).unwrap_err();
    let text = failed.error.to_string();
    for wanted in ["plan @", "step 0 `run @", "kernel `", "cuLaunchKernelEx", "719"] {
        assert!(text.contains(wanted), "{text}");
    }
    assert_eq!(failed.error.kind, wengert_core::diagnostic::Kind::Device);
    drop((executable, memories, device));
    // Another target, and more memory than the device has.
    let fake = Fake::new();
    let device = fake.device();
    let mut other = plan.clone().into_inner();
    other.target.name = "sm_120".into();
    let other = Verified::new(other).unwrap();
    let refused = CudaExecutable::new(&device, &other, &mut options).err().unwrap();
    assert!(refused.message.contains("`sm_120`"), "{refused}");
    let large = Verified::new(parse_plan("large", LARGE).unwrap().0).unwrap();
    let refused = CudaExecutable::new(&device, &large, &mut options).err().unwrap();
    assert!(refused.to_string().contains("the arena of @large"), "{refused}");
}

/// The CI stage `ops` on a GPU, by its count: every sample of every op is loaded on the fake
/// driver, whose compiler takes a modelled time for each module. Then come the plans of the
/// filetests and two networks. All of it fits the limits of the steps, a part of the samples one
/// step.
#[test]
fn the_samples_of_all_ops_are_dozens_of_modules() {
    use wengert_testing::samples::batches;
    /// As in `wengert/tests/on_devices/ops.rs`.
    const MOST: usize = 96;
    /// Seconds to open a session, run a function, and compare its outputs with two interpreters.
    const CASE: f64 = 0.25;
    let fake = Fake::new();
    let device = fake.device();
    let (binding, target) = (wengert_core::Binding::new(), crate::target::target("sm_90"));
    let compile = |function: &wengert_core::graph::Function| {
        let mut program = wengert_core::graph::Program::new();
        program.add(function.clone()).unwrap();
        wengert_compiler::pipeline::compile(&program, "f", &binding, &target, &Default::default())
            .unwrap()
    };
    let (mut modules, mut samples) = (0, 0);
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        let has_calls = |function: &wengert_core::graph::Function| {
            compile(function)
                .steps
                .iter()
                .any(|step| matches!(step, wengert_core::plan::Step::Call { .. }))
        };
        for (_, batch) in batches(dtype, MOST, has_calls) {
            drop(
                CudaExecutable::new(&device, &compile(&batch.function), &mut Options::default())
                    .unwrap(),
            );
            modules += 1;
            samples += batch.names.len();
            assert_eq!(fake.count("cuModuleLoadDataEx"), modules, "a batch is one module");
        }
    }
    assert!(samples > 4000 && modules < 60, "{modules} modules of {samples} samples");
    let limits: Vec<f64> = include_str!("../../../ci/gpu/steps")
        .lines()
        .filter(|line| line.starts_with("ops ") && line.contains("WENGERT_TEST_PART"))
        .map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
        .collect();
    let seconds = (fake.modelled_seconds() + modules as f64 * CASE) / limits.len() as f64;
    assert!(limits.iter().all(|limit| seconds < *limit), "{seconds:.1} s a part, {limits:?}");
    drop(device);
    fake.nothing_left();
}

#[test]
fn variables_that_lie_nowhere_are_refused() {
    let has_variable =
        |p: &Verified<Plan>| p.variables.iter().any(|v| p.values[v.after].bytes() > 0);
    let plan = corpus().into_iter().find(has_variable).unwrap();
    let fake = Fake::new();
    fake.executor(emulate);
    let device = fake.device();
    let mut executable = CudaExecutable::new(&device, &plan, &mut Options::default()).unwrap();
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
    let plan =
        corpus().into_iter().find(|p| p.variables.is_empty() && !p.nests.is_empty()).unwrap();
    let fake = Fake::new();
    fake.executor(emulate);
    let device = fake.device();
    let mut executable = CudaExecutable::new(&device, &plan, &mut Options::default()).unwrap();
    executable.limit(100);
    let zeros: Vec<Vec<u8>> =
        plan.inputs.iter().map(|i| vec![0; plan.values[i.value].bytes() as usize]).collect();
    let zeros: Vec<&[u8]> = zeros.iter().map(|z| &z[..]).collect();
    let error = executable.run(&zeros, &[]).unwrap_err().error;
    assert!(error.message.contains("more than the 100 operations"), "{error}");
    executable.limit(u64::MAX);
    executable.run(&zeros, &[]).unwrap_or_else(|e| panic!("{}", e.error));
}
