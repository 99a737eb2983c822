//! Files are replaced whole or not at all.
//!
//! A reader never sees half a file, and a crash (or SIGKILL, or a full disk) never destroys the
//! previous contents. The new contents are written to a temporary file *in the same folder* (a
//! rename across file systems would not be atomic), flushed to the disk, and renamed to the path
//! in one step. The folder is flushed as well, so that the new name survives a power failure. The
//! old file is never written to, so a memory map of it stays valid.
//!
//! The new file keeps the permission bits of the old one, and its owner and group as far as this
//! process may set them. It does not keep extended attributes, and other hard links keep the old
//! contents.
//!
//! Only regular files are replaced. Symbolic links are followed, and devices, FIFOs and file
//! descriptors are written in place ([`destination`] decides). They are written only after the
//! contents are complete.

mod destination;

use destination::Destination;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use wengert_core::{Diagnostic, Result, diagnostic};

/// Replaces the file at `path` by the output of `fill`. On an error the old file, if any, is
/// unchanged. Files that are not regular are written in place.
///
/// The folder must exist.
pub fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let written = Destination::of(path).and_then(|destination| match &destination {
        Destination::Replace(target) => replace(target, fill),
        in_place => copy(in_place, fill),
    });
    written.map_err(|error| cannot("write", path, &error))
}

/// Replaces the file at `path` by `bytes`.
pub fn write_bytes(path: &Path, bytes: &[u8]) -> Result<()> {
    write(path, |file| file.write_all(bytes))
}

/// Reports in advance the errors that [`write()`] would report for this path, as far as its folder
/// tells. It is for long computations that end with a write. It creates, opens and changes
/// nothing.
pub fn can_write(path: &Path) -> Result<()> {
    let is_possible = Destination::of(path).and_then(|destination| match destination {
        Destination::Replace(target) => tempfile::tempfile_in(folder_of(&target)).map(drop),
        in_place => is_writable(&in_place.path()),
    });
    is_possible.map_err(|error| cannot("write", path, &error))
}

/// The file that [`write()`] writes for this path. It is equal for two paths only if one would
/// overwrite the other.
pub fn identity(path: &Path) -> PathBuf {
    let target = Destination::of(path).map_or_else(|_| path.to_owned(), Destination::path);
    match (fs::canonicalize(folder_of(&target)), target.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => target,
    }
}

/// Whether this process may write to an existing file. It is not opened: opening a FIFO would
/// wait for a reader.
#[cfg(unix)]
fn is_writable(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?)
}

#[cfg(not(unix))]
fn is_writable(path: &Path) -> io::Result<()> {
    fs::metadata(path).map(drop)
}

fn replace(
    path: &Path,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let folder = folder_of(path);
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX).suffix(SUFFIX);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // The mode of an ordinary new file (the umask applies), instead of a temporary file's
        // 0600.
        builder.permissions(fs::Permissions::from_mode(0o666));
    }
    let temporary = builder.tempfile_in(&folder)?;
    let (file, name) = temporary.into_parts();
    let file = filled(file, fill)?;
    #[cfg(unix)]
    keep_rights(path, &file)?;
    file.sync_all()?;
    drop(file);
    name.persist(path).map_err(|error| error.error)?;
    sync_folder(&folder)
}

/// Writes to `file`, with a buffer.
fn filled(
    file: File,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<File> {
    let mut writer = BufWriter::with_capacity(1 << 20, file);
    fill(&mut writer)?;
    writer.into_inner().map_err(io::IntoInnerError::into_error)
}

/// Gives the new file the owner, group and permission bits of the file that it replaces, if any.
#[cfg(unix)]
fn keep_rights(old: &Path, new: &File) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let old = match fs::symlink_metadata(old) {
        Ok(old) => old,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let now = new.metadata()?;
    // Without set-user-ID and set-group-ID, which every write to a file clears.
    let mut mode = old.permissions().mode() & 0o777;
    // Only root gives a file to another user; others keep the group, if it is one of theirs.
    if (now.uid(), now.gid()) != (old.uid(), old.gid())
        && fchown(new, Some(old.uid()), Some(old.gid())).is_err()
        && fchown(new, None, Some(old.gid())).is_err()
    {
        // The group has changed: it gets only the permissions of others.
        mode &= !0o070 | (mode & 0o007) << 3;
    }
    new.set_permissions(fs::Permissions::from_mode(mode))
}

/// Writes complete contents in place.
fn copy(
    to: &Destination,
    fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut whole = filled(tempfile::tempfile()?, fill)?;
    whole.rewind()?;
    let mut to = to.open()?;
    io::copy(&mut whole, &mut to)?;
    to.flush()
}

/// Creates an empty file in a folder, which is removed when the value is dropped. After a kill it
/// remains, as a temporary file.
pub(crate) fn temporary(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(PREFIX).suffix(SUFFIX).rand_bytes(16).tempfile_in(folder)
}

const PREFIX: &str = ".wengert-";
const SUFFIX: &str = ".partial";

/// True for the name of a temporary file. Such a file remains if the process is killed while it
/// writes.
pub(crate) fn is_litter(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(SUFFIX))
}

