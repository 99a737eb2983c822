//! `while`: a region that runs as long as a condition holds.

use crate::build::inline::inline;
use crate::op::batch::RegionOutput;
use crate::op::control::lockstep::alone;
use crate::op::control::parts::{Stack, check_step, stacked};
use crate::op::control::{emit, masked, region, stacked_results, wanted};
use crate::op::prelude::*;
use crate::op::varying::vary_as;
use crate::op::{Reduce, ReduceKind};

attributes! {
    /// `while %c…, %k… {captures=1, max_steps=100} region (%c, %k) -> bool[] region (%c, %k) { … }`
    ///
    /// As long as the first region, the condition, gives true for the carries and the captures,
    /// the second takes a step: it gives the next carries, and parts of stacks. Results are the
    /// carries when the condition fails or `max_steps` steps have been taken, then the stacks,
    /// which are 0 after the last step.
    ///
    /// Reverse mode keeps residuals of each step, so it needs `max_steps`, or `checkpoints`.
    /// Stacks need `max_steps`.
    While {
        /// Number of last operands that every step sees.
        captures: usize = 0,
        /// Bound of the number of steps; absent: 2³¹ − 1.
        max_steps: Option<Dim> = None,
        /// Reverse mode keeps the carries of at most this many steps and recomputes the others
        /// from them with the fewest step evaluations. 0: it keeps the residuals of each step.
        checkpoints: usize = 0,
    }
}

impl While {
    /// The largest number of steps without `max_steps`: steps are counted in i32.
    pub const LIMIT: u64 = i32::MAX as u64;

    /// The largest number of steps, if it has no dimension variables.
    pub fn limit(&self) -> u64 {
        let steps = self.max_steps.as_ref().and_then(Dim::as_constant);
        steps.map_or(Self::LIMIT, |steps| u64::try_from(steps).unwrap_or(0).min(Self::LIMIT))
    }
}

impl Operation for While {
    named!(
        "while",
        "Runs a region on the carries until a condition fails, at most `max_steps` times. The \
         results are the last carries, then the stacks."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let parts = self.parts(t.operands)?;
        let [condition, step] = t.exactly_regions()?;
        let predicate = check_step("the condition", condition, t.operands, &[])?;
        let varying = match predicate.as_slice() {
            [ty] if ty.invariant() == TensorType::scalar(DType::Bool) => &ty.varying,
            found => {
                bail!("the condition gives ({})", listed(found); help "it gives one bool[]");
            }
        };
        let stacks = check_step("a step", step, t.operands, parts.carries)?;
        let stacks = match &self.max_steps {
            Some(length) => stacks.iter().map(|ty| stacked(ty, length)).collect(),
            None if stacks.is_empty() => vec![],
            None => {
                bail!("stacks have no extent: the number of steps has no bound";
                    help "give `max_steps`");
            }
        };
        let results: Vec<TensorType> = parts.carries.iter().cloned().chain(stacks).collect();
        vary_as(varying, "its operands", t.operands)?;
        vary_as(varying, "its results", &results)?;
        Ok(results)
    }

    fn lockstep<R: Real>(&self, l: Lockstep<'_, R>) -> Result<Vec<Vec<Array<R>>>> {
        let mut running = l.all();
        let parts = l.operands.iter().map(|operands| self.parts(operands));
        let count = parts.collect::<Result<Vec<_>>>()?.first().map_or(0, |p| p.carries.len());
        let stacks = |_: &usize| l.results[count..].iter().map(Stack::new).collect();
        let mut stacks = running.iter().map(stacks).collect::<Result<Vec<Vec<Stack<R>>>>>()?;
        let mut taken = l.operands.clone();
        let limit = usize::try_from(self.limit()).unwrap_or(usize::MAX);
        for step in 0..limit {
            let operands = |running: &[usize]| running.iter().map(|i| taken[*i].clone()).collect();
            let goes_on = (l.run)(0, &running, operands(&running))?;
            let mut goes_on = goes_on.iter().map(|given| given[0].cells[0].is_true());
            running.retain(|_| goes_on.next().expect("each rank gives its condition"));
            if running.is_empty() {
                break;
            }
            for (i, mut carries) in running.iter().zip((l.run)(1, &running, operands(&running))?) {
                let made = carries.split_off(count);
                let written = stacks[*i].iter_mut().zip(&made);
                written.for_each(|(stack, part)| stack.write(step, part));
                taken[*i].splice(..count, carries);
            }
        }
        let results = taken.into_iter().zip(stacks).map(|(mut taken, stacks)| {
            taken.truncate(count);
            taken.into_iter().chain(stacks.into_iter().map(Stack::finish)).collect()
        });
        Ok(results.collect())
    }

    by_regions!(2..=2);
}

impl While {
    fn batched(&self, b: &Batch<'_>) -> Result<Vec<Tensor>> {
        let flags = self.parts(b.batched)?;
        let count = flags.carries.len();
        let stacks = b.results.len() - count;
        let mut carried = flags.carries.to_vec();
        let (condition, step, made) = loop {
            let taken = [carried.as_slice(), flags.captures].concat();
            let (condition, differs) =
                (b.map_region)(&b.regions[0], &taken, &[RegionOutput::AsItIs])?;
            if differs[0] {
                return self.batched_condition(b);
            }
            let wanted = wanted(&carried, stacks);
            let (step, made) = (b.map_region)(&b.regions[1], &taken, &wanted)?;
            if made[..count] == carried {
                break (condition, step, made);
            }
            carried = made[..count].to_vec();
        };
        let operand =
            |i: usize| if i < count && carried[i] { b.operand(i) } else { b.operands[i].clone() };
        let operands: Vec<Tensor> = (0..b.operands.len()).map(operand).collect();
        let results = emit(self.clone(), &operands, vec![condition, step])?;
        Ok(stacked_results(b, count, &results, &made))
    }

    /// If examples stop at different steps, the loop runs until the last one stops, and a step
    /// changes only the examples still running.
    fn batched_condition(&self, b: &Batch<'_>) -> Result<Vec<Tensor>> {
        let flags = self.parts(b.batched)?;
        let count = flags.carries.len();
        let taken = [vec![true; count], flags.captures.to_vec()].concat();
        let (condition, _) = (b.map_region)(&b.regions[0], &taken, &[RegionOutput::Batched])?;
        let (step, _) =
            (b.map_region)(&b.regions[1], &taken, &vec![RegionOutput::Batched; b.results.len()])?;
        let types = condition.types(&condition.inputs);
        let any = region(&types, |inputs| {
            let goes_on = inline(&condition, inputs)?;
            Ok(Tensor::apply_many(Reduce::new(ReduceKind::Or, [0]), &[&goes_on[0]]))
        })?;
        let masked = region(&types, |inputs| {
            let goes_on = inline(&condition, inputs)?.swap_remove(0);
            Ok(masked(&goes_on, inputs, &inline(&step, inputs)?, count))
        })?;
        let operand = |i: usize| if i < count { b.operand(i) } else { b.operands[i].clone() };
        let operands: Vec<Tensor> = (0..b.operands.len()).map(operand).collect();
        let results = emit(self.clone(), &operands, vec![any.into(), masked.into()])?;
        Ok(stacked_results(b, count, &results, &vec![true; b.results.len()]))
    }
}
