//! Files are replaced whole or not at all.
//!
//! A reader never sees half a file and a crash (or SIGKILL, or a full disk) never costs the previous contents:
//! the new contents go to a temporary file *in the same folder* (a rename across file systems would not be
//! atomic), are flushed to the disk, and take the name in one step. The folder is flushed as well, so that the
//! new name survives a power failure. Since the old file is never written to, a memory map of it stays valid.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use wengert_core::{Diagnostic, Result};

/// Replaces the file at `path` by what `fill` writes; on any error the old file, if there is one, is untouched.
///
/// The folder must exist.
pub fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    replace(path, fill).map_err(|error| cannot("write", path, &error))
}

/// Replaces the file at `path` by `bytes`.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, |file| file.write_all(bytes))
}

/// Says beforehand what [`write`] would say of this path, as far as its folder tells: for those who work long before they write.
pub fn can_write(path: &Path) -> Result<()> {
    let is_possible = match path.is_dir() {
        true => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        false => tempfile::tempfile_in(folder_of(path)).map(drop),
    };
    is_possible.map_err(|error| cannot("write", path, &error))
}

fn replace(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<()> {
    let folder = folder_of(path);
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // What any program's new file gets (the umask applies), instead of a temporary file's 0600.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let temporary = builder.tempfile_in(&folder)?;
    let (file, name) = temporary.into_parts();
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    fill(&mut writer)?;
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all()?;
    drop(file);
    // A folder or another special file must not be replaced; `rename` refuses folders by itself.
    name.persist(path).map_err(|error| error.error)?;
    sync_folder(&folder)
}

const PREFIX: &str = ".wengert-";
const SUFFIX: &str = ".partial";

/// True for the name of a temporary file, which stays behind if the process is killed while it writes.
pub(crate) fn is_litter(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
}

/// Makes the names in `folder` durable.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    // Folders can be opened and flushed on Unix only; elsewhere the rename itself is all there is.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The diagnostic for a failed operation on a file: `cannot read `x.npy`: No such file or directory`. What is missing is said besides.
pub fn cannot(verb: &str, path: &Path, error: &dyn std::fmt::Display) -> Diagnostic {
    let diagnostic = Diagnostic::new(format!("cannot {verb} `{}`: {error}", path.display()));
    let folder = folder_of(path);
    if !folder.exists() {
        let help =
            format!("there is no folder `{}`; relative paths begin where the command runs", folder.display());
        diagnostic.help(help)
    } else if verb == "read" && !path.exists() {
        let within = match folder.as_os_str() == "." {
            true => "the folder where the command runs".into(),
            false => format!("the folder `{}`", folder.display()),
        };
        diagnostic.help(format!("{within} has no file of that name"))
    } else {
        diagnostic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("a.bin");
        write_bytes(&there, b"bytes").unwrap();
        let error = io::Error::other("no");
        let says = |verb: &str, path: &Path| cannot(verb, path, &error).to_string();
        assert!(!says("read", &there).contains("help"));
        assert!(says("read", &folder.path().join("b.bin")).contains("has no file of that name"));
        assert!(says("read", Path::new("no such.bin")).contains("where the command runs has no file"));
        assert!(!says("write", &folder.path().join("b.bin")).contains("help"));
        let nowhere = folder.path().join("no such").join("b.bin");
        assert!(["read", "write"].iter().all(|verb| says(verb, &nowhere).contains("there is no folder")));
    }

    #[test]
    fn failed_writes_leave_the_old_file_and_no_litter() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        write_bytes(&path, b"old").unwrap();
        let error = write(&path, |f| {
            f.write_all(b"half of the new")?;
            Err(io::Error::other("disk full"))
        })
        .unwrap_err();
        assert!(error.message.contains("a.bin") && error.message.contains("disk full"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        write_bytes(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn missing_folders_are_an_error_that_names_the_file() {
        let path = Path::new("/nonexistent/folder/x.npy");
        for error in [write_bytes(path, b"").unwrap_err(), can_write(path).unwrap_err()] {
            assert!(error.message.contains("/nonexistent/folder/x.npy"), "{error}");
        }
    }

    #[test]
    fn asking_whether_a_file_can_be_written_leaves_nothing_and_touches_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        can_write(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        write_bytes(&path, b"old").unwrap();
        can_write(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert!(can_write(folder.path()).unwrap_err().message.contains("directory"));
    }

    #[cfg(unix)]
    #[test]
    fn written_files_have_ordinary_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let (ours, plain) = (folder.path().join("ours"), folder.path().join("plain"));
        write_bytes(&ours, b"").unwrap();
        fs::write(&plain, b"").unwrap();
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode();
        assert_eq!(mode(&ours), mode(&plain));
    }
}
