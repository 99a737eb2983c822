//! A function on all ranks of its mesh, in one process and in lockstep.
//!
//! An equation is evaluated on every rank before the next one. A collective takes the operands of
//! each group of ranks at once. A branch or loop whose regions hold collectives runs each region
//! on the ranks that take it, together. So no rank ever waits, and the result does not depend on
//! any schedule: it is the meaning to which distributed runs are compared.

use super::{Array, Real, Regions};
use crate::diagnostic::{Diagnostic, Result, ensure};
use crate::graph::{Body, Equation, Function, Region, ValueId};
use crate::id::IdVec;
use crate::literal::Literal;
use crate::location::LocationTable;
use crate::mesh::Mesh;
use crate::op::collective::Group;
use crate::op::control::lockstep::Lockstep;
use crate::text::joined;
use std::cell::RefCell;
use std::collections::HashMap;

/// Runs a function without dimension variables on all ranks of its mesh: a list of inputs for
/// each rank, in the order of ranks. Returns the outputs of each rank. Without a mesh there is one
/// rank.
///
/// Errors: the number of ranks or inputs is wrong; an input that is invariant over an axis differs
/// between ranks along it; those of the ops.
pub fn run_ranks(function: &Function, inputs: &[Vec<Literal>]) -> Result<Vec<Vec<Literal>>> {
    right_number(&function.mesh, inputs.len())?;
    invariant_inputs_agree(function, inputs)?;
    let arrays = |on: &Vec<Literal>| on.iter().map(Array::from_literal).collect();
    let arrays = inputs.iter().map(arrays).collect::<Result<Vec<Vec<Array<f64>>>>>()?;
    let outputs = evaluate_ranks(&function.mesh, &function.body, &function.locations, &arrays)?;
    outputs.iter().map(|on| on.iter().map(Array::to_literal).collect()).collect()
}

/// Runs a body without dimension variables on all ranks of a mesh, as
/// [`evaluate`](super::evaluate) does on one.
pub fn evaluate_ranks(
    mesh: &Mesh,
    body: &Body,
    locations: &LocationTable,
    inputs: &[Vec<Array<f64>>],
) -> Result<Vec<Vec<Array<f64>>>> {
    right_number(mesh, inputs.len())?;
    let ranks: Vec<usize> = (0..mesh.ranks()).collect();
    let run = Run { mesh, locations, rounds: true, needs_ranks: RefCell::default() };
    run.body(body, &ranks, inputs.to_vec())
}

fn right_number(mesh: &Mesh, given: usize) -> Result<()> {
    let ranks = mesh.ranks();
    ensure!(given == ranks, "inputs are given for {given} ranks, the mesh has {ranks}";
        help "give a list of inputs for each rank of {mesh}");
    Ok(())
}

/// Checks that ranks that differ along other axes only have the same input.
fn invariant_inputs_agree(function: &Function, inputs: &[Vec<Literal>]) -> Result<()> {
    let axes = function.mesh.axes();
    for (i, input) in function.inputs.iter().enumerate() {
        let ty = function.input_type(i);
        let over = axes.iter().filter(|(axis, _)| !ty.varying.contains(axis));
        let over: Vec<&str> = over.map(|(axis, _)| &**axis).collect();
        for (rank, given) in inputs.iter().enumerate() {
            let first = function.mesh.group(rank, &over).into_iter().min().unwrap_or(rank);
            let known = inputs.get(first).and_then(|on| on.get(i));
            ensure!(
                given.get(i) == known,
                "input `{}`, {ty}, is invariant over {}, but ranks {first} and {rank} have \
                 different values",
                input.name,
                joined(&over, ", ");
                help "give both the same, or declare that it varies, as in `{}{{{}}}`",
                ty.invariant(),
                joined(&over, ",")
            );
        }
    }
    Ok(())
}

/// The values of a set of ranks.
type OnRanks<R> = Vec<Vec<Array<R>>>;

struct Run<'a> {
    mesh: &'a Mesh,
    locations: &'a LocationTable,
    rounds: bool,
    /// Whether a region holds an op that needs to know the ranks, by its address.
    needs_ranks: RefCell<HashMap<usize, bool>>,
}

