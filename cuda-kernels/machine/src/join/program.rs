//! The linear program of the join.

use super::Term;
use crate::sass::{Flow, Kernel};
use microlp::{ComparisonOp, OptimizationDirection, Problem, Variable};
use std::collections::BTreeSet;

/// Price of an executed instruction, beside the price 1 of an execution of a line that is not
/// explained. Small, so that it only decides where lines do not.
const PRICE: f64 = 1e-4;
/// Executions that the solver leaves of a block that is not executed.
const NONE: f64 = 1e-7;

/// Price of the work of a guarded instruction.
const GUARDED: f64 = 1e-2;
/// Blocks up to which whole numbers of executions are looked for.
pub const MOST_INTEGERS: usize = 48;
/// Executions per warp up to which whole numbers are looked for.
const MOST_TRIPS: f64 = 1e6;

/// Executions of each block per warp. `is_uniform`: no warp parts, so that edges add up.
///
/// Errors: the message of the solver.
pub(super) fn solve(
    kernel: &Kernel,
    flow: &Flow,
    terms: &[Term],
    is_uniform: bool,
) -> Result<Vec<f64>, String> {
    let mut program = Problem::new(OptimizationDirection::Minimize);
    let any = (0.0, f64::INFINITY);
    let integers = integers(terms, is_uniform);
    let blocks: Vec<Variable> = flow
        .blocks
        .iter()
        .enumerate()
        .map(|(at, b)| {
            let price = PRICE * (b.end - b.first) as f64;
            match integers.contains(&at) {
                true => program.add_integer_var(price, (0, i32::MAX)),
                false => program.add_var(price, any),
            }
        })
        .collect();
    // Edges in the order of their sources, then their targets.
    let mut edges: Vec<(usize, usize, Variable)> = Vec::new();
    for (from, block) in flow.blocks.iter().enumerate() {
        for &to in &block.successors {
            edges.push((from, to, program.add_var(0.0, any)));
        }
    }
    for (at, block) in flow.blocks.iter().enumerate() {
        let last = &kernel.code[block.end - 1];
        let out: Vec<Variable> = edges.iter().filter(|e| e.0 == at).map(|e| e.2).collect();
        let into: Vec<Variable> = edges.iter().filter(|e| e.1 == at).map(|e| e.2).collect();
        let difference = |edges: &[Variable]| {
            let mut row: Vec<(Variable, f64)> = edges.iter().map(|&e| (e, 1.0)).collect();
            row.push((blocks[at], -1.0));
            row
        };
        // Lanes that leave are in no edge.
        if !out.is_empty() {
            let exact = is_uniform || out.len() == 1;
            match (block.leaves, exact) {
                (false, true) => program.add_constraint(difference(&out), ComparisonOp::Eq, 0.0),
                (false, false) => program.add_constraint(difference(&out), ComparisonOp::Ge, 0.0),
                (true, _) => {}
            }
        }
        for &e in out.iter().chain(&into) {
            program.add_constraint([(e, 1.0), (blocks[at], -1.0)], ComparisonOp::Le, 0.0);
        }
        let entry = flow.entries.iter().position(|&e| e == at);
        let mut row = difference(&into);
        let comparison = if is_uniform { ComparisonOp::Eq } else { ComparisonOp::Ge };
        match entry {
            // The kernel is entered once per warp.
            Some(0) => program.add_constraint(row, comparison, -1.0),
            Some(_) => {
                let callers = flow.blocks.iter().enumerate().filter(|(_, b)| b.callee == Some(at));
                let guarded = callers.clone().any(|(_, b)| kernel.code[b.end - 1].guard.is_some());
                row.extend(callers.map(|(c, _)| (blocks[c], 1.0)));
                let comparison = if guarded { ComparisonOp::Ge } else { comparison };
                program.add_constraint(row, comparison, 0.0);
            }
            None => program.add_constraint(row, comparison, 0.0),
        }
        // An unguarded jump to one place takes every warp there.
        debug_assert!(!out.is_empty() || block.leaves, "block {at} ends nowhere: {}", last.name());
    }
    // The kernel's entry is executed at least once per warp, whatever jumps back to it.
    program.add_constraint([(blocks[flow.entries[0]], 1.0)], ComparisonOp::Ge, 1.0);
    for t in terms {
        // explained + below − above = count
        let below = program.add_var(t.lines, any);
        let above = program.add_var(if t.is_at_least { 0.0 } else { t.lines }, any);
        let mut row = vec![(below, 1.0), (above, -1.0)];
        for c in &t.blocks {
            if c.unguarded > 0.0 {
                row.push((blocks[c.block], c.unguarded));
            }
            if c.guarded > 0.0 {
                let works = program.add_var(GUARDED * t.lines, any);
                let most = [(works, 1.0), (blocks[c.block], -c.guarded)];
                program.add_constraint(most, ComparisonOp::Le, 0.0);
                row.push((works, 1.0));
            }
        }
        program.add_constraint(row, ComparisonOp::Eq, t.count);
    }
    let outcome = program.solve().map_err(|e| e.to_string())?;
    let solution = outcome.into_solution().map_err(|_| "the solver was interrupted".to_owned())?;
    let value = |&b: &Variable| {
        let x = solution.var_value(b);
        if x > NONE { x } else { 0.0 }
    };
    Ok(blocks.iter().map(value).collect())
}

/// Blocks that are executed a whole number of times per warp, if all warps are alike.
fn integers(terms: &[Term], is_uniform: bool) -> BTreeSet<usize> {
    let is_whole = |t: &Term| (t.count - t.count.round()).abs() < 1e-9 && t.count < MOST_TRIPS;
    if !is_uniform || !terms.iter().all(is_whole) {
        return BTreeSet::new();
    }
    let ambiguous = terms.iter().filter(|t| t.is_ambiguous());
    let blocks: BTreeSet<usize> =
        ambiguous.flat_map(|t| t.blocks.iter().map(|c| c.block)).collect();
    if blocks.len() > MOST_INTEGERS { BTreeSet::new() } else { blocks }
}
