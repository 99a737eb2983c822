//! `graphrun export`: a function as an ONNX model.

use crate::cli::ExportArgs;
use crate::console::{Console, Outcome, Status};
use crate::source::Source;
use crate::table::counted;
use wengert::core::graph::{InputRole, OutputRole};
use wengert::{GraphFile, Weights, atomic, data, diagnostic, onnx};

/// Writes the model.
pub fn run(args: &ExportArgs, console: &mut Console<'_>) -> Outcome {
    if args.out.extension().is_none_or(|e| e != "onnx") {
        return Err(diagnostic!("`{}` is no name for a model", args.out.display())
            .help("names of models end in .onnx")
            .into());
    }
    let source = Source::of(&args.function, console)?.in_precision(&args.precision)?;
    let function = source.function()?;
    let binding = source.binding(&args.function.binds)?;
    source.functions(&binding)?;
    atomic::can_write(&args.out)?;
    let mut variables = source.weights()?;
    if let Some(path) = &args.params {
        variables.extend(data::read_all_within(path, args.reading.limit())?);
    }
    let weights = Weights::Inline(source.cast_to_param(variables)?);
    let program = source.file()?.program.clone();
    let file = GraphFile { weights, ..GraphFile::new(program) };
    let options = onnx::ExportOptions { opset: args.opset, binding, ..Default::default() };
    onnx::write(&args.out, &file, &function.name, &options)
        .map_err(|error| source.shown(error, console))?;
    let of = |variable: bool| {
        let is = |role| matches!(role, InputRole::Param | InputRole::State);
        function.inputs.iter().filter(|input| is(input.role) == variable).count()
    };
    let new = function.outputs.iter().filter(|output| output.role == OutputRole::State).count();
    let state = if new == 0 { String::new() } else { format!(", {new} of them new state") };
    console.line(format_args!(
        "@{} with {}, {} and {}{state} written to {}, op set {}",
        function.name,
        counted(of(false), "input"),
        counted(of(true), "parameter"),
        counted(function.outputs.len(), "output"),
        args.out.display(),
        args.opset
    ))?;
    Ok(Status::Good)
}
