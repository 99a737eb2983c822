//! The source of a path.

#[cfg(feature = "images")]
use super::ImageFolder;
#[cfg(feature = "parquet")]
use super::ParquetTable;
#[cfg(feature = "text")]
use super::TokenWindows;
use super::{RawArrays, Source, bytes, read_whole};
use crate::atomic;
use crate::data::inflate::InflateLimit;
use crate::data::{Arrays, Format, read_all_within};
use std::path::{Path, PathBuf};
use wengert_core::{Diagnostic, Result, diagnostic};

/// Data of at most so many bytes are read into memory when they are opened.
pub const IN_MEMORY: u64 = 64 << 20;

/// How data are opened.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Rows are read when they are needed, also of data that fit into memory.
    pub stream: bool,
    /// Limit on compressed files.
    pub limit: InflateLimit,
    /// How images are read.
    pub images: ImageOptions,
    /// Texts: the file of a tokenizer, and the tokens of a window.
    pub text: Option<(PathBuf, usize)>,
}

impl Default for Opening {
    /// Small data are read into memory; images are in colour and as large as they are.
    fn default() -> Self {
        let limit = InflateLimit::default();
        Opening { stream: false, limit, images: ImageOptions::default(), text: None }
    }
}

/// How images are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ImageOptions {
    /// Height and width that each image is resized to (by a triangular filter). Without it, each
    /// image must have the size of the first one.
    pub size: Option<(usize, usize)>,
    /// Channels: 3 (red, green, blue) or 1 (grey).
    pub channels: usize,
    /// Leave damaged images out.
    pub skip_damaged: bool,
}

impl Default for ImageOptions {
    /// In colour, as large as they are; a damaged image is an error.
    fn default() -> Self {
        ImageOptions { size: None, channels: 3, skip_damaged: false }
    }
}

/// Data that were opened.
pub struct Opened {
    /// The data.
    pub source: Box<dyn Source>,
    /// What was left out, as [`Opening::images`] allows.
    pub skipped: Vec<Diagnostic>,
}

impl From<Arrays> for Opened {
    fn from(arrays: Arrays) -> Self {
        Opened { source: Box::new(arrays), skipped: Vec::new() }
    }
}

/// Opens data: an .npz, .csv, .npy, .safetensors or .parquet file, a folder of .npy files or of
/// images, or texts if [`Opening::text`] names a tokenizer.
///
/// Tables and .npz files are read whole, since they are compressed or text. Of the others, data of
/// at most [`IN_MEMORY`] bytes are read whole, and rows of larger data when they are needed.
///
/// Errors: those of the formats; this build lacks the feature of a format.
pub fn open(path: impl AsRef<Path>, opening: &Opening) -> Result<Opened> {
    let path = path.as_ref();
    std::fs::metadata(path).map_err(|error| atomic::cannot("read", path, &error))?;
    let read = || Ok(read_all_within(path, opening.limit)?.into());
    let mut skipped = Vec::new();
    let source: Box<dyn Source> = if let Some((tokenizer, window)) = &opening.text {
        text(path, tokenizer, *window)?
    } else if path.is_dir() {
        if is_npy_folder(path)? {
            if !opening.stream && npy_bytes(path)? <= IN_MEMORY {
                return read();
            }
            Box::new(RawArrays::open(path)?)
        } else {
            match images(path, opening, &mut skipped)? {
                Some(images) => images,
                // The error names the missing files.
                None => return read(),
            }
        }
    } else if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("parquet")) {
        parquet(path)?
    } else {
        match Format::of(path) {
            Ok(Format::Npz | Format::Csv) if !opening.stream => return read(),
            Ok(_) if !opening.stream && length(path) <= IN_MEMORY => return read(),
            Ok(_) => Box::new(RawArrays::open(path)?),
            Err(error) => {
                return Err(error.help(
                    "data are an .npy, .npz, .safetensors, .parquet, .csv or .csv.gz file, a \
                     folder of .npy files or of images, or texts with a tokenizer",
                ));
            }
        }
    };
    if opening.stream || bytes(&source.arrays()) > IN_MEMORY {
        return Ok(Opened { source, skipped });
    }
    Ok(Opened { source: Box::new(read_whole(&*source)?), skipped })
}

