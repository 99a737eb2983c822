//! Checkpoints: the state of a training run.
//!
//! A checkpoint is one safetensors file, `checkpoint-STEP.safetensors`. It holds every variable
//! of the session by key path and the progress of the run, under names that are no key paths
//! (they begin with a slash). Nothing else is needed: the order of examples and the keys of
//! random numbers follow from the recipe and the number of the step.
//!
//! - **Whole or absent.** A checkpoint is written to a temporary file and renamed ([`atomic`]),
//!   so a crash at any moment leaves the older checkpoints unchanged.
//! - **Checked.** A checksum covers the whole file
//!   ([`write_checked`](safetensors::write_checked)). A file without one is not accepted: damage
//!   to it could not be detected.
//! - **The last ones are kept**, two unless the recipe says otherwise
//!   ([`Kept`](crate::recipe::Kept)), and those with the best watched numbers. Others are removed
//!   once the new one is on the disk. If the newest is damaged, the run resumes from the one
//!   before; the steps between are computed again, to the same bits. What was among the best when
//!   the one before was written is kept until the next checkpoint, so that such a run finds it.

use super::watch::Watch;
use crate::atomic;
use crate::data::map::Map;
use crate::data::{Arrays, safetensors};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use wengert_core::{Diagnostic, Literal, Result, diagnostic};

/// The progress of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Sum of the losses of the current epoch, each weighted by its number of examples.
    pub epoch_loss: f64,
    /// Number of examples seen in the current epoch.
    pub epoch_examples: u64,
    /// Fingerprint of the program, the recipe and the data. A run resumes only with the same
    /// ones.
    pub fingerprint: u64,
    /// What is remembered of the watched number.
    pub watch: Watch,
}

/// File name of earlier versions, whose checkpoints have no checksum.
const UNCHECKED: &str = "checkpoint.safetensors";

const PREFIX: &str = "checkpoint-";
const SUFFIX: &str = ".safetensors";

/// The checkpoint of a run's folder after a step.
pub fn path(folder: &Path, step: u64) -> PathBuf {
    folder.join(format!("{PREFIX}{step:09}{SUFFIX}"))
}

