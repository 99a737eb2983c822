//! Dead code: equations that no output depends on and nobody watches.

use crate::probes::watches;
use wengert_core::graph::{Body, Function, ValueId};
use wengert_core::id::IdVec;

/// Removes equations whose results nobody needs; at most `fuel` of them.
pub(crate) fn dce(mut function: Function, fuel: u64) -> (Function, u64) {
    let (body, spent) = of_body(function.body, fuel);
    function.body = body;
    (function, spent)
}

fn of_body(mut body: Body, fuel: u64) -> (Body, u64) {
    let mut left = fuel;
    let mut live: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    body.outputs.iter().for_each(|v| live[*v] = true);
    let mut kept = Vec::with_capacity(body.equations.len());
    for mut equation in std::mem::take(&mut body.equations).into_iter().rev() {
        if left > 0 && !equation.results.iter().any(|v| live[*v]) && !watches(&equation) {
            left -= 1;
            continue;
        }
        equation.operands.iter().for_each(|v| live[*v] = true);
        for region in &mut equation.regions {
            let (rewritten, spent) = of_body(std::mem::take(region).into_body(), left);
            (*region, left) = (rewritten.into(), left - spent);
        }
        kept.push(equation);
    }
    kept.reverse();
    // Programs live as long as what was compiled from them, and of a derivative often most is dead.
    kept.shrink_to_fit();
    body.equations = kept;
    // Nothing is gone, so the numbers are what they were.
    let body = if left == fuel { body } else { body.renumber() };
    (body, fuel - left)
}
