//! `vmap` of whole functions: a function in, a function out.
//!
//! [`vmap`] of `@f` is a function `@f_vmap` with the same names. The mapped inputs have one more
//! axis, and so have all outputs. Inputs that are not named are shared by the examples: usually
//! parameters, and often all but one input. It is an ordinary function, so it can be mapped
//! again, differentiated, or be the map of a gradient: per-example gradients of a file are `vmap`
//! of its `grad`.
//!
//! A mapped variable, such as the weights of an ensemble, has a value for each example. State
//! that is not mapped cannot be replaced by a value that differs between examples. A mapped key
//! is one key per example, and an input like any other.

use super::body::{Value, batch, batched_type, moved};
use crate::autodiff::function::{Derived, Maker};
use wengert_core::graph::{Function, InputRole, OutputRole, Program};
use wengert_core::nearest::suggest;
use wengert_core::{Diagnostic, Dim, Result, Tensor, TensorType};

/// A request for a mapped function.
#[derive(Clone, Debug, Default)]
pub struct Vmap<'a> {
    /// Inputs by name, or by the beginning of their key path, each with the position of its axis
    /// of examples.
    pub inputs: &'a [(&'a str, usize)],
    /// The number of examples. Without it, a dimension variable: `B`, or `B2` and so on if the
    /// function has one of that name.
    pub size: Option<Dim>,
    /// The position of the axis of examples in outputs.
    pub out_axis: usize,
}

/// `@function` on a batch of examples, as a function `@function_vmap`.
pub fn vmap(program: &Program, function: &str, request: &Vmap<'_>) -> Result<Derived> {
    let function = program.get(function)?;
    vmap_of(function, request).map_err(|d| d.context(format!("@{}", function.name)))
}

fn vmap_of(function: &Function, request: &Vmap<'_>) -> Result<Derived> {
    let axes = select(function, request.inputs)?;
    let size = request.size.clone().unwrap_or_else(|| fresh(function));
    if !size.at_least(0) {
        return Err(Diagnostic::new(format!("a batch of {size} examples"))
            .help("give a number of at least 0, or a dimension variable"));
    }
    let types: Vec<TensorType> = axes
        .iter()
        .enumerate()
        .map(|(i, axis)| match axis {
            Some(axis) => batched_type(function.input_type(i), *axis, &size),
            None => function.input_type(i).clone(),
        })
        .collect();
    let mut maker = Maker::with_types(function, &types);
    for (input, axis) in maker.inputs.iter_mut().zip(&axes) {
        if axis.is_some() && input.role == InputRole::Key {
            input.role = InputRole::Input;
        }
    }
    let located = |t: &Tensor| t.defined_at().unwrap_or_default();
    let mut warnings = Vec::new();
    let tensors = maker.scope.clone().enter(|| -> Result<Vec<Tensor>> {
        let inputs = maker.primals.iter().zip(&axes).map(|(t, axis)| match axis {
            Some(axis) => moved(t, *axis, 0, &located(t)).map(Value::Batched),
            None => Ok(Value::Shared(t.clone())),
        });
        let results = batch(&function.body, &inputs.collect::<Result<Vec<_>>>()?, &size)?;
        let mut tensors = Vec::new();
        for (i, result) in results.iter().enumerate() {
            let output = &function.outputs[i];
            let state =
                function.input_index(&output.name).filter(|_| output.role == OutputRole::State);
            let axis = match state {
                Some(input) => axes[input],
                None => Some(request.out_axis),
            };
            if state.is_none() && !result.is_batched() {
                warnings.push(Diagnostic::new(format!(
                    "`{}` does not depend on the inputs that are mapped: it is the same for all \
                     examples",
                    output.name
                )));
            }
            tensors.push(match (axis, result) {
                (None, Value::Shared(tensor)) => tensor.clone(),
                (None, Value::Batched(tensor)) => {
                    return Err(Diagnostic::new(format!(
                        "state `{}` would be replaced by a value for each example",
                        output.name
                    ))
                    .at(located(tensor), "the value is made here")
                    .help(
                        "map the state too, so that each example has its own, or reduce the value \
                         over a batch in the function",
                    ));
                }
                (Some(axis), result) if axis > function.output_type(i).rank() => {
                    return Err(Diagnostic::new(format!(
                        "output `{}` of type {} can have no axis {axis} for the examples",
                        output.name,
                        function.output_type(i)
                    ))
                    .at(located(result.tensor()), "the output is made here")
                    .help(format!("axes 0 to {} are possible", function.output_type(i).rank())));
                }
                (Some(axis), result) => result.along(axis, &size, &located(result.tensor()))?,
            });
        }
        Ok(tensors)
    })?;
    let name = format!("{}_vmap", function.name);
    Ok(Derived { function: maker.finish(name, function.outputs.clone(), &tensors)?, warnings })
}

/// A dimension variable that the function does not have.
fn fresh(function: &Function) -> Dim {
    let taken = function.variables();
    let names = std::iter::once("B".to_string()).chain((2u64..).map(|i| format!("B{i}")));
    let free = names.into_iter().find(|name| !taken.contains(name.as_str()));
    Dim::variable(&free.expect("a function has finitely many variables"))
}

/// For each input its axis of examples, if it is mapped.
fn select(function: &Function, inputs: &[(&str, usize)]) -> Result<Vec<Option<usize>>> {
    let names: Vec<&str> = function.inputs.iter().map(|i| i.name.as_str()).collect();
    let mut axes = vec![None; names.len()];
    if inputs.is_empty() {
        return Err(Diagnostic::new("no input is named to map over").help(format!(
            "name some with the axis of the examples; inputs are {}",
            names.join(", ")
        )));
    }
    for (wanted, axis) in inputs {
        let below =
            |name: &str| name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'));
        let matches: Vec<usize> = match function.input_index(wanted) {
            Some(i) => vec![i],
            None => (0..names.len()).filter(|i| below(names[*i])).collect(),
        };
        if matches.is_empty() {
            return Err(Diagnostic::new(format!("there is no input `{wanted}`"))
                .help(suggest(wanted, &names, "inputs")));
        }
        for i in matches {
            let (name, ty) = (names[i], function.input_type(i));
            let at = function.locations.origin(function.inputs[i].location).clone();
            if *axis > ty.rank() {
                return Err(Diagnostic::new(format!(
                    "`{name}` of type {ty} can have no axis {axis} for the examples"
                ))
                .at(at, "declared here")
                .help(format!("axes 0 to {} are possible", ty.rank())));
            }
            if axes[i].replace(*axis).is_some_and(|earlier| earlier != *axis) {
                return Err(Diagnostic::new(format!("`{name}` is mapped along two axes"))
                    .at(at, "declared here")
                    .help("name it once"));
            }
        }
    }
    Ok(axes)
}
