//! The rows of an array that lies in a file as plain elements.

use super::{ArrayType, checked, runs};
use crate::atomic::cannot;
use crate::data::map;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use wengert_core::{Literal, Result, diagnostic};

/// An array in row-major order within a file.
#[derive(Debug)]
pub(super) struct RawRows {
    path: PathBuf,
    file: File,
    /// Offset of the first element.
    start: u64,
    ty: ArrayType,
    big_endian: bool,
}

impl RawRows {
    /// Opens a file for an array at the offset `start`. The caller has checked that the file has
    /// all of its bytes.
    pub fn open(path: &Path, start: u64, ty: ArrayType, big_endian: bool) -> Result<RawRows> {
        let (file, _) = map::regular_file(path)?;
        Ok(RawRows { path: path.to_owned(), file, start, ty, big_endian })
    }

    /// The array's type.
    pub fn ty(&self) -> &ArrayType {
        &self.ty
    }

    /// Rows of the array, which messages call `name`.
    pub fn read_range(&self, name: &str, rows: Range<usize>) -> Result<Literal> {
        checked(name, &self.ty, &rows)?;
        let mut bytes = vec![0; rows.len() * self.ty.row_bytes()];
        self.fill(rows.start, &mut bytes)?;
        self.literal(name, rows.start, rows.len(), bytes)
    }

    /// Rows by number.
    pub fn read(&self, name: &str, rows: &[usize]) -> Result<Literal> {
        let width = self.ty.row_bytes();
        let mut bytes = vec![0; rows.len() * width];
        for (at, run) in runs(rows) {
            checked(name, &self.ty, &run)?;
            self.fill(run.start, &mut bytes[at * width..][..run.len() * width])?;
        }
        self.literal(name, rows.first().copied().unwrap_or(0), rows.len(), bytes)
    }

    /// Reads the bytes from a row on.
    fn fill(&self, row: usize, bytes: &mut [u8]) -> Result<()> {
        let at = self.start + row as u64 * self.ty.row_bytes() as u64;
        read_at(&self.file, bytes, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => diagnostic!(
                "`{}` ends before row {row} does: it was cut short while it was read",
                self.path.display()
            ),
            _ => cannot("read", &self.path, &error),
        })
    }

    fn literal(&self, name: &str, row: usize, rows: usize, mut bytes: Vec<u8>) -> Result<Literal> {
        if self.big_endian {
            bytes.chunks_exact_mut(self.ty.dtype.size()).for_each(<[u8]>::reverse);
        }
        Literal::from_bytes(self.ty.dtype, &self.ty.shape_of(rows), &bytes).map_err(|error| {
            error.context(format_args!(
                "cannot read `{name}` of `{}` from row {row} on",
                self.path.display()
            ))
        })
    }
}

/// Reads as many bytes as the buffer has, from an offset.
#[cfg(unix)]
pub(super) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

/// Reads as many bytes as the buffer has, from an offset.
#[cfg(windows)]
pub(super) fn read_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, at)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                bytes = &mut bytes[read..];
                at += read as u64;
            }
        }
    }
    Ok(())
}
