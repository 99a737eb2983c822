//! Kernels that share a launch compute the bits that they compute in launches of their own, and a
//! wrong entry in the table of their addresses is found.

use crate::lowered::training_step;
use wengert_compiler::pipeline::{Options, compile};
use wengert_core::plan::{Counters, Memories, Place, Region, Space, StepRunner};
use wengert_core::{Binding, Diagnostic, Literal, Result, Target, plan};
use wengert_cuda::architecture::Architecture;
use wengert_cuda::lowered::{Command, LoweredPlan, NoLibrary, StepError};
use wengert_cuda::target::target;
use wengert_emulator::{Access, Argument, Emulator, Launch, Memory, Module};
use wengert_testing::Random;

/// Extents of the layers. The updates of weights have too many blocks to share a launch with other
/// kernels. Two weights have the same size.
const WIDTHS: [usize; 5] = [192, 160, 160, 160, 128];
/// Elements of the largest weight, of the two of one size, and of the smallest.
const SIZES: [u64; 3] = [192 * 160, 160 * 160, 160 * 128];
/// Addresses of a weight's update.
const OWN: usize = 7;
const ROWS: usize = 8;

/// A training step, with shared launches or without.
fn lowered(shares_launches: bool) -> LoweredPlan {
    let target = Target { shares_launches, ..target("sm_90") };
    let program = training_step(ROWS, WIDTHS);
    let plan = compile(&program, "step", &Binding::new(), &target, &Options::default()).unwrap();
    let architecture = Architecture::from_name("sm_90").unwrap();
    LoweredPlan::new(&plan, architecture, &mut NoLibrary).unwrap()
}

/// The emulator with the memory of a plan. A kernel may access each buffer as its place says.
struct Machine<'a> {
    lowered: &'a LoweredPlan,
    module: Module,
    memory: Memory,
    addresses: Memories<u64>,
}

impl<'a> Machine<'a> {
    fn new(lowered: &'a LoweredPlan) -> Machine<'a> {
        let plan = &lowered.plan;
        let mut memory = Memory::new();
        let mut place = |bytes: u64| memory.allocate("memory", bytes).unwrap();
        let addresses = Memories {
            arena: place(plan.arena),
            inputs: plan.inputs.iter().map(|i| place(plan.values[i.value].bytes())).collect(),
            outputs: plan.outputs.iter().map(|o| place(plan.values[o.value].bytes())).collect(),
            variables: plan.variables.iter().map(|v| place(plan.values[v.after].bytes())).collect(),
            constants: plan.constants.iter().map(|c| place(plan.values[c.value].bytes())).collect(),
        };
        for (address, constant) in addresses.constants.iter().zip(&plan.constants) {
            memory.write(*address, &constant.literal.to_bytes()).unwrap();
        }
        Machine { lowered, module: Module::parse(&lowered.ptx).unwrap(), memory, addresses }
    }

    fn address(&self, region: &Region) -> u64 {
        self.addresses[region.space] + region.offset
    }
}

impl StepRunner for Machine<'_> {
    type Kernel = Command;
    type Error = StepError;

    fn launch(&mut self, command: &Command, counters: &Counters) -> Result<()> {
        let Command::Launch(launch) = command else { panic!("there is no library") };
        let facts = &self.lowered.kernels[launch.kernel];
        let argument = |place: &Place| {
            let region = counters.region(place);
            Argument::Buffer {
                address: self.address(&region),
                bytes: region.bytes,
                name: format!("{}+{}", region.space, region.offset),
                access: match region.access {
                    plan::Access::Read => Access::Read,
                    plan::Access::Write => Access::Write,
                    plan::Access::ReadWrite => Access::ReadWrite,
                },
                expects: None,
                makes: None,
            }
        };
        let launched = Launch {
            kernel: facts.name.clone(),
            grid: launch.grid,
            block: [facts.threads, 1, 1],
            dynamic_shared: launch.dynamic_shared,
            arguments: launch.arguments.iter().map(argument).collect(),
        };
        let emulator = Emulator::new(wengert_emulator::Options::default());
        let ran = emulator.run(&self.module, &launched, &mut self.memory);
        ran.map(drop).map_err(|fault| Diagnostic::of_device(fault.to_string()))
    }

    fn copy(&mut self, from: Region, to: Region) -> Result<()> {
        let bytes = self.memory.read(self.address(&from), from.bytes as usize).unwrap();
        let to = self.address(&to);
        self.memory.write(to, &bytes).unwrap();
        Ok(())
    }

    fn read(&mut self, _: Region) -> Result<[u8; 8]> {
        panic!("a step has no loops")
    }

    fn located(&self, step: Option<usize>, error: Diagnostic) -> StepError {
        self.lowered.located(step, error)
    }
}

