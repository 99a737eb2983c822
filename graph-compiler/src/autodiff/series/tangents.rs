//! The op's own derivative, as a graph of nodes: the rule is run on symbols, and the equations
//! that it emits become ordinary nodes.

use super::{Applied, Nodes, Rule, Tangents, Value};
use crate::autodiff::activity::Activity;
use crate::autodiff::{control, custom, record};
use std::rc::Rc;
use wengert_core::build::Closure;
use wengert_core::op::derivative::Jvp;
use wengert_core::{Result, TensorType};

impl Nodes {
    /// The rule for the members of a product, if the op is linear in each operand that moves;
    /// otherwise it is nonlinear.
    pub(super) fn product(
        &mut self,
        applied: &Applied,
        types: &[TensorType],
        moving: &[usize],
        rule: Tangents,
    ) -> Result<Rule> {
        let mut factors = Vec::new();
        for i in moving {
            let (closure, _) = self.traced(applied, types, &[*i], rule)?;
            let Some(closure) = closure else { return Ok(Rule::Nonlinear(rule)) };
            // Only the op itself may be linear in one operand. A rule that reads the result reads
            // that of other operands.
            let live = Activity::live(&closure.body);
            let results = applied.operands.len()..applied.operands.len() + types.len();
            if closure.body.inputs[results].iter().any(|v| live[*v]) {
                return Ok(Rule::Nonlinear(rule));
            }
            factors.push((*i, Some(closure)));
        }
        Ok(Rule::Product(Rc::new(factors)))
    }

    /// The derivative of each result as a value: the rule's graph on the operands, the results
    /// themselves, and the operands' derivatives.
    pub(super) fn solve(
        &mut self,
        node: usize,
        applied: &Applied,
        rule: Tangents,
    ) -> Result<Vec<Option<Value>>> {
        let operands = &applied.operands;
        let moving: Vec<usize> = (0..operands.len()).filter(|i| self.moves(operands[*i])).collect();
        let types = self.nodes[node].types.clone();
        let (closure, present) = self.traced(applied, &types, &moving, rule)?;
        let Some(closure) = closure else { return Ok(vec![None; types.len()]) };
        let mut inputs = operands.clone();
        inputs.extend((0..types.len()).map(|result| Value { node, result, order: 0 }));
        inputs
            .extend(moving.iter().map(|i| Value { order: operands[*i].order + 1, ..operands[*i] }));
        let mut outputs = self.outputs(&closure, &inputs)?.into_iter();
        Ok(present.iter().map(|present| present.then(|| outputs.next()).flatten()).collect())
    }

    /// The rule as a closure of the operands, the results, and the tangents of the operands that
    /// move, and whether each result has a tangent. The closure is `None` if no result has one.
    fn traced(
        &self,
        applied: &Applied,
        results: &[TensorType],
        moving: &[usize],
        rule: Tangents,
    ) -> Result<(Option<Closure>, Vec<bool>)> {
        let operands: Vec<TensorType> =
            applied.operands.iter().map(|v| self.ty(*v).clone()).collect();
        let tangents = moving.iter().map(|i| operands[*i].clone());
        let types: Vec<TensorType> =
            operands.iter().chain(results).cloned().chain(tangents).collect();
        let equation = &applied.equation;
        let mut present = Vec::new();
        let mut record = || {
            record(&types, |inputs| {
                let (operands, rest) = inputs.split_at(operands.len());
                let (results, given) = rest.split_at(results.len());
                let mut tangents = vec![None; operands.len()];
                moving.iter().zip(given).for_each(|(i, t)| tangents[*i] = Some(t.clone()));
                let tangents = match rule {
                    Tangents::Own(jvp) => {
                        let (op, regions) = (&equation.op, &equation.regions);
                        jvp(&Jvp { op, operands, results, tangents: &tangents, regions })
                    }
                    Tangents::Control => control::tangents(
                        &self.scope,
                        equation,
                        operands,
                        &tangents,
                        results.len(),
                    )?,
                    Tangents::Custom(rule) => custom::tangents(
                        &self.scope,
                        equation,
                        rule,
                        operands,
                        results,
                        &tangents,
                        false,
                    )?,
                };
                present = tangents.iter().map(Option::is_some).collect();
                Ok(tangents.into_iter().flatten().collect())
            })
        };
        let closure = match rule {
            Tangents::Own(_) => self.scope.derived(
                equation.location,
                format!("jvp({})", equation.op.name()),
                record,
            )?,
            // A region's equations have locations of their own.
            Tangents::Custom(_) | Tangents::Control => record()?,
        };
        Ok((Some(closure).filter(|_| present.contains(&true)), present))
    }
}
