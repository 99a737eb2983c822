//! Transposes the loop-invariant right-hand sides of products, in front of the loop.
//!
//! A product of few rows reads each element of its rhs only a few times, so the layout of rhs
//! matters. With adjacent columns rhs is read as it is. Otherwise every step has to transpose it
//! first. A weight that a loop captures is loop-invariant, so it is transposed once. The sums are
//! the same chains.

use super::{Parts, spend, with_regions};
use std::collections::BTreeMap;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::op::{Control, Permute};
use wengert_core::{Op, Target};

/// Minimum number of steps for which it pays.
const STEPS: i64 = 4;
/// Rows of lhs. With more rows, the transpose is a small part of the product.
const ROWS: std::ops::RangeInclusive<usize> = 1..=128;
/// Minimum number of elements of rhs for which it pays.
const ELEMENTS: usize = 4096;

/// Transposes captures of loops, for targets that want it; at most `fuel` values.
pub(crate) fn lay_out(function: Function, target: &Target, fuel: u64) -> (Function, u64) {
    if target.lays_out { with_regions(function, fuel, of_body) } else { (function, 0) }
}

fn of_body(body: &mut Body, left: &mut u64) {
    let mut equations = Vec::with_capacity(body.equations.len());
    for mut equation in std::mem::take(&mut body.equations) {
        equation.regions.iter_mut().for_each(|region| of_body(region, left));
        let steps = match equation.op.control() {
            Some(Control::Scan(scan)) => scan.length.as_constant().unwrap_or(0),
            _ => 0,
        };
        if steps >= STEPS {
            in_front_of(body, &mut equation, &mut equations, left);
        }
        equations.push(equation);
    }
    body.equations = equations;
}

/// Transposes right-hand sides of a scan's products in front of it.
fn in_front_of(body: &mut Body, scan: &mut Equation, before: &mut Vec<Equation>, left: &mut u64) {
    let mut parts = Parts::of(scan).expect("it is a loop");
    let region: &mut Body = &mut scan.regions[0];
    let first = region.inputs.len() - parts.captures;
    // The captures, each with the outer value that it stands for.
    let captured: BTreeMap<ValueId, ValueId> = region.inputs[first..]
        .iter()
        .copied()
        .zip(scan.operands[parts.first + first..].iter().copied())
        .collect();
    let mut transposed: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut equations = std::mem::take(&mut region.equations);
    for equation in &mut equations {
        let Some(rhs) = rhs_of(region, equation).filter(|rhs| captured.contains_key(rhs)) else {
            continue;
        };
        let input = match transposed.get(&rhs) {
            Some(input) => *input,
            None if !spend(left) => continue,
            None => {
                let mut ty = region.ty(rhs).clone();
                ty.shape.reverse();
                let outside = body.values.push(ty.clone());
                before.push(Equation {
                    op: Permute { permutation: vec![1, 0] }.into(),
                    operands: vec![captured[&rhs]],
                    results: vec![outside],
                    regions: vec![],
                    location: equation.location,
                });
                scan.operands.push(outside);
                let input = region.values.push(ty);
                region.inputs.push(input);
                parts.captures += 1;
                transposed.insert(rhs, input);
                input
            }
        };
        if let Op::DotGeneral(dot) = &mut equation.op {
            dot.contract.1 = vec![0];
        }
        equation.operands[1] = input;
    }
    region.equations = equations;
    parts.set(scan);
}

/// The rhs of a product of few rows, if its columns are not adjacent.
fn rhs_of(region: &Body, equation: &Equation) -> Option<ValueId> {
    let Op::DotGeneral(dot) = &equation.op else { return None };
    let [lhs, rhs] = equation.operands[..] else { return None };
    let ty = region.ty(rhs);
    let extents = ty.extents()?;
    let [_, depth] = extents[..] else { return None };
    let apart = dot.batch.1.is_empty() && dot.contract.1 == [1] && ty.dtype.is_float();
    let rows = region.ty(lhs).elements()? / depth.max(1);
    (apart && ty.elements()? >= ELEMENTS && ROWS.contains(&rows)).then_some(rhs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::{parse_program, verify};

    fn function(rows: usize, length: usize, contract: usize) -> Function {
        let [n, k] = if contract == 1 { [64, 128] } else { [128, 64] };
        let text = format!(
            "func @f(%x: f32[{rows},128], %w: f32[{n},{k}], %v: f32[64,128]) \
               -> (y: f32[{rows},128], z: f32[{length},{rows},64]) {{
               %0: f32[{rows},128], %1: f32[{length},{rows},64] = scan %x, %w, %v \
                 {{captures=2, carries=1, counted=false, length={length}}}
                 region (%a: f32[{rows},128], %b: f32[{n},{k}], %c: f32[64,128]) {{
                   %2: f32[{rows},64] = dot_general %a, %b {{contract=[[1],[{contract}]]}}
                   %3: f32[{rows},64] = sin %2
                   %4: f32[{rows},128] = dot_general %3, %c {{contract=[[1],[0]]}}
                   %5: f32[{rows},64] = dot_general %4, %b {{contract=[[1],[{contract}]]}}
                   return %4, %5
                 }}
               return %0, %1
             }}"
        );
        let program = parse_program(&text, "test.ir").unwrap_or_else(|e| panic!("{e}"));
        program.functions()[0].clone()
    }

    #[test]
    fn what_every_step_would_transpose_is_transposed_once() {
        let before = function(16, 8, 1);
        let (after, changes) = lay_out(before.clone(), &Target::cpu(), u64::MAX);
        verify(&after).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(changes, 1, "both products read one copy");
        let ops: Vec<&str> = after.body.equations.iter().map(|e| e.op.name()).collect();
        assert_eq!(ops, ["permute", "scan"]);
        let text = after.to_string();
        assert_eq!(text.matches("contract=[[1],[0]]").count(), 3, "{text}");
        assert_eq!(lay_out(before.clone(), &Target::cpu(), 0), (before.clone(), 0));
        assert_eq!(
            lay_out(before.clone(), &Target { lays_out: false, ..Target::cpu() }, u64::MAX),
            (before, 0)
        );
    }

    #[test]
    fn what_does_not_pay_stays() {
        // Many rows, few steps, and an rhs that has the right layout already.
        for before in [function(256, 8, 1), function(16, 3, 1), function(16, 8, 0)] {
            assert_eq!(lay_out(before.clone(), &Target::cpu(), u64::MAX), (before, 0));
        }
    }

    #[test]
    fn a_product_with_a_vector_stays() {
        let text = "func @f(%x: f32[8,64], %w: f32[64,64], %v: f32[64]) \
               -> (y: f32[8,64], z: f32[6,8]) {
               %0: f32[8,64], %1: f32[6,8] = scan %x, %w, %v \
                 {captures=2, carries=1, counted=false, length=6}
                 region (%a: f32[8,64], %b: f32[64,64], %c: f32[64]) {
                   %2: f32[8,64] = dot_general %a, %b {contract=[[1],[0]]}
                   %3: f32[8] = dot_general %2, %c {contract=[[1],[0]]}
                   return %2, %3
                 }
               return %0, %1
             }";
        let program = parse_program(text, "test.ir").unwrap_or_else(|e| panic!("{e}"));
        let before = program.functions()[0].clone();
        assert_eq!(lay_out(before.clone(), &Target::cpu(), u64::MAX), (before, 0));
    }
}
