//! Derivatives of whole functions: a function in, a function out.
//!
//! This is what files are differentiated with. [`grad`] of `@loss` is a function `@loss_grad` with the same inputs, whose outputs are
//! the derivatives, named `d_` + input; [`jvp`] is `@loss_jvp`, with further inputs `t_` + input and further outputs `t_` + output. Both
//! are ordinary functions, so applying them again gives higher derivatives: the gradient of `d_w` with respect to `w` is `d_d_w`.
//!
//! A gradient function reads variables and replaces none, so inputs of role `state` become `param`. A jvp keeps all outputs, and so
//! all roles.

use super::activity::Activity;
use super::jvp::{jvp as jvp_of_body, zeros};
use super::linearize::linearize;
use wengert_core::graph::build::{Closure, Scope};
use wengert_core::graph::{Function, Input, InputRole, Output, OutputRole, Program, verify};
use wengert_core::{Diagnostic, Literal, LocationId, Result, Scalar, Tensor, TensorType};

/// What to differentiate in reverse.
#[derive(Clone, Debug, Default)]
pub struct Grad<'a> {
    /// The output that is differentiated; may be left out if only one comes into question.
    pub of: Option<&'a str>,
    /// Inputs by name, or by the beginning of their key path: `model.layers.0` stands for all variables below it.
    pub wrt: &'a [&'a str],
    /// Whether the value is an output too, ahead of the derivatives.
    pub value: bool,
    /// Whether the output's cotangent is an input, `ct_` + output, instead of 1. Then the output needs not be a scalar.
    pub seed: bool,
}

/// What to differentiate forwards.
#[derive(Clone, Debug, Default)]
pub struct Jvp<'a> {
    /// Inputs by name, or by the beginning of their key path. Each gets a tangent, an input `t_` + name.
    pub wrt: &'a [&'a str],
}

/// A derivative, and what seems odd about it.
#[derive(Clone, Debug)]
pub struct Derived {
    /// The function.
    pub function: Function,
    /// E.g. that the result does not depend on an input.
    pub warnings: Vec<Diagnostic>,
}

/// The gradient of an output of `@function`, as a function `@function_grad` (`@function_vjp` if seeded).
pub fn grad(program: &Program, function: &str, request: &Grad<'_>) -> Result<Derived> {
    let function = program.get(function)?;
    grad_of(function, request).map_err(|d| d.context(format!("@{}", function.name)))
}

/// The directional derivative of all float outputs of `@function`, as a function `@function_jvp`.
pub fn jvp(program: &Program, function: &str, request: &Jvp<'_>) -> Result<Derived> {
    let function = program.get(function)?;
    jvp_of(function, request).map_err(|d| d.context(format!("@{}", function.name)))
}

fn grad_of(function: &Function, request: &Grad<'_>) -> Result<Derived> {
    let of = differentiated(function, request)?;
    let wrt = select(function, request.wrt)?;
    let name = format!("{}_{}", function.name, if request.seed { "vjp" } else { "grad" });
    let output = &function.outputs[of];

    let mut maker = Maker::new(function);
    maker.inputs.iter_mut().filter(|i| i.role == InputRole::State).for_each(|i| i.role = InputRole::Param);
    let ty = function.output_type(of).clone();
    let seed = match request.seed {
        true => maker.input(format!("ct_{}", output.name), ty, None),
        false => Tensor::constant(Literal::full(&[], Scalar::one(ty.dtype))),
    };
    if request.value {
        // A state output means the variable's next value; here it is a result like any other.
        maker.names.push(Output { name: output.name.clone(), role: OutputRole::Output });
    }
    let mut warnings = Vec::new();
    let (names, tensors) = maker.scope.clone().enter(|| -> Result<_> {
        let mut closure = Closure { body: function.body.clone(), captures: vec![] };
        closure.body.outputs = vec![function.body.outputs[of]];
        let linearized = linearize(&closure, &maker.primals, &wrt, &[true])?;
        let mut tensors = if request.value { linearized.outputs } else { vec![] };
        let mut names = std::mem::take(&mut maker.names);
        let cotangents = linearized.linear.transpose(&[Some(seed)])?;
        for (i, cotangent) in cotangents.into_iter().enumerate().filter(|(i, _)| wrt[*i]) {
            let input = &function.inputs[i];
            tensors.push(match cotangent {
                Some(cotangent) => cotangent,
                None => {
                    warnings.push(independent(function, &output.name, input));
                    zeros(function.input_type(i))?
                }
            });
            let name = fresh(format!("d_{}", input.name), "d_", |name| {
                function.outputs.iter().chain(&names).any(|o| o.name == name)
            });
            names.push(Output { name, role: OutputRole::Output });
        }
        Ok((names, tensors))
    })?;
    Ok(Derived { function: maker.finish(name, names, &tensors)?, warnings })
}

