//! The source of a path.

use super::{NpyFiles, SafetensorsRows, Source, bytes, read_whole};
use crate::data::inflate::InflateLimit;
use crate::data::{Format, read_all_within};
use crate::atomic;
use std::path::Path;
use wengert_core::{Result, diagnostic};

/// Data of at most so many bytes are read into memory when they are opened.
pub const IN_MEMORY: u64 = 64 << 20;

/// How data are opened.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    /// Rows are read when they are needed, also of data that fit into memory.
    pub stream: bool,
    /// Limit on compressed files.
    pub limit: InflateLimit,
}

/// Opens data: an .npz, .csv, .npy or .safetensors file, or a folder of .npy files.
///
/// Tables and .npz files are read whole, since they are compressed or text. Of the others, data of
/// at most [`IN_MEMORY`] bytes are read whole, and rows of larger data when they are needed.
///
/// Errors: those of the formats.
pub fn open(path: impl AsRef<Path>, opening: &Opening) -> Result<Box<dyn Source>> {
    let path = path.as_ref();
    let source: Box<dyn Source> = if path.is_dir() {
        if !opening.stream && npy_bytes(path)? <= IN_MEMORY {
            return Ok(Box::new(read_all_within(path, opening.limit)?));
        }
        Box::new(NpyFiles::open(path)?)
    } else {
        match Format::of(path)? {
            Format::Npz | Format::Csv if opening.stream => {
                return Err(diagnostic!(
                    "the rows of `{}` cannot be read one by one",
                    path.display()
                )
                .help("write .npy files or a .safetensors file"));
            }
            Format::Npy if opening.stream || length(path) > IN_MEMORY => {
                Box::new(NpyFiles::open(path)?)
            }
            Format::Safetensors if opening.stream || length(path) > IN_MEMORY => {
                Box::new(SafetensorsRows::open(path)?)
            }
            _ => return Ok(Box::new(read_all_within(path, opening.limit)?)),
        }
    };
    if opening.stream || bytes(&source.arrays()) > IN_MEMORY {
        return Ok(source);
    }
    Ok(Box::new(read_whole(&*source)?))
}

/// Bytes of a file; 0 if it is not there, which reading reports.
fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

/// Bytes of the .npy files of a folder.
fn npy_bytes(folder: &Path) -> Result<u64> {
    let files = atomic::entries("read", folder)?;
    Ok(files.iter().filter(|f| Format::of(f) == Ok(Format::Npy)).map(|f| length(f)).sum())
}
