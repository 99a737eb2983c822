//! Loops and branches in a CUDA graph, on the fake driver, whose kernels the emulator executes:
//! also those that set conditions. Results equal those of the plan interpreter, bit for bit.

#![allow(clippy::unwrap_used)] // It is a test.

use super::super::tests::{compiled, corpus, emulate, runs};
use super::super::{Options, Outputs};
use super::*;
use crate::driver::fake::Fake;
use wengert_core::plan::{Plan, interpret};
use wengert_core::{Literal, Verified};

/// A loop whose body branches by its counter. One arm has no steps, and another has a loop of its
/// own. The loop stops at 5 or after nine iterations.
const NESTED: &str = "
func @nested(%n: i32[], %x: f32[2], state %s: f32[2]) -> (y: f32[2], k: i32[], state s: f32[2]) {
  %0: i32[], %1: f32[2] = while %n, %x {max_steps=9}
    region (%a: i32[], %b: f32[2]) {
      %2: i32[] = constant {value=i32[] 5}
      %3: bool[] = lt %a, %2
      return %3
    }
    region (%a: i32[], %b: f32[2]) {
      %4: i32[] = constant {value=i32[] 1}
      %5: i32[] = add %a, %4
      %6: f32[2] = switch %a, %b
        region (%c: f32[2]) {
          %7: f32[2] = add %c, %c
          return %7
        }
        region (%c: f32[2]) { return %c }
        region (%c: f32[2]) {
          %8: i32[] = constant {value=i32[] 0}
          %9: i32[], %10: f32[2] = while %8, %c {max_steps=3}
            region (%d: i32[], %e: f32[2]) {
              %11: i32[] = constant {value=i32[] 2}
              %12: bool[] = lt %d, %11
              return %12
            }
            region (%d: i32[], %e: f32[2]) {
              %13: i32[] = constant {value=i32[] 1}
              %14: i32[] = add %d, %13
              %15: f32[2] = sub %e, %13f
              return %14, %15
            }
          return %10
        }
      return %5, %6
    }
  %20: f32[2] = add %s, %1
  return %1, %0, %20
}
";

/// A loop in an arm of a branch, which would not end.
const ENDLESS: &str = "
func @endless(%p: bool[], %x: f32[2], state %s: f32[2]) -> (y: f32[2], state s: f32[2]) {
  %0: f32[2] = cond %p, %x
    region (%a: f32[2]) {
      %1: f32[2] = while %a {max_steps=7}
        region (%b: f32[2]) {
          %2: f32[] = reduce_sum %b {axes=[0]}
          %3: f32[] = constant {value=f32[] 1000000.0}
          %4: bool[] = lt %2, %3
          return %4
        }
        region (%b: f32[2]) {
          %5: f32[2] = add %b, %b
          return %5
        }
      return %1
    }
    region (%a: f32[2]) {
      %6: f32[2] = neg %a
      return %6
    }
  %7: f32[2] = add %s, %0
  return %0, %7
}
";

fn nested() -> Verified<Plan> {
    let one = "%16: f32[] = constant {value=f32[] 1.0}
              %17: f32[2] = broadcast_in_dim %16 {dims=[], shape=[2]}
              %15: f32[2] = sub %e, %17";
    compiled(&NESTED.replace("%15: f32[2] = sub %e, %13f", one))
}

/// The inputs of [`nested`] and [`ENDLESS`]: several iterations, none, and as many as the limit.
fn cases(plan: &Plan) -> Vec<[Literal; 2]> {
    let x = Literal::from_vec(&[2], vec![1.0f32, -3.0]).unwrap();
    match plan.function.as_str() {
        "nested" => {
            [3, 0, 9, -7, 2, 5, 4].map(|n: i32| [Literal::from(n), x.clone()]).into_iter().collect()
        }
        _ => [true, false, true].map(|p| [Literal::from(p), x.clone()]).into_iter().collect(),
    }
}

