//! Derives comparison masks from results instead of operands.
//!
//! `relu(x)` is `select(x ≤ 0, 0, x)`, and its derivative needs the mask x ≤ 0 again. That keeps
//! x in memory beside the result, which the next layer keeps anyway. But x ≤ 0 exactly where
//! `relu(x)` ≤ 0. So later uses get a comparison of the result. In general: let a comparison of a
//! value with a number select between that value and another number. If the other number passes
//! the comparison exactly as the values that it replaces, the result compares as the operand did,
//! bit for bit, NaNs included.

use super::with_fuel;
use std::collections::BTreeMap;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::Compare;
use wengert_core::{Op, Scalar};

/// Compares results in place of operands; at most `fuel` changes.
pub(crate) fn masks(function: Function, fuel: u64) -> (Function, u64) {
    with_fuel(function, fuel, of_body)
}

/// A comparison of a value with a number.
#[derive(Clone)]
struct Comparison {
    how: Compare,
    value: ValueId,
    bound: ValueId,
    number: Scalar,
}

fn of_body(body: &mut Body, left: &mut u64) {
    let last = last_uses(body);
    // The element of values of equal elements.
    let mut numbers: IdVec<ValueId, Option<Scalar>> = body.values.ids().map(|_| None).collect();
    let mut comparisons: BTreeMap<ValueId, Comparison> = BTreeMap::new();
    let mut instead: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let equations = std::mem::take(&mut body.equations);
    for (n, mut equation) in equations.into_iter().enumerate() {
        equation.regions.iter_mut().for_each(|region| of_body(region, left));
        for operand in &mut equation.operands {
            *operand = instead.get(operand).copied().unwrap_or(*operand);
        }
        match (&equation.op, &equation.operands[..], &equation.results[..]) {
            (Op::Constant(c), _, [result]) => {
                numbers[*result] = c.value.splat().filter(|s| s.dtype().is_float())
            }
            (Op::BroadcastInDim(_), [x], [result]) => numbers[*result] = numbers[*x],
            (Op::Compare(how), [value, bound], [result]) => {
                if let (Some(number), None) = (numbers[*bound], numbers[*value]) {
                    let (how, value, bound) = (*how, *value, *bound);
                    comparisons.insert(*result, Comparison { how, value, bound, number });
                }
            }
            (Op::Select(_), [mask, yes, no], [result]) => {
                let asked = comparisons.get(mask).filter(|c| {
                    let other = match (*yes == c.value, *no == c.value) {
                        (false, true) => numbers[*yes].map(|other| (other, true)),
                        (true, false) => numbers[*no].map(|other| (other, false)),
                        _ => None,
                    };
                    other.is_some_and(|(other, wanted)| holds(c.how, other, c.number) == wanted)
                });
                // A later equation must read the mask.
                let asked = asked.filter(|_| last[*mask] > n && *left > 0);
                if let Some(c) = asked {
                    *left -= 1;
                    let again = body.values.push(body.values[*mask].clone());
                    instead.insert(*mask, again);
                    let operands = vec![*result, c.bound];
                    let (results, location) = (vec![again], equation.location);
                    let comparison =
                        Equation { op: c.how.into(), operands, results, regions: vec![], location };
                    body.equations.push(equation);
                    body.equations.push(comparison);
                    continue;
                }
            }
            _ => {}
        }
        body.equations.push(equation);
    }
}

/// For each value the last equation that reads it.
fn last_uses(body: &Body) -> IdVec<ValueId, usize> {
    let mut last: IdVec<ValueId, usize> = body.values.ids().map(|_| 0).collect();
    for (n, equation) in body.equations.iter().enumerate() {
        equation.operands.iter().for_each(|v| last[*v] = n);
    }
    last
}

/// Whether a comparison of two numbers holds.
fn holds(how: Compare, a: Scalar, b: Scalar) -> bool {
    let (a, b) = (a.to_f64(), b.to_f64());
    match how {
        Compare::Eq => a == b,
        Compare::Ne => a != b,
        Compare::Lt => a < b,
        Compare::Le => a <= b,
        Compare::Gt => a > b,
        Compare::Ge => a >= b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::{parse_program, verify};
    use wengert_core::{Literal, interpret};

    const HEAD: &str = "func @f(%x: f32[6], %d: f32[6]) -> (y: f32[6], z: f32[6]) {
       %0: f32[] = constant {value=f32[] 0.0}
       %1: f32[6] = broadcast_in_dim %0 {shape=[6]}
       %2: f32[] = constant {value=f32[] 6.0}
       %3: f32[6] = broadcast_in_dim %2 {shape=[6]}";

    fn function(rest: &str) -> Function {
        let program = parse_program(&format!("{HEAD}\n{rest}\n}}"), "test.ir")
            .unwrap_or_else(|e| panic!("{e}"));
        program.functions()[0].clone()
    }

    fn run(function: &Function) -> Vec<Literal> {
        let x = [f32::NAN, -0.0, 0.0, -1.5, 2.5, 7.0];
        let given = [x.to_vec(), vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]];
        let given = given.map(|values| Literal::from_vec(&[6], values).expect("it fits"));
        interpret::run(function, &given).expect("it runs")
    }

    #[test]
    fn the_result_is_asked() {
        for (mask, choice) in [
            ("le %x, %1", "select %4, %1, %x"),
            ("gt %x, %1", "select %4, %x, %1"),
            ("ge %x, %3", "select %4, %3, %x"),
            ("lt %x, %3", "select %4, %x, %3"),
        ] {
            let before = function(&format!(
                "%4: bool[6] = {mask}
                 %5: f32[6] = {choice}
                 %6: f32[6] = select %4, %1, %d
                 return %5, %6"
            ));
            let (after, changes) = masks(before.clone(), u64::MAX);
            verify(&after).expect("it is valid");
            assert_eq!(changes, 1, "{mask}");
            let results = run(&after);
            assert_eq!(format!("{results:?}"), format!("{:?}", run(&before)));
            let asked: Vec<_> =
                after.body.equations.iter().filter(|e| matches!(e.op, Op::Compare(_))).collect();
            let choice = after.body.equations.iter().find(|e| matches!(e.op, Op::Select(_)));
            assert_eq!(asked[1].operands[0], choice.expect("it is there").results[0]);
            assert_eq!(masks(after.clone(), u64::MAX), (after, 0));
            assert_eq!(masks(before.clone(), 0), (before, 0));
        }
    }

    #[test]
    fn what_would_compare_otherwise_or_is_not_asked_again_stays() {
        for rest in [
            // The other number is on the wrong side of the bound, the operand is not constant, or
            // the mask has no later reader.
            "%4: bool[6] = lt %x, %1\n%5: f32[6] = select %4, %1, %x\n\
             %6: f32[6] = select %4, %1, %d\nreturn %5, %6",
            "%4: bool[6] = le %x, %1\n%5: f32[6] = select %4, %3, %x\n\
             %6: f32[6] = select %4, %1, %d\nreturn %5, %6",
            "%4: bool[6] = le %x, %1\n%5: f32[6] = select %4, %d, %x\n\
             %6: f32[6] = select %4, %1, %d\nreturn %5, %6",
            "%4: bool[6] = le %x, %1\n%5: f32[6] = select %4, %1, %x\n%6: f32[6] = neg %d\n\
             return %5, %6",
        ] {
            let before = function(rest);
            assert_eq!(masks(before.clone(), u64::MAX), (before, 0), "{rest}");
        }
    }
}
