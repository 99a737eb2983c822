//! `FILE[@func]`: reading programs.

use crate::console::{Console, Failure, Outcome, Status};
use std::path::{Path, PathBuf};
use wengert::core::graph::{Function, parse_program};
use wengert::{Binding, Device, Diagnostic, GraphFile};

/// A program file, and the function that was asked for.
pub struct Source {
    /// The file.
    pub path: PathBuf,
    /// What it holds.
    pub file: GraphFile,
    function: Option<String>,
}

impl Source {
    /// Reads and verifies `FILE[@func]`.
    pub fn read(text: &str, console: &Console<'_>) -> Outcome<Source> {
        let (path, function) = split(text);
        let file = match &console.text {
            Some((name, text)) if *name == path => GraphFile::new(parse_program(text, name)?),
            _ => GraphFile::read(path)?,
        };
        let source = Source { path: path.into(), file, function: function.map(str::to_owned) };
        if let Some(name) = &source.function {
            source.file.program.get(name)?;
        }
        Ok(source)
    }

    /// The function that was asked for, or the only one.
    pub fn function(&self) -> Outcome<&Function> {
        if let Some(name) = &self.function {
            return Ok(self.file.program.get(name)?);
        }
        match self.file.program.functions() {
            [only] => Ok(only),
            [] => Err(Diagnostic::new(format!("`{}` holds no function", self.path.display())).into()),
            many => {
                let names: Vec<String> =
                    many.iter().map(|f| format!("{}@{}", self.path.display(), f.name)).collect();
                Err(Diagnostic::new(format!("`{}` holds several functions", self.path.display()))
                    .help(format!("say which: {}", names.join(", ")))
                    .into())
            }
        }
    }

    /// The function that was asked for, or all.
    pub fn functions(&self) -> Outcome<Vec<&Function>> {
        match &self.function {
            Some(name) => Ok(vec![self.file.program.get(name)?]),
            None => Ok(self.file.program.functions().iter().collect()),
        }
    }
}

/// Path and function; a path may have an `@` in it, if there is a file of that name.
fn split(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once('@') {
        Some((path, function)) if !path.is_empty() && !Path::new(text).exists() => (path, Some(function)),
        _ => (text, None),
    }
}

/// Reads `NAME=N` pairs.
pub fn bindings(texts: &[String]) -> Outcome<Binding> {
    let mut binding = Binding::new();
    for text in texts {
        let pair = text.split_once('=').and_then(|(name, n)| Some((name, n.parse::<i64>().ok()?)));
        match pair {
            Some((name, value)) if value >= 1 && !name.is_empty() => binding.insert(name, value)?,
            _ => {
                return Err(Diagnostic::new(format!("`--bind {text}` binds nothing"))
                    .help("write --bind B=32, with a number of at least 1")
                    .into());
            }
        }
    }
    Ok(binding)
}

/// Reads the name of a device. One that exists elsewhere, but not in this version, is a device failure, not a mistake.
pub fn device(name: &str) -> Outcome<Device> {
    let known = matches!(name.split(':').next(), Some("cuda" | "emulator"));
    let status = if known { Status::Device } else { Status::BadInput };
    name.parse().map_err(|diagnostic| Failure::new(status, diagnostic))
}

/// Splits `NAME=…` of `--option`.
pub fn pair<'a>(option: &str, text: &'a str) -> Outcome<(&'a str, &'a str)> {
    text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty()).ok_or_else(|| {
        Diagnostic::new(format!("`--{option} {text}` is no pair"))
            .help(format!("write --{option} NAME=VALUE"))
            .into()
    })
}
