//! A function made ready for a device.

mod cpu;

use crate::data::Arrays;
use crate::device::Device;
use crate::signature::Signature;
use cpu::CpuRunner;
use wengert_compiler::pipeline;
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
    Cpu(CpuRunner),
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
                let options = pipeline::Options::default();
                let plan = pipeline::compile(program, &function.name, binding, &Target::cpu(), &options)?;
                Runner::Cpu(CpuRunner::new(&plan)?)
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
            Device::Cpu => Runner::Cpu(CpuRunner::new(&plan)?),
        };
        Ok(Executable { signature, runner })
    }

    /// What goes in and comes out.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Runs it. `given` are the inputs and keys in the signature's order, of its types; the `variables` that it reads are
    /// there and of its types. State outputs replace their variables; the others are returned in the signature's order. On
    /// an error the variables are as they were.
    pub fn run(&self, given: &[Literal], variables: &mut Arrays) -> Result<Vec<Literal>> {
        match &self.runner {
            Runner::Cpu(runner) => runner.run(given, variables),
            Runner::Graph(function) => {
                let mut given = given.iter();
                let inputs = self.signature.inputs.iter().map(|input| match input.is_variable() {
                    true => variables[&input.name].clone(),
                    false => given.next().expect("as many are given as the signature has").clone(),
                });
                let results = interpret::run(function, &inputs.collect::<Vec<_>>())?;
                let mut returned = Vec::new();
                for (output, value) in self.signature.outputs.iter().zip(results) {
                    match output.role {
                        OutputRole::State => drop(variables.insert(output.name.clone(), value)),
                        OutputRole::Output => returned.push(value),
                    }
                }
                Ok(returned)
            }
            Runner::Plan(plan) => {
                let before: Vec<Option<Literal>> = plan
                    .variables
                    .iter()
                    .map(|v| v.before.is_some().then(|| variables[&v.name].clone()))
                    .collect();
                let run = plan::interpret(plan, given, &before)?;
                for (variable, value) in plan.variables.iter().zip(run.variables) {
                    variables.insert(variable.name.clone(), value);
                }
                Ok(run.outputs)
            }
        }
    }
}
