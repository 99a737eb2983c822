//! Values for a function of which the user gives some: the others are random.

use crate::cli::{CaseArgs, ValueArgs};
use crate::console::Outcome;
use crate::source::Source;
use crate::values::{Given, gather};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use wengert::core::graph::Function;
use wengert::data::spec::Spec;
use wengert::signature::Signature;
use wengert::{Binding, Literal, Scalar, indices, os_text};

/// A function and values for it.
pub struct Drawn {
    /// The function, with all dimension variables bound.
    pub function: Function,
    /// The values by name, and the binding.
    pub given: Given,
    /// A value for each input of the function, in order.
    pub inputs: Vec<Literal>,
}

/// Finds values for the function that a command names, as [`draw`] does.
pub fn draw_case(source: &Source, args: &CaseArgs) -> Outcome<Drawn> {
    let known = source.binding(&args.function.binds)?;
    // This refuses a binding of a variable that no function has.
    source.functions(&known)?;
    draw(source, source.function()?, &known, &args.values, true)
}

/// Finds values for a function. Inputs without a value are random, and unbound dimension variables
/// are small. Unless it is the only function (`single`), a value by name applies to the functions
/// that have such an input.
pub fn draw(
    source: &Source,
    function: &Function,
    known: &Binding,
    args: &ValueArgs,
    single: bool,
) -> Outcome<Drawn> {
    let mut binds: Vec<String> = Vec::new();
    let mut values = args.clone();
    if !single {
        values
            .inputs
            .retain(|text| name_of(text).is_some_and(|name| function.input_index(name).is_some()));
    }
    // Variables that tensors determine must stay unbound here; others get different small
    // numbers.
    let given = |i: usize| {
        let name = function.inputs[i].name.as_str();
        values.inputs.iter().any(|text| name_of(text) == Some(name)) || values.params.is_some()
    };
    let mut free = function.variables();
    for i in (0..function.inputs.len()).filter(|i| given(*i)) {
        let mut solved = BTreeSet::new();
        function.input_type(i).shape.iter().for_each(|d| d.collect_variables(&mut solved));
        free.retain(|name| !solved.contains(name));
    }
    for (name, value) in known.iter().filter(|(name, _)| function.variables().contains(*name)) {
        binds.push(format!("{name}={value}"));
    }
    for (i, name) in free.iter().filter(|name| known.get(name).is_none()).enumerate() {
        binds.push(format!("{name}={}", i + 2));
    }
    let signature = Signature::of_function(function);
    let mut given =
        gather(source, &signature, &values, &binds, Some(&Spec::Random(values.seed)))?.make()?;
    let bound = function.bind(&given.binding)?;
    // Random values that are used as indices are reduced into range; the user's values are
    // checked.
    let ranges = indices::bounds(&bound);
    for (name, value) in &mut given.inputs {
        let is_given = values.inputs.iter().any(|text| name_of(text) == Some(name.as_str()));
        if let Some(range) = ranges.get(name.as_str()).filter(|range| !is_given && range.count > 0)
        {
            *value = below(value, range.count)?;
        }
    }
    let inputs = given.in_order(&signature);
    Ok(Drawn { function: bound, given, inputs })
}

/// Reduces integers to 0..count.
fn below(literal: &Literal, count: i64) -> Outcome<Literal> {
    let number = |s: Scalar| Scalar::from_i64(s.dtype(), s.to_i64().unwrap_or(0).rem_euclid(count));
    let values: Vec<Scalar> = literal.scalars().map(number).collect();
    Ok(Literal::from_scalars(literal.dtype(), literal.shape(), &values)?)
}

/// The name of a `NAME=SPEC`.
fn name_of(text: &OsStr) -> Option<&str> {
    os_text::split_once(text, b'=').map_or(Some(text), |(name, _)| Some(name))?.to_str()
}
