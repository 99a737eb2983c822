//! Ten wrong derivative rules.

use crate::programs::{Network, first, network, networks};
use crate::reduced::{Figures, shrunk};
use crate::sabotage::{Wrong, sabotaged};
use wengert::Result;
use wengert::autodiff::function::{Grad, Jvp};
use wengert::check::{Autodiff, Differentiate, Finding, derivatives_by};
use wengert::core::graph::{Equation, Function, Program};
use wengert::core::{Location, LocationTable};
use wengert::isolate::bisect::{self, Fault};

/// Derivatives in which the equations of a rule are wrong.
struct WrongRule {
    rule: &'static str,
    /// The ops of the rule that are wrong.
    op: &'static str,
    wrong: Wrong,
}

impl WrongRule {
    fn planted(&self, function: Function) -> Function {
        let locations = function.locations.clone();
        sabotaged(&function, self.wrong, |body, equation| {
            if equation.op.name() != self.op || !is_of(equation, self.rule, &locations) {
                return false;
            }
            let result = body.ty(equation.results[0]);
            result.dtype.is_float()
                && (!matches!(self.wrong, Wrong::Drop) || body.ty(equation.operands[0]) == result)
        })
    }
}

/// Whether the first rule of an equation is this.
fn is_of(equation: &Equation, rule: &str, locations: &LocationTable) -> bool {
    matches!(locations.get(equation.location), Location::Derived { rule: r, .. } if **r == *rule)
}

impl Differentiate for WrongRule {
    fn jvp(&self, program: &Program, function: &str, request: &Jvp<'_>) -> Result<Function> {
        Ok(self.planted(Autodiff.jvp(program, function, request)?))
    }

    fn grad(&self, program: &Program, function: &str, request: &Grad<'_>) -> Result<Function> {
        Ok(self.planted(Autodiff.grad(program, function, request)?))
    }
}

/// Network, rule, the op of the rule that is wrong, how, and the op at fault.
const FAULTS: [(&str, &str, &str, Wrong, &str); 10] = [
    ("mlp", "jvp(tanh)", "mul", Wrong::Drop, "tanh"),
    ("mlp", "transpose(dot_general)", "dot_general", Wrong::Double, "dot_general"),
    ("mlp", "jvp(sqrt)", "div", Wrong::Double, "sqrt"),
    ("attention", "jvp(exp)", "mul_zero", Wrong::Drop, "exp"),
    ("attention", "jvp(div)", "add", Wrong::Op("sub"), "div"),
    ("lstm", "transpose(reduce_sum)", "broadcast_in_dim", Wrong::Negate, "reduce_sum"),
    ("lstm", "jvp(logistic)", "mul", Wrong::Double, "logistic"),
    ("lstm", "jvp(mul)", "add", Wrong::Op("sub"), "mul"),
    (
        "convnet",
        "transpose(conv_general_dilated)",
        "conv_general_dilated",
        Wrong::Double,
        "conv_general_dilated",
    ),
    (
        "convnet",
        "jvp(conv_general_dilated)",
        "conv_general_dilated",
        Wrong::Negate,
        "conv_general_dilated",
    ),
];

#[test]
fn ten_wrong_derivative_rules_are_found_and_shrunk() {
    let networks: Vec<Network> = networks();
    let mut figures = Figures::default();
    for (name, rule, op, wrong, at_fault) in FAULTS {
        let case = &network(&networks, name).forward;
        let by = WrongRule { rule, op, wrong };
        let what = format!("{name}: {rule}, {wrong:?}");
        let right = derivatives_by(&Autodiff, &case.function, &case.inputs, 1);
        let is_sound = matches!(right, Ok(Finding::Good(_)));
        let fault = bisect::rule(case, 1, &by);
        let expected = first(&case.function.body, at_fault, &case.function.locations);
        let named = match &fault {
            Ok(Some(Fault::Rule(fault))) => {
                let line = fault.origin.location.to_string();
                is_sound && fault.origin.op == at_fault && fault.alone && Some(line) == expected
            }
            _ => false,
        };
        if !named {
            println!("{what}: expected {at_fault} at {expected:?}, found {fault:?}; {right:?}");
        }
        let mut fails = |function: &Function, inputs: &[wengert::Literal]| {
            let found = derivatives_by(&by, function, inputs, 1);
            matches!(found, Ok(Finding::Bad(_))).then(|| "derivatives".to_owned())
        };
        figures.count(&what, named, shrunk(&what, case, &mut fails));
    }
    figures.state("wrong rules");
}
