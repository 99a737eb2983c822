//! The model's function as training takes it: what is data, what is a variable, and the value of
//! which the loss is computed.

use super::Tuning;
use crate::signature::is_variable;
use std::collections::BTreeSet;
use std::sync::Arc;
use wengert_compiler::key_paths::listed;
use wengert_core::graph::{Body, Function, InputRole, OutputRole, ValueId};
use wengert_core::{DType, Dim, Result, TensorType, diagnostic};

/// A model that is trained.
#[derive(Clone)]
pub(super) struct Model<'m> {
    pub function: &'m Function,
    /// The value of which the loss is computed.
    pub predictions: ValueId,
    /// The type of the labels.
    pub labels: TensorType,
}

impl<'m> Model<'m> {
    pub fn new(tuning: &Tuning, function: &'m Function) -> Result<Self> {
        let fault = |d: wengert_core::Diagnostic| d.context(format_args!("@{}", function.name));
        let predictions = predictions(tuning, function).map_err(fault)?;
        let labels = tuning.loss.labels(function.body.ty(predictions)).map_err(fault)?;
        let model = Model { function, predictions, labels };
        model.check(tuning).map_err(fault)?;
        Ok(model)
    }

    /// Variables with their types.
    pub fn variables(&self) -> impl Iterator<Item = (&'m str, &'m TensorType)> + Clone {
        let function = self.function;
        let taken = function.inputs.iter().enumerate();
        taken
            .filter(|(_, input)| is_variable(input.role))
            .map(|(n, input)| (input.name.as_str(), function.input_type(n)))
    }

    /// Data inputs with their types.
    pub fn data(&self) -> impl Iterator<Item = (&'m str, &'m TensorType)> {
        let function = self.function;
        let taken = function.inputs.iter().enumerate();
        taken
            .filter(|(_, input)| input.role == InputRole::Input)
            .map(|(n, input)| (input.name.as_str(), function.input_type(n)))
    }

    /// The function's body with the predictions as its first output, and then the variables that
    /// it replaces.
    pub fn body(&self) -> Body {
        let body = &self.function.body;
        let outputs = self.function.outputs.iter().zip(&body.outputs);
        let states = outputs.filter(|(output, _)| output.role == OutputRole::State);
        let states = states.map(|(_, value)| *value);
        Body { outputs: [self.predictions].into_iter().chain(states).collect(), ..body.clone() }
    }

    /// The variables that the function replaces.
    pub fn replaced(&self) -> impl Iterator<Item = &'m str> {
        let states = self.function.outputs.iter().filter(|o| o.role == OutputRole::State);
        states.map(|output| output.name.as_str())
    }

    /// Checks that the function replaces no variable.
    pub fn reads_only(&self) -> Result<()> {
        match self.replaced().next() {
            Some(name) => {
                Err(diagnostic!("@{} replaces the variable `{name}`", self.function.name)
                    .help("name a function that only reads its variables"))
            }
            None => Ok(()),
        }
    }

    /// Checks that the function replaces no variable that is trained.
    pub fn replaces_none_of(&self, trained: &[&str]) -> Result<()> {
        match self.replaced().find(|name| trained.contains(name)) {
            Some(name) => Err(diagnostic!(
                "@{} replaces the variable `{name}`, which is trained",
                self.function.name
            )
            .help("freeze it: `freeze`, or `--freeze`")),
            None => Ok(()),
        }
    }

    fn check(&self, tuning: &Tuning) -> Result<()> {
        let function = self.function;
        if function.inputs.iter().any(|input| input.name == tuning.labels) {
            return Err(diagnostic!(
                "it has an input of the name of the labels, `{}`",
                tuning.labels
            )
            .help("give the labels another name: `labels`, or `--labels`"));
        }
        let inputs = || self.data().map(|(name, _)| name).chain([tuning.labels.as_str()]);
        if let Some(unknown) = tuning.arrays.keys().find(|name| !inputs().any(|i| i == *name)) {
            return Err(diagnostic!("an array is named for the input `{unknown}`, which it lacks")
                .help(listed("its data are", inputs(), "it has no data")));
        }
        let mut known = BTreeSet::new();
        for (name, ty) in self.data() {
            let examples = ty.shape.first().and_then(variable);
            if examples.is_none() {
                let (has, help) = match ty.shape.first() {
                    None => ("no axis".to_owned(), "bind it to a value at import: `--bind-input`"),
                    Some(extent) => (
                        format!("{extent} examples, whatever the batch"),
                        "export the model with a batch of variable size: `dynamic_axes` or \
                         `dynamic_shapes` of `torch.onnx.export`",
                    ),
                };
                return Err(diagnostic!("input `{name}` of type {ty} has {has}").help(help));
            }
            known.extend(ty.shape.iter().filter_map(variable));
        }
        if known.is_empty() {
            return Err(diagnostic!("it has no data").help("a model to train has an input"));
        }
        let labels = &self.labels;
        let fits = |extent: &Dim| match variable(extent) {
            Some(name) => known.contains(&name),
            None => extent.as_constant().is_some(),
        };
        let is_counted = labels.shape.first().and_then(variable).is_some();
        if !is_counted || !labels.shape.iter().all(fits) {
            return Err(diagnostic!(
                "labels would have the type {labels}, of which the first extent is not the number \
                 of examples, or another one is computed"
            )
            .help("name an output whose first axis counts the examples"));
        }
        Ok(())
    }
}

/// The name of an extent that is a variable.
fn variable(extent: &Dim) -> Option<Arc<str>> {
    let mut names = BTreeSet::new();
    extent.collect_variables(&mut names);
    names.into_iter().find(|name| *extent == Dim::variable(name))
}

/// The value of which the loss is computed: an output of the function, or what comes before its
/// last op.
fn predictions(tuning: &Tuning, function: &Function) -> Result<ValueId> {
    let outputs: Vec<(usize, &str)> = function
        .outputs
        .iter()
        .enumerate()
        .filter(|(_, output)| output.role == OutputRole::Output)
        .map(|(n, output)| (n, output.name.as_str()))
        .collect();
    let names = || listed("outputs are", outputs.iter().map(|(_, name)| *name), "it has no output");
    let index = match (&tuning.output, &outputs[..]) {
        (Some(wanted), all) => match all.iter().find(|(_, name)| name == wanted) {
            Some((n, _)) => *n,
            None => return Err(diagnostic!("it has no output `{wanted}`").help(names())),
        },
        (None, [(n, _)]) => *n,
        (None, []) => {
            return Err(diagnostic!("it has no output").help("a model predicts something"));
        }
        (None, _) => {
            return Err(diagnostic!("it has several outputs, and none is chosen for the loss")
                .help(format!("choose one by `output`, or `--output`: {}", names())));
        }
    };
    let body = &function.body;
    let mut value = body.outputs[index];
    let made = body.equations.iter().find(|equation| equation.results.contains(&value));
    if let Some(last) = made
        && tuning.loss.is_before(&last.op, body.ty(value).rank())
    {
        value = last.operands[0];
    }
    if body.ty(value).dtype == DType::Bool {
        return Err(diagnostic!("output `{}` is of bools", function.outputs[index].name)
            .help("name an output of floats"));
    }
    Ok(value)
}
