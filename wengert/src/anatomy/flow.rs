//! The flow of data between equations: where each operand comes from.

use wengert_core::graph::{Body, Function};
use wengert_core::id::IdVec;

/// The source of a value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Origin {
    /// The function's input of this number.
    Input(usize),
    /// A result of the equation of this number.
    Equation(usize),
    /// The value of a region or a callee that no single value outside stands for.
    Inside,
}

/// The sources of the operands of every equation, by its number, and those of the function's
/// outputs.
pub(super) struct Flow {
    pub operands: Vec<Vec<Origin>>,
    pub outputs: Vec<Origin>,
}

impl Flow {
    pub fn of(function: &Function) -> Flow {
        let mut flow = Flow { operands: Vec::new(), outputs: Vec::new() };
        for callee in function.body.callees() {
            flow.body(callee.body, vec![Origin::Inside; callee.body.inputs.len()]);
        }
        let inputs = (0..function.inputs.len()).map(Origin::Input).collect();
        flow.outputs = flow.body(&function.body, inputs);
        flow
    }

    /// Adds the equations of a body. Returns the sources of its outputs.
    fn body(&mut self, body: &Body, inputs: Vec<Origin>) -> Vec<Origin> {
        let mut origins: IdVec<_, Origin> = body.values.ids().map(|_| Origin::Inside).collect();
        for (value, origin) in body.inputs.iter().zip(inputs) {
            origins[*value] = origin;
        }
        for equation in &body.equations {
            let number = self.operands.len();
            let operands: Vec<Origin> = equation.operands.iter().map(|v| origins[*v]).collect();
            self.operands.push(operands.clone());
            if equation.op.callee().is_none() {
                for (k, region) in equation.regions.iter().enumerate() {
                    let given = |i: usize| {
                        use wengert_core::op::RegionInput::{AtStep, Operand};
                        match equation.op.region_input(operands.len(), k, i) {
                            Some(Operand(n) | AtStep(n)) => operands[n],
                            None => Origin::Inside,
                        }
                    };
                    let inputs = (0..region.inputs.len()).map(given).collect();
                    self.body(region, inputs);
                }
            }
            for result in &equation.results {
                origins[*result] = Origin::Equation(number);
            }
        }
        body.outputs.iter().map(|v| origins[*v]).collect()
    }
}
