//! Division of a function into what is invariant from run to run, and the rest.
//!
//! Inference reads the same parameters in every run, and often begins with the same work on them:
//! a convolution's filter is transposed to the layout of the kernels, a normalisation's scale is
//! divided by the root of its variance. [`divide`] moves such equations into a function of their
//! own. It runs once for each value of the parameters, and its results are further parameters of
//! the function that runs for each input. This is partial application: the parameters are known
//! before the inputs are. It does for runs what `hoist` does for the steps of a loop.
//!
//! A value is **known** if it depends on parameters, and on nothing else but constants. Large
//! constants, whose values the compiler does not fold, count as parameters. The known values that
//! the rest reads are the **invariants**. Three kinds of known values are none, but computed in
//! each run:
//!
//! - small constants, which the compiler folds;
//! - reshaped parameters, which cost nothing;
//! - results that are larger than their operands, such as a bias that is broadcast. A kernel reads
//!   the smaller operand instead. What is computed from them may be an invariant again: a filter
//!   times a broadcast list.
//!
//! The function is divided after the graph passes. They have chosen layouts, and fixed all bits, so
//! the division changes none.

use crate::probes::watches;
use wengert_core::graph::{
    Body, Equation, Function, Input, InputRole, Output, OutputRole, ValueId,
};
use wengert_core::id::IdVec;
use wengert_core::op::Op;

/// The two parts of a function.
#[derive(Clone, PartialEq, Debug)]
pub struct Divided {
    /// From parameters to invariants: outputs of role [`OutputRole::State`], so a run creates the
    /// variables that `run` reads.
    pub invariants: Function,
    /// The function, with the invariants as further parameters.
    pub run: Function,
}

/// What is known of a value before the inputs are.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Known {
    /// It depends on nothing.
    Constant,
    /// A parameter or a large constant, perhaps reshaped.
    Parameter,
    /// Computed from parameters.
    Computed,
    /// Computed from parameters, but larger than they are, so each run computes it.
    Grown,
    /// Not known.
    No,
}

/// Most elements of a small constant.
const SMALL: usize = 256;

/// Divides a function without dimension variables. `name_of` gives the names of the
/// invariants by their number. `None` if there are none.
pub fn divide(function: &Function, name_of: impl Fn(usize) -> String) -> Option<Divided> {
    let body = &function.body;
    let known = known(function);
    let is_computed = |value: &ValueId| known[*value] == Known::Computed;
    let is_of_run = |equation: &Equation| !equation.results.iter().all(is_computed);
    let read = live(body, &body.outputs, is_of_run);
    let found: Vec<ValueId> =
        body.values.ids().filter(|value| read[*value] && is_computed(value)).collect();
    if found.is_empty() {
        return None;
    }
    let names: Vec<String> = (0..found.len()).map(name_of).collect();
    let outputs = names.iter().map(|name| Output { name: name.clone(), role: OutputRole::State });
    let invariants = Function {
        name: format!("{}_invariants", function.name),
        outputs: outputs.collect(),
        ..part(function, &[], found.clone(), |_| true)
    };
    let definitions = body.definitions();
    let input = |(value, name): (ValueId, String)| {
        let equation = definitions[value].expect("a computed value has an equation");
        let location = body.equations[equation].location;
        (value, Input { name, role: InputRole::Param, location })
    };
    let new: Vec<(ValueId, Input)> = found.into_iter().zip(names).map(input).collect();
    let run = part(function, &new, body.outputs.clone(), is_of_run);
    Some(Divided { invariants, run })
}

/// What is known of each value.
fn known(function: &Function) -> IdVec<ValueId, Known> {
    let body = &function.body;
    let mut known: IdVec<ValueId, Known> = body.values.ids().map(|_| Known::No).collect();
    for (input, value) in function.inputs.iter().zip(&body.inputs) {
        if input.role == InputRole::Param {
            known[*value] = Known::Parameter;
        }
    }
    for equation in &body.equations {
        let operands = equation.operands.iter().map(|value| known[*value]);
        let operands = operands.max().unwrap_or(Known::Constant);
        let plain = equation.regions.is_empty() && !watches(equation);
        let result = match operands {
            _ if !plain => Known::No,
            _ if is_large(&equation.op) => Known::Parameter,
            Known::No | Known::Constant => operands,
            Known::Parameter if matches!(equation.op, Op::Reshape(_)) => Known::Parameter,
            _ if grows(body, equation, &known) => Known::Grown,
            _ => Known::Computed,
        };
        equation.results.iter().for_each(|value| known[*value] = result);
    }
    known
}

