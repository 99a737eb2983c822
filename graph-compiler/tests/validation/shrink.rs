//! Finds a smaller function that also fails.
//!
//! The interpreter computes every value of the function, so any equation can be removed. Its
//! results become inputs with the elements that it gave. Equations that are then unused are removed
//! too.

use wengert_core::graph::{Body, Function, Input, InputRole, Output, OutputRole, ValueId, verify};
use wengert_core::{Literal, LocationId, interpret};

/// Maximum number of functions that are tried.
const TRIES: usize = 300;

/// Returns how a function fails on inputs, or `None` if it does not fail.
pub type Fails<'f> = dyn Fn(&Function, &[Literal]) -> Option<String> + 'f;

/// The smallest function found that fails in the same pass, its inputs, and its failure.
pub fn shrink(
    function: &Function,
    inputs: &[Literal],
    found: String,
    fails: &Fails<'_>,
) -> (Function, Vec<Literal>, String) {
    let mut best = (function.clone(), inputs.to_vec(), found);
    let mut all = function.clone();
    all.body.outputs = function.body.values.ids().collect();
    let Ok(values) = interpret::run(&all, inputs) else { return best };
    let mut part = Part {
        function,
        values: &values,
        kept: vec![true; function.body.equations.len()],
        outputs: function.body.outputs.clone(),
    };
    let mut tries = 0;
    let mut attempt = |candidate: &Part<'_>| {
        tries += 1;
        let (function, inputs) = candidate.extract();
        let how = (tries <= TRIES && verify(&function).is_ok())
            .then(|| fails(&function, &inputs))
            .flatten()?;
        best = (function, inputs, how);
        Some(())
    };
    for output in part.outputs.clone() {
        let candidate = Part { outputs: vec![output], ..part.clone() };
        if attempt(&candidate).is_some() {
            part = candidate;
            break;
        }
    }
    loop {
        let mut smaller = false;
        for n in (0..part.kept.len()).rev().filter(|n| part.kept[*n]).collect::<Vec<_>>() {
            let mut cut = part.clone();
            cut.kept[n] = false;
            // If it makes an output, its operands become outputs instead.
            let equation = &function.body.equations[n];
            let is_output = |v: &ValueId| equation.results.contains(v);
            if cut.outputs.iter().any(is_output) {
                cut.outputs.retain(|v| !is_output(v));
                cut.outputs.extend(&equation.operands);
            }
            if part.is_needed(n) && !cut.outputs.is_empty() && attempt(&cut).is_some() {
                (part, smaller) = (cut, true);
            }
        }
        if !smaller {
            return best;
        }
    }
}

/// Some equations of a function. The results of the other equations are inputs.
#[derive(Clone)]
struct Part<'a> {
    function: &'a Function,
    values: &'a [Literal],
    kept: Vec<bool>,
    outputs: Vec<ValueId>,
}

impl Part<'_> {
    /// For each equation: whether it is kept, and whether an output depends on it.
    fn needed(&self) -> (Vec<bool>, Vec<bool>) {
        let body = &self.function.body;
        let mut wanted = vec![false; body.values.len()];
        self.outputs.iter().for_each(|v| wanted[v.0 as usize] = true);
        let mut needed = vec![false; self.kept.len()];
        for (n, equation) in body.equations.iter().enumerate().rev().filter(|(n, _)| self.kept[*n])
        {
            needed[n] = equation.results.iter().any(|v| wanted[v.0 as usize]);
            if needed[n] {
                equation.operands.iter().for_each(|v| wanted[v.0 as usize] = true);
            }
        }
        (needed, wanted)
    }

    fn is_needed(&self, equation: usize) -> bool {
        self.needed().0[equation]
    }

    fn extract(&self) -> (Function, Vec<Literal>) {
        let body = &self.function.body;
        let (needed, wanted) = self.needed();
        let equations: Vec<_> = body
            .equations
            .iter()
            .zip(&needed)
            .filter(|(_, needed)| **needed)
            .map(|(e, _)| e.clone())
            .collect();
        let made: Vec<ValueId> = equations.iter().flat_map(|e| e.results.iter().copied()).collect();
        let given: Vec<ValueId> =
            body.values.ids().filter(|v| wanted[v.0 as usize] && !made.contains(v)).collect();
        let inputs = given.iter().enumerate().map(|(i, _)| Input {
            name: format!("x{i}"),
            role: InputRole::Input,
            location: LocationId(0),
        });
        let outputs = self.outputs.iter().enumerate();
        let outputs =
            outputs.map(|(i, _)| Output { name: i.to_string(), role: OutputRole::Output });
        let literals = given.iter().map(|v| self.values[v.0 as usize].clone()).collect();
        let function = Function {
            name: self.function.name.clone(),
            mesh: self.function.mesh.clone(),
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            body: Body {
                values: body.values.clone(),
                inputs: given,
                equations,
                outputs: self.outputs.clone(),
            },
            locations: self.function.locations.clone(),
        };
        (function.renumber(), literals)
    }
}
