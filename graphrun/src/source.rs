//! `FILE[@func]`: reading programs.

use crate::cli::{CaseArgs, DeviceArgs, FunctionArgs, ModelArgs};
use crate::console::{Console, Outcome};
use crate::model::options;
use crate::policy::PrecisionArgs;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use wengert::core::Verified;
use wengert::core::graph::{Function, parse_program};
use wengert::core::plan::Plan;
use wengert::data::Arrays;
use wengert::precision::{Precision, cast_to_param};
use wengert::signature::Signature;
use wengert::{
    Binding, Compiled, Device, DeviceOptions, Diagnostic, GraphFile, Location, Session, diagnostic,
    format, onnx, os_text,
};

/// A file and the selected function.
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// Its contents.
    pub contents: Contents,
    function: Option<String>,
    /// The policy that the program is under.
    policy: Option<Precision>,
    /// Extents that the import of a model has bound.
    bound: Binding,
}

/// Contents of a file.
pub enum Contents {
    /// Functions.
    Program(Box<GraphFile>),
    /// One compiled function: plans by decreasing memory.
    Plan(Vec<Verified<Plan>>),
}

impl Source {
    /// Reads and verifies `FILE[@func]`.
    pub fn read(text: &OsStr, console: &Console<'_>) -> Outcome<Source> {
        Source::read_with(text, &ModelArgs::default(), &[], console)
    }

    /// Reads and verifies the argument of a command.
    pub fn of(args: &FunctionArgs, console: &Console<'_>) -> Outcome<Source> {
        Source::read_with(&args.file, &args.model, &args.binds, console)
    }

    /// Reads and verifies the function of a case, and applies its precision.
    pub fn of_case(args: &CaseArgs, console: &Console<'_>) -> Outcome<Source> {
        Source::of(&args.function, console)?.in_precision(&args.precision)
    }

    /// Reads and verifies `FILE[@func]`. A model is imported with these options; if it needs
    /// extents as numbers, with those of `binds`.
    pub fn read_with(
        text: &OsStr,
        model: &ModelArgs,
        binds: &[String],
        console: &Console<'_>,
    ) -> Outcome<Source> {
        let (path, function) = split(text)?;
        let is_model = path.extension().is_some_and(|e| e == "onnx");
        if let Some(option) = model.given().filter(|_| !is_model) {
            return Err(diagnostic!(
                "`{}` is no model to which --{option} applies",
                path.display()
            )
            .help("give the option to `graphrun import`, which makes .graph files of models")
            .into());
        }
        let mut bound = Binding::new();
        let is_plan = path.extension().is_some_and(|e| e == "plan");
        let contents = match &console.text {
            Some((name, text)) if Path::new(name) == path => {
                Contents::Program(Box::new(GraphFile::new(parse_program(text, name)?)))
            }
            _ if is_plan => Contents::Plan(format::plan::read_all(path)?),
            _ if is_model => {
                let file = onnx::read(path, &options(model, Binding::new())?);
                let file = match file {
                    Err(_) if !binds.is_empty() => {
                        bound = bindings(binds)?;
                        onnx::read(path, &options(model, bound.clone())?)
                    }
                    file => file,
                };
                Contents::Program(Box::new(file?))
            }
            _ => Contents::Program(Box::new(GraphFile::read(path)?)),
        };
        let function = function.map(str::to_owned);
        let source = Source { path: path.into(), contents, function, policy: None, bound };
        match (&source.contents, &source.function) {
            (Contents::Program(file), Some(name)) => drop(file.program.get(name)?),
            (Contents::Plan(plans), Some(name)) if plans[0].function != *name => {
                return Err(diagnostic!("there is no function `@{name}`")
                    .help(format!("the plan is of @{}", plans[0].function))
                    .into());
            }
            _ => {}
        }
        Ok(source)
    }

    /// The same with the functions under the policy of the options. A plan has been compiled, so it
    /// is an error.
    pub fn in_precision(self, args: &PrecisionArgs) -> Outcome<Source> {
        match args.policy()? {
            Some(policy) => self.under(&policy),
            None => Ok(self),
        }
    }

    /// The same with the functions under a policy. A plan is an error.
    pub fn under(mut self, policy: &Precision) -> Outcome<Source> {
        match &mut self.contents {
            Contents::Program(file) => {
                file.program = policy.apply_to_program(&file.program)?;
                self.policy = Some(policy.clone());
            }
            Contents::Plan(_) => {
                let path = self.path.display();
                return Err(diagnostic!("`{path}` is a plan; its precision is fixed")
                    .help("give --precision to `graphrun compile`, or run the .graph or .ir file")
                    .into());
            }
        }
        Ok(self)
    }

