//! Common subexpressions: equal equations are one.

use crate::probes::watches;
use std::collections::HashMap;
use wengert_core::graph::{Body, Function, Region, ValueId};
use wengert_core::id::IdVec;
use wengert_core::{Op, TensorType};

/// Larger literals are not compared.
const MAX_LITERAL: usize = 4096;

/// Replaces an equation by an earlier one with the same op, operands and regions; at most `fuel` of them.
pub(crate) fn cse(mut function: Function, fuel: u64) -> (Function, u64) {
    let (body, spent) = of_body(function.body, fuel);
    function.body = body;
    (function, spent)
}

/// What makes two equations equal; bodies are compared by value.
type Key = (Op, Vec<ValueId>, Vec<Region>, Vec<TensorType>);

fn of_body(mut body: Body, fuel: u64) -> (Body, u64) {
    let mut left = fuel;
    let mut current: IdVec<ValueId, ValueId> = body.values.ids().collect();
    let mut known: HashMap<Key, Vec<ValueId>> = HashMap::new();
    let mut kept = Vec::with_capacity(body.equations.len());
    for mut equation in std::mem::take(&mut body.equations) {
        equation.operands.iter_mut().for_each(|v| *v = current[*v]);
        for region in &mut equation.regions {
            let (rewritten, spent) = of_body(std::mem::take(region).into_body(), left);
            (*region, left) = (rewritten.into(), left - spent);
        }
        let large = matches!(&equation.op, Op::Constant(c) if c.value.len() > MAX_LITERAL);
        if large || left == 0 || watches(&equation) {
            kept.push(equation);
            continue;
        }
        let mut operands = equation.operands.clone();
        if equation.op.traits().commutative {
            operands.sort();
        }
        let types = body.types(&equation.results);
        let key = (equation.op.clone(), operands, equation.regions.clone(), types);
        match known.get(&key) {
            Some(earlier) => {
                left -= 1;
                equation.results.iter().zip(earlier).for_each(|(v, e)| current[*v] = *e);
            }
            None => {
                known.insert(key, equation.results.clone());
                kept.push(equation);
            }
        }
    }
    body.equations = kept;
    body.outputs.iter_mut().for_each(|v| *v = current[*v]);
    (body.renumber(), fuel - left)
}