fn jvp_of(function: &Function, request: &Jvp<'_>) -> Result<Derived> {
    let wrt = select(function, request.wrt)?;
    let mut maker = Maker::new(function);
    let mut tangents = vec![None; wrt.len()];
    for i in (0..wrt.len()).filter(|i| wrt[*i]) {
        let (ty, name) = (function.input_type(i).clone(), format!("t_{}", function.inputs[i].name));
        tangents[i] = Some(maker.input(name, ty, Some(i)));
    }
    let wanted: Vec<bool> =
        (0..function.outputs.len()).map(|i| function.output_type(i).dtype.is_float()).collect();
    let mut names = function.outputs.clone();
    let mut warnings = Vec::new();
    let tensors = maker.scope.clone().enter(|| -> Result<_> {
        let (mut tensors, results) = jvp_of_body(&function.body, &maker.primals, &tangents, &wanted)?;
        for (i, tangent) in results.into_iter().enumerate().filter(|(i, _)| wanted[*i]) {
            let output = &function.outputs[i];
            tensors.push(match tangent {
                Some(tangent) => tangent,
                None => {
                    warnings.push(Diagnostic::new(format!(
                        "`{}` does not depend on the inputs that vary: its derivative is zero",
                        output.name
                    )));
                    zeros(function.output_type(i))?
                }
            });
            let name = fresh(format!("t_{}", output.name), "t_", |name| names.iter().any(|o| o.name == name));
            names.push(Output { name, role: OutputRole::Output });
        }
        Ok(tensors)
    })?;
    let function = maker.finish(format!("{}_jvp", function.name), names, &tensors)?;
    Ok(Derived { function, warnings })
}

/// A function under construction that begins with the inputs of another one.
pub(crate) struct Maker {
    pub(crate) scope: Scope,
    pub(crate) inputs: Vec<Input>,
    pub(crate) primals: Vec<Tensor>,
    names: Vec<Output>,
}

impl Maker {
    /// Locations are copied, so that ids of the function's equations mean the same in the new one.
    fn new(function: &Function) -> Self {
        Maker::with_types(function, &function.body.types(&function.body.inputs))
    }

    /// The inputs have other types.
    pub(crate) fn with_types(function: &Function, types: &[TensorType]) -> Self {
        let scope = Scope::new(function.locations.clone());
        let input =
            |(ty, input): (&TensorType, &Input)| scope.input_at(ty.clone(), scope.location(input.location));
        let primals = types.iter().zip(&function.inputs).map(input).collect();
        Maker { scope, inputs: function.inputs.clone(), primals, names: vec![] }
    }

    /// A further input; `like` is the input whose location it has.
    fn input(&mut self, name: String, ty: TensorType, like: Option<usize>) -> Tensor {
        let prefix = format!("{}_", name.split('_').next().unwrap_or_default());
        let name = fresh(name, &prefix, |name| self.inputs.iter().any(|i| i.name == name));
        let location = like.map_or(LocationId(0), |i| self.inputs[i].location);
        self.inputs.push(Input { name, role: InputRole::Input, location });
        self.scope.input_at(ty, self.scope.location(location))
    }

    pub(crate) fn finish(self, name: String, outputs: Vec<Output>, tensors: &[Tensor]) -> Result<Function> {
        let closure = self.scope.close(tensors)?;
        assert!(closure.captures.is_empty(), "the outermost scope has nothing to capture from");
        let mut body = closure.body;
        // The value itself may be of no use to its gradient.
        let live = Activity::of(&body, &vec![false; tensors.len()]).live;
        body.equations.retain(|equation| equation.results.iter().any(|v| live[*v]));
        let locations = self.scope.locations();
        let function = Function { name, inputs: self.inputs, outputs, body: body.renumber(), locations };
        verify(&function)?;
        Ok(function)
    }
}

/// `name`, with `prefix` put in front as often as it takes to be new.
fn fresh(mut name: String, prefix: &str, taken: impl Fn(&str) -> bool) -> String {
    while taken(&name) {
        name.insert_str(0, prefix);
    }
    name
}

