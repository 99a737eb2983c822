//! `graphrun reduce`: a failing function, shrunk.

use crate::cli::ReduceArgs;
use crate::console::{Console, Outcome, Status};
use crate::drawn::draw_case;
use crate::source::Source;
use crate::table::counted;
use std::fmt::Write as _;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use wengert::atomic;
use wengert::check::{self, Finding};
use wengert::core::graph::{Function, Program, parse_program};
use wengert::data::npz;
use wengert::isolate::bisect;
use wengert::isolate::cut::Case;
use wengert::isolate::reduce::{Limits, Progress, Reduced, panic_text, reduce};
use wengert::{Binding, Device, Diagnostic, Evaluation, Literal, diagnostic};

/// The most characters of values that are options of the command that reproduces the failure.
/// Longer ones are in a file.
const INLINE: usize = 400;

/// Shrinks the function. Inputs without a value are random, and unbound dimension variables are
/// small.
pub fn run(args: &ReduceArgs, console: &mut Console<'_>) -> Outcome {
    let source = Source::of_case(&args.case, console)?;
    let function = source.function()?;
    let drawn = draw_case(&source, &args.case)?;
    let case = Case::plain(&drawn.function, &drawn.inputs)?;
    let mut failure = Failure::new(args)?;
    let (before, limits) = (size(&case), Limits { attempts: args.attempts });
    console.note(format_args!("@{}: {before}", function.name));
    let mut fails = |function: &Function, inputs: &[Literal]| failure.of(function, inputs);
    let mut progress = |Progress { step, attempts, equations, elements }: Progress| {
        console.note(format_args!(
            "{step}: {equations} equations, {elements} elements of inputs, {attempts} attempts"
        ));
    };
    let reduced = silently(|| reduce(&case, limits, &mut fails, &mut progress))?;
    let text = written(args, &source, &reduced, &before)?;

    // The file is the result, so it is tried as it is read.
    let read = parse_program(&text, &args.out.display().to_string())?;
    let Some(function) = read.functions().first() else {
        return Err(Diagnostic::new("the reduced file has no function").into());
    };
    let again = silently(|| failure.caught(function, &reduced.case.inputs));
    if again.as_ref() != Some(&reduced.failure) {
        return Err(diagnostic!(
            "the reduced function fails ({}), but not when it is read from its file",
            reduced.failure
        )
        .help("the failure does not depend on the program alone: run the reduction again")
        .into());
    }
    console.line(format_args!(
        "{}: {}, before {before}; {} attempts{}",
        args.out.display(),
        size(&reduced.case),
        reduced.attempts,
        if reduced.is_minimal { "" } else { ", which are all: --attempts allows more" }
    ))?;
    console.line(format_args!("fails: {}", reduced.failure))?;
    console.line(format_args!("reproduce: {}", reproduce(args, &reduced)))?;
    Ok(Status::Good)
}

/// Runs `f` without the messages of panics: a panic is a failure that the reduction counts. A panic
/// of `f` itself is a bug, and has its message.
fn silently<T>(f: impl FnOnce() -> T) -> T {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let result = panic::catch_unwind(panic::AssertUnwindSafe(f));
    panic::set_hook(hook);
    result.unwrap_or_else(|panic| panic!("the reduction fails: {}", panic_text(&*panic)))
}

fn size(case: &Case) -> String {
    let equations = case.function.body.extent().equations as usize;
    let elements: usize = case.inputs.iter().map(Literal::len).sum();
    format!(
        "{}, {} of {}",
        counted(equations, "equation"),
        counted(case.inputs.len(), "input"),
        counted(elements, "element")
    )
}

/// Writes the file, and the values of its inputs beside it if they are long. Returns its text.
fn written(args: &ReduceArgs, source: &Source, reduced: &Reduced, before: &str) -> Outcome<String> {
    let case = &reduced.case;
    let mut text = String::new();
    let put = |text: &mut String, line: String| {
        // A comment ends with its line.
        writeln!(text, "// {}", line.replace(['\n', '\r'], " ")).expect("a string takes text");
    };
    put(&mut text, format!("Reduced from {}: {before}.", source.path.display()));
    put(&mut text, format!("Fails: {}", reduced.failure));
    put(&mut text, format!("Reproduce: {}", reproduce(args, reduced)));
    write!(text, "{}", case.function).expect("a string takes text");
    if is_long(case) {
        let names = case.function.inputs.iter().map(|input| input.name.as_str());
        npz::write(values_path(&args.out), names.zip(&case.inputs))?;
    }
    atomic::write_bytes(&args.out, text.as_bytes())?;
    Ok(text)
}

fn is_long(case: &Case) -> bool {
    let length = case.inputs.iter().map(|literal| format!("{literal:#}").len());
    length.sum::<usize>() > INLINE
}

fn values_path(out: &Path) -> PathBuf {
    out.with_extension("npz")
}

/// The options that give the values of inputs.
fn options(case: &Case, values: Option<&Path>) -> String {
    let inputs = case.function.inputs.iter().zip(&case.inputs);
    let options = inputs.map(|(input, literal)| match values {
        Some(path) => format!(" --input {}=@{}[{}]", input.name, path.display(), input.name),
        None => format!(" --input '{}={literal:#}'", input.name),
    });
    options.collect()
}