/// An executable of a plan, with its state.
struct Bench {
    fake: Fake,
    device: Device,
    plan: Verified<Plan>,
    executable: CudaExecutable,
    state: Memory,
    value: Literal,
}

impl Bench {
    fn new(plan: &Verified<Plan>, version: u32) -> Bench {
        let fake = Fake::of_version(version);
        fake.executor(emulate);
        let device = fake.device();
        let executable = CudaExecutable::new(&device, plan, &mut Options::default()).unwrap();
        let state = device.allocate(8, "the state").unwrap();
        device.write(state.address(), &[0; 8]).unwrap();
        let value = Literal::from_vec(&[2], vec![0.0f32; 2]).unwrap();
        Bench { fake, device, plan: plan.clone(), executable, state, value }
    }

    fn start(&mut self, inputs: &[Literal]) -> Result<Outputs, StepError> {
        let bytes: Vec<Vec<u8>> = inputs.iter().map(Literal::to_bytes).collect();
        let bytes: Vec<&[u8]> = bytes.iter().map(|b| &b[..]).collect();
        self.executable.run(&bytes, &[self.state.address()])
    }

    /// A run whose outputs and state must be those of the interpreter.
    fn run(&mut self, inputs: &[Literal]) {
        let expected = interpret(&self.plan, inputs, &[Some(self.value.clone())]).unwrap();
        let found = self.start(inputs).unwrap_or_else(|e| panic!("{}", e.error));
        for (found, expected) in found.wait().unwrap().into_iter().zip(&expected.outputs) {
            assert_eq!(found, expected.to_bytes(), "{inputs:?}\n{}", self.plan);
        }
        self.value = expected.variables[0].clone();
    }

    fn all(&mut self) {
        for inputs in cases(&self.plan) {
            self.run(&inputs);
        }
        let mut state = [0; 8];
        self.device.read(self.state.address(), &mut state).unwrap();
        assert_eq!(state[..], self.value.to_bytes(), "{}", self.plan);
    }

    /// The decision about loops and branches.
    fn decision(&self) -> String {
        let all = self.executable.decisions();
        all.into_iter().find(|line| line.starts_with("loops and branches")).unwrap()
    }

    fn close(self) {
        let Bench { fake, device, executable, state, .. } = self;
        drop((executable, state, device));
        fake.nothing_left();
    }
}

#[test]
fn loops_and_branches_run_in_the_graph() {
    for plan in [nested(), compiled(ENDLESS)] {
        for (version, nodes) in [(13_000, "SWITCH nodes"), (12_040, "IF nodes")] {
            for seed in [0, 1, 2] {
                let mut bench = Bench::new(&plan, version);
                bench.fake.interleave(seed);
                bench.all();
                let decision = bench.decision();
                assert!(decision.contains("in the CUDA graph"), "{decision}");
                assert!(decision.contains(nodes), "{decision}");
                assert!(!decision.contains(" 0 WHILE"), "{decision}");
                // The first run is not captured, and the host waits for no condition after it.
                let graphs = bench.fake.count("cuGraphLaunch");
                assert_eq!(graphs, cases(&plan).len() - 1);
                bench.close();
            }
        }
    }
}

#[test]
fn a_captured_run_does_not_wait_for_conditions() {
    let mut bench = Bench::new(&nested(), 13_000);
    bench.executable.expect_repeats();
    let waits = bench.fake.count("cuStreamSynchronize");
    let outputs: Vec<Outputs> =
        cases(&bench.plan)[..2].iter().map(|inputs| bench.start(inputs).unwrap()).collect();
    assert_eq!(bench.fake.count("cuStreamSynchronize"), waits);
    drop(outputs);
    bench.close();
}

