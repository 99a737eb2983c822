//! Inputs of a function that are indices, and their valid ranges.
//!
//! An input is an index if its elements reach a lookup unchanged: through ops that only move
//! elements or convert between integers, and into the regions of calls and control flow. A
//! one-hot encoding, `iota == labels`, also sets a range for its classes. Elements that are
//! operands of arithmetic (clamped, masked, shifted) are not followed.

use super::lookup_of;
use std::collections::{BTreeMap, HashSet};
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{Compare, Control, RegionInput};
use wengert_core::{Dim, Location, LocationTable, Op};

/// The valid indices of an input.
#[derive(Clone, PartialEq, Debug)]
pub struct Bound {
    /// Their number. They start at 0.
    pub count: i64,
    /// What is indexed, as messages name it.
    pub indexed: &'static str,
    /// Source location of the use.
    pub location: Location,
}

/// For each input that is an index, by name, the narrowest range of its uses. A range that
/// depends on dimension variables is omitted.
pub fn bounds(function: &Function) -> BTreeMap<String, Bound> {
    let mut following =
        Following { locations: &function.locations, found: BTreeMap::new(), seen: HashSet::new() };
    let inputs: Vec<Source> = (0..function.inputs.len()).map(Source::Input).collect();
    following.body(&function.body, &inputs);
    let name = |(input, bound): (usize, Bound)| (function.inputs[input].name.clone(), bound);
    following.found.into_iter().map(name).collect()
}

/// The origin of a value's elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    /// Elements of this input of the function.
    Input(usize),
    /// The numbers below this one, in order.
    Iota(i64),
    Other,
}

struct Following<'a> {
    locations: &'a LocationTable,
    found: BTreeMap<usize, Bound>,
    /// Regions visited, with the sources of their inputs: a function may be called often.
    seen: HashSet<(usize, Vec<Source>)>,
}

impl Following<'_> {
    fn body(&mut self, body: &Body, inputs: &[Source]) {
        let mut sources: IdVec<ValueId, Source> =
            body.values.ids().map(|_| Source::Other).collect();
        body.inputs.iter().zip(inputs).for_each(|(value, source)| sources[*value] = *source);
        for equation in &body.equations {
            let operands: Vec<Source> = equation.operands.iter().map(|v| sources[*v]).collect();
            let iota = || iota(&equation.op);
            if operands.iter().all(|source| *source == Source::Other) {
                if let (Some(extent), [result]) = (iota(), equation.results.as_slice()) {
                    sources[*result] = Source::Iota(extent);
                }
                continue;
            }
            self.uses(body, equation, &operands);
            self.regions(equation, &operands);
            for (result, source) in equation.results.iter().zip(moved(&equation.op, &operands)) {
                // A float may be scaled, and a bool is not an index.
                let is_integer = body.ty(*result).dtype.is_integer();
                sources[*result] = if is_integer { source } else { Source::Other };
            }
        }
    }

    /// Records the ranges that an equation sets.
    fn uses(&mut self, body: &Body, equation: &Equation, operands: &[Source]) {
        if let Some(lookup) = lookup_of(body, equation)
            && let Source::Input(input) = operands[lookup.operand]
            && lookup.counts.iter().all(|count| *count == lookup.counts[0])
            && let Some(count) = lookup.counts[0].as_constant()
        {
            self.note(input, count, equation.op.name(), equation);
        }
        if let (Op::Compare(Compare::Eq), [a, b]) = (&equation.op, operands) {
            match (*a, *b) {
                (Source::Input(input), Source::Iota(count))
                | (Source::Iota(count), Source::Input(input)) => {
                    self.note(input, count, "a one-hot encoding", equation);
                }
                _ => {}
            }
        }
    }

    fn note(&mut self, input: usize, count: i64, indexed: &'static str, equation: &Equation) {
        if self.found.get(&input).is_none_or(|known| known.count > count) {
            let location = self.locations.origin(equation.location).clone();
            self.found.insert(input, Bound { count, indexed, location });
        }
    }

    fn regions(&mut self, equation: &Equation, operands: &[Source]) {
        for (number, region) in equation.regions.iter().enumerate() {
            let source = |input| entering(&equation.op, operands, number, input);
            let inputs: Vec<Source> = (0..region.inputs.len()).map(source).collect();
            let known = inputs.iter().all(|source| *source == Source::Other);
            if !known && self.seen.insert((region.address(), inputs.clone())) {
                self.body(region, &inputs);
            }
        }
    }
}

/// The source of a region's input.
fn entering(op: &Op, operands: &[Source], region: usize, input: usize) -> Source {
    let found = match op.callee() {
        Some(_) => Some(RegionInput::Operand(input)),
        None => op.region_input(operands.len(), region, input),
    };
    match (found, op.control()) {
        (Some(RegionInput::Operand(operand)), _) => {
            operands.get(operand).copied().unwrap_or(Source::Other)
        }
        // A row of a slice has the slice's elements; a carry is computed by earlier steps.
        (Some(RegionInput::AtStep(operand)), Some(Control::Scan(scan)))
            if input >= scan.carries =>
        {
            operands[operand]
        }
        _ => Source::Other,
    }
}

/// The extent of the axis along which an op counts from 0.
fn iota(op: &Op) -> Option<i64> {
    match op {
        Op::Iota(iota) => iota.shape.get(iota.axis).and_then(Dim::as_constant),
        _ => None,
    }
}

/// The sources of the results of an op that only moves elements.
fn moved(op: &Op, operands: &[Source]) -> Vec<Source> {
    match op {
        Op::ConvertElementType(_)
        | Op::BroadcastInDim(_)
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Reverse(_)
        | Op::CheckpointName(_)
        | Op::Probe(_)
        | Op::OptimizationBarrier(_) => operands.to_vec(),
        // A subset of the elements. For an iota these are not the numbers below its extent.
        Op::Slice(_) => operands
            .iter()
            .map(|source| if matches!(source, Source::Iota(_)) { Source::Other } else { *source })
            .collect(),
        _ => vec![],
    }
}
