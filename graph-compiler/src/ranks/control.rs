//! Loops and branches with values by example: `scan`, `while`, `cond` and `switch`.
//!
//! All microbatches take the same way: the number of steps, the condition of a `while` and the
//! selector of a branch are whole. Then the construct divides as its regions do, which
//! [`super::regions`] analyses, given the states of their inputs.
//!
//! - The steps of a scan run along another axis than that of the examples.
//! - A carry has one state before and after a step. A carry that begins whole and becomes a value
//!   by example begins with the cut of its first value. A carry that becomes partial has to begin
//!   with zero.
//! - The regions of a branch give results of one state. A whole result beside one by example is
//!   cut, and a whole result beside a partial one has to be zero.
//! - An operand that meets examples in a region, such as a mask for the batch, is cut in front of
//!   the construct.
//!
//! The inputs of the regions change their states by these rules, only upwards, until nothing
//! changes: after at most two rounds for each input.
//!
//! Whole results beside others, such as the number of steps of a `while`, are computed by a copy
//! of the construct without the values by example, in front of the loop over the microbatches.

use super::axes::{Along, Fate};
use super::mixing::Mixing;
use super::regions::{Analysis, Inner, State, analyse, needs};
use std::ops::Range;
use wengert_core::graph::ValueId;
use wengert_core::op::Control;
use wengert_core::op::collective::PReduceKind;
use wengert_core::{Result, TensorType};

/// The roles of a construct's operands. All its regions take the same inputs.
pub(super) struct Form {
    /// The number of first operands that no region takes: a selector, or a count of steps.
    pub deciding: usize,
    /// The number of first inputs of regions that are carries.
    pub carries: usize,
    /// The inputs of regions that are slices of operands.
    pub slices: Range<usize>,
    /// The region that gives the carries and the stacks of a loop.
    step: Option<usize>,
}

impl Form {
    /// Those of a construct with so many operands.
    pub fn of(control: Control<'_>, operands: usize) -> Form {
        match control {
            Control::Branch => Form { deciding: 1, carries: 0, slices: 0..0, step: None },
            Control::Scan(op) => {
                let deciding = usize::from(op.counted);
                let slices = op.carries..operands - deciding - op.captures;
                Form { deciding, carries: op.carries, slices, step: Some(0) }
            }
            Control::While(op) => {
                let carries = operands - op.captures;
                Form { deciding: 0, carries, slices: 0..0, step: Some(1) }
            }
        }
    }

    /// Whether a region gives the results of the construct. A condition does not.
    pub fn gives_results(&self, region: usize) -> bool {
        self.step.is_none_or(|step| step == region)
    }

    /// The type of an input of the regions, from that of its operand.
    pub fn input(&self, input: usize, operand: &TensorType) -> TensorType {
        match self.slices.contains(&input) {
            true => operand.with_shape(operand.shape[1..].to_vec()),
            false => operand.clone(),
        }
    }

    /// The states of the inputs of regions, from those of the operands.
    fn inputs(&self, mixing: &Mixing<'_>, of: &[State]) -> Result<Vec<State>> {
        let (deciding, taken) = of.split_at(self.deciding);
        if !deciding.iter().all(|state| state.is_whole()) {
            return Err(mixing.problem(UNDECIDED, DECIDE));
        }
        let input = |(i, state): (usize, &State)| match state {
            State::ByExample(0) if self.slices.contains(&i) => Err(mixing.problem(
                "runs over the examples",
                "let the steps run along another axis, and write a loop over examples as `vmap`",
            )),
            State::ByExample(axis) if self.slices.contains(&i) => Ok(State::ByExample(axis - 1)),
            _ => Ok(*state),
        };
        taken.iter().enumerate().map(input).collect()
    }
}

const UNDECIDED: &str = "is decided by a sum over the examples within a loop, where it is not \
                         complete";
const DECIDE: &str = "decide by a value that is the same for all examples";

