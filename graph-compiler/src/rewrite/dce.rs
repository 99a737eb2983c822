//! Dead code elimination: removes equations that no output depends on, and unread parts of
//! constructs.
//!
//! One walk from the outputs backward visits the regions of constructs on the way ([`Unused`]). A
//! probe is always live.

use super::control::unused::Unused;
use super::{of_regions, with_fuel};
use crate::probes::watches;
use wengert_core::graph::{Body, Equation, Function, ValueId};
use wengert_core::id::IdVec;

/// Removes dead equations, results, carries and operands; at most `fuel` of them.
pub(crate) fn dce(function: Function, fuel: u64) -> (Function, u64) {
    dce_but(function, fuel, &|_| false)
}

/// [`dce`], without changing the results, carries and operands of constructs for which `stays` is
/// true.
pub(crate) fn dce_but(
    function: Function,
    fuel: u64,
    stays: &dyn Fn(&Equation) -> bool,
) -> (Function, u64) {
    with_fuel(function, fuel, |body, left| of_body(body, left, stays))
}

fn of_body(body: &mut Body, left: &mut u64, stays: &dyn Fn(&Equation) -> bool) {
    let within = |body: &mut Body, left: &mut u64| of_body(body, left, stays);
    let mut live: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    body.outputs.iter().for_each(|v| live[*v] = true);
    let mut kept = Vec::with_capacity(body.equations.len());
    for mut equation in std::mem::take(&mut body.equations).into_iter().rev() {
        if *left > 0 && !equation.results.iter().any(|v| live[*v]) && !watches(&equation) {
            *left -= 1;
            continue;
        }
        if equation.op.control().is_some() && !stays(&equation) {
            let mut unused = Unused { equation: &mut equation, left };
            unused.results(&live);
            unused.carries(&live);
            loop {
                of_regions(unused.equation, unused.left, &within);
                // A removed result may have been the only reader of a carry.
                if !unused.carries(&live) {
                    break;
                }
            }
            unused.operands();
        } else {
            of_regions(&mut equation, left, &within);
        }
        equation.operands.iter().for_each(|v| live[*v] = true);
        kept.push(equation);
    }
    kept.reverse();
    // Programs live as long as their compiled plans, and derivatives often have mostly dead
    // equations.
    kept.shrink_to_fit();
    body.equations = kept;
}