fn independent(function: &Function, output: &str, input: &Input) -> Diagnostic {
    let location = function.locations.origin(input.location).clone();
    let name = &input.name;
    Diagnostic::new(format!("result `{output}` does not depend on `%{name}`: its gradient is zero"))
        .at(location, format!("`{name}` is declared here"))
}

/// Which output is differentiated.
fn differentiated(function: &Function, request: &Grad<'_>) -> Result<usize> {
    let candidates: Vec<usize> = (0..function.outputs.len())
        .filter(|i| function.outputs[*i].role == OutputRole::Output)
        .filter(|i| function.output_type(*i).dtype.is_float())
        .collect();
    let scalars: Vec<usize> =
        candidates.iter().copied().filter(|i| function.output_type(*i).rank() == 0).collect();
    let list = |all: &[usize]| {
        all.iter()
            .map(|i| format!("`{}` of type {}", function.outputs[*i].name, function.output_type(*i)))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let of = match (request.of, candidates.as_slice(), scalars.as_slice()) {
        (Some(name), ..) => function
            .output_index(name, OutputRole::Output)
            .or_else(|| function.output_index(name, OutputRole::State))
            .ok_or_else(|| {
                let names: Vec<&str> = function.outputs.iter().map(|o| o.name.as_str()).collect();
                Diagnostic::new(format!("there is no output `{name}`")).help(suggest(name, &names, "outputs"))
            })?,
        (None, [only], _) => *only,
        (None, _, [only]) if !request.seed => *only,
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
    if !request.seed && ty.rank() != 0 {
        return Err(Diagnostic::new(format!("grad needs a scalar output; `{name}` has shape {ty}")).help(
            "Reduce it with `.sum()`, or give its cotangent as an input (`vjp`; `--seed` on the command line)",
        ));
    }
    Ok(of)
}

/// For each input whether it is among `wrt`.
fn select(function: &Function, wrt: &[&str]) -> Result<Vec<bool>> {
    let names: Vec<&str> = function.inputs.iter().map(|i| i.name.as_str()).collect();
    let is_float = |i: usize| function.input_type(i).dtype.is_float();
    let mut selected = vec![false; names.len()];
    if wrt.is_empty() {
        let floats: Vec<&str> = (0..names.len()).filter(|i| is_float(*i)).map(|i| names[i]).collect();
        return Err(Diagnostic::new("no input is named to differentiate with respect to").help(format!(
            "name some, or the beginning of their key paths; floats are {}",
            floats.join(", ")
        )));
    }
    for wanted in wrt {
        if let Some(i) = function.input_index(wanted) {
            if !is_float(i) {
                let (ty, dtype) = (function.input_type(i), function.input_type(i).dtype);
                let location = function.locations.origin(function.inputs[i].location).clone();
                return Err(Diagnostic::new(format!("`{wanted}` has type {ty}: {dtype} has no derivative"))
                    .at(location, "declared here")
                    .help("differentiate with respect to floats only"));
            }
            selected[i] = true;
            continue;
        }
        let below = |name: &str| name.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'));
        let matches: Vec<usize> = (0..names.len()).filter(|i| below(names[*i])).collect();
        if matches.is_empty() {
            return Err(Diagnostic::new(format!("there is no input `{wanted}`"))
                .help(suggest(wanted, &names, "inputs")));
        }
        // Integers below a key path (a step counter, say) have no derivative and are passed over.
        let floats: Vec<usize> = matches.into_iter().filter(|i| is_float(*i)).collect();
        if floats.is_empty() {
            return Err(Diagnostic::new(format!("no input below `{wanted}` is of floats")));
        }
        floats.into_iter().for_each(|i| selected[i] = true);
    }
    Ok(selected)
}

/// Names like one that does not exist.
pub(crate) fn suggest(name: &str, names: &[&str], what: &str) -> String {
    if names.is_empty() {
        return format!("there are no {what}");
    }
    let mut near: Vec<(usize, &str)> = names.iter().map(|n| (distance(name, n), *n)).collect();
    near.sort();
    match near[0] {
        (distance, nearest) if distance <= 1 + name.chars().count() / 3 => {
            format!("did you mean `{nearest}`?")
        }
        _ => format!("{what} are {}", names.join(", ")),
    }
}

/// Insertions, deletions and replacements that make one name of the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + (x != *y) as usize;
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