/// How a construct treats the axes of examples, with the states of its operands.
pub(super) fn control(
    mixing: &Mixing<'_>,
    control: Control<'_>,
    of: &[State],
    parts: usize,
) -> Result<Along> {
    let equation = mixing.equation;
    let form = Form::of(control, equation.operands.len());
    let mut states = form.inputs(mixing, of)?;
    loop {
        let before = states.clone();
        let analysed = equation.regions.iter().map(|r| analyse(mixing.function, r, &states, parts));
        let analysed = analysed.collect::<Result<Vec<Analysis>>>()?;
        let results = match form.step {
            Some(step) => stepped(mixing, &form, &analysed[step], step, &mut states)?,
            None => joined(mixing, &analysed)?,
        };
        if states != before {
            continue;
        }
        let mut uncut = None;
        let mut inner = Vec::with_capacity(analysed.len());
        for (number, (region, found)) in equation.regions.iter().zip(analysed).enumerate() {
            let axes: Vec<Option<usize>> = match form.gives_results(number) {
                true => results.iter().map(|state| state.axis()).collect(),
                false => vec![None; region.outputs.len()],
            };
            let outputs: Vec<(ValueId, Option<usize>)> =
                region.outputs.iter().copied().zip(axes).collect();
            let whole = |v: &ValueId| found.states[*v].is_whole();
            if !form.gives_results(number) && !region.outputs.iter().all(whole) {
                return Err(mixing.problem(UNDECIDED, DECIDE));
            }
            let needs = needs(region, &found, &outputs, parts);
            for (input, axis) in needs.inputs {
                states[input] = State::ByExample(axis);
            }
            uncut = uncut.or(needs.uncut.map(|at| (number, at)));
            let (states, along, cuts) = (found.states, found.along, needs.cuts);
            inner.push(Inner { states, along, cuts, outputs });
        }
        if states != before {
            continue;
        }
        if let Some((number, at)) = uncut {
            let body = &equation.regions[number];
            let equation = &body.equations[at];
            return Err(Mixing { body, equation, ..*mixing }.problem(
                "makes a value for all examples within a loop or branch",
                "compute it in front of the loop or branch",
            ));
        }
        let operand = |i: usize| {
            let input = i.checked_sub(form.deciding)?;
            let axis = states[input].axis()?;
            Some(axis + usize::from(form.slices.contains(&input)))
        };
        let fate = |(i, state): (usize, &State)| match state {
            State::ByExample(axis) => {
                Fate::Kept(axis + usize::from(form.step.is_some() && i >= form.carries))
            }
            State::Partial => Fate::Reduced(PReduceKind::Sum),
            State::Zero | State::Whole => Fate::Whole,
        };
        return Ok(Along {
            operands: (0..equation.operands.len()).map(operand).collect(),
            results: results.iter().enumerate().map(fate).collect(),
            zero: None,
            regions: inner,
        });
    }
}

/// The states of a loop's results: carries, whose states `states` takes too, and stacks.
fn stepped(
    mixing: &Mixing<'_>,
    form: &Form,
    found: &Analysis,
    step: usize,
    states: &mut [State],
) -> Result<Vec<State>> {
    let region = &mixing.equation.regions[step];
    let mut results: Vec<State> = region.outputs.iter().map(|v| found.states[*v]).collect();
    for carry in 0..form.carries {
        let Some(state) = states[carry].join(results[carry]) else {
            return Err(mixing.problem(
                &format!("mixes examples in carry {carry}"),
                "a carry has the examples along one axis before and after a step, or begins with \
                 zeros and adds sums over the examples",
            ));
        };
        results[carry] = state;
        states[carry] = state;
    }
    Ok(results)
}

/// The states of a branch's results.
fn joined(mixing: &Mixing<'_>, analysed: &[Analysis]) -> Result<Vec<State>> {
    let regions = &mixing.equation.regions;
    let result = |i: usize| {
        let given = |number: usize| analysed[number].states[regions[number].outputs[i]];
        let joined = (0..regions.len()).map(given).try_fold(State::Zero, State::join);
        joined.ok_or_else(|| {
            mixing.problem(
                &format!("mixes examples in result {i}"),
                "all regions give the examples along one axis, or sums over them or zeros",
            )
        })
    };
    (0..mixing.equation.results.len()).map(result).collect()
}
