//! Where the bytes for a path go, depending on the kind of the existing file.
//!
//! | the path names | written |
//! |---|---|
//! | nothing, or a regular file | a new file in the same folder takes the name |
//! | a symbolic link, also a dangling one | its target, by this same table; the link stays |
//! | a FIFO, a device, a terminal | the file itself, in place |
//! | a file descriptor (`/dev/stdout`, `/dev/fd/3`, `/proc/self/fd/3`) | the descriptor, in place |
//! | a folder, a socket, links that go in circles | nothing: an error |
//!
//! A rename over a device node would remove the device from the system, and one over a FIFO or a
//! link would leave the reader with the old object.
//!
//! A descriptor needs a separate rule. Under `/proc` it looks like a symbolic link, but the text
//! of the link need not be a path (`pipe:[4711]`). Where the descriptor is a regular file, a
//! replacement would leave the process that opened it with an unlinked file.

use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// How a path is written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Destination {
    /// A file of this name is replaced or created. The name is no symbolic link.
    Replace(PathBuf),
    /// The existing file is opened and written.
    InPlace(PathBuf),
    /// An open file of this process, by its number.
    Descriptor(PathBuf, u32),
}

/// Most links that are followed before they count as a circle; Linux has the same limit.
const MOST_LINKS: usize = 40;

impl Destination {
    /// The destination for a path.
    pub(super) fn of(path: &Path) -> io::Result<Destination> {
        let mut path = path.to_owned();
        for _ in 0..=MOST_LINKS {
            let kind = match fs::symlink_metadata(&path) {
                Ok(metadata) => metadata.file_type(),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Destination::Replace(path));
                }
                Err(error) => return Err(error),
            };
            if kind.is_file() {
                return Ok(Destination::Replace(path));
            }
            if !kind.is_symlink() {
                refuse(kind)?;
                return Ok(Destination::InPlace(path));
            }
            if let Some(number) = descriptor(&path) {
                refuse(fs::metadata(&path)?.file_type())?;
                return Ok(Destination::Descriptor(path, number));
            }
            // `join` returns an absolute target unchanged.
            path = super::folder_of(&path).join(fs::read_link(&path)?);
        }
        Err(io::Error::other("its symbolic links go in circles"))
    }

    /// The path of the file that is replaced or written to.
    pub(super) fn path(self) -> PathBuf {
        match self {
            Destination::Replace(path)
            | Destination::InPlace(path)
            | Destination::Descriptor(path, _) => path,
        }
    }

    /// Opens a file to write in place. A FIFO waits for its reader.
    pub(super) fn open(&self) -> io::Result<File> {
        match self {
            Destination::Replace(path) => File::create(path),
            Destination::InPlace(path) => OpenOptions::new().write(true).open(path),
            #[cfg(unix)]
            Destination::Descriptor(_, 1) => duplicate(&io::stdout()),
            #[cfg(unix)]
            Destination::Descriptor(_, 2) => duplicate(&io::stderr()),
            // A regular file is opened anew, with its own position at the end, so that its
            // contents are kept.
            Destination::Descriptor(path, _) => OpenOptions::new().append(true).open(path),
        }
    }
}

/// Duplicates the open file, position included, so that output of this process before and after
/// keeps its order.
#[cfg(unix)]
fn duplicate(stream: &impl std::os::fd::AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

/// The error for a file that can be neither replaced nor written.
fn refuse(kind: FileType) -> io::Result<()> {
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    #[cfg(unix)]
    if std::os::unix::fs::FileTypeExt::is_socket(&kind) {
        return Err(io::Error::other("it is a socket"));
    }
    Ok(())
}

/// The number of this process's file descriptor that a link refers to.
fn descriptor(link: &Path) -> Option<u32> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let folder = fs::canonicalize(super::folder_of(link)).ok()?;
    let own = fs::canonicalize("/proc/self").ok()?;
    let is_own = folder.starts_with(&own) && folder.file_name()? == "fd";
    link.file_name()?.to_str()?.parse().ok().filter(|_| is_own)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_to_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let of = |name: &str| Destination::of(&at(name));
        fs::write(at("file"), b"x").unwrap();
        fs::create_dir(at("deep")).unwrap();
        symlink("file", at("relative")).unwrap();
        symlink(at("file"), at("absolute")).unwrap();
        symlink("relative", at("chain")).unwrap();
        symlink("missing", at("dangling")).unwrap();
        symlink("../file", at("deep/up")).unwrap();
        symlink("b", at("a")).unwrap();
        symlink("a", at("b")).unwrap();
        symlink("deep", at("to folder")).unwrap();
        for name in ["file", "relative", "absolute", "chain", "deep/up"] {
            let Destination::Replace(path) = of(name).unwrap() else { panic!("{name}") };
            assert_eq!(
                fs::canonicalize(path).unwrap(),
                fs::canonicalize(at("file")).unwrap(),
                "{name}"
            );
        }
        assert_eq!(of("dangling").unwrap(), Destination::Replace(at("missing")));
        assert!(of("a").unwrap_err().to_string().contains("in circles"));
        assert!(of("deep").is_err() && of("to folder").is_err());
        assert_eq!(of("new").unwrap(), Destination::Replace(at("new")));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn descriptors_and_devices_are_written_in_place() {
        use std::os::fd::AsRawFd;
        let of = |path: &str| Destination::of(Path::new(path)).unwrap();
        assert_eq!(of("/dev/null"), Destination::InPlace("/dev/null".into()));
        assert!(matches!(of("/dev/stdout"), Destination::Descriptor(_, 1)));
        assert!(matches!(of("/dev/stderr"), Destination::Descriptor(_, 2)));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let file = File::create(&path).unwrap();
        let found = of(&format!("/dev/fd/{}", file.as_raw_fd()));
        assert!(matches!(found, Destination::Descriptor(..)), "{found:?}");
        // Descriptors of other processes are not recognised. A target that does not exist there
        // cannot be replaced, either.
        let socket = folder.path().join("socket");
        let _listening = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert!(Destination::of(&socket).unwrap_err().to_string().contains("socket"));
    }
}
