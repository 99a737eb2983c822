//! A run's folder: starts a new run in it, or resumes the existing one.

use super::board::Board;
use super::checkpoint::{self, Newest, Opened, Progress};
use super::lock::Lock;
use super::log::Log;
use super::watch::Watch;
use super::{Event, Options, SetData, TrainError, weights};
use crate::atomic::cannot;
use crate::data::source::Source;
use crate::format::{codec, v1};
use crate::recipe::{Cadence, Length, Recipe};
use crate::session::Session;
use std::fs;
use std::path::{Path, PathBuf};
use wengert_core::graph::Program;
use wengert_core::{Diagnostic, Result, diagnostic};

/// The start of a run on rank 0, before other ranks know of it.
pub(super) struct Begun<'a> {
    pub progress: Progress,
    pub output: Option<Output<'a>>,
    /// The checkpoint that the run goes on from. Without one, the session has the variables.
    pub from: Option<Opened>,
}

/// Begins a run, with variables made by `init`, or opens the checkpoint that it goes on from.
pub(super) fn begin<'a>(
    session: &mut Session,
    program: &Program,
    recipe: &Recipe,
    data: &dyn Source,
    options: Options<'a>,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<Begun<'a>, TrainError> {
    let fingerprint = fingerprint(program, recipe, data, options)?;
    let progress = Progress { fingerprint, ..Progress::default() };
    if options.world.is_some_and(|world| world.rank() > 0) {
        // It gets the variables of rank 0.
        return Ok(Begun { progress, output: None, from: None });
    }
    let Some(folder) = options.folder else {
        weights::initialize(session, program, recipe, options, observe)?;
        return Ok(Begun { progress, output: None, from: None });
    };
    let last = recipe.monitoring.kept.last;
    if options.resume {
        return resume(folder, fingerprint, last, observe);
    }
    fs::create_dir_all(folder).map_err(|error| cannot("create", folder, &error))?;
    let lock = Lock::take(folder)?;
    if !checkpoint::list(folder)?.is_empty() {
        return Err(diagnostic!("`{}` already holds a run", folder.display())
            .help("continue it with `--resume`, or choose another folder")
            .into());
    }
    checkpoint::remove_temporary(folder)?;
    checkpoint::remove_parts(folder)?;
    // Opened before `init`, which may take long, so that errors of the folder are reported early.
    let log = Log::open(folder, 0)?;
    weights::initialize(session, program, recipe, options, observe)?;
    let output = Output { folder, lock, log, board: None, last, newest: None, best: Vec::new() };
    Ok(Begun { progress, output: Some(output), from: None })
}

/// Opens the newest undamaged checkpoint of a run.
fn resume<'a>(
    folder: &'a Path,
    fingerprint: u64,
    last: u64,
    observe: &mut dyn FnMut(Event<'_>),
) -> Result<Begun<'a>, TrainError> {
    let nothing = || {
        diagnostic!("there is no checkpoint in `{}` to resume from", folder.display())
            .help("start a run there without `--resume`")
    };
    // A folder without a run is not changed, so no lock is created in it.
    if !folder.is_dir() || checkpoint::list(folder)?.is_empty() {
        return Err(nothing().into());
    }
    let lock = Lock::take(folder)?;
    let Newest { opened, path: newest, damaged } =
        checkpoint::newest(folder)?.ok_or_else(nothing)?;
    let progress = opened.progress.clone();
    if progress.fingerprint != fingerprint {
        return Err(mismatch(folder, progress.fingerprint, fingerprint).into());
    }
    checkpoint::remove_temporary(folder)?;
    checkpoint::remove_parts(folder)?;
    let log = Log::open(folder, progress.step)?;
    for (path, error) in &damaged {
        let aside = checkpoint::set_aside(path)?;
        let why = error.message.as_str();
        observe(Event::Damaged { path, aside: &aside, why, from: &newest });
    }
    // The process may have been killed between writing a checkpoint and removing the oldest.
    checkpoint::remove_old(folder, &progress, last)?;
    let best = progress.watch.best_steps();
    let newest = Some((progress.step, newest));
    let output = Output { folder, lock, log, board: None, last, newest, best };
    Ok(Begun { progress, output: Some(output), from: Some(opened) })
}