/// The step in the name of a checkpoint.
fn step_of(name: &OsStr) -> Option<u64> {
    let digits = name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
    if digits.bytes().all(|b| b.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// The checkpoints of a run's folder with their steps, the newest first. They may be damaged.
pub fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for path in atomic::entries("read", folder)? {
        let name = path.file_name().unwrap_or_default();
        if let Some(step) = step_of(name) {
            found.push((step, path));
        } else if name == UNCHECKED {
            return Err(diagnostic!(
                "`{}` is a checkpoint of an earlier version, which has no checksum",
                path.display()
            )
            .help(format!(
                "begin a run in another folder with its weights: `--params {} --partial`",
                path.display()
            )));
        }
    }
    found.sort_by(|a, b| b.cmp(a));
    Ok(found)
}

/// The tensors that hold a progress.
fn tensors_of(progress: &Progress) -> Vec<(&'static str, Literal)> {
    let mut tensors = vec![
        ("/step", Literal::from(progress.step)),
        ("/epoch_loss", Literal::from(progress.epoch_loss)),
        ("/epoch_examples", Literal::from(progress.epoch_examples)),
        ("/fingerprint", Literal::from(progress.fingerprint)),
    ];
    tensors.extend(progress.watch.to_arrays());
    tensors
}

/// The contents of a checkpoint.
pub(super) fn to_bytes(variables: &Arrays, progress: &Progress) -> Result<Vec<u8>> {
    let extra = tensors_of(progress);
    let variables = variables.iter().map(|(name, literal)| (name.as_str(), literal));
    safetensors::to_bytes_checked(
        variables.chain(extra.iter().map(|(name, literal)| (*name, literal))),
    )
}

/// Writes the checkpoint of a step, then [removes](remove_old) old ones.
pub fn write(folder: &Path, variables: &Arrays, progress: &Progress, last: u64) -> Result<PathBuf> {
    let extra = tensors_of(progress);
    let path = path(folder, progress.step);
    let variables = variables.iter().map(|(name, literal)| (name.as_str(), literal));
    safetensors::write_checked(
        &path,
        variables.chain(extra.iter().map(|(name, literal)| (*name, literal))),
    )?;
    remove_old(folder, progress, last)?;
    Ok(path)
}

/// Removes all checkpoints but the `last` newest and the best ones.
pub fn remove_old(folder: &Path, progress: &Progress, last: u64) -> Result<()> {
    let last = usize::try_from(last).unwrap_or(usize::MAX);
    let old = list(folder)?.into_iter().skip(last);
    for (_, old) in old.filter(|(step, _)| !progress.watch.keeps(*step)) {
        fs::remove_file(&old).map_err(|error| atomic::cannot("remove", &old, &error))?;
    }
    Ok(())
}

/// A checkpoint that was read.
#[derive(Clone, PartialEq, Debug)]
pub struct Checkpoint {
    /// Every variable.
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
    let mut damaged: Vec<(PathBuf, Diagnostic)> = Vec::new();
    for (step, path) in list(folder)? {
        let contents = Map::open(&path)?;
        match parse(&contents, step) {
            Ok((variables, progress)) => {
                return Ok(Some(Checkpoint { variables, progress, path, damaged }));
            }
            Err(error) => damaged.push((path, error)),
        }
    }
    if damaged.is_empty() {
        return Ok(None);
    }
    let list =
        damaged.iter().map(|(path, error)| format!("`{}`: {}", path.display(), error.message));
    Err(diagnostic!("every checkpoint is damaged: {}", list.collect::<Vec<_>>().join("; "))
        .help("restore one of the files, or begin a run in another folder"))
}

/// The variables of the checkpoint of a step.
pub fn variables(folder: &Path, step: u64) -> Result<Arrays> {
    let path = path(folder, step);
    let (variables, _) = parse(&Map::open(&path)?, step)
        .map_err(|error| error.context(format_args!("`{}`", path.display())))?;
    Ok(variables)
}

/// The contents of a checkpoint after step `step`.
fn parse(bytes: &[u8], step: u64) -> Result<(Arrays, Progress)> {
    let (arrays, progress) = from_bytes(bytes)?;
    if progress.step != step {
        return Err(diagnostic!("it is the checkpoint after step {}", progress.step));
    }
    Ok((arrays, progress))
}

/// The variables and the progress of a checkpoint's contents.
pub(super) fn from_bytes(bytes: &[u8]) -> Result<(Arrays, Progress)> {
    let mut arrays = safetensors::parse_checked(bytes)?;
    let mut take = |name: &str| -> Result<Literal> {
        let found = arrays.remove(name).filter(|literal| literal.shape().is_empty());
        found.ok_or_else(|| diagnostic!("it is no checkpoint: it has no `{name}`"))
    };
    let wrong = || Diagnostic::new("it is no checkpoint of this version");
    let whole = |literal: Literal| literal.as_slice::<u64>().map(|s| s[0]).ok_or_else(wrong);
    let progress = Progress {
        step: whole(take("/step")?)?,
        epoch_loss: take("/epoch_loss")?.as_slice::<f64>().map(|s| s[0]).ok_or_else(wrong)?,
        epoch_examples: whole(take("/epoch_examples")?)?,
        fingerprint: whole(take("/fingerprint")?)?,
        watch: Watch::take(&mut arrays)?,
    };
    Ok((arrays, progress))
}

/// Renames a damaged checkpoint, so that it does not count among those that are kept. Returns the
/// new path.
pub fn set_aside(path: &Path) -> Result<PathBuf> {
    let mut name = std::ffi::OsString::from("damaged-");
    name.push(path.file_name().unwrap_or_default());
    let aside = path.with_file_name(name);
    fs::rename(path, &aside).map_err(|error| atomic::cannot("rename", path, &error))?;
    Ok(aside)
}

/// Removes the temporary files of a run that was killed while it wrote.
pub fn remove_temporary(folder: &Path) -> Result<()> {
    let is_temporary = |path: &PathBuf| path.file_name().is_some_and(atomic::is_litter);
    atomic::entries("tidy", folder)?
        .into_iter()
        .filter(is_temporary)
        .try_for_each(fs::remove_file)
        .map_err(|error| atomic::cannot("tidy", folder, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_last_two_are_kept_and_the_older_one_stands_in_for_a_damaged_one() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(read(folder).unwrap().is_none());
        let at = |step: u64| Progress {
            step,
            epoch_loss: 0.1,
            epoch_examples: 128,
            fingerprint: u64::MAX,
            watch: Watch::default(),
        };
        let variables = |step: u64| Arrays::from([("model.w".into(), Literal::from(step as f32))]);
        // The order is numeric, even if the numbers of digits differ.
        for step in [0, 7, 999_999_999, 1_000_000_000] {
            write(folder, &variables(step), &at(step), 2).unwrap();
        }
        assert_eq!(
            names(folder),
            ["checkpoint-1000000000.safetensors", "checkpoint-999999999.safetensors"]
        );
        let newest = read(folder).unwrap().unwrap();
        assert_eq!(
            (newest.variables, newest.progress),
            (variables(1_000_000_000), at(1_000_000_000))
        );
        assert!(newest.damaged.is_empty());

        let flip = |path: &Path| {
            let mut bytes = fs::read(path).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 4;
            fs::write(path, bytes).unwrap();
        };
        flip(&newest.path);
        let older = read(folder).unwrap().unwrap();
        assert_eq!((older.variables, older.progress), (variables(999_999_999), at(999_999_999)));
        let (path, error) = &older.damaged[0];
        assert!(*path == newest.path && error.message.contains("checksum"), "{error}");
        flip(&older.path);
        let error = read(folder).unwrap_err().message;
        assert!(
            error.contains("every checkpoint is damaged") && error.contains("1000000000"),
            "{error}"
        );
        assert_eq!(
            set_aside(&newest.path).unwrap(),
            folder.join("damaged-checkpoint-1000000000.safetensors")
        );
        assert_eq!(list(folder).unwrap().len(), 1);
    }

    #[test]
    fn the_best_are_kept_and_those_of_the_checkpoint_before() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let kept = |step: u64, best: &[u64], previous: &[u64]| {
            let best = best.iter().map(|step| (*step, 0.5)).collect();
            let watch = Watch { best, previous: previous.to_vec(), ..Watch::default() };
            let progress = Progress { step, watch, ..Progress::default() };
            write(folder, &Arrays::new(), &progress, 1).unwrap();
            let mut steps: Vec<u64> = list(folder).unwrap().iter().map(|(step, _)| *step).collect();
            steps.reverse();
            steps
        };
        assert_eq!(kept(1, &[1], &[]), [1]);
        assert_eq!(kept(2, &[1], &[1]), [1, 2]);
        assert_eq!(kept(3, &[3], &[1]), [1, 3]);
        assert_eq!(kept(4, &[3], &[3]), [3, 4]);
        assert_eq!(kept(5, &[3], &[3]), [3, 5]);
        assert_eq!(read(folder).unwrap().unwrap().progress.watch.best, [(3, 0.5)]);
        assert_eq!(variables(folder, 3).unwrap(), Arrays::new());
    }

    #[test]
    fn what_is_no_checkpoint_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let progress = Progress { step: 7, ..Progress::default() };
        let written = write(folder, &Arrays::new(), &progress, 2).unwrap();
        fs::rename(&written, path(folder, 8)).unwrap();
        assert!(read(folder).unwrap_err().message.contains("the checkpoint after step 7"));
        safetensors::write_checked(path(folder, 8), [("w", &Literal::from(1.0f32))]).unwrap();
        assert!(read(folder).unwrap_err().message.contains("it has no `/step`"));
        safetensors::write(path(folder, 8), [("w", &Literal::from(1.0f32))]).unwrap();
        assert!(read(folder).unwrap_err().message.contains("no checksum"));
        fs::remove_file(path(folder, 8)).unwrap();
        fs::create_dir(path(folder, 8)).unwrap();
        assert!(read(folder).unwrap_err().message.contains("a folder"));
        fs::write(folder.join(UNCHECKED), b"x").unwrap();
        assert!(read(folder).unwrap_err().message.contains("of an earlier version"));
    }

    #[test]
    fn temporary_files_are_removed_and_no_others() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".wengert-abc123.partial"), b"half").unwrap();
        fs::write(folder.path().join("notes.txt"), b"mine").unwrap();
        remove_temporary(folder.path()).unwrap();
        assert_eq!(names(folder.path()), ["notes.txt"]);
    }
}
