//! The choice of the differentiated output, and of the inputs to differentiate with respect to.

use crate::autodiff::operators::not_scalar;
use crate::autodiff::wrt::{self, Candidate};
use wengert_core::graph::{Function, Input, OutputRole, ValueId};
use wengert_core::nearest::suggest;
use wengert_core::{Diagnostic, Location, Result};

/// The requirement of an operator on the output.
#[derive(Clone, Copy)]
pub(super) enum Need<'a> {
    /// One number, for the operator of that name.
    Scalar(&'a str),
    /// Floats of any shape.
    Any,
}

/// The index of the differentiated output.
pub(super) fn differentiated(
    function: &Function,
    of: Option<&str>,
    need: Need<'_>,
) -> Result<usize> {
    let scalar = matches!(need, Need::Scalar(_));
    let candidates: Vec<usize> = (0..function.outputs.len())
        .filter(|i| function.outputs[*i].role == OutputRole::Output)
        .filter(|i| function.output_type(*i).dtype.is_float())
        .collect();
    let scalars: Vec<usize> =
        candidates.iter().copied().filter(|i| function.output_type(*i).rank() == 0).collect();
    let list = |all: &[usize]| {
        all.iter()
            .map(|i| {
                format!("`{}` of type {}", function.outputs[*i].name, function.output_type(*i))
            })
            .collect::<Vec<_>>()
            .join(", ")
    };
    let of = match (of, candidates.as_slice(), scalars.as_slice()) {
        (Some(name), ..) => function
            .output_index(name, OutputRole::Output)
            .or_else(|| function.output_index(name, OutputRole::State))
            .ok_or_else(|| {
                let names: Vec<&str> = function.outputs.iter().map(|o| o.name.as_str()).collect();
                Diagnostic::new(format!("there is no output `{name}`"))
                    .help(suggest(name, &names, "outputs"))
            })?,
        (None, [only], _) => *only,
        (None, _, [only]) if scalar => *only,
        (None, [], _) => {
            return Err(Diagnostic::new(
                "there is no output of floats, so there is nothing to differentiate",
            ));
        }
        (None, many, _) => {
            return Err(Diagnostic::new("several outputs could be differentiated")
                .help(format!("say which: {}", list(many))));
        }
    };
    let (name, ty) = (&function.outputs[of].name, function.output_type(of));
    if !ty.dtype.is_float() {
        return Err(Diagnostic::new(format!(
            "output `{name}` has type {ty}: {} has no derivative",
            ty.dtype
        ))
        .help(format!("differentiate an output of floats: {}", list(&candidates))));
    }
    match need {
        Need::Scalar(operator) if ty.rank() != 0 => {
            Err(not_scalar(operator, &format!("`{name}`"), ty)
                .at(made_at(function, function.body.outputs[of]), format!("`{name}` is made here")))
        }
        _ => Ok(of),
    }
}

/// The user's source line that computes a value.
pub(super) fn made_at(function: &Function, value: ValueId) -> Location {
    let input = function.body.inputs.iter().position(|v| *v == value);
    let of_equation =
        || function.body.equations.iter().find(|e| e.results.contains(&value)).map(|e| e.location);
    let location = input.map(|i| function.inputs[i].location).or_else(of_equation);
    location.map_or(Location::Unknown, |id| function.locations.origin(id).clone())
}

/// For each input whether it is among `wrt`.
pub(super) fn select(function: &Function, wrt: &[&str]) -> Result<Vec<bool>> {
    let candidate = |(i, input): (usize, &'_ Input)| -> (usize, Location) {
        (i, function.locations.origin(input.location).clone())
    };
    let candidates: Vec<Candidate<'_>> = function
        .inputs
        .iter()
        .enumerate()
        .map(candidate)
        .map(|(i, location)| Candidate {
            name: &function.inputs[i].name,
            ty: function.input_type(i),
            location,
        })
        .collect();
    wrt::select(&candidates, wrt, "input")
}

/// The warning for a gradient that is zero.
pub(super) fn independent(function: &Function, output: &str, input: &Input) -> Diagnostic {
    let location = function.locations.origin(input.location).clone();
    let name = &input.name;
    Diagnostic::new(format!("result `{output}` does not depend on `%{name}`: its gradient is zero"))
        .at(location, format!("`{name}` is declared here"))
}