    /// The program; a plan is an error.
    pub fn file(&self) -> Outcome<&GraphFile> {
        match &self.contents {
            Contents::Program(file) => Ok(file),
            Contents::Plan(_) => {
                let path = self.path.display();
                Err(diagnostic!("`{path}` is a plan; this command needs the program")
                    .help("give the .graph or .ir file that it was compiled from")
                    .into())
            }
        }
    }

    /// The function that the argument names.
    pub fn selected(&self) -> Option<&str> {
        self.function.as_deref()
    }

    /// The binding of `--bind`, without the extents that are numbers since the import of a model.
    pub fn binding(&self, binds: &[String]) -> Outcome<Binding> {
        let all = bindings(binds)?;
        let open = all.iter().filter(|(name, _)| self.bound.get(name).is_none());
        Ok(open.fold(Binding::new(), |open, (name, value)| open.with(name, value)))
    }

    /// The functions that the file's recipe does not name.
    pub fn beside_recipe(&self) -> Outcome<Vec<&Function>> {
        let file = self.file()?;
        let named = file.recipe.iter().flat_map(|recipe| {
            let evaluated = recipe.evaluations().map(|(_, evaluate)| &evaluate.function);
            recipe.init.iter().chain([&recipe.step.function]).chain(evaluated)
        });
        let named: Vec<&String> = named.collect();
        Ok(file.program.functions().iter().filter(|f| !named.contains(&&f.name)).collect())
    }

    /// The selected function, or the only one, or the only one beside those of the recipe.
    pub fn function(&self) -> Outcome<&Function> {
        let program = &self.file()?.program;
        if let Some(name) = &self.function {
            return Ok(program.get(name)?);
        }
        if let [only] = self.beside_recipe()?[..] {
            return Ok(only);
        }
        match program.functions() {
            [only] => Ok(only),
            [] => Err(diagnostic!("`{}` holds no function", self.path.display()).into()),
            many => {
                let names: Vec<String> =
                    many.iter().map(|f| format!("{}@{}", self.path.display(), f.name)).collect();
                Err(diagnostic!("`{}` holds several functions", self.path.display())
                    .help(format!("say which: {}", names.join(", ")))
                    .into())
            }
        }
    }

    /// The selected function, or all. A name of the binding that none of them has is an error.
    pub fn functions(&self, binding: &Binding) -> Outcome<Vec<&Function>> {
        let program = &self.file()?.program;
        let functions = match &self.function {
            Some(name) => vec![program.get(name)?],
            None => program.functions().iter().collect(),
        };
        let is_known = |name: &str| functions.iter().any(|f| f.variables().contains(name));
        match binding.iter().find(|(name, _)| !is_known(name)) {
            Some((name, _)) => {
                let known: BTreeSet<_> = functions.iter().flat_map(|f| f.variables()).collect();
                let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
                let help = match known.is_empty() {
                    true => "no dimension is open: leave --bind out".to_owned(),
                    false => format!("there is {}", known.join(", ")),
                };
                Err(diagnostic!("there is no dimension variable `{name}`").help(help).into())
            }
            None => Ok(functions),
        }
    }

    /// Inputs and outputs of the selected function; a program's types may have dimension
    /// variables.
    pub fn signature(&self) -> Outcome<Signature> {
        match &self.contents {
            Contents::Program(_) => Ok(Signature::of_function(self.function()?)),
            Contents::Plan(plans) => Ok(Signature::of_plan(&plans[0])),
        }
    }

    /// The diagnostic with its source line, if that is in this file and the file is a text.
    pub fn shown(&self, diagnostic: Diagnostic, console: &Console<'_>) -> Diagnostic {
        let Some((Location::Source { file, line, column }, _)) = diagnostic.places.first() else {
            return diagnostic;
        };
        // Locations have the path as displayed, which differs if it is not UTF-8.
        if diagnostic.excerpt.is_some() || **file != *self.path.display().to_string() {
            return diagnostic;
        }
        let text = match &console.text {
            Some((name, text)) if Path::new(name) == self.path => text.clone(),
            _ if self.path.extension().is_some_and(|e| e == "ir") => {
                // The file has been read before; if it is missing now, the line is not shown.
                std::fs::read_to_string(&self.path).unwrap_or_default()
            }
            _ => return diagnostic,
        };
        let (line, column) = (*line, *column);
        diagnostic.excerpt(&text, line, column)
    }

    /// Weights for the program, as its policy stores them.
    pub fn cast_to_param(&self, weights: Arrays) -> Outcome<Arrays> {
        match &self.policy {
            Some(policy) => {
                Ok(cast_to_param(policy, &self.file()?.program, &weights)?.into_owned())
            }
            None => Ok(weights),
        }
    }

    /// The values of variables in the file itself.
    pub fn weights(&self) -> Outcome<Arrays> {
        match &self.contents {
            Contents::Program(file) => Ok(file.weights.load(&self.path)?.unwrap_or_default()),
            Contents::Plan(_) => Ok(Arrays::new()),
        }
    }

