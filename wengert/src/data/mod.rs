//! Reads and writes tensors in files.
//!
//! Every format reads into and writes from [`Literal`]: [`npy`], [`npz`], [`safetensors`], and
//! numeric tables as [`csv`] (also gzipped). [`mod@text`] reads text. [`spec`] is the language
//! of the command line's `--input`.
//!
//! Data that are larger than memory are read by rows, from a [`source`], in threads of a
//! [`loader`].
//!
//! All of them guarantee:
//! - **Files are untrusted.** Sizes are checked against the length of the file before any
//!   allocation, so a few bytes cannot ask for gigabytes. A mismatch is a
//!   [`Diagnostic`] that names the file and the place.
//! - **Compressed files have a limit** ([`inflate`]), and available memory is checked before data
//!   are copied out of a file ([`crate::available_memory`]).
//! - **Same contents, same bytes.** Names are sorted and no time stamp is written.
//! - **Writes are atomic** (see [`crate::atomic`]).
//! - Files must not be changed by other programs while they are read (see [`map`]).

pub mod bytes;
mod checksum;
pub mod csv;
pub(crate) mod exact;
pub mod inflate;
pub mod loader;
pub mod map;
pub mod npy;
pub mod npz;
pub mod parts;
pub mod safetensors;
pub mod source;
pub mod spec;
pub mod summary;
pub mod text;

use crate::atomic;
use inflate::InflateLimit;
use std::collections::BTreeMap;
use std::path::Path;
use wengert_core::{DType, Diagnostic, Literal, Result, diagnostic};

/// Tensors by name.
pub type Arrays = BTreeMap<String, Literal>;

/// A file format of tensors, determined by the file's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// One array.
    Npy,
    /// Several arrays by name.
    Npz,
    /// Several tensors by name.
    Safetensors,
    /// A numeric table, plain or gzipped.
    Csv,
}

impl Format {
    /// True if a file of this format holds several arrays by name.
    pub fn holds_several(self) -> bool {
        matches!(self, Format::Npz | Format::Safetensors)
    }

    /// The format by the suffix of `path`: `.npy`, `.npz`, `.safetensors`, `.csv` or `.csv.gz`.
    pub fn of(path: &Path) -> Result<Format> {
        let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
        let ends = |suffix: &str| name.ends_with(suffix);
        Ok(match () {
            () if ends(".npy") => Format::Npy,
            () if ends(".npz") => Format::Npz,
            () if ends(".safetensors") => Format::Safetensors,
            () if ends(".csv") || ends(".csv.gz") => Format::Csv,
            () => {
                return Err(diagnostic!(
                    "`{}` is no tensor file that this program knows",
                    path.display()
                )
                .help("names end in .npy, .npz, .safetensors, .csv or .csv.gz"));
            }
        })
    }
}

/// Reads a data set: all arrays in `path`, by name.
///
/// - `.npz`, `.safetensors`: the arrays with their names;
/// - a folder: the `.npy` files in it, each named by its stem (`x_train.npy` is `x_train`);
/// - `.npy`: one array, named by its stem;
/// - `.csv`: with a header, each column as f64 `[rows]` by its name; without, `table`, f64
///   `[rows, columns]`.
///
/// Compressed files are read within the default limit.
pub fn read_all(path: impl AsRef<Path>) -> Result<Arrays> {
    read_all_within(path, InflateLimit::default())
}

/// [`read_all`], where a compressed file may inflate to `limit`.
pub fn read_all_within(path: impl AsRef<Path>, limit: InflateLimit) -> Result<Arrays> {
    let path = path.as_ref();
    let _span = tracing::debug_span!("read", name = %path.display()).entered();
    if path.is_dir() {
        let mut arrays = Arrays::new();
        for file in atomic::entries("read", path)? {
            if Format::of(&file) == Ok(Format::Npy) {
                let name = stem(&file);
                if arrays.contains_key(&name) {
                    return Err(two_files(path, &name));
                }
                arrays.insert(name, npy::read(&file)?);
            }
        }
        if arrays.is_empty() {
            return Err(diagnostic!("the folder `{}` has no .npy file", path.display()));
        }
        return Ok(arrays);
    }
    match Format::of(path)? {
        Format::Npz => npz::Npz::open_within(path, limit)?.read_all(),
        Format::Safetensors => safetensors::SafetensorsFile::open(path)?.read_all(),
        Format::Npy => Ok(Arrays::from([(stem(path), npy::read(path)?)])),
        Format::Csv => {
            let table = csv::Table::read_within(path, csv::Header::Detect, limit)?;
            let Some(names) = table.names() else {
                return Ok(Arrays::from([("table".into(), table.to_literal(DType::F64)?)]));
            };
            let mut arrays = Arrays::new();
            for (i, name) in names.iter().enumerate() {
                if arrays.insert(name.clone(), table.column(i, DType::F64)?).is_some() {
                    return Err(diagnostic!("`{}` has two columns `{name}`", path.display()));
                }
            }
            Ok(arrays)
        }
    }
}

