//! Memory-mapped files: the one place outside the kernels where `unsafe` is allowed.
//!
//! A map reads gigabytes of weights without copying unused ones. This module exposes only a
//! `&[u8]`, and every reader copies the elements it returns out of it.
#![allow(unsafe_code)]

use crate::atomic::cannot;
use memmap2::Mmap;
use std::fs::{self, File};
use std::ops::Deref;
use std::path::Path;
use wengert_core::{Result, diagnostic};

/// The contents of a regular file, read-only.
#[derive(Debug)]
pub struct Map(Option<Mmap>);

impl Map {
    /// Maps the file at `path`. It is an error if it is missing, a folder, or not a regular file
    /// (a pipe would block, a device might never end).
    pub fn open(path: impl AsRef<Path>) -> Result<Map> {
        let path = path.as_ref();
        let (file, length) = regular_file(path)?;
        if length == 0 {
            // Mapping an empty file is an error on some systems.
            return Ok(Map(None));
        }
        // SAFETY: the map is private and read-only, and lives no longer than this value, which
        // lends it as `&[u8]` only. That slice would be unsound if the file changed under it.
        // This library never writes to an existing file: `atomic` makes a new file and renames
        // it, which leaves the mapped one unchanged. Another program that writes into the same
        // file, or truncates it, while it is read breaks the contract that the documentation of
        // this crate states for every file it opens. Readers copy bytes out and treat them as
        // untrusted data: no length or index is read twice, and no reference type is made of the
        // bytes.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| cannot("map", path, &error))?;
        Ok(Map(Some(map)))
    }
}

/// Opens a regular file, and gives its length.
///
/// Error: it is missing, a folder, or not a regular file.
pub(crate) fn regular_file(path: &Path) -> Result<(File, u64)> {
    let kind = fs::metadata(path).map_err(|error| cannot("read", path, &error))?;
    if !kind.is_file() {
        let what = if kind.is_dir() { "a folder" } else { "not a regular file" };
        return Err(diagnostic!("cannot read `{}`: it is {what}", path.display()));
    }
    let file = File::open(path).map_err(|error| cannot("read", path, &error))?;
    Ok((file, kind.len()))
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}

impl AsRef<[u8]> for Map {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_files_and_refuses_the_rest() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, b"abc").unwrap();
        assert_eq!(&*Map::open(&path).unwrap(), b"abc");
        fs::write(&path, b"").unwrap();
        assert!(Map::open(&path).unwrap().is_empty());
        assert!(Map::open(folder.path()).unwrap_err().message.contains("a folder"));
        assert!(Map::open(folder.path().join("none")).unwrap_err().message.contains("none"));
        #[cfg(unix)]
        assert!(
            Map::open(Path::new("/dev/zero")).unwrap_err().message.contains("not a regular file")
        );
    }
}
