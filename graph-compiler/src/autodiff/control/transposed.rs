//! Transposition of `scan`.
//!
//! The steps of a linear loop are `c' = A·c + B·x + C·k`, `y = D·c + E·x + F·k` with matrices
//! that may differ from step to step. Its transpose runs in the other direction: it takes c̄' and
//! ȳ of a step and returns c̄, x̄ and the step's term of k̄. So c̄ is carried, x̄ is stacked, and
//! k̄ is a carried sum. A sum of products is instead one product after the loop (`products.rs`).
//!
//! Carries that are not linear (a counter beside a linear state) need their values of the forward
//! direction: a scan of their own computes them first, and they are sliced like a tape.

use super::products::taken_out;
use super::{
    Activity, Operand, binomial, derived, innermost, kept, opened, or_zeros, part, present, pruned,
    reached, reached_carries, spread, types,
};
use crate::autodiff::add;
use crate::autodiff::jvp::zeros;
use crate::autodiff::transpose::{transpose as transpose_body, verify_linear};
use wengert_core::build::Scope;
use wengert_core::build::inline;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::op::{Control, Scan};
use wengert_core::{Location, LocationId, Result, Tensor, TensorType};

/// Checks that the regions of a construct are linear in the marked operands.
pub(in crate::autodiff) fn verify(
    equation: &Equation,
    linear: &[bool],
    location: &dyn Fn(LocationId) -> Location,
) -> Result<()> {
    let control = equation.op.control();
    let (regions, inputs) = match control.unwrap_or(Control::Branch) {
        // A checkpointed function takes all of its operands.
        _ if control.is_none() => (&equation.regions[..], linear.to_vec()),
        Control::Branch => (&equation.regions[..], linear[1..].to_vec()),
        Control::Scan(op) => {
            let linear = &linear[usize::from(op.counted)..];
            let carries = reached_carries(&equation.regions[0], op.carries, linear);
            (&equation.regions[..], [&carries, &linear[op.carries..]].concat())
        }
        Control::While(op) => {
            let carries = op.parts(linear)?.carries.len();
            let linear_ones = reached_carries(&equation.regions[1], carries, linear);
            (&equation.regions[1..], [&linear_ones, &linear[carries..]].concat())
        }
    };
    for region in regions {
        let (mut body, count) = reordered(region, &inputs);
        // Other outputs are known, e.g. a counter.
        body.outputs = kept(&region.outputs, &reached(region, &inputs));
        verify_linear(&body, count, location)?;
    }
    Ok(())
}

/// The body with the linear inputs in front, and their number.
pub(super) fn reordered(body: &Body, linear: &[bool]) -> (Body, usize) {
    let mut body = body.clone();
    let not: Vec<bool> = linear.iter().map(|l| !l).collect();
    let first: Vec<ValueId> = kept(&body.inputs, linear);
    let count = first.len();
    body.inputs = [first, kept(&body.inputs, &not)].concat();
    (body, count)
}