/// Flushes the names in `folder` to the disk.
pub(crate) fn sync_folder(folder: &Path) -> io::Result<()> {
    // Folders can be opened and flushed on Unix only; elsewhere the rename is not flushed.
    if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// The paths in a folder, sorted. An error says that one cannot `verb` the folder.
pub fn entries(verb: &str, folder: &Path) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    let mut paths = read.map_err(|error| cannot(verb, folder, &error))?;
    paths.sort();
    Ok(paths)
}

/// The diagnostic for a failed operation on a file:
/// `cannot read `x.npy`: No such file or directory`. A missing file or folder is named in
/// addition.
pub fn cannot(verb: &str, path: &Path, error: &dyn std::fmt::Display) -> Diagnostic {
    let diagnostic = diagnostic!("cannot {verb} `{}`: {error}", path.display());
    let folder = folder_of(path);
    if !folder.exists() {
        let help = format!(
            "there is no folder `{}`; relative paths begin where the command runs",
            folder.display()
        );
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
        assert!(
            says("read", Path::new("no such.bin")).contains("where the command runs has no file")
        );
        assert!(!says("write", &folder.path().join("b.bin")).contains("help"));
        let nowhere = folder.path().join("no such").join("b.bin");
        assert!(
            ["read", "write"]
                .iter()
                .all(|verb| says(verb, &nowhere).contains("there is no folder"))
        );
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
    fn links_stay_and_their_targets_are_replaced() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let is_link = |name: &str| fs::symlink_metadata(at(name)).unwrap().is_symlink();
        write_bytes(&at("file"), b"old").unwrap();
        symlink("file", at("link")).unwrap();
        symlink("link", at("chain")).unwrap();
        symlink("new", at("dangling")).unwrap();
        write_bytes(&at("chain"), b"new").unwrap();
        write_bytes(&at("dangling"), b"made").unwrap();
        assert!(is_link("link") && is_link("chain") && is_link("dangling"));
        assert_eq!(
            (fs::read(at("file")).unwrap(), fs::read(at("new")).unwrap()),
            (b"new".into(), b"made".into())
        );
        assert_eq!(identity(&at("chain")), identity(&at("file")));
        assert_ne!(identity(&at("chain")), identity(&at("new")));
        symlink("circle", at("circle")).unwrap();
        for error in
            [write_bytes(&at("circle"), b"").unwrap_err(), can_write(&at("circle")).unwrap_err()]
        {
            assert!(
                error.message.contains("circle") && error.message.contains("in circles"),
                "{error}"
            );
        }
        assert!(is_link("circle"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn fifos_and_devices_are_written_in_place() {
        use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
        use std::os::unix::fs::FileTypeExt;
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        // There is no reader, and this does not wait for one either.
        can_write(&fifo).unwrap();
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || fs::read(fifo).unwrap()
        });
        write_bytes(&fifo, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
        // A separate node, so that a mistake does not remove the system's `/dev/null`. Only root
        // can create one.
        let null = folder.path().join("null");
        let made = mknodat(
            CWD,
            &null,
            FileType::CharacterDevice,
            Mode::from_raw_mode(0o666),
            makedev(1, 3),
        );
        if made.is_ok() {
            can_write(&null).unwrap();
            // On a file system that does not open nodes (`nodev`), this is an error, and the node
            // stays.
            let _ = write_bytes(&null, b"away");
            let is_device =
                |path: &Path| fs::symlink_metadata(path).unwrap().file_type().is_char_device();
            assert!(is_device(&null));
        }
        assert!(fs::read_dir(folder.path()).unwrap().all(|e| !is_litter(&e.unwrap().file_name())));
    }

    #[cfg(unix)]
    #[test]
    fn a_replaced_file_keeps_its_rights() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.bin");
        write_bytes(&path, b"old").unwrap();
        for mode in [0o600, 0o640, 0o755] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            write_bytes(&path, b"new").unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, mode);
        }
        // Only root can give files away.
        if chown(&path, Some(12), Some(34)).is_ok() {
            write_bytes(&path, b"newer").unwrap();
            let metadata = fs::metadata(&path).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (12, 34));
        }
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
