//! Tidying of a finished function.
//!
//! Differentiation and mapping emit more than is needed: tangents that turn out to be zero, the
//! same expression for the primal and for its derivative, unread residuals. Compilation removes
//! these. But functions are read and saved in files before they are compiled, so a function is
//! tidied when it is finished. No rule of `simplify` takes part, and dimensions may be variables.
//! Equal equations become one (`cse`). Unused equations, and unused results, carries and captures
//! of control flow, are removed (`dce`). Control flow is trimmed (`trim`): a number or a
//! repetition that a region captures is computed in the region, and a region that is known to run
//! once replaces its construct. Remaining equations keep their source lines.
//!
//! A loop in the forward half of a `custom_vjp` stays as it is, and so does its twin. Where such
//! a function is differentiated, its value is still the op itself, so that further derivatives
//! use the rule, and its residuals are computed by a copy of its forward half. Once the op is
//! inlined `cse` merges the two. That would fail if each had lost the parts that only the other
//! needs.

use super::{Seen, cse_but, dce_but, trim_but};
use rustc_hash::FxHashSet;
use wengert_core::Op;
use wengert_core::graph::{Body, Equation, Function, Region, verify};

/// Removes equations that are dead or computed twice from a function. Probes stay.
///
/// # Panics
///
/// If a pass breaks an invariant of the graph.
#[must_use]
pub fn tidy(mut function: Function) -> Function {
    // For termination see the parent module.
    let mut seen = Seen::default();
    while seen.is_new(&function.body) {
        let mut changes = 0;
        for pass in [cse_but, dce_but, trim_but] {
            let mut twins = FxHashSet::default();
            of_rules(&function.body, false, &mut twins);
            let stays = |e: &Equation| {
                !twins.is_empty() && twins.contains(&(e.op.clone(), e.regions.clone()))
            };
            let (changed, spent) = pass(function, u64::MAX, &stays);
            (function, changes) = (changed, changes + spent);
        }
        if changes == 0 {
            break;
        }
    }
    if let Err(fault) = verify(&function) {
        panic!("tidying breaks an invariant of the graph: {fault}");
    }
    function
}

/// Constructs in forward halves, which keep residuals.
fn of_rules(body: &Body, within: bool, found: &mut FxHashSet<(Op, Vec<Region>)>) {
    for Equation { op, regions, .. } in &body.equations {
        if within && op.control().is_some() {
            found.insert((op.clone(), regions.clone()));
        }
        let rule = matches!(op, Op::CustomVjp(_));
        for (n, region) in regions.iter().enumerate() {
            of_rules(region, within || rule && n == 0, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::parse_program;

    #[test]
    fn what_is_left_over_goes_and_what_is_watched_stays() {
        let program = parse_program(
            "func @f(%x: f32[B], %n: i32[]) -> (y: f32[B]) {
               %0: f32[B] = sin %x
               %1: f32[B] = probe %0 {kind=\"print\", name=\"a\"}
               %2: f32[B] = sin %x
               %3: f32[B] = cos %2
               %4: f32[B] = exp %x
               %5: f32[B], %6: f32[B] = scan %x, %2, %3 \
                 {captures=1, carries=2, counted=false, length=3}
                 region (%a: f32[B], %b: f32[B], %c: f32[B]) {
                   %7: f32[B] = mul %a, %c
                   return %7, %b
                 }
               %8: f32[B] = add %5, %0
               return %8
             }",
            "test.ir",
        );
        let program = program.unwrap_or_else(|e| panic!("{e}"));
        let tidied = tidy(program.functions()[0].clone());
        let ops: Vec<&str> = tidied.body.equations.iter().map(|e| e.op.name()).collect();
        assert_eq!(ops, ["sin", "probe", "cos", "scan", "add"], "{tidied}");
        assert_eq!(
            tidied.body.equations[3].results.len(),
            1,
            "the carry that never changes is gone"
        );
        assert_eq!(tidy(tidied.clone()), tidied);
    }
}
