//! `cond` and `switch`.
//!
//! Each region is differentiated on its own. A result has a tangent if it has one in some region;
//! in the others it is zero.

use super::transposed::reordered;
use super::{
    Operand, Site, derived, flags, innermost, kept, of_operands, opened, present, region, spread,
    types,
};
use crate::autodiff::custom::{self, Purpose};
use crate::autodiff::jvp::{Duals, run, zeros};
use crate::autodiff::linearize::{Linear, linearize as linearized};
use crate::autodiff::transpose::transpose as transpose_body;
use wengert_core::build::{Closure, Scope};
use wengert_core::graph::{Body, Equation, Region};
use wengert_core::{Result, Tensor, TensorType};

/// A region that has been run but not closed, since not all of its outputs are known yet.
struct Way<T> {
    scope: Scope,
    inputs: Vec<Tensor>,
    given: T,
}

fn ways<T>(
    equation: &Equation,
    types: &[TensorType],
    f: impl Fn(&Body, &[Tensor]) -> Result<T>,
) -> Result<Vec<Way<T>>> {
    let current = innermost([])?;
    let way = |region: &Region| {
        let (scope, inputs) = opened(current.region(), types);
        let given = scope.enter(|| f(region, &inputs))?;
        Ok(Way { scope, inputs, given })
    };
    equation.regions.iter().map(way).collect()
}

impl<T> Way<T> {
    /// Closes it with outputs of these types; zeros for missing ones.
    fn close(self, outputs: Vec<Option<Tensor>>, types: &[TensorType]) -> Result<Body> {
        let outputs = self.scope.enter(|| {
            let full = outputs.iter().zip(types).map(|(t, ty)| super::or_zeros(t.as_ref(), ty));
            full.collect::<Result<Vec<_>>>()
        })?;
        let closure = self.scope.close(&outputs)?;
        assert!(closure.captures.is_empty(), "a region of a branch uses its inputs only");
        Ok(closure.body)
    }
}

pub(super) fn jvp(at: &Site<'_>) -> Result<Duals> {
    let given = present(&at.tangents[1..]);
    let count = at.operands.len() - 1;
    let taken = [types(&at.operands[1..]), types(&given)].concat();
    let active = flags(&at.tangents[1..]);
    let ways = ways(at.equation, &taken, |region, inputs| {
        let tangents = spread(&inputs[count..], &active);
        run(region, &inputs[..count], &tangents, at.wanted, false)
    })?;
    let results: Vec<TensorType> = types(&ways[0].given.0);
    let moving = moving(results.len(), ways.iter().map(|w| w.given.1.as_slice()));
    let made = [results.clone(), kept(&results, &moving)].concat();
    let mut regions = Vec::new();
    for way in ways {
        let (values, tangents) = &way.given;
        let outputs = values.iter().cloned().map(Some).chain(kept(tangents, &moving)).collect();
        regions.push(way.close(outputs, &made)?);
    }
    let operands: Vec<Tensor> = at.operands.iter().cloned().chain(given).collect();
    let mut given = at.emit(at.equation.op.clone(), &operands, regions)?;
    let tangents = given.split_off(results.len());
    Ok((given, spread(&tangents, &moving)))
}

/// Whether each result has a tangent in some region.
fn moving<'t>(results: usize, ways: impl Iterator<Item = &'t [Option<Tensor>]>) -> Vec<bool> {
    ways.fold(vec![false; results], |any, way| {
        any.iter().zip(way).map(|(a, t)| *a || t.is_some()).collect()
    })
}

