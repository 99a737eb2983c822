//! `graphrun import`: a model of another format as a graph file.

use crate::cli::ImportArgs;
use crate::console::{Console, Outcome, Status};
use crate::source::pair;
use wengert::core::text::is_name;
use wengert::data::inflate::InflateLimit;
use wengert::data::spec::Spec;
use wengert::{Weights, diagnostic, onnx};

/// Imports an ONNX model.
pub fn run(args: &ImportArgs, console: &mut Console<'_>) -> Outcome {
    if !is_name(&args.function) {
        return Err(diagnostic!("`{}` is not the name of a function", args.function)
            .help("use letters, digits and `_`, not starting with a digit")
            .into());
    }
    let mut options = onnx::Options { function: args.function.clone(), ..Default::default() };
    for text in &args.bound {
        let (name, spec) = pair("bind-input", text)?;
        let value = Spec::parse(spec).and_then(|spec| spec.literal(InflateLimit::default()));
        let value = value.map_err(|error| error.context(format_args!("input `{name}`")))?;
        options.bound.insert(name.to_owned(), value);
    }
    let file = onnx::read(&args.file, &options)?;
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
    Ok(Status::Good)
}
