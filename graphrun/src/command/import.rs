//! `graphrun import`: a model of another format as a graph file.

use crate::cli::{ImportArgs, TuningArgs};
use crate::console::{Console, Outcome, Status};
use crate::source::{bindings, pair};
use wengert::core::graph::InputRole;
use wengert::core::text::{Cursor, is_name};
use wengert::data::inflate::InflateLimit;
use wengert::data::spec::Spec;
use wengert::tune::{EVALUATE, STEP, Tuning};
use wengert::{Weights, diagnostic, onnx};

/// Imports an ONNX model; with `--train`, for training.
pub fn run(args: &ImportArgs, console: &mut Console<'_>) -> Outcome {
    if !is_name(&args.function) {
        return Err(diagnostic!("`{}` is not the name of a function", args.function)
            .help("use letters, digits and `_`, not starting with a digit")
            .into());
    }
    let model = onnx::import(&args.file, &options(args)?)?;
    if args.tuning.train {
        return train(args, model, console);
    }
    let narrow = model.narrow.clone();
    let file = model.into_file();
    file.write(&args.out)?;
    let parameters = match &file.weights {
        Weights::Inline(arrays) => arrays.len(),
        _ => 0,
    };
    let function = &file.program.functions()[0];
    console.line(format_args!(
        "@{} with {} inputs, {parameters} parameters and {} outputs written to {}",
        function.name,
        function.inputs.len() - parameters,
        function.outputs.len(),
        args.out.display()
    ))?;
    for (name, dtype) in narrow {
        let carrier = dtype.carrier();
        console
            .line(format_args!("`{name}` is {dtype} in the model, and {carrier} in the file"))?;
    }
    Ok(Status::Good)
}

/// How the model is imported.
fn options(args: &ImportArgs) -> Outcome<onnx::Options> {
    let mut options = onnx::Options {
        function: args.function.clone(),
        extents: bindings(&args.binds)?,
        training: args.tuning.training_forms,
        absent: args.absent.iter().cloned().collect(),
        ..Default::default()
    };
    for text in &args.bound {
        let (name, spec) = pair("bind-input", text)?;
        let value = Spec::parse(spec).and_then(|spec| spec.literal(InflateLimit::default()));
        let value = value.map_err(|error| error.context(format_args!("input `{name}`")))?;
        options.bound.insert(name.to_owned(), value);
    }
    for text in &args.max {
        let most = text.rsplit_once('=').and_then(|(name, most)| Some((name, most.parse().ok()?)));
        let (name, most) = most.filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
            diagnostic!("`--max {text}` is no bound")
                .help("write --max NAME=N, e.g. --max boxes=100")
        })?;
        options.max.insert(name.to_owned(), most);
    }
    for text in &args.sequences {
        let found = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, shapes) = found.ok_or_else(|| {
            diagnostic!("`--sequence {text}` has no shapes")
                .help("write the shape of each element: --sequence \"NAME=[3],[2,4]\"")
        })?;
        let mut cursor = Cursor::new("--sequence", shapes);
        let mut all = vec![];
        while !cursor.is_end() {
            if !all.is_empty() {
                cursor.expect(",")?;
            }
            all.push(cursor.shape()?);
        }
        options.sequences.insert(name.to_owned(), all);
    }
    Ok(options)
}

/// Writes a file that is trained.
fn train(args: &ImportArgs, model: onnx::Model, console: &mut Console<'_>) -> Outcome {
    let TuningArgs { loss, optimizer, learning_rate, batch, epochs, seed, .. } = &args.tuning;
    let loss = loss.as_deref().expect("--train requires --loss").parse()?;
    let mut tuning = Tuning::new(loss);
    tuning.function.clone_from(&args.function);
    if let Some(name) = optimizer {
        tuning.optimizer = name.parse()?;
    }
    tuning.learning_rate = learning_rate.unwrap_or(tuning.learning_rate);
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
    file.write(&args.out)?;
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
        args.out.display()
    ))?;
    Ok(Status::Good)
}