/// Checksum of all that a run depends on: of program and recipe in the upper half, of the data
/// ([`Source::fingerprint`]) in the lower half. The length, the cadence of checkpoints and source
/// locations are excluded.
fn fingerprint(
    program: &Program,
    recipe: &Recipe,
    data: &dyn Source,
    options: Options<'_>,
) -> Result<u64> {
    let (record, literals) = v1::program::to_record(program);
    let recipe = Recipe { length: Length::Steps(0), checkpoint: Cadence::Never, ..recipe.clone() };
    let mut made = crc32fast::Hasher::new();
    made.update(&codec::encode("program", &without_locations(record))?);
    made.update(&literals);
    made.update(&codec::encode("recipe", &v1::recipe::to_record(&recipe))?);
    if let Some(record) = v1::data::to_record(&recipe) {
        made.update(&codec::encode("recipe.data", &record)?);
    }
    if recipe.microbatches > 1 {
        made.update(&recipe.microbatches.to_le_bytes());
    }
    if let Some(record) = v1::monitoring::to_record(&recipe.monitoring) {
        made.update(&codec::encode("monitoring", &record)?);
    }
    let mut content = crc32fast::Hasher::new();
    data.fingerprint(&mut content)?;
    for SetData { set, data, .. } in options.sets {
        content.update(format!("{set}/").as_bytes());
        data.fingerprint(&mut content)?;
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
    diagnostic!("the run in `{}` was made with {what}", folder.display()).help(
        "resume it with the program, recipe, data and precision of its start, or choose \
             another folder",
    )
}

/// The error that ends a diverged run. `what` is the message, and `advice` part of the help.
pub(super) fn diverged(what: String, advice: String, output: Option<&Output<'_>>) -> TrainError {
    let kept = match output.and_then(|output| output.newest.as_ref()) {
        Some((step, path)) => {
            format!("the checkpoint after step {step} is kept: `{}`; ", path.display())
        }
        None => String::new(),
    };
    TrainError::Diverged(Diagnostic::new(what).help(format!("{kept}{advice}")))
}

/// A run's folder.
pub(super) struct Output<'a> {
    pub(super) folder: &'a Path,
    lock: Lock,
    log: Log,
    /// The event file, if there is one.
    pub(super) board: Option<Board>,
    /// Number of newest checkpoints that are kept.
    last: u64,
    /// The newest checkpoint, with its step.
    newest: Option<(u64, PathBuf)>,
    /// Steps of the best checkpoints, as the newest one has them.
    best: Vec<u64>,
}

impl Output<'_> {
    /// Adds an event to the log and the event file.
    pub(super) fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        self.log.observe(event)?;
        self.board.as_mut().map_or(Ok(()), |board| board.observe(event))
    }

    /// Checks that the folder is still there.
    pub(super) fn check(&self) -> Result<()> {
        self.lock.check()
    }

    /// Writes the log to the disk, as it has to be before a checkpoint is complete.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.log.flush()
    }

    /// Writes a checkpoint by `write`, which gets the folder, the progress and the number of newest
    /// checkpoints that are kept.
    pub(super) fn checkpoint(
        &mut self,
        progress: &Progress,
        observe: &mut dyn FnMut(Event<'_>),
        write: impl FnOnce(&Path, &Progress, u64) -> Result<PathBuf>,
    ) -> Result<()> {
        let watch = Watch { previous: self.best.clone(), ..progress.watch.clone() };
        let written = Progress { watch, ..progress.clone() };
        let path = write(self.folder, &written, self.last)?;
        self.best = written.watch.best_steps();
        if progress.step > 0 {
            observe(Event::Checkpoint { step: progress.step, path: &path });
        }
        self.newest = Some((progress.step, path));
        Ok(())
    }

    /// The newest checkpoint.
    pub(super) fn newest(&self) -> Option<&Path> {
        self.newest.as_ref().map(|(_, path)| path.as_path())
    }
}