#[test]
fn a_driver_without_conditional_nodes_leaves_them_to_the_host() {
    for (version, why) in [
        (12_020, "the driver implements CUDA 12.2, and 12.4 is needed"),
        (12_030, "the driver implements CUDA 12.3, and 12.4 is needed"),
    ] {
        let mut bench = Bench::new(&nested(), version);
        bench.all();
        assert_eq!(bench.fake.count("cuGraphLaunch"), 0);
        let decision = bench.decision();
        assert!(decision.contains("by the host") && decision.contains(why), "{decision}");
        bench.close();
    }
    // A node, the kernels or the device function are refused when the plan is loaded.
    for call in
        ["cuGraphAddNode_v2", "cuGraphInstantiateWithFlags", "cuGraphConditionalHandleCreate"]
    {
        let fake = Fake::new();
        fake.executor(emulate);
        let device = fake.device();
        fake.fail(call, 801);
        let executable = CudaExecutable::new(&device, &nested(), &mut Options::default()).unwrap();
        let Control::Host(why) = &executable.control else { panic!("{call} failed") };
        assert!(why.contains("trying conditional nodes") && why.contains(call), "{why}");
        drop((executable, device));
        fake.nothing_left();
    }
    let fake = Fake::new();
    let device = fake.device();
    fake.fail_after("cuModuleLoadDataEx", 1, 218);
    let executable = CudaExecutable::new(&device, &nested(), &mut Options::default()).unwrap();
    let Control::Host(why) = &executable.control else { panic!("the kernels were refused") };
    assert!(why.contains("cuModuleLoadDataEx"), "{why}");
    drop((executable, device));
    fake.nothing_left();
}

#[test]
fn what_is_not_captured_runs_step_by_step_and_says_so() {
    let inputs = cases(&nested());
    let calls = [
        "cuGraphCreate",
        "cuGraphAddNode_v2",
        "cuGraphConditionalHandleCreate",
        "cuStreamBeginCaptureToGraph",
        "cuStreamGetCaptureInfo_v3",
        "cuStreamEndCapture",
        "cuLaunchKernelEx",
        "cuGraphGetNodes",
        "cuGraphInstantiateWithFlags",
    ];
    for call in calls {
        // Once at the beginning of the capture, and once in the body of a loop.
        for successes in [0, 2] {
            let mut bench = Bench::new(&nested(), 13_000);
            bench.run(&inputs[0]);
            bench.fake.fail_after(call, successes, 801);
            bench.run(&inputs[3]);
            bench.run(&inputs[1]);
            let once = ["cuGraphCreate", "cuGraphInstantiateWithFlags"].contains(&call);
            if successes == 0 || !once {
                assert_eq!(bench.fake.count("cuGraphLaunch"), 0, "{call}");
                let decision = bench.decision();
                assert!(decision.contains("its capture failed"), "{call}: {decision}");
                assert!(decision.contains(call), "{call}: {decision}");
            }
            bench.close();
        }
    }
    // In the first run, a failure is that of a library which loads its code, and the second run
    // is captured.
    let mut bench = Bench::new(&nested(), 13_000);
    bench.executable.expect_repeats();
    bench.fake.fail_after("cuLaunchKernelEx", 3, 900);
    bench.run(&inputs[0]);
    assert_eq!(bench.fake.count("cuGraphLaunch"), 0);
    bench.run(&inputs[3]);
    assert_eq!(bench.fake.count("cuGraphLaunch"), 1);
    bench.close();
}

#[test]
fn an_error_in_a_body_names_its_step() {
    let mut bench = Bench::new(&nested(), 13_000);
    bench.run(&cases(&nested())[0]);
    // The kernel of the body fails in the capture, and step by step.
    bench.fake.fail_after("cuLaunchKernelEx", 3, 719);
    bench.fake.fail_after("cuLaunchKernelEx", 1, 719);
    let failed = bench.start(&cases(&nested())[0]).unwrap_err();
    let text = failed.error.to_string();
    assert!(text.contains("step ") && text.contains("cuLaunchKernelEx"), "{text}");
    bench.close();
}