/// The error for a folder with two files for one array.
fn two_files(folder: &Path, name: &str) -> Diagnostic {
    diagnostic!("the folder `{}` has two files for an array `{name}`", folder.display())
        .help("rename one of them; names of arrays are UTF-8")
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Reads one tensor: `key` names it in `.npz` and `.safetensors` files (and may be left out if
/// there is just one) and must be absent for `.npy` and `.csv`. A table without a header becomes
/// f64 `[rows, columns]`.
///
/// Compressed files are read within the default limit.
pub fn read_one(path: impl AsRef<Path>, key: Option<&str>) -> Result<Literal> {
    read_one_within(path, key, InflateLimit::default())
}

/// [`read_one`], where a compressed file may inflate to `limit`.
pub fn read_one_within(
    path: impl AsRef<Path>,
    key: Option<&str>,
    limit: InflateLimit,
) -> Result<Literal> {
    let path = path.as_ref();
    let only = |names: Vec<String>| match (key, names.as_slice()) {
        (Some(key), _) => Ok(key.to_owned()),
        (None, [name]) => Ok(name.clone()),
        (None, _) => Err(diagnostic!("`{}` holds {} arrays", path.display(), names.len()).help(
            format!("say which: `@{}[NAME]`, with a NAME of {}", path.display(), listed(&names)),
        )),
    };
    let format = Format::of(path)?;
    if let (Format::Npy | Format::Csv, Some(key)) = (format, key) {
        return Err(diagnostic!("`{}` holds one array, without a name", path.display())
            .help(format!("leave `[{key}]` out")));
    }
    match format {
        Format::Npy => npy::read(path),
        Format::Npz => {
            let mut file = npz::Npz::open_within(path, limit)?;
            file.read(&only(file.names())?)
        }
        Format::Safetensors => {
            let file = safetensors::SafetensorsFile::open(path)?;
            file.read(&only(file.names().map(str::to_owned).collect())?)
        }
        Format::Csv => {
            csv::Table::read_within(path, csv::Header::Detect, limit)?.to_literal(DType::F64)
        }
    }
}

/// Writes one tensor in the format of `path`'s name; in `.npz` and `.safetensors` it gets the
/// name `key`.
pub fn write_one(path: impl AsRef<Path>, key: &str, literal: &Literal) -> Result<()> {
    write_all(path, [(key, literal)])
}

/// Writes named tensors to an `.npz` or `.safetensors` file, or one, without its name, to a file
/// of another format.
pub fn write_all<'a>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (&'a str, &'a Literal)>,
) -> Result<()> {
    let path = path.as_ref();
    let arrays: Vec<_> = arrays.into_iter().collect();
    match (Format::of(path)?, arrays.as_slice()) {
        (Format::Npz, _) => npz::write(path, arrays),
        (Format::Safetensors, _) => safetensors::write(path, arrays),
        (Format::Npy, [(_, literal)]) => npy::write(path, literal),
        (Format::Csv, [(_, literal)]) => csv::write(path, literal),
        (Format::Npy | Format::Csv, _) => {
            Err(diagnostic!("`{}` can hold one array only", path.display())
                .help("use an .npz or .safetensors file"))
        }
    }
}

/// `a`, `b` and `c`, shortened if long: the known names, for messages.
pub(crate) fn listed<S: AsRef<str>>(names: &[S]) -> String {
    const SHOWN: usize = 12;
    let mut text: Vec<String> =
        names.iter().take(SHOWN).map(|n| format!("`{}`", n.as_ref())).collect();
    match names.len() {
        0 => return "none".into(),
        n if n > SHOWN => text.push(format!("… ({n} in all)")),
        _ => {}
    }
    text.join(", ")
}

/// Sorts by name. A repeated name is an error.
pub(crate) fn sorted<'a>(
    path: &Path,
    arrays: impl IntoIterator<Item = (&'a str, &'a Literal)>,
) -> Result<Vec<(&'a str, &'a Literal)>> {
    let mut arrays: Vec<_> = arrays.into_iter().collect();
    arrays.sort_by_key(|(name, _)| *name);
    if let Some(twice) = arrays.windows(2).find(|w| w[0].0 == w[1].0) {
        return Err(diagnostic!(
            "cannot write `{}`: two arrays have the name `{}`",
            path.display(),
            twice[0].0
        ));
    }
    Ok(arrays)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_sets_of_every_form() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (x, y) = (
            Literal::zeros(DType::U8, &[2, 3]),
            Literal::from_vec(&[2], vec![1.5f64, -2.0]).unwrap(),
        );
        write_one(at("x_train.npy"), "", &x).unwrap();
        write_one(at("y.npy"), "", &y).unwrap();
        let both = Arrays::from([("x_train".to_owned(), x.clone()), ("y".to_owned(), y.clone())]);
        assert_eq!(read_all(folder.path()).unwrap(), both);
        assert_eq!(read_all(at("y.npy")).unwrap(), [("y".to_owned(), y.clone())].into());
        for name in ["a.npz", "a.safetensors"] {
            write_all(at(name), both.iter().map(|(name, array)| (name.as_str(), array))).unwrap();
            assert_eq!(read_all(at(name)).unwrap(), both);
            assert_eq!(read_one(at(name), Some("y")).unwrap(), y);
            assert!(read_one(at(name), None).unwrap_err().to_string().contains("`x_train`, `y`"));
        }
        std::fs::write(at("t.csv"), "y,z\n1.5,3\n-2,4\n").unwrap();
        let table = read_all(at("t.csv")).unwrap();
        assert_eq!((table.len(), &table["y"]), (2, &y));
        std::fs::write(at("t.csv"), "1.5\n-2\n").unwrap();
        assert_eq!(read_all(at("t.csv")).unwrap()["table"], y.reshape(&[2, 1]).unwrap());
        std::fs::write(at("t.csv"), "a,a\n1,2\n").unwrap();
        assert!(read_all(at("t.csv")).unwrap_err().message.contains("two columns `a`"));
        assert!(read_all(at("t.txt")).unwrap_err().message.contains("t.txt"));
        std::fs::create_dir(at("empty")).unwrap();
        assert!(read_all(at("empty")).unwrap_err().message.contains("no .npy file"));
        assert!(write_all(at("z.npy"), []).unwrap_err().message.contains("one array only"));
    }
}
