//! The examples in a region of a loop or branch.
//!
//! A region is analysed like a function, with one difference. A sum over the examples is complete
//! only behind the loop over the microbatches, which is outside of the region. So within the region
//! it is *partial*: a sum over the examples of the microbatch. Partial values may be used by ops
//! that are linear in them ([`super::partial`]), and returned: then a result of the construct is a
//! partial result too. Any other use is an error.
//!
//! Cuts are computed behind the equations whose results they cut.

use super::axes::{Along, Fate, Typed};
use super::examples::Part;
use super::mixing::Mixing;
use super::partial::{linear, zero};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::Result;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::collective::PReduceKind;

/// What a value is. A value of unknown state is zero at first: the others are above it, and values
/// by example are above whole ones.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Zero for all microbatches.
    Zero,
    /// The same for all microbatches.
    Whole,
    /// The examples are along this axis.
    ByExample(usize),
    /// A sum over the examples of a microbatch.
    Partial,
}

impl State {
    /// Whether the value is the same for all microbatches.
    pub fn is_whole(self) -> bool {
        matches!(self, State::Zero | State::Whole)
    }

    /// The axis of the examples.
    pub fn axis(self) -> Option<usize> {
        match self {
            State::ByExample(axis) => Some(axis),
            _ => None,
        }
    }

    /// The state of a value that has one of two states: the least that is above both. `None` if
    /// there is none.
    pub fn join(self, other: State) -> Option<State> {
        match (self, other) {
            (a, b) if a == b => Some(a),
            (State::Zero, state) | (state, State::Zero) => Some(state),
            (State::Whole, state @ State::ByExample(_))
            | (state @ State::ByExample(_), State::Whole) => Some(state),
            _ => None,
        }
    }
}

/// A region whose inputs have states.
pub(super) struct Analysis {
    /// How each equation treats the axis of examples; `None` if none of its values has one.
    pub along: Vec<Option<Along>>,
    pub states: IdVec<ValueId, State>,
}

/// A region, with the cuts that it needs.
#[derive(Clone, Debug)]
pub(super) struct Inner {
    pub states: IdVec<ValueId, State>,
    /// How each equation treats the axis of examples; `None` if none of its values has one.
    pub along: Vec<Option<Along>>,
    /// The cuts that are computed behind each equation.
    pub cuts: BTreeMap<usize, Vec<(Part, Along)>>,
    /// Each output, and the axis of examples with which it is returned.
    pub outputs: Vec<(ValueId, Option<usize>)>,
}

/// The states of a region's values, from those of its inputs.
pub(super) fn analyse(
    function: &Function,
    body: &Body,
    inputs: &[State],
    parts: usize,
) -> Result<Analysis> {
    let mut states: IdVec<ValueId, State> = body.values.ids().map(|_| State::Whole).collect();
    for (value, state) in body.inputs.iter().zip(inputs) {
        states[*value] = *state;
    }
    let mut along = Vec::with_capacity(body.equations.len());
    for equation in &body.equations {
        let mixing = Mixing { function, body, equation };
        let of: Vec<State> = equation.operands.iter().map(|v| states[*v]).collect();
        if of.iter().all(|state| state.is_whole()) {
            let state = if zero(&equation.op, &of) { State::Zero } else { State::Whole };
            equation.results.iter().for_each(|v| states[*v] = state);
            along.push(None);
            continue;
        }
        if of.contains(&State::Partial) && equation.op.control().is_none() {
            if !linear(body, equation, &of) {
                return Err(mixing.problem(
                    "uses a sum over the examples within a loop or branch, where it is not \
                     complete",
                    "use the sum behind the loop or branch, or only add and scale it within",
                ));
            }
            equation.results.iter().for_each(|v| states[*v] = State::Partial);
            along.push(None);
            continue;
        }
        let found = mixing.along(&of, parts)?;
        for (value, fate) in equation.results.iter().zip(&found.results) {
            states[*value] = match fate {
                Fate::Kept(axis) => State::ByExample(*axis),
                Fate::Whole => State::Whole,
                Fate::Reduced(PReduceKind::Sum) => State::Partial,
                Fate::Reduced(_) => {
                    return Err(mixing.problem(
                        "is an extremum over the examples within a loop or branch, where it is \
                         not complete",
                        "compute it outside of the loop or branch",
                    ));
                }
            };
        }
        along.push(Some(found));
    }
    Ok(Analysis { along, states })
}

/// What a region needs to have its values by example.
#[derive(Default)]
pub(super) struct Needs {
    /// The cuts behind each equation.
    pub cuts: BTreeMap<usize, Vec<(Part, Along)>>,
    /// The inputs, by their number, that have to be cut along an axis in front of the construct.
    pub inputs: BTreeSet<(usize, usize)>,
    /// An equation whose results cannot be cut.
    pub uncut: Option<usize>,
}

/// The needs of a region that returns `outputs` with these axes of examples. A whole value that is
/// made in the region cannot be sliced there, where the number of the microbatch is not known, so
/// it is computed again for the microbatch.
pub(super) fn needs(
    body: &Body,
    analysis: &Analysis,
    outputs: &[(ValueId, Option<usize>)],
    parts: usize,
) -> Needs {
    let definitions = body.definitions();
    let mut open: Vec<Part> = outputs.iter().filter_map(|(v, axis)| Some((*v, (*axis)?))).collect();
    let operands = |equation: &Equation, along: &Along, open: &mut Vec<Part>| {
        let places = equation.operands.iter().zip(&along.operands);
        open.extend(places.filter_map(|(v, axis)| Some((*v, (*axis)?))));
    };
    for (equation, along) in body.equations.iter().zip(&analysis.along) {
        if let Some(along) = along {
            operands(equation, along, &mut open);
        }
    }
    let mut found: BTreeMap<(usize, usize), (Part, Along)> = BTreeMap::new();
    let mut needs = Needs::default();
    while let Some(part) = open.pop() {
        let (value, axis) = part;
        if !analysis.states[value].is_whole() {
            continue;
        }
        let Some(at) = definitions[value] else {
            let input = body.inputs.iter().position(|v| *v == value);
            needs.inputs.insert((input.expect("a value is an input or a result"), axis));
            continue;
        };
        if found.contains_key(&(at, axis)) {
            continue;
        }
        let equation = &body.equations[at];
        match Typed::of(body, equation).computes(axis, parts) {
            None => needs.uncut = Some(at),
            Some(along) => {
                operands(equation, &along, &mut open);
                found.insert((at, axis), (part, along));
            }
        }
    }
    for ((at, _), cut) in found {
        needs.cuts.entry(at).or_default().push(cut);
    }
    needs
}
