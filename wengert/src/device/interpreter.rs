//! The interpreters: of graphs for functions, of plans for plans.

use super::{Backend, PlanMemory, PreparedFunction};
use crate::outputs::Returned;
use crate::signature::is_variable;
use crate::store::Store;
use wengert_compiler::pipeline::Sources;
use wengert_core::graph::{Function, OutputRole};
use wengert_core::plan::{self, Plan};
use wengert_core::{Literal, Result, Target, Verified, interpret};

/// The interpreters. They run a plan of any target.
#[derive(Debug)]
pub struct InterpreterBackend;

impl Backend for InterpreterBackend {
    fn target(&self) -> Result<Target> {
        Ok(Target::cpu())
    }

    fn plan_memory(&self, plan: &Plan) -> PlanMemory {
        PlanMemory { bytes: plan::peak_bytes(plan), arena_quarters: 4 }
    }

    fn prepare(
        &self,
        plan: Verified<Plan>,
        _: Option<Sources>,
        work_limit: u64,
    ) -> Result<Box<dyn PreparedFunction>> {
        Ok(Box::new(InterpretedPlan { plan, work_limit }))
    }

    fn prepare_graph(&self, function: &Function) -> Option<Box<dyn PreparedFunction>> {
        Some(Box::new(InterpretedFunction(function.clone())))
    }
}

struct InterpretedFunction(Function);

impl PreparedFunction for InterpretedFunction {
    fn run(&mut self, given: &[Literal], variables: &mut Store) -> Result<Returned> {
        let function = &self.0;
        let mut given = given.iter().cloned();
        let inputs = function.inputs.iter().map(|input| match is_variable(input.role) {
            true => variables
                .get(&input.name)
                .expect("the caller has checked that all are there")
                .to_literal(),
            false => Ok(given.next().expect("the caller has checked that all are there")),
        });
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        let mut returned = Vec::new();
        for (output, value) in function.outputs.iter().zip(interpret::run(function, &inputs)?) {
            match output.role {
                OutputRole::State => variables.set(&output.name, &value)?,
                OutputRole::Output => returned.push(value),
            }
        }
        Ok(Returned::now(returned))
    }
}

struct InterpretedPlan {
    plan: Verified<Plan>,
    /// Most operations of one run.
    work_limit: u64,
}

impl PreparedFunction for InterpretedPlan {
    fn run(&mut self, given: &[Literal], variables: &mut Store) -> Result<Returned> {
        let before =
            self.plan.variables.iter().map(|v| {
                v.before.and_then(|_| Some(variables.get(&v.name)?.to_literal())).transpose()
            });
        let before: Vec<Option<Literal>> = before.collect::<Result<_>>()?;
        let run = plan::interpret_within(&self.plan, given, &before, self.work_limit)?;
        for (variable, value) in self.plan.variables.iter().zip(&run.variables) {
            variables.set(&variable.name, value)?;
        }
        Ok(Returned::now(run.outputs))
    }
}
