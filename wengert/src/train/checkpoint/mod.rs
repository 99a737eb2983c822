//! Checkpoints: the state of a training run.
//!
//! A checkpoint holds every variable of the session by key path and the progress of the run, under
//! names that are no key paths (they begin with a slash). Nothing else is needed: the order of
//! examples and the keys of random numbers follow from the recipe and the number of the step.
//!
//! It is one safetensors file, `checkpoint-STEP.safetensors`, or, where ranks store variables in
//! parts, this file and a file for each rank that has parts of its own ([`parts`]). It has the same
//! variables in both forms, and any number of ranks reads both.
//!
//! - **Whole or absent.** A file is written to a temporary file and renamed ([`atomic`]), and
//!   `checkpoint-STEP.safetensors` is the last one. So a crash at any moment leaves the older
//!   checkpoints unchanged. It is the first one that is removed. Parts without it are removed when
//!   a run begins or resumes.
//! - **Checked.** A checksum covers each whole file
//!   ([`write_checked`](safetensors::write_checked)), and the parts are listed with theirs. A file
//!   without one is not accepted: damage to it could not be detected.
//! - **The last ones are kept**, two unless the recipe says otherwise
//!   ([`Kept`](crate::recipe::Kept)), and those with the best watched numbers. Others are removed
//!   once the new one is on the disk. If the newest is damaged, or one of its parts, the run
//!   resumes from the one before; the steps between are computed again, to the same bits. What was
//!   among the best when the one before was written is kept until the next checkpoint, so that such
//!   a run finds it.

mod progress;
mod read;

use crate::atomic;
use crate::data::parts;
use crate::data::parts::index::{Index, PREFIX, SUFFIX, step_of_part};
use crate::data::{Arrays, safetensors};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use wengert_core::{Literal, Result, diagnostic};

pub use progress::Progress;
pub use read::{Checkpoint, read, variables};
pub(super) use read::{Newest, Opened, newest};

/// File name of earlier versions, whose checkpoints have no checksum.
const UNCHECKED: &str = "checkpoint.safetensors";

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

/// The parts of checkpoints in a run's folder, with their steps.
fn list_parts(folder: &Path) -> Result<Vec<(u64, PathBuf)>> {
    let step = |path: &Path| step_of_part(path.file_name()?.to_str()?);
    let all = atomic::entries("read", folder)?.into_iter();
    Ok(all.filter_map(|path| Some((step(&path)?, path))).collect())
}

/// The contents of a whole checkpoint.
pub(super) fn to_bytes(variables: &Arrays, progress: &Progress) -> Result<Vec<u8>> {
    let extra = progress.to_arrays();
    let variables = variables.iter().map(|(name, literal)| (name.as_str(), literal));
    safetensors::to_bytes_checked(
        variables.chain(extra.iter().map(|(name, literal)| (*name, literal))),
    )
}

/// The variables and the progress of a whole checkpoint's contents.
pub(super) fn from_bytes(bytes: &[u8]) -> Result<(Arrays, Progress)> {
    let mut arrays = safetensors::parse_checked(bytes)?;
    let progress = Progress::take(&mut arrays)?;
    Ok((arrays, progress))
}

/// Writes the checkpoint of a step, whole, then [removes](remove_old) old ones.
pub fn write(folder: &Path, variables: &Arrays, progress: &Progress, last: u64) -> Result<PathBuf> {
    write_with(folder, variables, &[], progress, last)
}

/// Writes the checkpoint of a step whose parts are on the disk, then [removes](remove_old) old
/// ones. `variables` are those that are not divided.
pub(super) fn write_index(
    folder: &Path,
    variables: &Arrays,
    index: &Index,
    progress: &Progress,
    last: u64,
) -> Result<PathBuf> {
    write_with(folder, variables, &[(parts::INDEX, index.to_literal())], progress, last)
}

fn write_with(
    folder: &Path,
    variables: &Arrays,
    more: &[(&str, Literal)],
    progress: &Progress,
    last: u64,
) -> Result<PathBuf> {
    let extra = progress.to_arrays();
    let path = path(folder, progress.step);
    let variables = variables.iter().map(|(name, literal)| (name.as_str(), literal));
    let extra = extra.iter().chain(more).map(|(name, literal)| (*name, literal));
    safetensors::write_checked(&path, variables.chain(extra))?;
    remove_old(folder, progress, last)?;
    Ok(path)
}

/// Removes all checkpoints but the `last` newest and the best ones.
pub fn remove_old(folder: &Path, progress: &Progress, last: u64) -> Result<()> {
    let last = usize::try_from(last).unwrap_or(usize::MAX);
    let old = list(folder)?.into_iter().skip(last);
    let old: Vec<_> = old.filter(|(step, _)| !progress.watch.keeps(*step)).collect();
    for (_, path) in &old {
        fs::remove_file(path).map_err(|error| atomic::cannot("remove", path, &error))?;
    }
    if old.is_empty() {
        return Ok(());
    }
    remove_parts(folder)
}

/// Removes the parts of checkpoints that do not exist: they were not completed, or are removed.
pub(super) fn remove_parts(folder: &Path) -> Result<()> {
    let kept = list(folder)?;
    let parts = list_parts(folder)?.into_iter();
    let parts: Vec<_> =
        parts.filter(|(step, _)| kept.iter().all(|(kept, _)| kept != step)).collect();
    if !parts.is_empty() {
        // The removal of an index is on the disk before that of its parts.
        atomic::sync_folder(folder).map_err(|error| atomic::cannot("tidy", folder, &error))?;
    }
    for (_, path) in parts {
        fs::remove_file(&path).map_err(|error| atomic::cannot("remove", &path, &error))?;
    }
    Ok(())
}

/// Renames a damaged checkpoint and its parts, so that they do not count among those that are kept.
/// Returns the new path of the checkpoint.
pub fn set_aside(path: &Path) -> Result<PathBuf> {
    let step = path.file_name().and_then(step_of);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    // The parts come first: without a checkpoint, they would be removed.
    for (_, part) in list_parts(folder)?.into_iter().filter(|(of, _)| Some(*of) == step) {
        rename_aside(&part)?;
    }
    rename_aside(path)
}

fn rename_aside(path: &Path) -> Result<PathBuf> {
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
    use super::super::watch::Watch;
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
