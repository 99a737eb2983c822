//! Sums of products over the steps of a loop, as one product after it.
//!
//! The cotangent of a captured matrix is a sum over the steps, K̄ = Σₜ Aₜᵀ·Bₜ. For a recurrent
//! weight, Aₜ is the state of each step and Bₜ the gates' cotangents. Carried from step to step,
//! each term is a small product that reads and writes all of K̄. But Σ is a contraction itself:
//! if the Aₜ and the Bₜ are stacked, K̄ is one product that contracts over the steps too, and the
//! loop carries nothing.
//!
//! That takes the memory of the stacks. So it is done where one factor of each term is a row of a
//! stack that exists already: the tape, or an operand of the loop. The other factor is computed
//! by the step, and is stacked. So the new stacks are comparable in size to existing ones. Loops
//! with checkpoints instead of a tape are excluded. So are loops whose number of steps is known
//! at run time only, since the product would include steps that did not run.

use super::pruned;
use crate::autodiff::unpoisoned;
use wengert_core::build::Closure;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::op::{Binary, DotGeneral};
use wengert_core::{Op, Result, Tensor};

/// A sum that a step would carry, computed after the loop instead.
pub(super) struct Sum {
    /// The number of the carry.
    pub carry: usize,
    terms: Vec<Term>,
}

/// A product of two stacks, and the ops applied to it.
struct Term {
    product: DotGeneral,
    factors: [Factor; 2],
    /// Linear ops of one operand and one result, in order.
    then: Vec<Op>,
}

/// A stack.
#[derive(Clone, Copy)]
enum Factor {
    /// The loop slices it: its number among the slices.
    Slice(usize),
    /// The loop stacks it: its number among the stacks.
    Stack(usize),
}

/// Removes sums of products from a step. `carries` are the step's first inputs and outputs; those
/// from number `first` on are sums that begin with zero. The rows of `slices` stacks follow. The
/// removed sums are no longer inputs and outputs. The stacks that they need are further outputs,
/// after all others.
pub(super) fn taken_out(
    closure: Closure,
    first: usize,
    carries: usize,
    slices: usize,
) -> (Closure, Vec<Sum>) {
    let mut closure = closure;
    let mut sums = Vec::new();
    for carry in (first..carries).rev() {
        let step = Step { body: &closure.body, carries, slices };
        let Some(terms) = step.terms(carry) else { continue };
        // Outputs after the carries are stacks; a factor that is one already is not stacked
        // again.
        let mut stacked: Vec<ValueId> = closure.body.outputs[carries..].to_vec();
        let mut factor = |found: Found| match found {
            Found::Slice(n) => Factor::Slice(n),
            Found::Made(value) => {
                Factor::Stack(stacked.iter().position(|v| *v == value).unwrap_or_else(|| {
                    stacked.push(value);
                    stacked.len() - 1
                }))
            }
        };
        let terms = terms.into_iter().map(|(product, [a, b], then)| Term {
            product,
            factors: [factor(a), factor(b)],
            then,
        });
        sums.push(Sum { carry, terms: terms.collect() });
        closure.body.outputs.splice(carries.., stacked);
    }
    // From the last, so that the other positions stay valid.
    for sum in &sums {
        closure.body.inputs.remove(sum.carry);
        closure.body.outputs.remove(sum.carry);
    }
    let closure = if sums.is_empty() { closure } else { pruned(closure) };
    sums.reverse();
    (closure, sums)
}

impl Sum {
    /// The sum, from the loop's whole slices and stacks.
    pub fn of(&self, slices: &[Tensor], stacks: &[Tensor]) -> Result<Tensor> {
        let whole = |factor: Factor| match factor {
            Factor::Slice(n) => &slices[n],
            Factor::Stack(n) => &stacks[n],
        };
        let mut sum: Option<Tensor> = None;
        for term in &self.terms {
            let [a, b] = term.factors.map(whole);
            let product = Tensor::apply(over_steps(&term.product), &[a, b]);
            let term = term.then.iter().fold(product, |t, op| Tensor::apply(op.clone(), &[&t]));
            sum = Some(match sum {
                Some(sum) => Tensor::apply(Binary::Add, &[&sum, &term]),
                None => term,
            });
        }
        let sum = sum.expect("a sum has a term");
        unpoisoned([&sum]).map(|()| sum)
    }
}

