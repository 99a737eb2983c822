//! A run's folder: beginning a run in it, or going on with the one that is there.

use super::checkpoint::{self, Progress};
use super::functions::Function;
use super::log::Log;
use super::{Event, Options, TrainError, WEIGHTS};
use crate::data::{Arrays, bytes, safetensors};
use crate::format::{codec, v1};
use crate::recipe::{Cadence, Length, Recipe};
use crate::session::Session;
use crate::signature::is_variable;
use std::fs;
use std::path::Path;
use wengert_core::graph::Program;
use wengert_core::{Diagnostic, Literal, Result};

/// The session's variables as the run begins, from a checkpoint or from `init`.
pub(super) fn begin<'a>(
    session: &mut Session,
    program: &Program,
    recipe: &Recipe,
    data: &Arrays,
    options: Options<'a>,
) -> Result<(Progress, Option<Output<'a>>), TrainError> {
    let fingerprint = fingerprint(program, recipe, data)?;
    if let Some(folder) = options.folder {
        fs::create_dir_all(folder).map_err(|error| crate::atomic::cannot("create", folder, &error))?;
        match checkpoint::read(folder)? {
            Some(_) if !options.resume => {
                return Err(Diagnostic::new(format!("`{}` already holds a run", folder.display()))
                    .help("go on with it by `--resume`, or choose another folder")
                    .into());
            }
            Some((variables, progress)) => {
                if progress.fingerprint != fingerprint {
                    return Err(mismatch(folder, progress.fingerprint, fingerprint).into());
                }
                checkpoint::remove_litter(folder)?;
                session.set_variables(&variables)?;
                let log = Log::open(folder, progress.step)?;
                return Ok((progress, Some(Output { folder, log })));
            }
            None => {}
        }
    }
    if let Some(init) = &recipe.init {
        session.set_variables(&Arrays::new())?;
        Function::new(program, init).run(session, vec![], &recipe.key_for(0))?;
    }
    for (name, value) in options.weights.into_iter().flatten() {
        session.set_variable(name, value)?;
    }
    let progress = Progress { fingerprint, ..Progress::default() };
    let Some(folder) = options.folder else { return Ok((progress, None)) };
    checkpoint::remove_litter(folder)?;
    let mut output = Output { folder, log: Log::open(folder, 0)? };
    output.checkpoint(session, &progress, &mut |_| {})?;
    Ok((progress, Some(output)))
}

/// The checksum of program and recipe in the upper half, that of the data in the lower: what a run depends on, but for
/// its length, the cadence of its checkpoints, and where its source lines are.
fn fingerprint(program: &Program, recipe: &Recipe, data: &Arrays) -> Result<u64> {
    let (record, literals) = v1::program::to_record(program);
    let recipe = Recipe { length: Length::Steps(0), checkpoint: Cadence::Never, ..recipe.clone() };
    let mut made = crc32fast::Hasher::new();
    made.update(&codec::encode("program", &without_locations(record))?);
    made.update(&literals);
    made.update(&codec::encode("recipe", &v1::recipe::to_record(&recipe))?);
    let mut content = crc32fast::Hasher::new();
    for (name, array) in data {
        content.update(format!("{name}:{};", array.ty()).as_bytes());
        content.update(&bytes::little_endian(array));
    }
    Ok(u64::from(made.finalize()) << 32 | u64::from(content.finalize()))
}

fn without_locations(mut record: v1::Program) -> v1::Program {
    record.functions.iter_mut().flat_map(|f| &mut f.inputs).for_each(|i| i.location = 0);
    record.bodies.iter_mut().flat_map(|b| &mut b.equations).for_each(|e| e.location = 0);
    record
}

fn mismatch(folder: &Path, found: u64, wanted: u64) -> Diagnostic {
    let what = if found >> 32 == wanted >> 32 { "other data" } else { "another program or recipe" };
    Diagnostic::new(format!("the run in `{}` was made with {what}", folder.display()))
        .help("resume it with what it was begun with, or choose another folder")
}

pub(super) fn diverged(what: String, folder: Option<&Path>) -> TrainError {
    let kept = match folder {
        Some(folder) => {
            format!("the last good checkpoint is kept: `{}`; ", checkpoint::path(folder).display())
        }
        None => String::new(),
    };
    TrainError::Diverged(
        Diagnostic::new(what).help(format!("{kept}try a smaller learning rate, or clip the gradient")),
    )
}

/// A run's folder.
pub(super) struct Output<'a> {
    folder: &'a Path,
    pub(super) log: Log,
}

impl Output<'_> {
    pub(super) fn checkpoint(
        &mut self,
        session: &Session,
        progress: &Progress,
        observe: &mut dyn FnMut(Event<'_>),
    ) -> Result<(), TrainError> {
        let variables = session.variables()?;
        if let Some((name, _)) = variables.iter().find(|(_, value)| has_nan(value)) {
            let what = format!("variable `{name}` has a NaN after step {}", progress.step);
            return Err(diverged(what, Some(self.folder)));
        }
        self.log.flush()?;
        checkpoint::write(self.folder, &variables, progress)?;
        observe(Event::Checkpoint { step: progress.step, path: &checkpoint::path(self.folder) });
        Ok(())
    }

    pub(super) fn weights(&self, session: &Session, program: &Program, recipe: &Recipe) -> Result<()> {
        let is_training = |name: &str| name == recipe.step.function || Some(name) == recipe.init.as_deref();
        let mut wanted: Vec<&str> = program
            .functions()
            .iter()
            .filter(|function| !is_training(&function.name))
            .flat_map(|function| &function.inputs)
            .filter(|input| is_variable(input.role))
            .map(|input| input.name.as_str())
            .collect();
        wanted.sort_unstable();
        let mut variables = session.variables()?;
        if !wanted.is_empty() {
            variables.retain(|name, _| wanted.binary_search(&name.as_str()).is_ok());
        }
        let variables = variables.iter().map(|(name, value)| (name.as_str(), value));
        safetensors::write(self.folder.join(WEIGHTS), variables)
    }
}

fn has_nan(literal: &Literal) -> bool {
    match literal {
        Literal::F32(a) => a.iter().any(|v| v.is_nan()),
        Literal::F64(a) => a.iter().any(|v| v.is_nan()),
        Literal::F16(a) => a.iter().any(|v| v.is_nan()),
        Literal::BF16(a) => a.iter().any(|v| v.is_nan()),
        _ => false,
    }
}
