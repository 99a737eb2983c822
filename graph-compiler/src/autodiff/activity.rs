//! The values that take part in a differentiation.

use super::{custom, linear_solve};
use wengert_core::IdVec;
use wengert_core::graph::{Body, Equation, ValueId};
use wengert_core::op::Derivative;
use wengert_core::op::derivative::Custom;

/// Which values of a body are needed, and which have derivatives.
pub struct Activity {
    /// Some output depends on the value, so its equation is run.
    pub live: IdVec<ValueId, bool>,
    /// Some differentiated output has a derivative with respect to the value that may differ from
    /// zero. The value gets a tangent if an operand of its equation has a tangent. 8-bit floats are
    /// marked, although they have no tangents, so that a conversion to them is an error.
    pub differentiated: IdVec<ValueId, bool>,
}

impl Activity {
    /// For each value of a body whether some output depends on it.
    pub fn live(body: &Body) -> IdVec<ValueId, bool> {
        Activity::of(body, &vec![false; body.outputs.len()]).live
    }

    /// Removes the equations on which no output depends. Returns the live values.
    pub fn prune(body: &mut Body) -> IdVec<ValueId, bool> {
        let live = Activity::live(body);
        body.equations.retain(|equation| equation.results.iter().any(|v| live[*v]));
        live
    }

    /// Analyses a body whose `wanted` outputs are differentiated.
    pub fn of(body: &Body, wanted: &[bool]) -> Self {
        let none = || body.values.ids().map(|_| false).collect::<IdVec<ValueId, bool>>();
        let (mut live, mut differentiated) = (none(), none());
        for (value, wanted) in body.outputs.iter().zip(wanted) {
            live[*value] = true;
            differentiated[*value] |= wanted & body.ty(*value).dtype.is_real();
        }
        for equation in body.equations.iter().rev() {
            let any = |marks: &IdVec<ValueId, bool>| equation.results.iter().any(|v| marks[*v]);
            if any(&live) {
                equation.operands.iter().for_each(|v| live[*v] = true);
            }
            if any(&differentiated) {
                for (operand, matters) in equation.operands.iter().zip(matters(equation)) {
                    differentiated[*operand] |= matters && body.ty(*operand).dtype.is_real();
                }
            }
        }
        Activity { live, differentiated }
    }
}

/// For each operand, whether the derivative of a result with respect to it may differ from zero.
fn matters(equation: &Equation) -> Vec<bool> {
    let count = equation.operands.len();
    match equation.op.derivative() {
        Derivative::Zero => vec![false; count],
        Derivative::Custom(Custom::LinearSolve { captures }) => {
            linear_solve::matters(equation, captures)
        }
        Derivative::Custom(Custom::Jvp { captures }) => custom::matters(equation, captures),
        _ => vec![true; count],
    }
}
