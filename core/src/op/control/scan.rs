//! `scan`: a region, step after step.

use crate::build::inline::inline;
use crate::op::Iota;
use crate::op::batch::{RegionOutput, moved};
use crate::op::control::lockstep::alone;
use crate::op::control::parts::{Stack, check_step, part, part_of, stacked};
use crate::op::control::{emit, masked, region, stacked_results, wanted};
use crate::op::prelude::*;
use crate::op::varying::vary_as;

attributes! {
    /// `scan %c…, %x…, %k… {carries=1, captures=1, length=T} region (%c, %x, %k) { … }`
    ///
    /// Runs the region for each of the steps 0, 1, …, T − 1. Step t takes the carries of the step
    /// before (`%c` at first), part t of each sliced operand along its first axis, and the
    /// captures. It gives the carries for the next step, and parts t of the stacks. Results are
    /// the carries after the last step, then the stacks, whose first extent is T.
    Scan {
        /// The number of steps, T: the first extent of slices and stacks.
        length: Dim,
        /// Number of operands passed from step to step.
        carries: usize,
        /// Number of last operands that every step sees.
        captures: usize = 0,
        /// Whether the steps run from T − 1 to 0.
        reverse: bool = false,
        /// Whether the first operand, an i32 clamped to 0..=T, is the number of steps: only steps
        /// below it run. Parts of stacks of steps that do not run are 0.
        counted: bool = false,
        /// Reverse mode keeps the carries of at most this many steps and recomputes the others
        /// from them with the fewest step evaluations. 0: it keeps the residuals of each step.
        checkpoints: usize = 0,
    }
}

impl Operation for Scan {
    named!(
        "scan",
        "Runs a region for each step. The results are the carries after the last step, then the \
         stacks of the values that each step gives."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let parts = self.parts(t.operands)?;
        let is_count = |ty: &TensorType| ty.invariant() == TensorType::scalar(DType::I32);
        if let Some(count) = parts.count.filter(|ty| !is_count(ty)) {
            bail!("its count has type {count}"; help "it is an i32[]");
        }
        let [region] = t.exactly_regions()?;
        let slices =
            parts.slices.iter().map(|ty| part_of(ty, &self.length)).collect::<Result<Vec<_>>>()?;
        let inputs = [parts.carries, &slices, parts.captures].concat();
        let stacks = check_step("a step", region, &inputs, parts.carries)?;
        let stacks = stacks.iter().map(|ty| stacked(ty, &self.length));
        let results: Vec<TensorType> = parts.carries.iter().cloned().chain(stacks).collect();
        if let Some(count) = parts.count {
            vary_as(&count.varying, "its operands", &t.operands[1..])?;
            vary_as(&count.varying, "its results", &results)?;
        }
        Ok(results)
    }

    fn lockstep<R: Real>(&self, l: Lockstep<'_, R>) -> Result<Vec<Vec<Array<R>>>> {
        let length = self.length.as_constant().expect("the interpreter runs bound functions only");
        let ranks = l.all();
        let parts = l.operands.iter().map(|operands| self.parts(operands));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let count = |i: usize| {
            let count = parts[i].count;
            let count = count.map_or(length, |count| count.cells[0].bits().clamp(0, length));
            usize::try_from(count).expect("a length is not negative")
        };
        let counts: Vec<usize> = ranks.iter().map(|i| count(*i)).collect();
        let mut carries: Vec<Vec<Array<R>>> = parts.iter().map(|p| p.carries.to_vec()).collect();
        let stacks = |_: &usize| l.results[self.carries..].iter().map(Stack::new).collect();
        let mut stacks = ranks.iter().map(stacks).collect::<Result<Vec<Vec<Stack<R>>>>>()?;
        for step in 0..counts.iter().copied().max().unwrap_or(0) {
            let running: Vec<usize> = ranks.iter().copied().filter(|i| step < counts[*i]).collect();
            let at = |i: usize| if self.reverse { counts[i] - 1 - step } else { step };
            let mut taken = Vec::with_capacity(running.len());
            for i in &running {
                let slices = parts[*i].slices.iter().map(|whole| part(whole, at(*i)));
                let slices = slices.collect::<Result<Vec<_>>>()?;
                let carried = std::mem::take(&mut carries[*i]).into_iter();
                let captures = parts[*i].captures.iter().cloned();
                taken.push(carried.chain(slices).chain(captures).collect());
            }
            for (i, mut given) in running.iter().zip((l.run)(0, &running, taken)?) {
                let made = given.split_off(self.carries);
                carries[*i] = given;
                let written = stacks[*i].iter_mut().zip(&made);
                written.for_each(|(stack, part)| stack.write(at(*i), part));
            }
        }
        let results = carries.into_iter().zip(stacks);
        Ok(results
            .map(|(c, s)| c.into_iter().chain(s.into_iter().map(Stack::finish)).collect())
            .collect())
    }