/// The product of stacks that sums the products of their rows.
fn over_steps(op: &DotGeneral) -> DotGeneral {
    let behind = |axes: &[usize]| axes.iter().map(|axis| axis + 1).collect::<Vec<usize>>();
    let with_steps =
        |axes: &[usize]| std::iter::once(0).chain(behind(axes)).collect::<Vec<usize>>();
    DotGeneral {
        contract: (with_steps(&op.contract.0), with_steps(&op.contract.1)),
        batch: (behind(&op.batch.0), behind(&op.batch.1)),
        result: op.result,
    }
}

/// A factor within the step.
#[derive(Clone, Copy)]
enum Found {
    Slice(usize),
    Made(ValueId),
}

type FoundTerm = (DotGeneral, [Found; 2], Vec<Op>);

struct Step<'a> {
    body: &'a Body,
    carries: usize,
    slices: usize,
}

impl Step<'_> {
    /// The products whose sum is added to a carry, if the carry has no other use.
    fn terms(&self, carry: usize) -> Option<Vec<FoundTerm>> {
        let sum = self.body.inputs[carry];
        if self.uses(sum) != 1 {
            return None;
        }
        let mut terms = Vec::new();
        let mut seen = false;
        self.collect(self.body.outputs[carry], sum, &mut seen, &mut terms)?;
        (seen && !terms.is_empty()).then_some(terms)
    }

    /// Decomposes a sum into the carry and products; `None` if it has other terms.
    fn collect(
        &self,
        value: ValueId,
        sum: ValueId,
        seen: &mut bool,
        terms: &mut Vec<FoundTerm>,
    ) -> Option<()> {
        if value == sum {
            *seen = true;
            return Some(());
        }
        let equation = self.maker(value)?;
        if self.uses(value) != 1 {
            return None;
        }
        if matches!(equation.op, Op::Binary(Binary::Add)) {
            return equation.operands.iter().try_for_each(|v| self.collect(*v, sum, seen, terms));
        }
        terms.push(self.product(value)?);
        Some(())
    }

    fn product(&self, value: ValueId) -> Option<FoundTerm> {
        let (mut then, mut value) = (Vec::new(), value);
        loop {
            let equation = self.maker(value).filter(|_| self.uses(value) == 1)?;
            match &equation.op {
                Op::DotGeneral(product) => {
                    let factors =
                        [self.factor(equation.operands[0])?, self.factor(equation.operands[1])?];
                    then.reverse();
                    let has_slice = factors.iter().any(|f| matches!(f, Found::Slice(_)));
                    return has_slice.then(|| (product.clone(), factors, then));
                }
                Op::Permute(_) | Op::Reshape(_) | Op::ConvertElementType(_) => {
                    then.push(equation.op.clone())
                }
                _ => return None,
            }
            value = equation.operands[0];
        }
    }

    /// The factor for a value that differs from step to step: not a capture, and not a sum.
    fn factor(&self, value: ValueId) -> Option<Found> {
        match self.body.inputs.iter().position(|v| *v == value) {
            None => Some(Found::Made(value)),
            Some(n) => n.checked_sub(self.carries).filter(|n| *n < self.slices).map(Found::Slice),
        }
    }

    fn maker(&self, value: ValueId) -> Option<&Equation> {
        self.body.equations.iter().find(|e| e.results.contains(&value))
    }

    fn uses(&self, value: ValueId) -> usize {
        let operands = self.body.equations.iter().flat_map(|e| &e.operands);
        operands.chain(&self.body.outputs).filter(|v| **v == value).count()
    }
}
