//! Splits long reductions with few results in two, so that many processors take part.
//!
//! A sum of 16 million numbers to one is a single row; as 4096 sums of 4096 and a sum of these it
//! is 4096 rows. That is another order of addition. So it is decided here, by shape and target
//! alone, and holds with and without fusion.

use super::movement::shape;
use super::{push, term, with_fuel};
use std::ops::Range;
use wengert_core::graph::{Body, Equation, Function};
use wengert_core::op::{Constant, ConvertElementType, Pad, Reduce, Reshape};
use wengert_core::{DType, Dim, Literal, Op, Target};

/// Minimum number of elements; below it, a reduction ends before further processors have started.
const MIN_ELEMENTS: usize = 1 << 16;

/// Splits reductions where it pays; at most `fuel` of them.
pub(crate) fn split_reductions(function: Function, target: &Target, fuel: u64) -> (Function, u64) {
    with_fuel(function, fuel, |body, left| of_body(body, target, left))
}

fn of_body(body: &mut Body, target: &Target, left: &mut u64) {
    let equations = std::mem::take(&mut body.equations);
    for mut equation in equations {
        if equation.op.control().is_some() {
            equation.regions.iter_mut().for_each(|region| of_body(region, target, left));
        }
        match plan(body, &equation, target).filter(|_| *left > 0) {
            Some(plan) => {
                *left -= 1;
                plan.apply(body, &equation);
            }
            None => body.equations.push(equation),
        }
    }
}

/// A split of a reduction along adjacent axes, taken as one, into parts of one length.
struct Plan {
    op: Reduce,
    /// The range of axes, all of which are reduced.
    run: Range<usize>,
    parts: usize,
    length: usize,
}

fn plan(body: &Body, equation: &Equation, target: &Target) -> Option<Plan> {
    let (Op::Reduce(op), [x]) = term(equation) else { return None };
    let extents = body.ty(*x).extents()?;
    let results: usize = body.ty(equation.results[0]).elements()?;
    let elements: usize = extents.iter().product();
    if elements < MIN_ELEMENTS {
        return None;
    }
    let mut runs: Vec<Range<usize>> = Vec::new();
    for axis in &op.axes {
        match runs.last_mut().filter(|r| r.end == *axis) {
            Some(run) => run.end += 1,
            None => runs.push(*axis..axis + 1),
        }
    }
    let count = |run: &Range<usize>| extents[run.clone()].iter().product::<usize>();
    let run = runs.into_iter().max_by_key(count)?;
    let count = count(&run);
    // The last part may be shorter, by less than the number of parts.
    let parts = even(count, target.reduction_parts(&extents, &op.axes, results, count));
    (parts > 1).then(|| Plan { op: op.clone(), run, parts, length: count.div_ceil(parts) })
}

/// A number of parts close to `parts` for which all have one length, if possible: a short part
/// needs a guard on every access.
fn even(count: usize, parts: usize) -> usize {
    let near = (parts..2 * parts).chain((parts / 2 + 1..parts).rev());
    if parts < 2 {
        parts
    } else {
        near.into_iter().find(|n| count.is_multiple_of(*n)).unwrap_or(parts)
    }
}

impl Plan {
    fn apply(self, body: &mut Body, equation: &Equation) {
        let location = equation.location;
        let mut value = equation.operands[0];
        let dtype = body.ty(value).dtype;
        // Halves are carried in f32 throughout and rounded once.
        let carried = if dtype.is_half() { DType::F32 } else { dtype };
        if carried != dtype {
            value = push(body, ConvertElementType { dtype: carried }, &[value], location);
        }
        let mut extents =
            body.ty(value).extents().expect("functions are bound before they are split");
        let count: usize = extents[self.run.clone()].iter().product();
        let missing = self.parts * self.length - count;
        if missing > 0 {
            extents.splice(self.run.clone(), [count]);
            value = push(body, Reshape { shape: shape(&extents) }, &[value], location);
            let identity = Literal::full(&[], self.op.kind.identity(carried));
            let identity = push(body, Constant { value: identity }, &[], location);
            let none = vec![Dim::constant(0); extents.len()];
            let mut high = none.clone();
            high[self.run.start] = Dim::from(missing);
            value =
                push(body, Pad { low: none, high, interior: vec![] }, &[value, identity], location);
            extents.splice(self.run.start..=self.run.start, [self.parts, self.length]);
        } else {
            extents.splice(self.run.clone(), [self.parts, self.length]);
        }
        value = push(body, Reshape { shape: shape(&extents) }, &[value], location);
        // First reduces all axes but that of the parts, which takes the position of the run.
        let run = self.run.clone();
        let behind = |a: usize| a + 2 - (run.end - run.start);
        let before: Vec<usize> = self.op.axes.iter().copied().filter(|a| *a < run.start).collect();
        let after = self.op.axes.iter().copied().filter(|a| *a >= run.end).map(behind);
        let parts = run.start - before.len();
        let axes = before.into_iter().chain([run.start + 1]).chain(after).collect();
        value = push(body, Reduce { kind: self.op.kind, axes }, &[value], location);
        let mut last: Op = Reduce { kind: self.op.kind, axes: vec![parts] }.into();
        if carried != dtype {
            value = push(body, last, &[value], location);
            last = ConvertElementType { dtype }.into();
        }
        let results = equation.results.clone();
        body.equations.push(Equation {
            op: last,
            operands: vec![value],
            results,
            regions: vec![],
            location,
        });
    }
}