    /// The selected function, ready to run.
    pub fn compile(&self, session: &mut Session, binding: &Binding) -> Outcome<Compiled> {
        match &self.contents {
            Contents::Program(file) => {
                let function = self.function()?;
                check_bound(function, binding)?;
                Ok(session.compile(&file.program, &function.name, binding)?)
            }
            Contents::Plan(plans) if binding.is_empty() => Ok(session.load_plans(plans.clone())?),
            Contents::Plan(plans) => {
                Err(Diagnostic::new("a plan has no dimension variables that could be bound")
                    .help(format!("it was compiled with {}", plans[0].binding))
                    .into())
            }
        }
    }
}

/// Path and function. A path may contain `@`, if there is a file of that name.
fn split(text: &OsStr) -> Outcome<(&Path, Option<&str>)> {
    match os_text::rsplit_once(text, b'@') {
        Some((path, function)) if !path.is_empty() && !Path::new(text).exists() => {
            let no_name =
                || diagnostic!("there is no function `@{}`", Path::new(function).display());
            Ok((Path::new(path), Some(function.to_str().ok_or_else(no_name)?)))
        }
        _ => Ok((Path::new(text), None)),
    }
}

/// Checks that every dimension variable is bound.
pub fn check_bound(function: &Function, binding: &Binding) -> Outcome<()> {
    let variables = function.variables();
    let Some(name) = variables.iter().find(|name| binding.get(name).is_none()) else {
        return Ok(());
    };
    let unbound = function.bind(binding).err();
    let error = unbound.unwrap_or_else(|| diagnostic!("dimension `{name}` is not bound"));
    Err(error.help(format!("bind it, e.g. by `--bind {name}=32`")).into())
}

/// The part of a binding for the function's variables.
pub fn part(binding: &Binding, function: &Function) -> Binding {
    let variables = function.variables();
    let bound = variables.iter().filter_map(|v| Some((v, binding.get(v)?)));
    bound.fold(Binding::new(), |part, (name, value)| part.with(name, value))
}

/// Reads `NAME=N` pairs.
pub fn bindings(texts: &[String]) -> Outcome<Binding> {
    let mut binding = Binding::new();
    for text in texts {
        let pair = text.split_once('=').and_then(|(name, n)| Some((name, n.parse::<i64>().ok()?)));
        match pair {
            Some((name, value)) if value >= 1 && !name.is_empty() => binding.insert(name, value)?,
            _ => {
                return Err(diagnostic!("`--bind {text}` binds nothing")
                    .help("write --bind B=32, with a number of at least 1")
                    .into());
            }
        }
    }
    Ok(binding)
}

/// Parses the device and its options.
pub fn device(args: &DeviceArgs) -> Outcome<(Device, DeviceOptions)> {
    let device: Device = args.device.parse()?;
    let usual = DeviceOptions::default();
    let options = DeviceOptions {
        threads: args.threads.map(usize::from),
        capture: usual.capture && !args.no_capture,
        tuning: args.tuning.clone(),
        autotune: args.autotune,
        fast_products: args.fast_products,
        batch_invariant: args.batch_invariant,
        approximate_functions: args.functions.approximate_functions,
        memory_budget: args.memory_budget,
        work_limit: args.work_limit,
        ..usual
    };
    if device == Device::Interpreter && args.memory_budget.is_some() {
        return Err(Diagnostic::new(
            "the interpreter follows no plan, so it keeps no budget of memory",
        )
        .help("--memory-budget goes with --device cpu, cuda and emulator")
        .into());
    }
    if device != Device::Cpu && args.threads.is_some() {
        return Err(diagnostic!("device `{device}` has no such choice")
            .help("--threads goes with --device cpu")
            .into());
    }
    if !matches!(device, Device::Cuda(_))
        && (options.tuning.is_some() || args.fast_products || args.no_capture)
    {
        return Err(diagnostic!("device `{device}` has no such choices")
            .help("--tuning, --autotune, --fast-products and --no-capture go with --device cuda")
            .into());
    }
    Ok((device, options))
}

/// Splits `NAME=…` of `--option`. The name is UTF-8; the value may be a path, which need not be.
pub fn pair<'a>(
    option: &str,
    text: &'a (impl AsRef<OsStr> + ?Sized),
) -> Outcome<(&'a str, &'a OsStr)> {
    let text = text.as_ref();
    let pair =
        os_text::split_once(text, b'=').and_then(|(name, value)| Some((name.to_str()?, value)));
    pair.filter(|(name, value)| !name.is_empty() && !value.is_empty()).ok_or_else(|| {
        diagnostic!("`--{option} {}` is no pair", Path::new(text).display())
            .help(format!("write --{option} NAME=VALUE"))
            .into()
    })
}