/// The error for a kind of data that this build does not read.
#[cfg_attr(all(feature = "images", feature = "parquet", feature = "text"), expect(dead_code))]
fn lacking(path: &Path, what: &str, feature: &str) -> Diagnostic {
    diagnostic!("`{}` is {what}, which this build cannot read", path.display())
        .help(format!("build with the feature `{feature}`"))
}

#[cfg(feature = "parquet")]
fn parquet(path: &Path) -> Result<Box<dyn Source>> {
    Ok(Box::new(ParquetTable::open(path)?))
}

#[cfg(not(feature = "parquet"))]
fn parquet(path: &Path) -> Result<Box<dyn Source>> {
    Err(lacking(path, "a Parquet file", "parquet"))
}

#[cfg(feature = "text")]
fn text(path: &Path, tokenizer: &Path, window: usize) -> Result<Box<dyn Source>> {
    Ok(Box::new(TokenWindows::open(path, tokenizer, window)?))
}

#[cfg(not(feature = "text"))]
fn text(path: &Path, _: &Path, _: usize) -> Result<Box<dyn Source>> {
    Err(lacking(path, "text to tokenize", "text"))
}

#[cfg(feature = "images")]
fn images(
    path: &Path,
    opening: &Opening,
    skipped: &mut Vec<Diagnostic>,
) -> Result<Option<Box<dyn Source>>> {
    if !ImageFolder::is_one(path) {
        return Ok(None);
    }
    let images = ImageFolder::open(path, opening.images)?;
    skipped.extend_from_slice(images.skipped());
    Ok(Some(Box::new(images)))
}

#[cfg(not(feature = "images"))]
fn images(path: &Path, _: &Opening, _: &mut Vec<Diagnostic>) -> Result<Option<Box<dyn Source>>> {
    match path.join("labels.csv").is_file() {
        true => Err(lacking(path, "a folder of images", "images")),
        false => Ok(None),
    }
}

/// Bytes of a file; 0 if it is not there, which reading reports.
fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}

fn is_npy_folder(folder: &Path) -> Result<bool> {
    let files = atomic::entries("read", folder)?;
    Ok(files.iter().any(|file| Format::of(file) == Ok(Format::Npy)))
}

/// Bytes of the .npy files of a folder.
fn npy_bytes(folder: &Path) -> Result<u64> {
    let files = atomic::entries("read", folder)?;
    Ok(files.iter().filter(|f| Format::of(f) == Ok(Format::Npy)).map(|f| length(f)).sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::write_all;
    use wengert_core::Literal;

    #[test]
    fn small_data_are_in_memory_unless_they_are_streamed() {
        let folder = tempfile::tempdir().unwrap();
        let x = Literal::from_vec(&[3], vec![1u8, 2, 3]).unwrap();
        let stream = Opening { stream: true, ..Opening::default() };
        for name in ["x.npy", "x.safetensors", "x.npz"] {
            let path = folder.path().join(name);
            write_all(&path, [("x", &x)]).unwrap();
            let opened = open(&path, &Opening::default()).unwrap();
            assert_eq!(opened.source.in_memory("x"), Some(&x));
            match open(&path, &stream) {
                Ok(opened) => {
                    assert_eq!(opened.source.in_memory("x"), None);
                    assert_eq!(opened.source.read("x", &[2]).unwrap().get(0), 3u8.into());
                }
                Err(error) => {
                    assert!(name == "x.npz" && error.message.contains("one by one"), "{error}");
                }
            }
        }
        let opened = open(folder.path(), &stream).unwrap();
        assert_eq!(opened.source.read("x", &[0]).unwrap().get(0), 1u8.into());
        let empty = folder.path().join("empty");
        std::fs::create_dir(&empty).unwrap();
        let error = open(&empty, &stream).err().unwrap().to_string();
        assert!(error.contains("has no .npy file"), "{error}");
        let says = |name: &str, text: &str| {
            let error = open(folder.path().join(name), &stream).err().unwrap().to_string();
            assert!(error.contains(text), "{error}");
        };
        says("absent", "has no file of that name");
        std::fs::write(folder.path().join("x.txt"), "1 2").unwrap();
        says("x.txt", ".parquet");
    }
}
