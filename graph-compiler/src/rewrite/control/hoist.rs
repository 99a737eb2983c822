//! Loop-invariant code motion: equations that every step computes alike move in front of the
//! loop.
//!
//! Only equations whose results are worth storing move: reductions, products, calls and loops;
//! and elementwise equations, unless the result is larger than all of the operands. Free
//! equations, such as broadcasts, move with the equations that need them.

use super::{Parts, spend, with_regions};
use std::collections::BTreeMap;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::{Control, Cost};

/// Hoists out of every loop; at most `fuel` equations, not counting those that move along.
pub(crate) fn hoist(function: Function, fuel: u64) -> (Function, u64) {
    with_regions(function, fuel, of_body)
}

fn of_body(body: &mut Body, left: &mut u64) {
    let mut equations = Vec::with_capacity(body.equations.len());
    for mut equation in std::mem::take(&mut body.equations) {
        // From the inside out, so that an equation invariant in all loops leaves all of them. A
        // called function has one body for all its calls, so it is left alone.
        if equation.op.callee().is_none() {
            equation.regions.iter_mut().for_each(|region| of_body(region, left));
        }
        if !matches!(equation.op.control(), None | Some(Control::Branch)) {
            for n in 0..equation.regions.len() {
                out_of(body, &mut equation, n, &mut equations, left);
            }
        }
        equations.push(equation);
    }
    body.equations = equations;
}

/// Moves the equations of region number `n` that depend on captures alone in front of the loop.
fn out_of(
    body: &mut Body,
    looping: &mut Equation,
    n: usize,
    before: &mut Vec<Equation>,
    left: &mut u64,
) {
    let mut parts = Parts::of(looping).expect("it is a loop");
    let region = &mut looping.regions[n];
    let first = region.inputs.len() - parts.captures;
    // For each loop-invariant value the value outside.
    let mut outside: IdVec<ValueId, Option<ValueId>> = region.values.ids().map(|_| None).collect();
    let captured = &looping.operands[parts.first + first..];
    for (input, operand) in region.inputs[first..].iter().zip(captured) {
        outside[*input] = Some(*operand);
    }
    let moves = chosen(region, first, left);
    if !moves.contains(&true) {
        return;
    }
    let mut kept = Vec::new();
    for (equation, moves) in std::mem::take(&mut region.equations).into_iter().zip(moves) {
        if !moves {
            kept.push(equation);
            continue;
        }
        let operands =
            equation.operands.iter().map(|v| outside[*v].expect("it is made of what is outside"));
        let operands = operands.collect();
        let results = equation.results.iter().map(|v| {
            let new = body.values.push(region.values[*v].clone());
            outside[*v] = Some(new);
            new
        });
        let results = results.collect();
        // A free equation is also kept inside, where recomputing it costs nothing; dce removes
        // unused copies.
        if equation.op.traits().cost == Cost::Free {
            kept.push(equation.clone());
        }
        before.push(Equation { operands, results, ..equation });
    }
    region.equations = kept;
    // Values that are still used inside, and now computed outside, become captures.
    let inside: IdVec<ValueId, bool> = {
        let mut inside: IdVec<ValueId, bool> = region.values.ids().map(|_| false).collect();
        let made = region.equations.iter().flat_map(|e| &e.results);
        region.inputs.iter().chain(made).for_each(|v| inside[*v] = true);
        inside
    };
    let mut captures: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for value in region.equations.iter().flat_map(|e| &e.operands).chain(&region.outputs) {
        if !inside[*value] {
            captures.insert(*value, outside[*value].expect("it has been moved"));
        }
    }
    for (value, operand) in captures {
        parts.captures += 1;
        looping.operands.push(operand);
        let ty = body.ty(operand).clone();
        for (k, region) in looping.regions.iter_mut().enumerate() {
            let input = if k == n { value } else { region.values.push(ty.clone()) };
            region.inputs.push(input);
        }
    }
    parts.set(looping);
}

/// Whether each equation of a region moves.
fn chosen(region: &Body, first_capture: usize, left: &mut u64) -> Vec<bool> {
    let mut same: IdVec<ValueId, bool> = region.values.ids().map(|_| false).collect();
    region.inputs[first_capture..].iter().for_each(|v| same[*v] = true);
    let count = |v: &ValueId| region.ty(*v).elements().unwrap_or(usize::MAX);
    let mut moves = Vec::with_capacity(region.equations.len());
    for equation in &region.equations {
        let invariant = equation.operands.iter().all(|v| same[*v]);
        if invariant {
            equation.results.iter().for_each(|v| same[*v] = true);
        }
        let cost = equation.op.traits().cost;
        let largest = equation.operands.iter().map(count).max().unwrap_or(0);
        let grows = equation.results.iter().any(|v| count(v) > largest);
        let worth_it = cost == Cost::Loop || (cost != Cost::Free && !grows);
        // Constants stay where they are used; they only move along.
        let of_something = !equation.operands.is_empty();
        moves.push(invariant && of_something && worth_it && spend(left));
    }
    // The equations that they depend on move along.
    let mut needed: IdVec<ValueId, bool> = region.values.ids().map(|_| false).collect();
    for (equation, moves) in region.equations.iter().zip(&mut moves).rev() {
        *moves |= equation.results.iter().any(|v| needed[*v]);
        if *moves {
            equation.operands.iter().for_each(|v| needed[*v] = true);
        }
    }
    moves
}
