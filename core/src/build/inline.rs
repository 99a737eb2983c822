//! Inlining a body: its equations are emitted in order on given tensors, each with its own
//! location.

use super::Scope;
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::graph::{Body, ValueId};
use crate::id::IdVec;
use crate::mesh::Varying;
use crate::op::{Op, PVary};

/// The outputs of `body` for `operands`, one for each input.
///
/// The body's locations must be those of the function being built, as for a region. Equations go
/// to the innermost scope among those of their operands. Operands may vary over more axes of the
/// mesh than the inputs: what `pvary` adds is then less, or nothing.
pub fn inline(body: &Body, operands: &[Tensor]) -> Result<Vec<Tensor>> {
    assert_eq!(operands.len(), body.inputs.len(), "inline: a tensor for each input");
    let scope = Scope::current()
        .ok_or_else(|| Diagnostic::new("there is no function to put a body's equations in"))?;
    let mut values: IdVec<ValueId, Option<Tensor>> = body.values.ids().map(|_| None).collect();
    for (input, operand) in body.inputs.iter().zip(operands) {
        values[*input] = Some(operand.clone());
    }
    let of = |values: &IdVec<ValueId, Option<Tensor>>, v: ValueId| {
        values[v].clone().expect("a body defines values before their use")
    };
    for equation in &body.equations {
        let operands: Vec<Tensor> = equation.operands.iter().map(|v| of(&values, *v)).collect();
        let location = scope.location(equation.location);
        let results = match &equation.op {
            Op::PVary(op) => {
                let missing = Varying::over(&op.over).without(&operands[0].ty().varying);
                let op = PVary { over: missing.names() };
                match missing.is_empty() {
                    true => operands,
                    false => Scope::emit(op.into(), &operands, vec![], location)?,
                }
            }
            op => Scope::emit(op.clone(), &operands, equation.regions.clone(), location)?,
        };
        for (value, result) in equation.results.iter().zip(results) {
            values[*value] = Some(result);
        }
    }
    Ok(body.outputs.iter().map(|v| of(&values, *v)).collect())
}

/// The outputs of [`inline`], or poison for each on an error.
pub(crate) fn inline_or_poison(body: &Body, operands: &[Tensor]) -> Vec<Tensor> {
    inline(body, operands).unwrap_or_else(|error| vec![Tensor::poisoned(error); body.outputs.len()])
}