/// The command that shows the failure.
fn reproduce(args: &ReduceArgs, reduced: &Reduced) -> String {
    let out = args.out.display();
    let path = values_path(&args.out);
    let options = options(&reduced.case, is_long(&reduced.case).then_some(&*path));
    match &args.cmd {
        Some(command) => {
            command.replace("{inputs}", options.trim_start()).replace("{}", &out.to_string())
        }
        None if args.check => format!("graphrun check {out}{options}"),
        None => format!("graphrun run {out} --device {}{options}", args.device),
    }
}

/// A way of failing.
enum Failure {
    /// A check fails, this one if it is known.
    Check { seed: u64, known: Option<String> },
    /// A run gives an error with a text.
    Run { device: Device, text: String },
    /// A command fails.
    Command { command: String, text: Option<String>, timeout: Duration, folder: TempDir },
}

impl Failure {
    fn new(args: &ReduceArgs) -> Outcome<Failure> {
        let seed = args.case.values.seed;
        if let Some(command) = &args.cmd {
            if !command.contains("{}") {
                return Err(diagnostic!("`--cmd {command}` does not name the file")
                    .help("write {} where the path of the .ir file belongs")
                    .into());
            }
            let folder = tempfile::tempdir()
                .map_err(|error| diagnostic!("cannot make a folder for cases: {error}"))?;
            let (command, text) = (command.clone(), args.fails_with.clone());
            let timeout = Duration::from_secs(args.timeout);
            return Ok(Failure::Command { command, text, timeout, folder });
        }
        match &args.fails_with {
            Some(text) => Ok(Failure::Run { device: args.device.parse()?, text: text.clone() }),
            None => Ok(Failure::Check { seed, known: None }),
        }
    }

    /// How a case fails.
    fn of(&mut self, function: &Function, inputs: &[Literal]) -> Option<String> {
        match self {
            Failure::Check { seed, known } => {
                let failed = failed_check(function, inputs, *seed, known.as_deref())?;
                // The others need not run for smaller cases.
                *known = Some(failed.clone());
                Some(failed)
            }
            Failure::Run { device, text } => {
                let device = *device;
                let run = || bisect::on(device)(function, inputs);
                let message = match panic::catch_unwind(panic::AssertUnwindSafe(run)) {
                    Ok(result) => result.err()?.to_string(),
                    Err(panic) => panic
                        .downcast_ref::<String>()
                        .cloned()
                        .unwrap_or_else(|| panic_text(&*panic)),
                };
                message.contains(&*text).then(|| text.clone())
            }
            Failure::Command { command, text, timeout, folder } => {
                let case = Case { function: function.clone(), inputs: inputs.to_vec() };
                ran(command, text.as_deref(), *timeout, folder.path(), &case)
            }
        }
    }

    /// [`of`](Self::of), where a panic is a way of failing, as in the reduction.
    fn caught(&mut self, function: &Function, inputs: &[Literal]) -> Option<String> {
        panic::catch_unwind(panic::AssertUnwindSafe(|| self.of(function, inputs)))
            .unwrap_or_else(|panic| Some(format!("panic: {}", panic_text(&*panic))))
    }
}

/// The first check that fails, or the one of that name if it fails.
fn failed_check(
    function: &Function,
    inputs: &[Literal],
    seed: u64,
    known: Option<&str>,
) -> Option<String> {
    let is_asked = |name: &str| known.is_none_or(|known| known == name);
    let is_bad = |finding| matches!(finding, Ok(Finding::Bad(_)));
    if is_asked("derivatives") && is_bad(check::derivatives(function, inputs, seed)) {
        return Some("derivatives".into());
    }
    if is_asked("indices")
        && let Ok(Some(Finding::Bad(_))) = check::indices(function, inputs)
    {
        return Some("indices".into());
    }
    let program = Program::from_functions(vec![function.clone()]).ok()?;
    Device::all().into_iter().filter(|device| *device != Device::Interpreter).find_map(|device| {
        let name = device.to_string();
        let binding = Binding::new();
        let on = Evaluation::new(device, &program, &function.name, &binding, inputs);
        let is_bad =
            is_asked(&name) && !matches!(on.compare(), Ok(Finding::Good(_) | Finding::Skipped(_)));
        is_bad.then_some(name)
    })
}

/// How a command fails on a case.
fn ran(
    command: &str,
    text: Option<&str>,
    timeout: Duration,
    folder: &Path,
    case: &Case,
) -> Option<String> {
    let (path, values) = (folder.join("case.ir"), folder.join("case.npz"));
    let (out, err) = (folder.join("out"), folder.join("err"));
    let names = case.function.inputs.iter().map(|input| input.name.as_str());
    npz::write(&values, names.zip(&case.inputs)).ok()?;
    std::fs::write(&path, case.function.to_string()).ok()?;
    let options = options(case, Some(&values));
    let line = command
        .replace("{inputs}", options.trim_start())
        .replace("{}", &path.display().to_string());
    let mut child = Command::new("sh")
        .args(["-c", &line])
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&out).ok()?)
        .stderr(std::fs::File::create(&err).ok()?)
        .spawn()
        .ok()?;
    let begin = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if begin.elapsed() < timeout => {
                std::thread::sleep(Duration::from_millis(5));
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return Some("the command does not end in time".into());
            }
        }
    };
    let printed = || [&out, &err].map(|path| std::fs::read(path).unwrap_or_default()).concat();
    if let Some(text) = text
        && !String::from_utf8_lossy(&printed()).contains(text)
    {
        return None;
    }
    match (status.success(), text) {
        (true, None) => None,
        (_, Some(text)) => Some(text.to_owned()),
        // A signal has no exit status.
        (false, None) => Some(status.to_string()),
    }
}
