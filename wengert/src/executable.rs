//! A function made ready for a device.

use crate::data::Arrays;
use crate::device::Device;
use crate::signature::Signature;
use wengert_core::graph::{Function, OutputRole, Program};
use wengert_core::plan::{self, Plan};
use wengert_core::{Binding, Diagnostic, Literal, Result, interpret};

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
}

impl Executable {
    /// Compiles `function` of `program` for a binding.
    pub fn compile(
        device: Device,
        _program: &Program,
        function: &Function,
        binding: &Binding,
    ) -> Result<Executable> {
        let function = function.bind(binding)?;
        let signature = Signature::of_function(&function);
        match device {
            Device::Interpreter => Ok(Executable { signature, runner: Runner::Graph(function) }),
            Device::Cpu => {
                Err(Diagnostic::new("plans cannot be compiled for the CPU yet").help("use `interpreter`"))
            }
        }
    }

    /// Takes a verified plan.
    pub fn load(device: Device, plan: Plan) -> Result<Executable> {
        let signature = Signature::of_plan(&plan);
        match device {
            // It follows the steps as they stand, whatever the target.
            Device::Interpreter => Ok(Executable { signature, runner: Runner::Plan(plan) }),
            Device::Cpu => {
                Err(Diagnostic::new("plans cannot be run on the CPU yet").help("use `interpreter`"))
            }
        }
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