/// The losses of three steps, and the variables after them by name; or the fault of a kernel.
fn trained(machine: &mut Machine<'_>) -> Result<Vec<(String, Vec<u8>)>, String> {
    let plan = &machine.lowered.plan;
    let mut random = Random(1);
    let mut numbers = |shape: &[usize]| -> Literal {
        let count = shape.iter().product();
        let numbers = (0..count).map(|_| random.unit() as f32 - 0.5).collect::<Vec<f32>>();
        Literal::from_vec(shape, numbers).unwrap()
    };
    // By name, since plans may differ in the order of their variables.
    let mut variables: Vec<_> = plan.variables.iter().zip(&machine.addresses.variables).collect();
    variables.sort_by_key(|(variable, _)| &variable.name);
    for (variable, address) in &variables {
        let value = match variable.name.starts_with("model") {
            true => numbers(&variable.shape),
            false => Literal::zeros(variable.dtype, &variable.shape),
        };
        machine.memory.write(**address, &value.to_bytes()).unwrap();
    }
    let variables: Vec<(String, u64, usize)> = variables
        .into_iter()
        .map(|(v, address)| (v.name.clone(), *address, plan.values[v.after].bytes() as usize))
        .collect();
    let mut found = Vec::new();
    for step in 0..3 {
        let x = numbers(&[ROWS, WIDTHS[0]]).to_bytes();
        machine.memory.write(machine.addresses.inputs[0], &x).unwrap();
        machine.lowered.run(machine, u64::MAX).map_err(|error| error.error.to_string())?;
        let loss = machine.memory.read(machine.addresses.outputs[0], 4).unwrap();
        found.push((format!("loss {step}"), loss));
    }
    found.extend(variables.into_iter().map(|(name, address, bytes)| {
        let value = machine.memory.read(address, bytes).unwrap();
        (name, value)
    }));
    Ok(found)
}

/// Changes the places of the launch of most arguments, which updates the weights.
fn with_table(lowered: &mut LoweredPlan, change: impl Fn(&mut Vec<Place>)) {
    let count = |command: &Command| command.places().count();
    let most = lowered.resolved.kernels().into_iter().map(count).max().unwrap();
    assert_eq!(most, 4 * OWN);
    lowered.resolved.arrange(&mut |mut sequence| {
        for scheduled in &mut sequence {
            if let Command::Launch(launch) = &mut scheduled.kernel
                && launch.arguments.len() == most
            {
                change(&mut launch.arguments);
            }
        }
        sequence
    });
}

/// The positions of the gradients in a table, with the numbers of their elements.
fn gradients(table: &[Place]) -> Vec<(usize, u64)> {
    let read = |p: &Place| p.space == Space::Arena && p.access == plan::Access::Read;
    let found = table.iter().enumerate().filter(|(_, place)| read(place));
    found.map(|(n, place)| (n, place.bytes / 4)).collect()
}

#[test]
fn a_step_has_the_same_bits_with_shared_launches() {
    let [shared, single] = [true, false].map(lowered);
    let launches = |lowered: &LoweredPlan| lowered.resolved.kernels().len();
    // The updates of four weights are one launch.
    let [few, many] = [&shared, &single].map(launches);
    assert!(few + 3 <= many, "{few} and {many} launches");
    let shares = |lowered: &LoweredPlan| lowered.ptx.contains("bundle");
    assert!(shares(&shared) && !shares(&single));
    let expected = trained(&mut Machine::new(&single)).unwrap();
    assert_eq!(trained(&mut Machine::new(&shared)).unwrap(), expected);
    assert!(expected.iter().all(|(_, bytes)| bytes.iter().any(|byte| *byte != 0)));
}

/// An update of more elements than its gradient reads beyond it.
#[test]
fn a_gradient_of_another_size_in_the_table_is_a_fault() {
    let mut lowered = lowered(true);
    with_table(&mut lowered, |table| {
        let all = gradients(table);
        let least = all.iter().min_by_key(|(_, elements)| *elements).unwrap();
        let most = all.iter().max_by_key(|(_, elements)| *elements).unwrap();
        assert_eq!((least.1, most.1), (SIZES[2], SIZES[0]), "{all:?}");
        table.swap(least.0, most.0);
    });
    let fault = trained(&mut Machine::new(&lowered)).unwrap_err();
    assert!(fault.contains("outside the buffer"), "{fault}");
}

/// Sizes do not tell two gradients of one size apart. Bits do.
#[test]
fn a_gradient_of_the_same_size_in_the_table_changes_bits() {
    let [mut wrong, right] = [true, true].map(lowered);
    with_table(&mut wrong, |table| {
        let all = gradients(table);
        let alike: Vec<usize> =
            all.iter().filter(|(_, elements)| *elements == SIZES[1]).map(|(n, _)| *n).collect();
        let [first, second] = alike[..] else { panic!("{all:?}") };
        table.swap(first, second);
    });
    let [wrong, right] = [wrong, right].map(|lowered| trained(&mut Machine::new(&lowered)));
    assert_ne!(wrong.unwrap(), right.unwrap());
}

/// A block that finds the entries of its part one address too early reads or writes a buffer of
/// another part.
#[test]
fn a_wrong_distance_in_the_table_is_a_fault() {
    let lowered = lowered(true);
    let mut machine = Machine::new(&lowered);
    let entries = |own: usize| format!("mad.wide.u32 %part, %number, {}, %part;", 8 * own);
    assert!(lowered.ptx.contains(&entries(OWN)), "the weights of one size are parts of a class");
    let wrong = lowered.ptx.replace(&entries(OWN), &entries(OWN - 1));
    machine.module = Module::parse(&wrong).unwrap();
    assert!(trained(&mut machine).is_err());
}