/// The bits of a limit are those of the host: a plan that may exceed it is followed by the host.
#[test]
fn a_limit_stops_a_run_where_it_always_did() {
    let mut bench = Bench::new(&nested(), 13_000);
    let inputs = cases(&nested());
    bench.executable.limit(20_000);
    let decision = bench.decision();
    assert!(decision.contains("its limit is 20000"), "{decision}");
    // No iterations fit, nine do not.
    bench.run(&inputs[2]);
    bench.run(&inputs[2]);
    let error = bench.start(&inputs[3]).unwrap_err().error.to_string();
    assert!(error.contains("more than the 20000 operations"), "{error}");
    assert_eq!(bench.fake.count("cuGraphLaunch"), 0);
    let Control::Device(graph) = &bench.executable.control else { panic!("no graph") };
    let most = graph.recording.most;
    assert!(graph.exceeds(most - 1).is_some() && graph.exceeds(most).is_none());
    assert!(graph.exceeds(u64::MAX).is_none());
    bench.executable.limit(most);
    bench.device.write(bench.state.address(), &bench.value.to_bytes()).unwrap();
    bench.run(&inputs[3]);
    assert_eq!(bench.fake.count("cuGraphLaunch"), 1);
    bench.close();
}

/// A loop of a constant number of iterations whose body does not move is repeated where it is too
/// long to unroll.
#[test]
fn a_long_loop_is_repeated() {
    let plan = compiled(
        "func @long(%p: bool[], %x: f32[2], state %s: f32[2]) -> (y: f32[2], state s: f32[2]) {
          %0: f32[2] = scan %x, %s {captures=1, carries=1, length=40}
            region (%a: f32[2], %b: f32[2]) {
              %1: f32[2] = add %b, %a
              %2: f32[2] = neg %1
              return %2
            }
          %3: f32[2] = cond %p, %0
            region (%a: f32[2]) { return %a }
            region (%a: f32[2]) {
              %4: f32[2] = neg %a
              return %4
            }
          %5: f32[2] = add %s, %3
          return %3, %5
        }",
    );
    for most in [20, 1000] {
        let mut bench = Bench::new(&plan, 13_000);
        let executable = &mut bench.executable;
        let visit = |command: &Command, visit: &mut dyn FnMut(&wengert_core::plan::Place)| {
            command.places().for_each(visit);
        };
        let recording = executable.lowered.resolved.recording(most, &visit).unwrap();
        assert_eq!(recording.loops, u64::from(most == 20), "{plan}");
        let Control::Device(graph) = &mut executable.control else { panic!("no graph") };
        graph.recording = recording;
        bench.all();
        assert_eq!(bench.fake.count("cuGraphLaunch"), 2);
        bench.close();
    }
    let bench = Bench::new(&plan, 13_000);
    let too_long = bench.executable.lowered.resolved.recording(2, &|c, visit| {
        c.places().for_each(visit);
    });
    assert!(too_long.unwrap_err().to_string().contains("2 are recorded at most"));
    bench.close();
}

/// Plans of the filetests: loops that a counter moves stay with the host, the others do not.
#[test]
fn plans_of_the_filetests_are_decided() {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<String>>();
    let (mut host, mut device) = (Vec::new(), Vec::new());
    for plan in corpus() {
        let fake = Fake::new();
        fake.executor(emulate);
        let gpu = fake.device();
        let executable = CudaExecutable::new(&gpu, &plan, &mut Options::default()).unwrap();
        match &executable.control {
            Control::Straight => {}
            Control::Host(why) => {
                assert!(why.contains("its counter chooses"), "{why}");
                host.push(plan.function.clone());
            }
            Control::Device(_) => device.push(plan.function.clone()),
        }
        drop(executable);
        runs(&gpu, &plan, true);
        drop(gpu);
        fake.nothing_left();
    }
    assert_eq!((host, device), (vec!["backwards".into()], names(&["doubling", "switch", "if"])));
}