pub(super) fn transpose(
    scope: &Scope,
    equation: &Equation,
    op: &Scan,
    operands: &[Operand],
    cotangents: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let step = &equation.regions[0];
    let first = usize::from(op.counted);
    let count: Vec<Tensor> = present(&operands[..first]);
    let operands = &operands[first..];
    let slices = operands.len() - op.carries - op.captures;
    let linear_operands = super::linear(operands);
    let carries = reached_carries(step, op.carries, &linear_operands);
    let linear = [&carries, &linear_operands[op.carries..]].concat();
    let input_types = step.types(&step.inputs);

    // Values of the known carries, at the beginning of each step.
    let known_carries: Vec<bool> = carries.iter().map(|l| !l).collect();
    if op.checkpoints > 0 && known_carries.contains(&true) {
        let site = binomial::Loop { scope, equation, op, count: count.first(), linear: &linear };
        let mut all = vec![None; first];
        let cotangents = site.transpose(operands, cotangents)?;
        all.extend(cotangents.into_iter().zip(&linear_operands).map(|(c, l)| c.filter(|_| *l)));
        return Ok(all);
    }
    let history = history(scope, equation, op, operands, &known_carries, &count)?;

    let outer =
        innermost(present(operands).iter().chain(cotangents.iter().flatten()).chain(&history))?;
    let (carried, stacked) = cotangents.split_at(op.carries);
    let is_linear =
        |range: std::ops::Range<usize>| range.filter(|i| linear[*i]).collect::<Vec<usize>>();
    let in_carries = is_linear(0..op.carries);
    let in_captures = is_linear(op.carries + slices..linear.len());
    let mut initial = Vec::new();
    for i in &in_carries {
        initial.push(or_zeros(carried[*i].as_ref(), &input_types[*i])?);
    }
    for i in &in_captures {
        initial.push(zeros(&input_types[*i])?);
    }
    let known_slices = present(&operands[op.carries..op.carries + slices]);
    let sliced = [present(stacked), history, known_slices].concat();
    let parts: Vec<TensorType> = sliced.iter().map(|t| part(t.ty())).collect();
    let (inside, inputs) = opened(outer.child(), &[types(&initial), parts].concat());
    let (sums, rest) = inputs.split_at(initial.len());
    let (next, sums) = sums.split_at(in_carries.len());
    let (made, known) = rest.split_at(stacked.iter().flatten().count());
    // The step's known inputs, in order: carries, slices, captures.
    let known: Vec<Tensor> =
        known.iter().cloned().chain(present(&operands[op.carries + slices..])).collect();
    let (body, lines) = reordered(step, &linear);
    let mut given = spread(next, &carries);
    given.extend(spread(made, &super::flags(stacked)));
    let (outputs, stacks) = inside.enter(|| -> Result<_> {
        let results = transpose_body(&body, lines, &known, &given)?;
        let (of_carries, rest) = results.split_at(in_carries.len());
        let (of_slices, of_captures) = rest.split_at(rest.len() - in_captures.len());
        let mut outputs = Vec::new();
        for (i, cotangent) in in_carries.iter().zip(of_carries) {
            outputs.push(or_zeros(cotangent.as_ref(), &input_types[*i])?);
        }
        for (sum, share) in sums.iter().zip(of_captures) {
            outputs.push(match share {
                Some(share) => add(sum.clone(), share)?,
                None => sum.clone(),
            });
        }
        outputs.extend(present(of_slices));
        Ok((outputs, super::flags(of_slices)))
    })?;
    let closure = pruned(inside.close(&outputs)?);
    let (closure, products) = match op.counted {
        false => taken_out(closure, in_carries.len(), initial.len(), sliced.len()),
        true => (closure, vec![]),
    };
    let is_product = |n: usize| products.iter().any(|sum| sum.carry == n);
    let carried: Vec<Tensor> = initial
        .iter()
        .enumerate()
        .filter(|(n, _)| !is_product(*n))
        .map(|(_, t)| t.clone())
        .collect();
    let transposed = Scan {
        length: op.length.clone(),
        carries: carried.len(),
        captures: closure.captures.len(),
        reverse: !op.reverse,
        counted: op.counted,
        checkpoints: 0,
    };
    let all = [&count, &carried, &sliced, &closure.captures].map(Vec::as_slice).concat();
    let rule = format!("transpose({})", equation.op.name());
    let mut results =
        derived(scope, equation, rule.clone(), transposed.into(), &all, vec![closure.body])?;
    let made = results.split_off(carried.len());
    let mut of_captures = results.split_off(in_carries.len());
    for sum in &products {
        let whole = scope.derived(equation.location, rule.clone(), || sum.of(&sliced, &made))?;
        of_captures.insert(sum.carry - in_carries.len(), whole);
    }
    let given = stacks.iter().filter(|given| **given).count();
    let mut of_slices = spread(&made[..given], &stacks).into_iter();
    let (mut of_carries, mut of_captures) = (results.into_iter(), of_captures.into_iter());
    let mut all = vec![None; first];
    for (i, is_linear) in linear.iter().enumerate() {
        let cotangent = match (is_linear, i) {
            (false, _) => None,
            (true, i) if i < op.carries => of_carries.next(),
            (true, i) if i < op.carries + slices => of_slices.next().flatten(),
            (true, _) => of_captures.next(),
        };
        // A linear carry may have a known initial value, such as zero.
        all.push(cotangent.filter(|_| linear_operands[i]));
    }
    Ok(all)
}

/// For each known carry the stack of its values at the beginning of each step.
fn history(
    scope: &Scope,
    equation: &Equation,
    op: &Scan,
    operands: &[Operand],
    known: &[bool],
    count: &[Tensor],
) -> Result<Vec<Tensor>> {
    if !known.contains(&true) {
        return Ok(vec![]);
    }
    let (step, used) = known_step(&equation.regions[0], op.carries, known);
    let slices = op.carries..operands.len() - op.captures;
    let take = |range: std::ops::Range<usize>| -> Vec<Tensor> {
        range.filter(|i| used[*i]).filter_map(|i| operands[i].clone()).collect()
    };
    let initial: Vec<Tensor> = kept(&operands[..op.carries], known).into_iter().flatten().collect();
    let (sliced, captured) = (take(slices.clone()), take(slices.end..operands.len()));
    let parts: Vec<TensorType> = sliced.iter().map(|t| part(t.ty())).collect();
    let outer = innermost(initial.iter().chain(&sliced).chain(&captured))?;
    let (inside, inputs) = opened(outer.child(), &[types(&initial), parts].concat());
    let (carries, parts) = inputs.split_at(initial.len());
    // Carries that the known ones do not depend on are no longer inputs of the step.
    let needed: Vec<bool> = (0..op.carries).filter(|i| known[*i]).map(|i| used[i]).collect();
    let given = [kept(carries, &needed), parts.to_vec(), captured].concat();
    let next = inside.enter(|| inline(&step, &given))?;
    let closure = pruned(inside.close(&[next, carries.to_vec()].concat())?);
    let forward = Scan {
        carries: initial.len(),
        captures: closure.captures.len(),
        checkpoints: 0,
        ..op.clone()
    };
    let all = [count.to_vec(), initial.clone(), sliced, closure.captures].concat();
    let rule = format!("transpose({})", equation.op.name());
    let mut results = derived(scope, equation, rule, forward.into(), &all, vec![closure.body])?;
    Ok(results.split_off(initial.len()))
}

/// The body that computes the next known carries of a step, and whether it takes each input of
/// the step.
pub(super) fn known_step(step: &Body, carries: usize, known: &[bool]) -> (Body, Vec<bool>) {
    let mut step = step.clone();
    step.outputs = kept(&step.outputs[..carries], known);
    let live = Activity::prune(&mut step);
    let used: Vec<bool> = step.inputs.iter().map(|v| live[*v]).collect();
    step.inputs = kept(&step.inputs, &used);
    (step, used)
}
