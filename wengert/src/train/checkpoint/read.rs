//! Reading checkpoints, whole ones and those in parts.

use super::{Progress, list, path};
use crate::data::Arrays;
use crate::data::map::Map;
use crate::data::parts::region::Region;
use crate::data::safetensors::{self, SafetensorsFile};
use crate::data::source::ArrayType;
use std::path::{Path, PathBuf};
use wengert_core::{Diagnostic, Literal, Result, diagnostic};

/// A checkpoint that was opened. Its variables are read one by one.
#[derive(Debug)]
pub(in crate::train) struct Opened {
    file: SafetensorsFile,
    pub progress: Progress,
}

impl Opened {
    /// The checkpoint after a step. Its parts are not verified before they are read.
    ///
    /// Error: it cannot be read, or is damaged.
    pub fn at(folder: &Path, step: u64) -> Result<Opened> {
        let path = path(folder, step);
        let opened = Opened::of(&path, Map::open(&path)?, step);
        opened.map_err(|error| error.context(format_args!("`{}`", path.display())))
    }

    /// Errors do not name the file.
    fn of(path: &Path, map: Map, step: u64) -> Result<Opened> {
        let file = SafetensorsFile::with_parts(path, map)?;
        if file.checksum().is_none() {
            return Err(safetensors::no_checksum());
        }
        let of_progress = file.names().filter(|name| name.starts_with('/'));
        let mut arrays = of_progress
            .map(|name| Ok((name.to_owned(), file.read(name)?)))
            .collect::<Result<Arrays>>()?;
        let progress = Progress::take(&mut arrays)?;
        if progress.step != step {
            return Err(diagnostic!("it is the checkpoint after step {}", progress.step));
        }
        Ok(Opened { file, progress })
    }

    /// Names of the variables, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.file.names().filter(|name| !name.starts_with('/'))
    }

    /// The type of a variable.
    pub fn ty(&self, name: &str) -> Result<ArrayType> {
        self.file.array_type(name)
    }

    /// Reads a variable.
    pub fn read(&self, name: &str) -> Result<Literal> {
        self.file.read(name)
    }

    /// Reads a part of a variable. No more of it is in memory.
    pub fn read_region(&self, name: &str, region: &Region) -> Result<Literal> {
        self.file.read_region(name, region)
    }

    /// Reads all variables.
    pub fn read_all(&self) -> Result<Arrays> {
        self.names().map(|name| Ok((name.to_owned(), self.read(name)?))).collect()
    }
}

/// The newest undamaged checkpoint of a run's folder.
#[derive(Debug)]
pub(in crate::train) struct Newest {
    pub opened: Opened,
    pub path: PathBuf,
    /// Newer checkpoints that are damaged, with their errors.
    pub damaged: Vec<(PathBuf, Diagnostic)>,
}

/// Opens the newest undamaged checkpoint of a run's folder; `None` if there is no checkpoint.
///
/// Errors: a file cannot be read (that is not damage); every checkpoint is damaged.
pub(in crate::train) fn newest(folder: &Path) -> Result<Option<Newest>> {
    let mut damaged: Vec<(PathBuf, Diagnostic)> = Vec::new();
    for (step, path) in list(folder)? {
        let map = Map::open(&path)?;
        let error = match Opened::of(&path, map, step) {
            Ok(opened) => match opened.file.damage()? {
                None => return Ok(Some(Newest { opened, path, damaged })),
                Some(error) => error,
            },
            Err(error) => error,
        };
        damaged.push((path, error));
    }
    if damaged.is_empty() {
        return Ok(None);
    }
    let list =
        damaged.iter().map(|(path, error)| format!("`{}`: {}", path.display(), error.message));
    Err(diagnostic!("every checkpoint is damaged: {}", list.collect::<Vec<_>>().join("; "))
        .help("restore one of the files, or begin a run in another folder"))
}

/// A checkpoint that was read.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    /// Every variable, whole.
    pub variables: Arrays,
    /// The progress of the run.
    pub progress: Progress,
    /// The file.
    pub path: PathBuf,
    /// Newer checkpoints that are damaged, with their errors.
    pub damaged: Vec<(PathBuf, Diagnostic)>,
}

/// Reads the newest undamaged checkpoint of a run's folder; `None` if there is no checkpoint.
///
/// Errors: a file cannot be read (that is not damage); every checkpoint is damaged.
pub fn read(folder: &Path) -> Result<Option<Checkpoint>> {
    let Some(Newest { opened, path, damaged }) = newest(folder)? else { return Ok(None) };
    let variables = opened.read_all()?;
    Ok(Some(Checkpoint { variables, progress: opened.progress, path, damaged }))
}

/// The variables of the checkpoint of a step.
pub fn variables(folder: &Path, step: u64) -> Result<Arrays> {
    Opened::at(folder, step)?.read_all()
}
