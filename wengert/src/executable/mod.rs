//! A function made ready for a device.

mod cpu;

use crate::device::Device;
use crate::signature::Signature;
use crate::store::Store;
use cpu::CpuRunner;
use wengert_compiler::pipeline::{self, Options};
use wengert_core::graph::{Function, OutputRole, Program};
use wengert_core::plan::{self, Plan};
use wengert_core::{Binding, Literal, Result, Target, interpret};

/// A function without dimension variables on a device.
#[derive(Debug)]
pub struct Executable {
    signature: Signature,
    runner: Runner,
}

/// What runs it.
#[derive(Debug)]
enum Runner {
    /// The graph interpreter.
    Graph(Function),
    /// The plan interpreter.
    Plan(Plan),
    /// The CPU's threads.
    Cpu(Box<CpuRunner>),
}

impl Executable {
    /// Compiles `function` of `program` for a binding.
    pub fn compile(
        device: Device,
        program: &Program,
        function: &Function,
        binding: &Binding,
    ) -> Result<Executable> {
        let bound = function.bind(binding)?;
        let signature = Signature::of_function(&bound);
        let runner = match device {
            Device::Interpreter => Runner::Graph(bound),
            Device::Cpu => {
                let options = Options::default();
                let plan = pipeline::compile(program, &function.name, binding, &Target::cpu(), &options)?;
                Runner::Cpu(Box::new(CpuRunner::new(&plan)?))
            }
        };
        Ok(Executable { signature, runner })
    }

    /// Takes a verified plan.
    pub fn load(device: Device, plan: Plan) -> Result<Executable> {
        let signature = Signature::of_plan(&plan);
        let runner = match device {
            // It follows the steps as they stand, whatever the target.
            Device::Interpreter => Runner::Plan(plan),
            Device::Cpu => Runner::Cpu(Box::new(CpuRunner::new(&plan)?)),
        };
        Ok(Executable { signature, runner })
    }

    /// What goes in and comes out.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Runs it. `given` are the inputs and keys in the signature's order, of its types; the `variables` that it reads are
    /// there and of its types. State outputs replace their variables; the others are returned in the signature's order.
    pub fn run(&self, given: &[Literal], variables: &mut Store) -> Result<Vec<Literal>> {
        match &self.runner {
            Runner::Cpu(runner) => runner.run(given, variables),
            Runner::Graph(function) => self.run_graph(function, given, variables),
            Runner::Plan(plan) => {
                let before: Vec<Option<Literal>> = plan
                    .variables
                    .iter()
                    .map(|v| v.before.and_then(|_| Some(variables.get(&v.name)?.to_literal())))
                    .collect();
                let run = plan::interpret(plan, given, &before)?;
                for (variable, value) in plan.variables.iter().zip(&run.variables) {
                    variables.set(&variable.name, value)?;
                }
                Ok(run.outputs)
            }
        }
    }

    fn run_graph(
        &self,
        function: &Function,
        given: &[Literal],
        variables: &mut Store,
    ) -> Result<Vec<Literal>> {
        let mut given = given.iter().cloned();
        let inputs = self.signature.inputs.iter().map(|input| match input.is_variable() {
            true => variables.get(&input.name).map(|stored| stored.to_literal()),
            false => given.next(),
        });
        let inputs = inputs.collect::<Option<Vec<_>>>().expect("the caller has checked that all are there");
        let mut returned = Vec::new();
        for (output, value) in self.signature.outputs.iter().zip(interpret::run(function, &inputs)?) {
            match output.role {
                OutputRole::State => variables.set(&output.name, &value)?,
                OutputRole::Output => returned.push(value),
            }
        }
        Ok(returned)
    }
}
