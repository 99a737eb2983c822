//! `graphrun import`: a model of another format as a graph file.

use crate::cli::{ImportArgs, TuningArgs};
use crate::console::{Console, Outcome, Status};
use crate::model::options;
use crate::source::{bindings, pair};
use crate::table::counted;
use std::path::{Path, PathBuf};
use wengert::core::graph::{Function, InputRole, OutputRole};
use wengert::core::text::is_name;
use wengert::signature::Signature;
use wengert::tune::{EVALUATE, Loss, STEP, Tuning};
use wengert::{Weights, diagnostic, onnx};

/// Imports an ONNX model; with `--train`, for training.
pub fn run(args: &ImportArgs, console: &mut Console<'_>) -> Outcome {
    if !is_name(&args.function) {
        return Err(diagnostic!("`{}` is not the name of a function", args.function)
            .help("use letters, digits and `_`, not starting with a digit")
            .into());
    }
    let out = match &args.out {
        Some(out) => out.clone(),
        None => default_name(&args.file)?,
    };
    let options = onnx::Options {
        function: args.function.clone(),
        training: args.tuning.training_forms,
        ..options(&args.model, bindings(&args.binds)?)?
    };
    let model = onnx::import(&args.file, &options)?;
    if args.tuning.train {
        return train(args, model, &out, console);
    }
    let narrow = model.narrow.clone();
    let file = model.into_file();
    file.write(&out)?;
    let parameters = match &file.weights {
        Weights::Inline(arrays) => arrays.len(),
        _ => 0,
    };
    let function = &file.program.functions()[0];
    console.line(format_args!(
        "@{} with {}, {} and {} written to {}",
        function.name,
        counted(function.inputs.len() - parameters, "input"),
        counted(parameters, "parameter"),
        counted(function.outputs.len(), "output"),
        out.display()
    ))?;
    console.line(interface(function))?;
    for (name, dtype) in narrow {
        let carrier = dtype.carrier();
        console
            .line(format_args!("`{name}` is {dtype} in the model, and {carrier} in the file"))?;
    }
    Ok(Status::Good)
}

/// The file beside which nothing is lost: the name of the model, in this folder.
fn default_name(model: &Path) -> Outcome<PathBuf> {
    let name = PathBuf::from(model.file_stem().unwrap_or_default()).with_extension("graph");
    match name.exists() {
        true => Err(diagnostic!("`{}` is there already", name.display())
            .help(format!("to replace it, or for another name: -o {}", name.display()))
            .into()),
        false => Ok(name),
    }
}

/// A line with the inputs and outputs of a function, apart from variables.
fn interface(function: &Function) -> String {
    let Signature { inputs, outputs, .. } = Signature::of_function(function);
    let list = |all: Vec<String>| all.join(", ");
    let inputs = inputs.iter().filter(|input| !input.is_variable());
    let outputs = outputs.iter().filter(|output| output.role != OutputRole::State);
    format!(
        "@{}({}) -> ({})",
        function.name,
        list(inputs.map(|input| format!("{}: {}", input.name, input.ty)).collect()),
        list(outputs.map(|output| format!("{}: {}", output.name, output.ty)).collect())
    )
}

/// Writes a file that is trained.
fn train(args: &ImportArgs, model: onnx::Model, out: &Path, console: &mut Console<'_>) -> Outcome {
    let TuningArgs { loss, optimizer, learning_rate, batch, epochs, seed, .. } = &args.tuning;
    let Some(loss) = loss.as_deref() else {
        let all: Vec<&str> = Loss::ALL.iter().map(|loss| loss.name()).collect();
        return Err(diagnostic!("`--train` has no loss")
            .help(format!("add --loss LOSS, one of {}", all.join(", ")))
            .into());
    };
    let mut tuning = Tuning::new(loss.parse()?);
    tuning.function.clone_from(&args.function);
    if let Some(name) = optimizer {
        tuning.optimizer = name.parse()?;
    }
    tuning.learning_rate = learning_rate.unwrap_or(tuning.learning_rate);
    tuning.settable_rate = args.tuning.settable_rate;
    tuning.batch = batch.unwrap_or(tuning.batch);
    tuning.epochs = epochs.unwrap_or(tuning.epochs);
    tuning.seed = seed.unwrap_or(tuning.seed);
    tuning.output = args.tuning.output.clone();
    if let Some(labels) = &args.tuning.labels {
        tuning.labels = labels.clone();
    }
    for text in &args.tuning.arrays {
        let (input, array) = pair("array", text)?;
        let array = array.to_str().ok_or_else(|| diagnostic!("`--array`: a name is not UTF-8"))?;
        tuning.arrays.insert(input.to_owned(), array.to_owned());
    }
    for pattern in &args.tuning.freeze {
        tuning = tuning.freeze(pattern)?;
    }
    for text in &args.tuning.lora {
        tuning = tuning.lora(text.parse()?);
    }
    let statistics = model.statistics.clone();
    let file = model.tuned(tuning)?;
    file.write(out)?;
    let step = file.program.get(STEP)?;
    let (mut trained, mut frozen) = (0, 0);
    let predict = file.program.get(&args.function)?;
    for input in predict.inputs.iter().filter(|input| input.role == InputRole::Param) {
        let taken = step.inputs.iter().find(|taken| taken.name == input.name);
        match taken.map(|taken| taken.role) {
            Some(InputRole::State) if !statistics.contains(&input.name) => trained += 1,
            _ => frozen += 1,
        }
    }
    console.line(format_args!(
        "@{STEP} with {trained} trained and {frozen} frozen parameters, @{} and @{EVALUATE} \
         written to {}",
        args.function,
        out.display()
    ))?;
    // What the data file has, which is the first thing to make.
    let recipe = file.recipe.as_ref().expect("a file that is trained has a recipe");
    let arrays = recipe.step.inputs.iter().filter_map(|input| {
        let index = step.input_index(&input.input)?;
        Some(format!("`{}` as {}", input.array, step.input_type(index)))
    });
    console.line(format_args!(
        "the data have the arrays {}: graphrun train {} --data DATA.npz --out runs/a",
        arrays.collect::<Vec<_>>().join(", "),
        out.display()
    ))?;
    Ok(Status::Good)
}
