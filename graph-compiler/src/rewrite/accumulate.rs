//! Scatters a scattered term of a sum into the other term.
//!
//! The gradient of a look-up table is `scatter_add` onto zeros. The table may have other uses:
//! GPT-2 also computes the logits by products with its token table. Then the two gradients are
//! added, and the zeros and a temporary tensor as large as the table are redundant: the updates
//! can be added to the other term in place. That is another order of addition, so it is a pass
//! that declares this, not a rewrite rule.

use std::collections::BTreeMap;
use wengert_core::call::ScatterKind;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;
use wengert_core::op::Binary;
use wengert_core::{Op, Scalar};

/// Scatters into the other terms of sums; at most `fuel` of them.
pub(crate) fn accumulate(mut function: Function, fuel: u64) -> (Function, u64) {
    let mut left = fuel;
    of_body(&mut function.body, &mut left);
    (function, fuel - left)
}

fn of_body(body: &mut Body, left: &mut u64) {
    let mut uses: IdVec<ValueId, u32> = body.values.ids().map(|_| 0).collect();
    let operands = body.equations.iter().flat_map(|e| &e.operands);
    operands.chain(&body.outputs).for_each(|v| uses[*v] += 1);
    // Values that are 0 everywhere, and scatters onto such values.
    let mut zeros: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    let mut scattered: BTreeMap<ValueId, Equation> = BTreeMap::new();
    for equation in &mut body.equations {
        equation.regions.iter_mut().for_each(|region| of_body(region, left));
        let result = equation.results.first().copied();
        match (&equation.op, result) {
            (Op::Constant(c), Some(result)) => zeros[result] = c.value.scalars().all(is_zero),
            (Op::BroadcastInDim(_), Some(result)) => zeros[result] = zeros[equation.operands[0]],
            (Op::Scatter(scatter), Some(result)) => {
                let float = body.values[result].dtype.is_float();
                if scatter.kind == ScatterKind::Add && zeros[equation.operands[0]] && float {
                    scattered.insert(result, equation.clone());
                }
            }
            (Op::Binary(Binary::Add), Some(_)) => {
                let alone = |n: &usize| {
                    let (term, other) = (equation.operands[*n], equation.operands[1 - *n]);
                    scattered.contains_key(&term) && uses[term] == 1 && term != other
                };
                let Some(n) = [0, 1].into_iter().find(alone).filter(|_| *left > 0) else {
                    continue;
                };
                *left -= 1;
                let (term, other) = (equation.operands[n], equation.operands[1 - n]);
                let scatter = &scattered[&term];
                equation.op = scatter.op.clone();
                equation.operands.clone_from(&scatter.operands);
                equation.operands[0] = other;
            }
            _ => {}
        }
    }
}

/// 0.0, or −0.0. Adding it changes no sum, except a sum of negative zeros.
fn is_zero(scalar: Scalar) -> bool {
    scalar.to_f64() == 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::{parse_program, verify};
    use wengert_core::{DType, Literal, interpret};

    const HEAD: &str = "func @f(%x: f32[4,2], %i: i32[3,1], %u: f32[3,2]) -> (y: f32[4,2]) {
       %0: f32[] = constant {value=f32[] 0.0}
       %1: f32[4,2] = broadcast_in_dim %0 {shape=[4,2]}";
    const SCATTER: &str =
        "{inserted_window_dims=[0], scatter_dims_to_operand_dims=[0], update_window_dims=[1]}";

    fn function(rest: &str) -> Function {
        let text = format!("{HEAD}\n{}\n}}", rest.replace("{S}", SCATTER));
        let program = parse_program(&text, "test.ir").unwrap_or_else(|e| panic!("{e}"));
        program.functions()[0].clone()
    }

    fn run(function: &Function) -> Vec<f64> {
        let numbers = |shape: &[usize], step: f32| {
            let count = shape.iter().product::<usize>();
            Literal::from_vec(shape, (0..count).map(|n| n as f32 * step - 1.0).collect())
                .expect("it fits")
        };
        let indices = Literal::from_vec(&[3, 1], vec![2i32, 0, 2]).expect("it fits");
        let given = [numbers(&[4, 2], 0.5), indices, numbers(&[3, 2], 0.25)];
        let results = interpret::run(function, &given).expect("it runs");
        assert_eq!(results[0].dtype(), DType::F32);
        results[0].scalars().map(|s| s.to_f64()).collect()
    }

    #[test]
    fn a_term_that_is_scattered_is_scattered_into_the_other() {
        for sum in ["add %x, %2", "add %2, %x"] {
            let before = function(&format!(
                "%2: f32[4,2] = scatter_add %1, %i, %u {{S}}\n%3: f32[4,2] = {sum}\nreturn %3"
            ));
            let (after, changes) = accumulate(before.clone(), u64::MAX);
            verify(&after).expect("it is valid");
            let last = after.body.equations.last().expect("there are equations");
            assert_eq!(
                (changes, last.op.name(), last.operands[0]),
                (1, "scatter_add", after.body.inputs[0])
            );
            assert_eq!(run(&after), run(&before));
            assert_eq!(accumulate(before.clone(), 0), (before, 0));
        }
    }

    #[test]
    fn two_terms_that_are_scattered_are_scattered_one_onto_the_other() {
        let before = function(
            "%2: f32[4,2] = scatter_add %1, %i, %u {S}
             %3: f32[3,2] = neg %u
             %4: f32[4,2] = scatter_add %1, %i, %3 {S}
             %5: f32[4,2] = add %2, %4
             return %5",
        );
        let (after, changes) = accumulate(before.clone(), u64::MAX);
        assert_eq!(changes, 1);
        assert_eq!(run(&after), run(&before));
    }

    #[test]
    fn what_is_used_otherwise_or_is_no_sum_stays() {
        for rest in [
            "%2: f32[4,2] = scatter_add %1, %i, %u {S}\n%3: f32[4,2] = add %x, %2\n\
             %4: f32[4,2] = add %3, %2\nreturn %4",
            "%2: f32[4,2] = scatter_add %1, %i, %u {S}\n%3: f32[4,2] = add %2, %2\nreturn %3",
            "%2: f32[4,2] = scatter_add %x, %i, %u {S}\n%3: f32[4,2] = add %x, %2\nreturn %3",
            "%2: f32[4,2] = scatter_max %1, %i, %u {S}\n%3: f32[4,2] = add %x, %2\nreturn %3",
            "%2: f32[4,2] = scatter_add %1, %i, %u {S}\n%3: f32[4,2] = sub %x, %2\nreturn %3",
        ] {
            let before = function(rest);
            assert_eq!(accumulate(before.clone(), u64::MAX), (before, 0));
        }
    }
}