/// Whether an op is a constant that is not folded with others.
fn is_large(op: &Op) -> bool {
    matches!(op, Op::Constant(constant) if constant.value.len() > SMALL)
}

/// Whether the results of an equation take more memory than its operands that are kept, or are
/// parameters.
fn grows(body: &Body, equation: &Equation, known: &IdVec<ValueId, Known>) -> bool {
    let bytes = |values: &mut dyn Iterator<Item = &ValueId>| -> usize {
        values.map(|v| body.values[*v].bytes().unwrap_or(usize::MAX)).fold(0, usize::saturating_add)
    };
    let is_there = |value: &&ValueId| matches!(known[**value], Known::Parameter | Known::Computed);
    let operands = bytes(&mut equation.operands.iter().filter(is_there));
    bytes(&mut equation.results.iter()) > operands
}

/// The values that those equations read which compute `outputs`, among the ones that `takes`
/// admits; and the outputs.
fn live(
    body: &Body,
    outputs: &[ValueId],
    takes: impl Fn(&Equation) -> bool,
) -> IdVec<ValueId, bool> {
    let mut live: IdVec<ValueId, bool> = body.values.ids().map(|_| false).collect();
    outputs.iter().for_each(|value| live[*value] = true);
    for equation in body.equations.iter().rev().filter(|e| takes(e)) {
        if equation.results.iter().any(|value| live[*value]) || watches(equation) {
            equation.operands.iter().for_each(|value| live[*value] = true);
        }
    }
    live
}

/// The part of a function that computes `outputs` with those equations that `takes` admits, from
/// its inputs and `new` ones. Parameters that it does not read are no inputs of it; nor are other
/// inputs, if there are no new ones.
fn part(
    function: &Function,
    new: &[(ValueId, Input)],
    outputs: Vec<ValueId>,
    takes: impl Fn(&Equation) -> bool,
) -> Function {
    let body = &function.body;
    let live = live(body, &outputs, &takes);
    let is_live = |e: &&Equation| e.results.iter().any(|value| live[*value]) || watches(e);
    let equations = body.equations.iter().filter(|e| takes(e)).filter(is_live).cloned().collect();
    let stays = |input: &Input, value: ValueId| {
        live[value] || (!new.is_empty() && input.role != InputRole::Param)
    };
    let inputs = function.inputs.iter().zip(&body.inputs);
    let inputs = inputs.filter(|(input, value)| stays(input, **value));
    let (inputs, values): (Vec<Input>, Vec<ValueId>) = inputs
        .map(|(input, value)| (input.clone(), *value))
        .chain(new.iter().map(|(value, input)| (input.clone(), *value)))
        .unzip();
    let body = Body { values: body.values.clone(), inputs: values, equations, outputs };
    Function { inputs, body, ..function.clone() }.renumber()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::graph::parse_program;

    #[test]
    fn large_constants_count_as_parameters() {
        let of = |n: usize| {
            let text = format!(
                "func @f(%x: f32[{n}]) -> (y: f32[{n}]) {{
                   %0: f32[{n}] = constant {{value=f32[{n}] 0.5}}
                   %1: f32[{n}] = exp %0
                   %2: f32[{n}] = mul %x, %1
                   return %2
                 }}"
            );
            let program = parse_program(&text, "test").expect("it parses");
            divide(&program.functions()[0], |number| format!("v{number}"))
        };
        let large = of(SMALL + 1).expect("the exponential does not depend on the input");
        assert_eq!(large.run.body.equations.len(), 1);
        assert!(large.invariants.inputs.is_empty());
        assert_eq!(of(SMALL), None);
    }
    /// A product with numbers that are broadcast is kept, and they are not.
    #[test]
    fn what_is_computed_of_larger_values_is_kept() {
        let text = "func @f(%x: f32[4,4], param %w: f32[4,4], param %s: f32[4]) -> (y: f32[4,4]) {
                   %0: f32[4] = exp %s
                   %1: f32[4,4] = broadcast_in_dim %0 {dims=[0], shape=[4,4]}
                   %2: f32[4,4] = mul %w, %1
                   %3: f32[4,4] = mul %x, %2
                   return %3
                 }";
        let program = parse_program(text, "test").expect("it parses");
        let divided = divide(&program.functions()[0], |number| format!("v{number}"))
            .expect("the product depends on parameters");
        assert_eq!(divided.invariants.outputs.len(), 1);
        assert_eq!(divided.run.body.equations.len(), 1);
    }
}
