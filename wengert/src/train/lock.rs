//! Exclusive access of one trainer to a run's folder.
//!
//! While a trainer uses the folder, the operating system locks the file `lock` in it (`flock` on
//! Unix), which holds the trainer's process id. The lock ends with the process, even after a
//! kill. The file stays, empty: if it were removed, two trainers could lock two files of the same
//! name.

use crate::atomic::cannot;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use wengert_core::{Diagnostic, Result, diagnostic};

/// Name of the file within a run's folder.
pub const FILE: &str = "lock";

/// A locked folder.
#[derive(Debug)]
pub struct Lock {
    folder: PathBuf,
    file: File,
}

impl Lock {
    /// Locks an existing folder.
    ///
    /// Errors: another trainer holds the lock; the lock is not a regular file, or the file system
    /// has no locks.
    pub fn take(folder: &Path) -> Result<Lock> {
        let path = folder.join(FILE);
        regular(&path)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = file.map_err(|error| cannot("write", &path, &error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken(folder, &mut file)),
            Err(TryLockError::Error(error)) => {
                return Err(cannot("lock", &path, &error)
                    .help("choose a folder on a file system with locks, such as a local disk"));
            }
        }
        // The process id is for messages only, so a full disk is not an error here.
        let _ = file.set_len(0).and_then(|()| write!(file, "{}", std::process::id()));
        let lock = Lock { folder: folder.to_owned(), file };
        lock.check()?;
        Ok(lock)
    }

    /// Checks that the folder is still the one that was locked.
    ///
    /// Error: it was deleted, or replaced by another folder of the same name.
    pub fn check(&self) -> Result<()> {
        if is_at(&self.file, &self.folder.join(FILE)) {
            return Ok(());
        }
        let folder = self.folder.display();
        Err(diagnostic!("the folder `{folder}` was deleted or replaced while a run was in it")
            .help("begin the run anew; nothing can be saved to a folder that is gone"))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The id of a process that has ended is useless.
        let _ = self.file.set_len(0);
    }
}

fn taken(folder: &Path, file: &mut File) -> Diagnostic {
    let mut text = String::new();
    let holder =
        file.take(20).read_to_string(&mut text).ok().and_then(|_| text.parse::<u32>().ok());
    let who = holder.map_or(String::new(), |process| format!(" (process {process})"));
    diagnostic!("another trainer{who} is in `{}`", folder.display())
        .help("wait until it ends, or choose another folder")
}

/// An error if the path is not a regular file; a missing file is accepted.
pub(super) fn regular(path: &Path) -> Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(diagnostic!(
            "`{}` is no regular file",
            path.display()
        )
        .help(
            "a run writes to files of its own in its folder: remove it, or choose another folder",
        )),
        _ => Ok(()),
    }
}

/// True if an open file is the one at a path.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let identity = |found: fs::Metadata| (found.dev(), found.ino());
        let (ours, found) =
            (file.metadata().map(identity), fs::symlink_metadata(path).map(identity));
        ours.is_ok_and(|ours| found.is_ok_and(|found| found == ours))
    }
    #[cfg(not(unix))]
    {
        // An open file cannot be removed there.
        let _ = file;
        path.exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_trainer() {
        let folder = tempfile::tempdir().unwrap();
        let lock = Lock::take(folder.path()).unwrap();
        let error = Lock::take(folder.path()).unwrap_err().message;
        assert!(
            error.contains(&format!("another trainer (process {}) is in", std::process::id())),
            "{error}"
        );
        lock.check().unwrap();
        drop(lock);
        assert_eq!(fs::read(folder.path().join(FILE)).unwrap(), b"");
        Lock::take(folder.path()).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_folder_that_is_gone_or_another_is_an_error() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("run");
        fs::create_dir(&folder).unwrap();
        let lock = Lock::take(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(lock.check().unwrap_err().message.contains("was deleted or replaced"));
        fs::create_dir(&folder).unwrap();
        let other = Lock::take(&folder).unwrap();
        assert!(lock.check().is_err());
        other.check().unwrap();
        std::os::unix::fs::symlink("/dev/null", place.path().join(FILE)).unwrap();
        assert!(Lock::take(place.path()).unwrap_err().message.contains("no regular file"));
    }
}
