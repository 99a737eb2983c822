//! Checkpoints: where a training run stands.
//!
//! A checkpoint is one safetensors file, so that replacing it is one rename: after a crash at any moment there is
//! either the old one or the new one, whole. It holds every variable of the session by key path, and, under names that no
//! key path can have (they begin with a slash), how far the run got. Nothing else is needed: the order of examples
//! and the keys of random numbers follow from the recipe and the number of the step.

use crate::atomic;
use crate::data::{Arrays, safetensors};
use std::fs;
use std::path::{Path, PathBuf};
use wengert_core::{Diagnostic, Literal, Result};

/// Where a run stands.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Progress {
    /// Steps done.
    pub step: u64,
    /// Sum of the losses of the current epoch, each times its number of examples.
    pub epoch_loss: f64,
    /// Number of examples seen in the current epoch.
    pub epoch_examples: u64,
    /// Of the program, the recipe and the data: a checkpoint is resumed with what it was made
    /// with.
    pub fingerprint: u64,
}

/// Name of the file within a run's folder.
pub const FILE: &str = "checkpoint.safetensors";

/// The file of a run's folder.
pub fn path(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

/// Replaces the checkpoint of a run's folder.
pub fn write(folder: &Path, variables: &Arrays, progress: &Progress) -> Result<()> {
    let extra = [
        ("/step", Literal::from(progress.step)),
        ("/epoch_loss", Literal::from(progress.epoch_loss)),
        ("/epoch_examples", Literal::from(progress.epoch_examples)),
        ("/fingerprint", Literal::from(progress.fingerprint)),
    ];
    let variables = variables.iter().map(|(name, literal)| (name.as_str(), literal));
    safetensors::write(path(folder), variables.chain(extra.iter().map(|(name, literal)| (*name, literal))))
}

/// Reads the checkpoint of a run's folder; nothing if there is none yet.
pub fn read(folder: &Path) -> Result<Option<(Arrays, Progress)>> {
    let path = path(folder);
    match fs::exists(&path) {
        Ok(false) => return Ok(None),
        Ok(true) => {}
        Err(error) => return Err(atomic::cannot("read", &path, &error)),
    }
    let mut arrays = safetensors::SafetensorsFile::open(&path)?.read_all()?;
    let mut take = |name: &str| -> Result<Literal> {
        arrays.remove(name).filter(|literal| literal.shape().is_empty()).ok_or_else(|| {
            Diagnostic::new(format!("`{}` is no checkpoint: it has no `{name}`", path.display()))
        })
    };
    let wrong = || Diagnostic::new(format!("`{}` is no checkpoint of this version", path.display()));
    let whole = |literal: Literal| literal.as_slice::<u64>().map(|s| s[0]).ok_or_else(wrong);
    let progress = Progress {
        step: whole(take("/step")?)?,
        epoch_loss: take("/epoch_loss")?.as_slice::<f64>().map(|s| s[0]).ok_or_else(wrong)?,
        epoch_examples: whole(take("/epoch_examples")?)?,
        fingerprint: whole(take("/fingerprint")?)?,
    };
    Ok(Some((arrays, progress)))
}

/// Removes what a run that was killed while it wrote left behind.
pub fn remove_litter(folder: &Path) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| atomic::cannot("tidy", folder, error);
    for entry in fs::read_dir(folder).map_err(|e| failed(&e))? {
        let entry = entry.map_err(|e| failed(&e))?;
        if atomic::is_litter(&entry.file_name()) {
            fs::remove_file(entry.path()).map_err(|e| failed(&e))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_replacement_and_litter() {
        let folder = tempfile::tempdir().unwrap();
        assert!(read(folder.path()).unwrap().is_none());
        let variables = Arrays::from([("model.w".into(), Literal::from(1.5f32))]);
        let mut progress = Progress { step: 7, epoch_loss: 0.1, epoch_examples: 128, fingerprint: u64::MAX };
        write(folder.path(), &variables, &progress).unwrap();
        progress.step = 8;
        write(folder.path(), &variables, &progress).unwrap();
        assert_eq!(read(folder.path()).unwrap().unwrap(), (variables.clone(), progress));
        fs::write(folder.path().join(".wengert-abc123.partial"), b"half").unwrap();
        fs::write(folder.path().join("notes.txt"), b"mine").unwrap();
        remove_litter(folder.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [FILE, "notes.txt"]);
        safetensors::write(path(folder.path()), [("w", &Literal::from(1.0f32))]).unwrap();
        assert!(read(folder.path()).unwrap_err().message.contains("is no checkpoint"));
    }
}
