//! The value of `--input NAME=`: the source of a tensor.
//!
//! | text | tensor |
//! |---|---|
//! | `@f.npy` | the array in the file |
//! | `@f.npz[k]`, `@f.safetensors[k]` | the array `k` in the file; `[k]` may be left out if there is only one |
//! | `@f.csv`, `@f.csv.gz` | the table, converted to the input's dtype |
//! | `@f.npy:f32`, `@f.npz[k]:f32` | the array in the file, converted to this dtype |
//! | `2x2xf32=1 2 3 4` | the elements in row-major order, as a literal prints itself |
//! | `random:7` | random, from the seed 7 and the input's name: see [`random`] |
//! | `zeros` | zeros |
//!
//! A text after the last colon is a dtype, unless a file has the whole text as its name. A number
//! that an integer dtype does not hold exactly is an error; a float dtype rounds to nearest even.
//!
//! The first five have a shape of their own and bind the dimension variables of a function:
//! `x: f32[B,64]` with a file of shape `[360,64]` makes B 360. The last two take the input's
//! shape, whose variables the others, or the caller, must bind. [`find`] follows that order and
//! generates nothing: its result tells its size in bytes, so that a plan can be made for the
//! remaining memory. [`resolve`] does both.

mod find;
#[cfg(test)]
mod tests;

pub use find::{Found, bind, bind_extents, find, random, resolve};

use super::csv::{Header, Table};
use super::exact::{self, holds, not_held};
use super::inflate::InflateLimit;
use super::{Format, read_one_within};
use crate::os_text;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use wengert_core::text::Cursor;
use wengert_core::{DType, Diagnostic, Literal, Result, TensorType, diagnostic};

/// The source of a tensor.
#[derive(Clone, PartialEq, Debug)]
pub enum Spec {
    /// A file, and the name within it.
    File {
        /// The file.
        path: PathBuf,
        /// Name of the array in a file of several.
        key: Option<String>,
        /// The dtype that the elements are converted to, if not that of the file.
        dtype: Option<DType>,
    },
    /// The elements themselves.
    Value(Literal),
    /// Random, from this seed.
    Random(u64),
    /// Zeros.
    Zeros,
}

impl Spec {
    /// Reads a spec. The path of a file need not be UTF-8.
    pub fn parse(text: impl AsRef<OsStr>) -> Result<Spec> {
        let text = text.as_ref();
        let malformed = |message: String| Diagnostic::new(message).help(FORMS);
        if let Some(file) = os_text::strip_prefix(text, b'@') {
            return Spec::file(file).map_err(|error| match error.help {
                Some(_) => error,
                None => error.help(FORMS),
            });
        }
        let text = text.to_str().ok_or_else(|| {
            malformed(format!("`{}` is not UTF-8 text", Path::new(text).display()))
        })?;
        if text == "zeros" {
            return Ok(Spec::Zeros);
        }
        if let Some(seed) = text.strip_prefix("random:") {
            let seed = seed.parse().map_err(|_| malformed(format!("`{seed}` is no seed")))?;
            return Ok(Spec::Random(seed));
        }
        let (head, elements) = text.split_once('=').ok_or_else(|| {
            malformed(format!("`{}` does not say where a tensor comes from", short(text)))
        })?;
        let mut extents: Vec<&str> = head.split('x').collect();
        let dtype: DType = extents.pop().unwrap_or_default().parse()?;
        let shape = extents
            .iter()
            .map(|e| {
                e.parse().map_err(|_| malformed(format!("`{e}` in `{}` is no extent", short(text))))
            })
            .collect::<Result<Vec<usize>>>()?;
        Ok(Spec::Value(elements_of(dtype, &shape, elements).map_err(|e| e.context(short(text)))?))
    }

    /// `PATH` or `PATH[KEY]`, each perhaps with `:DTYPE`.
    pub fn file(text: impl AsRef<OsStr>) -> Result<Spec> {
        let (text, dtype) = conversion(text.as_ref())?;
        let (path, key) =
            match os_text::strip_suffix(text, b']').and_then(|f| os_text::split_once(f, b'[')) {
                Some((path, key)) => (path, Some(key)),
                None => (text, None),
            };
        if path.is_empty() {
            return Err(diagnostic!("`@{}` names no file", Path::new(text).display()));
        }
        let utf8 = |key: &OsStr| {
            let wrong =
                || diagnostic!("`{}` names no array: it is not UTF-8", Path::new(key).display());
            key.to_str().map(str::to_owned).ok_or_else(wrong)
        };
        Ok(Spec::File { path: path.into(), key: key.map(utf8).transpose()?, dtype })
    }

