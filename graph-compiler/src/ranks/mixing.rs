//! How an equation treats the examples, and the errors of those that mix them.

use super::axes::{Along, Typed, extents};
use super::control::control;
use super::regions::State;
use wengert_core::graph::{Body, Equation, Function, print_equations};
use wengert_core::{Diagnostic, Result};

/// An equation whose treatment of the axis of examples is looked for.
pub(super) struct Mixing<'a> {
    pub function: &'a Function,
    /// The body of the equation.
    pub body: &'a Body,
    pub equation: &'a Equation,
}

impl Mixing<'_> {
    /// How the equation treats the axes of examples of its operands. Only constructs of control
    /// flow take partial operands.
    ///
    /// Error: it mixes examples.
    pub fn along(&self, of: &[State], parts: usize) -> Result<Along> {
        if let Some(construct) = self.equation.op.control() {
            return control(self, construct, of, parts);
        }
        let states = of;
        let of: Vec<Option<usize>> = of.iter().map(|state| state.axis()).collect();
        let all = Typed::of(self.body, self.equation).axes(parts);
        let fits = |along: &&Along| {
            of.iter().zip(&along.operands).all(|(of, place)| of.is_none() || of == place)
        };
        if let Some(found) = all.iter().find(fits) {
            if let Some(operand) = found.zero.filter(|k| states[*k] != State::Zero) {
                return Err(self.problem(
                    &format!(
                        "adds updates of all examples onto operand {operand}, which is not known \
                         to be zero, so each microbatch would add it once more"
                    ),
                    "scatter onto zeros, and add the operand to the result",
                ));
            }
            return Ok(found.clone());
        }
        let alone = |k: usize| all.iter().any(|along| along.operands[k] == of[k]);
        let places = || (0..of.len()).filter(|k| of[*k].is_some());
        let Some(k) = places().find(|k| !alone(*k)) else {
            let listed: Vec<String> = places()
                .map(|k| format!("axis {} of operand {k}", of[k].expect("it has an axis")))
                .collect();
            return Err(self
                .error(format!(
                    "combines different examples: they are along {}",
                    listed.join(" and ")
                ))
                .help(
                    "let it combine values of one example, with the examples along one axis of all \
                     operands",
                ));
        };
        let (axis, ty) = (of[k].expect("it has an axis"), self.body.ty(self.equation.operands[k]));
        Err(self.mixes(axis, k, &ty.to_string()))
    }

    fn mixes(&self, axis: usize, operand: usize, ty: &str) -> Diagnostic {
        if !self.equation.regions.is_empty() {
            return self
                .error(format!(
                    "has regions, and operand {operand}, {ty}, has the examples along axis {axis}"
                ))
                .help("compute values by example outside of it");
        }
        let extent = extents(self.body.ty(self.equation.operands[operand]))[axis];
        self.error(format!(
            "mixes the examples, which are along axis {axis}, of extent {extent}, of operand \
             {operand}, {ty}"
        ))
        .help(
            "let it act on each example alone, along other axes, or combine the examples by sums, \
             means, maxima or minima over the batch; or do not name the input as one of examples",
        )
    }

    /// The error of an equation, with its remedy.
    pub fn problem(&self, problem: &str, help: &str) -> Diagnostic {
        self.error(problem.into()).help(help)
    }

    fn error(&self, problem: String) -> Diagnostic {
        let numbered = self.function.numbered();
        let number = numbered.iter().position(|n| std::ptr::eq(n.equation, self.equation));
        let texts = print_equations(self.function);
        let text = number.and_then(|n| texts.get(n)).map_or("", |text| text.trim());
        let (name, op) = (&self.function.name, self.equation.op.name());
        let at = self.function.locations.origin(self.equation.location).clone();
        Diagnostic::new(format!("@{name}: `{op}` {problem}, in the equation `{text}`")).at(at, op)
    }
}