/// The primal branch returns residuals beside its results. Regions share result positions for
/// residuals of one type. A residual that is an operand needs no position.
pub(super) fn linearize(at: &Site<'_>) -> Result<Duals> {
    let taken = types(&at.operands[1..]);
    let active = flags(&at.tangents[1..]);
    let ways = ways(at.equation, &taken, |region, inputs| {
        let closure = Closure { body: region.clone(), captures: vec![] };
        linearized(&closure, inputs, &active, at.wanted)
    })?;
    let results = types(&ways[0].given.outputs);
    let has = |linear: &Linear, i: usize| linear.outputs[i].1.is_some();
    let moving: Vec<bool> =
        (0..results.len()).map(|i| ways.iter().any(|w| has(&w.given.linear, i))).collect();
    // Types of the result positions for residuals.
    let mut places: Vec<TensorType> = Vec::new();
    let mut sources: Vec<Vec<Source>> = Vec::new();
    for way in &ways {
        let mut free: Vec<bool> = vec![true; places.len()];
        let source = |residual: &Tensor| {
            if let Some(i) = way.inputs.iter().position(|input| input.is_same(residual)) {
                return Source::Operand(i);
            }
            let place = (0..places.len()).find(|p| free[*p] && places[*p] == *residual.ty());
            let place = place.unwrap_or_else(|| {
                places.push(residual.ty().clone());
                free.push(true);
                places.len() - 1
            });
            free[place] = false;
            Source::Place(place)
        };
        sources.push(way.given.linear.residuals.iter().map(source).collect());
    }
    let made = [results.clone(), places.clone()].concat();
    let mut linears = Vec::new();
    let mut regions = Vec::new();
    for (way, sources) in ways.into_iter().zip(&sources) {
        let mut outputs: Vec<Option<Tensor>> =
            way.given.outputs.iter().cloned().map(Some).collect();
        outputs.resize(made.len(), None);
        for (residual, source) in way.given.linear.residuals.iter().zip(sources) {
            if let Source::Place(place) = source {
                outputs[results.len() + place] = Some(residual.clone());
            }
        }
        linears.push(way.given.linear.clone());
        regions.push(way.close(outputs, &made)?);
    }
    let mut values = at.emit(at.equation.op.clone(), at.operands, regions)?;
    let residuals = values.split_off(results.len());

    if !moving.contains(&true) {
        return Ok((values, vec![None; results.len()]));
    }
    // The linear half takes the selector, tangents, residuals, operands.
    let given = present(&at.tangents[1..]);
    let taken = [types(&given), places, types(&at.operands[1..])].concat();
    let (first, second) = (given.len(), given.len() + residuals.len());
    let regions = linears.iter().zip(&sources).map(|(linear, sources)| {
        region(&taken, |inputs| {
            let of = |source: &Source| match source {
                Source::Place(p) => inputs[first + p].clone(),
                Source::Operand(i) => inputs[second + i].clone(),
            };
            let residuals = sources.iter().map(of);
            let given: Vec<Option<Tensor>> =
                inputs[..first].iter().cloned().chain(residuals).map(Some).collect();
            let tangents = custom::run(&linear.body, &given, Purpose::Linear)?;
            let of = |i: usize| linear.outputs[i].1.and_then(|at| tangents[at].clone());
            let moving = (0..results.len()).filter(|i| moving[*i]);
            moving.map(|i| of(i).map_or_else(|| zeros(&results[i]), Ok)).collect()
        })
    });
    let regions = regions.collect::<Result<Vec<_>>>()?;
    let operands: Vec<Tensor> = std::iter::once(at.operands[0].clone())
        .chain(given)
        .chain(residuals)
        .chain(at.operands[1..].iter().cloned())
        .collect();
    let (operands, regions) = without_unused(1, operands, regions);
    let tangents = at.emit_linear(at.equation.op.clone(), &operands, regions)?;
    Ok((values, spread(&tangents, &moving)))
}

/// The source of a region's residual.
enum Source {
    /// The operand of this number, not counting the selector.
    Operand(usize),
    /// The primal branch's residual result at this position.
    Place(usize),
}

/// The operands that some region uses, and the regions without the other inputs. The first
/// `first` operands are not inputs of regions, and stay.
pub(super) fn without_unused(
    first: usize,
    mut operands: Vec<Tensor>,
    regions: Vec<Body>,
) -> (Vec<Tensor>, Vec<Body>) {
    let live = |region: &Body| {
        let live = super::Activity::live(region);
        region.inputs.iter().map(|v| live[*v]).collect::<Vec<bool>>()
    };
    let each: Vec<Vec<bool>> = regions.iter().map(live).collect();
    let rest = operands.split_off(first);
    let used: Vec<bool> = (0..rest.len()).map(|i| each.iter().any(|live| live[i])).collect();
    operands.extend(kept(&rest, &used));
    let narrowed = regions.into_iter().map(|mut region| {
        region.inputs = kept(&region.inputs, &used);
        region
    });
    (operands, narrowed.collect())
}

pub(super) fn transpose(
    scope: &Scope,
    equation: &Equation,
    operands: &[Operand],
    cotangents: &[Option<Tensor>],
) -> Result<Vec<Option<Tensor>>> {
    let chooses = operands[0]
        .clone()
        .expect("what chooses is an integer or a bool, so nothing is linear in it");
    let known = present(&operands[1..]);
    let linear = super::linear(operands);
    let given = present(cotangents);
    let taken = [types(&given), types(&known)].concat();
    let region = &equation.regions[0];
    let made = kept(&region.types(&region.inputs), &linear[1..]);
    let ways = ways(equation, &taken, |region, inputs| {
        let (body, lines) = reordered(region, &linear[1..]);
        let cotangents = spread(&inputs[..given.len()], &flags(cotangents));
        transpose_body(&body, lines, &inputs[given.len()..], &cotangents)
    })?;
    let moving = moving(made.len(), ways.iter().map(|w| w.given.as_slice()));
    let kinds = kept(&made, &moving);
    let mut regions = Vec::new();
    for way in ways {
        let outputs = kept(&way.given, &moving);
        regions.push(way.close(outputs, &kinds)?);
    }
    if !moving.contains(&true) {
        return Ok(vec![None; operands.len()]);
    }
    let all: Vec<Tensor> = std::iter::once(chooses).chain(given).chain(known).collect();
    let (all, regions) = without_unused(1, all, regions);
    let rule = format!("transpose({})", equation.op.name());
    let results = derived(scope, equation, rule, equation.op.clone(), &all, regions)?;
    Ok(of_operands(&results, &moving, &linear))
}
