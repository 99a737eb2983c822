//! The initial variables of a run: those of `init`, replaced by weights from a file.
//!
//! Weights must match the program: each name is one of its variables, and each variable of the
//! *model* has a value. The model is the inputs of functions other than `init` and the training
//! step; the optimiser's state is not part of it, so the `weights.safetensors` of another run
//! fits. [`Options::partial`] removes both conditions.

use super::functions::Function;
use super::{Event, Options, TrainError};
use crate::data::Arrays;
use crate::recipe::Recipe;
use crate::session::Session;
use crate::signature::{InputPort, Signature, is_variable};
use crate::weight_names::{NameDifferences, check_types};
use std::collections::{BTreeMap, BTreeSet};
use wengert_core::TensorType;
use wengert_core::graph::{OutputRole, Program};

/// Names of the variables that functions other than `init` and the training step take; empty if
/// there is no such function.
pub(super) fn of_model<'a>(program: &'a Program, recipe: &Recipe) -> BTreeSet<&'a str> {
    let is_training =
        |name: &str| name == recipe.step.function || Some(name) == recipe.init.as_deref();
    let functions = program.functions().iter().filter(|function| !is_training(&function.name));
    let inputs =
        functions.flat_map(|function| &function.inputs).filter(|input| is_variable(input.role));
    inputs.map(|input| input.name.as_str()).collect()
}

/// Runs `init` and sets the weights of the options.
pub(super) fn initialize(
    session: &mut Session,
    program: &Program,
    recipe: &Recipe,
    options: Options<'_>,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<(), TrainError> {
    if let Some(init) = &recipe.init {
        session.set_variables(&Arrays::new())?;
        Function::new(program, init).run(session, vec![], &recipe.key_for(0))?;
    }
    let Some(weights) = options.weights else { return Ok(()) };
    let weights = &*recipe.cast_weights(program, weights)?;
    let variables = variables(program, session);
    let source = match options.weights_file {
        Some(path) => format!("`{}`", path.display()),
        None => "the file".into(),
    };
    check_types(weights, &variables, &source)?;
    let differences = NameDifferences::between(weights, &variables, of_model(program, recipe));
    if options.partial {
        if !differences.is_empty() {
            observe(Event::Partial { differences: &differences });
        }
    } else if let Some(error) = differences.error(&source) {
        return Err(error
            .help(
                "`--partial` trains all the same, without the unknown names; missing variables \
                 begin as `init` makes them",
            )
            .into());
    }
    for (name, value) in weights.iter().filter(|(name, _)| variables.contains_key(*name)) {
        session.set_variable(name, value)?;
    }
    Ok(())
}

/// Every variable that a function of the program takes or creates. Types with dimension variables
/// are replaced by the session's.
pub(super) fn variables(program: &Program, session: &Session) -> BTreeMap<String, TensorType> {
    let mut found = BTreeMap::new();
    for function in program.functions() {
        let Signature { inputs, outputs, .. } = Signature::of_function(function);
        let inputs = inputs.into_iter().filter(InputPort::is_variable);
        let outputs = outputs.into_iter().filter(|output| output.role == OutputRole::State);
        found.extend(inputs.map(|input| (input.name, input.ty)));
        found.extend(outputs.map(|output| (output.name, output.ty)));
    }
    found.extend(session.variable_types());
    found
}