    /// The tensor of a file, or the elements themselves. A table is of f32 if no dtype is given.
    ///
    /// # Errors
    /// The spec has no shape of its own; the file cannot be read.
    pub fn literal(&self, limit: InflateLimit) -> Result<Literal> {
        let table = TensorType::new(DType::F32, [1usize, 1]);
        self.own(&table, limit)?.ok_or_else(|| {
            Diagnostic::new("random numbers and zeros have no shape here")
                .help("write @file.npy, @file.npz[name] or 2xi64=3 4")
        })
    }

    /// The tensor, if the spec has a shape of its own; `ty` is the type of the input.
    fn own(&self, ty: &TensorType, limit: InflateLimit) -> Result<Option<Literal>> {
        Ok(match self {
            Spec::Value(literal) => Some(literal.clone()),
            // A table has no dtype: it takes the input's. A single column may be a vector.
            Spec::File { path, key: None, dtype } if Format::of(path)? == Format::Csv => {
                let table = Table::read_within(path, Header::Detect, limit)?;
                let dtype = dtype.unwrap_or(ty.dtype);
                Some(match (ty.rank(), table.columns()) {
                    (1, 1) => table.column(0, dtype)?,
                    _ => table.to_literal(dtype)?,
                })
            }
            Spec::File { path, key, dtype } => {
                let array = read_one_within(path, key.as_deref(), limit)?;
                Some(match dtype {
                    Some(dtype) => converted(&array, *dtype)
                        .map_err(|e| e.context(format_args!("`{}`", path.display())))?,
                    None => array,
                })
            }
            Spec::Random(_) | Spec::Zeros => None,
        })
    }
}

const FORMS: &str = "write @file.npy, @file.npz[name], @file.safetensors[name], @file.csv \
                     (@file.npy:f32 converts), 2x2xf32=1 2 3 4, random:SEED, or zeros";

/// Splits `FILE:DTYPE`. A file whose name has a colon keeps it: the whole text is its name if such
/// a file exists, or if no dtype follows the colon.
///
/// Error: what follows the name of a tensor file is not a dtype.
fn conversion(text: &OsStr) -> Result<(&OsStr, Option<DType>)> {
    let Some((file, suffix)) = os_text::rsplit_once(text, b':').filter(|(file, suffix)| {
        !file.is_empty() && !suffix.is_empty() && !Path::new(text).exists()
    }) else {
        return Ok((text, None));
    };
    match suffix.to_str().unwrap_or_default().parse() {
        Ok(dtype) => Ok((file, Some(dtype))),
        Err(error) => {
            let path = os_text::split_once(file, b'[').map_or(file, |(path, _)| path);
            if Format::of(Path::new(path)).is_err() || Format::of(Path::new(text)).is_ok() {
                return Ok((text, None));
            }
            Err(error.context(format_args!("`{}`", Path::new(text).display())))
        }
    }
}

/// The array in another dtype.
///
/// Error: an integer dtype does not hold an element.
fn converted(array: &Literal, dtype: DType) -> Result<Literal> {
    match not_held(array, dtype) {
        None => Ok(array.convert(dtype)),
        Some(exact::Found { number, at, more }) => {
            let more = if more == 0 { String::new() } else { format!(" (and so are {more} more)") };
            Err(diagnostic!("element {at} is {number}, which is no {dtype}{more}")
                .help(holds(dtype)))
        }
    }
}

/// Elements separated by blanks, exactly as many as the shape has.
fn elements_of(dtype: DType, shape: &[usize], text: &str) -> Result<Literal> {
    let mut cursor = Cursor::new("value", text);
    let mut values = Vec::new();
    while !cursor.is_end() {
        values.push(cursor.scalar(dtype)?);
    }
    Literal::from_scalars(dtype, shape, &values)
}

fn short(text: &str) -> String {
    if text.chars().count() <= 60 {
        text.to_owned()
    } else {
        text.chars().take(60).chain(['…']).collect()
    }
}