    by_regions!(1..=1);
}

impl Scan {
    fn batched(&self, b: &Batch<'_>) -> Result<Vec<Tensor>> {
        let parts = self.parts(b.operands)?;
        let flags = self.parts(b.batched)?;
        if let (Some(count), Some(true)) = (parts.count, flags.count) {
            return self.batched_count(b, count);
        }
        // A carry is batched once it depends on a batched value.
        let mut carried = flags.carries.to_vec();
        let (region, made) = loop {
            let taken = [carried.as_slice(), flags.slices, flags.captures].concat();
            let wanted = wanted(&carried, b.results.len() - self.carries);
            let (region, made) = (b.map_region)(&b.regions[0], &taken, &wanted)?;
            if made[..self.carries] == carried {
                break (region, made);
            }
            carried = made[..self.carries].to_vec();
        };
        let first = usize::from(self.counted);
        let operand = |i: usize| match i.checked_sub(first) {
            Some(c) if c < self.carries && carried[c] => b.operand(i),
            Some(c)
                if c >= self.carries && c < self.carries + parts.slices.len() && b.batched[i] =>
            {
                moved(&b.operands[i], 0, 1)
            }
            _ => b.operands[i].clone(),
        };
        let operands: Vec<Tensor> = (0..b.operands.len()).map(operand).collect();
        let results = emit(self.clone(), &operands, vec![region])?;
        Ok(stacked_results(b, self.carries, &results, &made))
    }

    /// If the number of steps differs between examples, all steps run, and the excess ones change
    /// nothing.
    fn batched_count(&self, b: &Batch<'_>, count: &Tensor) -> Result<Vec<Tensor>> {
        let (parts, flags) = (self.parts(b.operands)?, self.parts(b.batched)?);
        let flags = [&vec![true; self.carries], flags.slices, flags.captures].concat();
        let all = vec![true; b.results.len()];
        let (mapped, _) =
            (b.map_region)(&b.regions[0], &flags, &vec![RegionOutput::Batched; all.len()])?;
        let steps = TensorType::new(DType::I32, [self.length.clone()]);
        let numbers = Tensor::apply(Iota { dtype: DType::I32, shape: steps.shape, axis: 0 }, &[]);
        // The region takes carries, slices, the number of the step, captures, the counts.
        let mut types = mapped.types(&mapped.inputs);
        let (at, last) = (types.len() - parts.captures.len(), types.len() + 1);
        types.insert(at, TensorType::scalar(DType::I32));
        types.push(count.ty().clone());
        let body = region(&types, |inputs| {
            let (number, counts) = (&inputs[at], &inputs[last]);
            let running = number.broadcast_in_dim(counts.shape().to_vec(), &[]).lt(counts);
            let inputs = [&inputs[..at], &inputs[at + 1..last]].concat();
            Ok(masked(&running, &inputs, &inline(&mapped, &inputs)?, self.carries))
        })?;
        let op = Scan { counted: false, captures: self.captures + 1, ..self.clone() };
        let slice = |i: usize| {
            if b.batched[i] { moved(&b.operands[i], 0, 1) } else { b.operands[i].clone() }
        };
        let mut operands: Vec<Tensor> = (1..=self.carries).map(|i| b.operand(i)).collect();
        operands.extend((1 + self.carries..1 + self.carries + parts.slices.len()).map(slice));
        operands.push(numbers);
        operands.extend(parts.captures.iter().cloned());
        operands.push(count.clone());
        let results = emit(op, &operands, vec![body.into()])?;
        Ok(stacked_results(b, self.carries, &results, &all))
    }
}
