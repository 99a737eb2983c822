//! Faults that are planted in the commands of a plan on two emulated GPUs.

#![allow(clippy::unwrap_used)] // It is a test.

use super::super::{EMULATED, EmulatedFunction};
use super::Exchanges;
use crate::device::PreparedFunction;
use crate::store::Store;
use std::sync::Arc;
use wengert_compiler::pipeline::{Options, compile};
use wengert_core::graph::parse_program;
use wengert_core::plan::{Access, Place, Scheduled};
use wengert_core::{Binding, Literal};
use wengert_cpu::World;
use wengert_cuda::lowered::{Command, Launch, LoweredPlan};
use wengert_cuda::target::target;
use wengert_transport::{Communicator, shared};

/// Long enough for two exchanges: of shares, and of their sums.
const SUM: &str = "func @f mesh(data=2) (%x: f32[5003]{data}) -> (y: f32[5003]) {
  %0: f32[5003]{data} = mul %x, %x
  %1: f32[5003] = psum %0 {over=[\"data\"]}
  %2: f32[5003] = mul %1, %1
  return %2
}
";

type Commands = Vec<Scheduled<Command>>;

/// Runs the function on two ranks whose commands are changed.
fn run(change: impl Fn(Commands) -> Commands + Sync) -> Vec<Result<Vec<f32>, String>> {
    let rank = |world: Communicator| {
        let number = world.rank();
        let program = parse_program(SUM, "f.ir").unwrap();
        let target = target(EMULATED);
        let plan = compile(&program, "f", &Binding::new(), &target, &Options::default()).unwrap();
        let mut function = EmulatedFunction::new(&plan, None, u64::MAX).unwrap();
        function.exchanges = Exchanges::among(World::new(world).enter(&plan).unwrap());
        let lowered: &mut LoweredPlan = Arc::get_mut(&mut function.lowered).unwrap();
        lowered.resolved.arrange(&mut |commands| change(commands));
        let own: Vec<f32> = (0..5003).map(|i| (i % 10 + number) as f32).collect();
        let x = Literal::from_vec(&[5003], own).unwrap();
        let outputs = function.run(&[x], &mut Store::default());
        let outputs = outputs.and_then(|outputs| outputs.into_values()).map_err(|e| e.to_string());
        outputs.map(|outputs| outputs[0].as_slice::<f32>().unwrap().to_vec())
    };
    std::thread::scope(|scope| {
        let rank = &rank;
        let world = shared::threads(2, &Default::default()).unwrap();
        let threads: Vec<_> = world.into_iter().map(|own| scope.spawn(move || rank(own))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn is_wait(scheduled: &Scheduled<Command>) -> bool {
    matches!(scheduled.kernel, Command::Wait(_))
}

/// Without the wait of one of the two exchanges.
fn without_wait(commands: Commands, number: usize) -> Commands {
    let is_it = |s: &Scheduled<Command>| match &s.kernel {
        Command::Wait(exchange) => exchange.number == number,
        _ => false,
    };
    commands.into_iter().filter(|s| !is_it(s)).collect()
}

fn errors(found: Vec<Result<Vec<f32>, String>>) -> Vec<String> {
    found.into_iter().map(|rank| rank.unwrap_err()).collect()
}

#[test]
fn two_ranks_run_a_sum_under_the_sanitizers() {
    let found = run(|commands| {
        assert_eq!(commands.iter().filter(|s| is_wait(s)).count(), 2);
        commands
    });
    let square = |x: usize| (x * x) as f32;
    let sum = |i: usize| square(i % 10) + square(i % 10 + 1);
    let wanted: Vec<f32> = (0..5003).map(|i| sum(i) * sum(i)).collect();
    assert_eq!(found, [Ok(wanted.clone()), Ok(wanted)]);
}

#[test]
fn a_missing_wait_before_a_received_buffer_is_read_is_found() {
    for number in [0, 1] {
        for error in errors(run(|commands| without_wait(commands, number))) {
            let wanted = "that nothing has written";
            assert!(error.contains("UninitialisedRead") && error.contains(wanted), "{error}");
        }
    }
}

#[test]
fn a_wait_without_a_start_is_found() {
    let twice = |commands: Commands| -> Commands {
        let waits = commands.iter().filter(|s| is_wait(s));
        let Some(Command::Wait(first)) = waits.map(|s| &s.kernel).next() else {
            return commands;
        };
        let again = Scheduled { step: 0, work: 0, kernel: Command::Wait(first.clone()) };
        commands.into_iter().chain([again]).collect()
    };
    for error in errors(run(twice)) {
        assert!(error.contains("a wait for an exchange that was not started"), "{error}");
    }
}

/// The kernel that computes what is sent runs once more, in place, after the start.
#[test]
fn memory_that_changes_while_it_is_sent_is_found() {
    let late = |mut commands: Commands| -> Commands {
        let is_start = |s: &Scheduled<Command>| matches!(s.kernel, Command::Start(_));
        let start = commands.iter().position(is_start).unwrap();
        let Command::Start(exchange) = &commands[start].kernel else { unreachable!() };
        let Command::Launch(square) = &commands[0].kernel else { panic!("it squares first") };
        assert_eq!(square.arguments.len(), 2);
        let sent = |access| Place { access, ..exchange.source.clone() };
        let again = Launch {
            kernel: square.kernel,
            grid: square.grid,
            dynamic_shared: square.dynamic_shared,
            arguments: vec![sent(Access::Read), sent(Access::Write)],
        };
        let kernel = Command::Launch(again);
        commands.insert(start + 1, Scheduled { step: 0, work: 0, kernel });
        commands
    };
    for error in errors(run(late)) {
        let wanted = "of the source of an exchange over data changes while it is sent";
        assert!(error.contains(wanted), "{error}");
    }
}