impl Run<'_> {
    /// The outputs of a body on these ranks, which are in order.
    fn body<R: Real>(
        &self,
        body: &Body,
        ranks: &[usize],
        inputs: OnRanks<R>,
    ) -> Result<OnRanks<R>> {
        let mut last_use: IdVec<_, usize> = body.values.ids().map(|_| 0).collect();
        for (i, equation) in body.equations.iter().enumerate() {
            equation.operands.iter().for_each(|v| last_use[*v] = i);
        }
        body.outputs.iter().for_each(|v| last_use[*v] = usize::MAX);
        let mut values: IdVec<_, Vec<Array<R>>> = body.values.ids().map(|_| vec![]).collect();
        for given in inputs {
            super::fit(body, &given)?;
            for (value, array) in body.inputs.iter().zip(given) {
                values[*value].push(array);
            }
        }
        const DEFINED: &str = "the verifier found each value defined before its use";
        for (i, equation) in body.equations.iter().enumerate() {
            let on = |at: usize| {
                let array = |v: &ValueId| values[*v].get(at).cloned().expect(DEFINED);
                equation.operands.iter().map(array).collect()
            };
            let operands: OnRanks<R> = (0..ranks.len()).map(on).collect();
            let name = equation.op.name();
            let results = self.equation(body, equation, ranks, operands).map_err(|d| {
                d.context(name).at(self.locations.origin(equation.location).clone(), name)
            })?;
            for mut given in results {
                for (value, array) in equation.results.iter().zip(&mut given) {
                    debug_assert!(array.ty().has_elements_of(body.ty(*value)), "{name} infers so");
                    if self.rounds {
                        array.round()?;
                    }
                    values[*value].push(array.clone());
                }
            }
            for operand in equation.operands.iter().filter(|v| last_use[**v] == i) {
                values[*operand] = vec![];
            }
        }
        let output = |at: usize| {
            body.outputs.iter().map(|v| values[*v].get(at).cloned().expect(DEFINED)).collect()
        };
        Ok((0..ranks.len()).map(output).collect())
    }

    fn equation<R: Real>(
        &self,
        body: &Body,
        equation: &Equation,
        ranks: &[usize],
        operands: OnRanks<R>,
    ) -> Result<OnRanks<R>> {
        if self.needs(equation) && equation.regions.is_empty() {
            return self.exchange(body, equation, ranks, &operands);
        }
        let results = body.types(&equation.results);
        if self.needs(equation) {
            let run = |region: usize, on: &[usize], operands: OnRanks<R>| {
                let on: Vec<usize> = on.iter().map(|at| ranks[*at]).collect();
                self.body(&equation.regions[region], &on, operands)
            };
            return equation.op.lockstep(Lockstep {
                operands,
                results: &results,
                regions: equation.regions.len(),
                run: &run,
            });
        }
        let regions =
            Regions { bodies: &equation.regions, locations: self.locations, rounds: self.rounds };
        let on_rank =
            |operands: &Vec<Array<R>>| R::evaluate_equation(equation, operands, &results, &regions);
        operands.iter().map(on_rank).collect()
    }

    /// A collective on each group of ranks.
    fn exchange<R: Real>(
        &self,
        body: &Body,
        equation: &Equation,
        ranks: &[usize],
        operands: &OnRanks<R>,
    ) -> Result<OnRanks<R>> {
        let collective = equation.op.collective().expect("only collectives need the ranks");
        let mut results = vec![vec![]; ranks.len()];
        for at in 0..ranks.len() {
            if !results[at].is_empty() {
                continue;
            }
            let group = self.mesh.group(ranks[at], collective.over);
            let places: Vec<Option<usize>> =
                group.iter().map(|rank| ranks.binary_search(rank).ok()).collect();
            let of = |place: &Option<usize>| match place {
                Some(place) => Ok(&operands[*place][0]),
                None => Err(Diagnostic::new("a rank waits for others that do not come")),
            };
            let given = match equation.operands.is_empty() {
                true => vec![],
                false => places.iter().map(of).collect::<Result<Vec<_>>>()?,
            };
            let made = equation.op.exchange(&Group {
                operands: given,
                size: group.len(),
                result: body.ty(equation.results[0]),
                rounds: self.rounds,
            })?;
            for (place, array) in places.into_iter().zip(made) {
                if let Some(place) = place {
                    results[place] = vec![array];
                }
            }
        }
        Ok(results)
    }

    /// Whether an equation needs to know the ranks: it is a collective but for `pvary`, or one of
    /// its regions holds one.
    fn needs(&self, equation: &Equation) -> bool {
        let itself = equation.op.collective();
        itself.is_some_and(|c| c.exchanges || equation.operands.is_empty())
            || equation.regions.iter().any(|region| self.region_needs(region))
    }

    fn region_needs(&self, region: &Region) -> bool {
        let known = self.needs_ranks.borrow().get(&region.address()).copied();
        known.unwrap_or_else(|| {
            let needs = region.equations.iter().any(|equation| self.needs(equation));
            self.needs_ranks.borrow_mut().insert(region.address(), needs);
            needs
        })
    }
}
