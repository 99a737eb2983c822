//! Arrays that lie in files as plain elements: .npy and .safetensors.

use super::{ArrayType, Source, checked, missing, runs};
use crate::atomic::{self, cannot};
use crate::data::map::{self, Map};
use crate::data::safetensors::SafetensorsFile;
use crate::data::{Format, npy, stem};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use wengert_core::{DType, Literal, Result, diagnostic};

/// An .npy file, a folder of them, or a .safetensors file. An .npy file is an array named by its
/// stem: `x_train.npy` is `x_train`.
///
/// ```
/// use wengert::data::source::{RawArrays, Source};
/// use wengert::data::npy;
/// use wengert::Literal;
/// # fn main() -> wengert::Result<()> {
/// let folder = tempfile::tempdir().expect("a folder for temporary files");
/// let x = Literal::from_vec(&[3, 2], vec![1u8, 2, 3, 4, 5, 6])?;
/// npy::write(folder.path().join("x.npy"), &x)?;
/// let data = RawArrays::open(folder.path())?;
/// assert_eq!(data.read("x", &[2, 0])?, Literal::from_vec(&[2, 2], vec![5u8, 6, 1, 2])?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RawArrays {
    arrays: BTreeMap<String, RawArray>,
}

impl RawArrays {
    /// Opens a file, or every .npy file of a folder. Headers are read and checked, rows are not
    /// read.
    ///
    /// Errors: a file is of another format, is damaged, was cut short, or is in Fortran order; two
    /// files have one name; the folder has no .npy file.
    pub fn open(path: impl AsRef<Path>) -> Result<RawArrays> {
        let path = path.as_ref();
        let arrays = if path.is_dir() {
            of_folder(path)?
        } else {
            match Format::of(path)? {
                Format::Npy => [(stem(path), of_npy(path)?)].into(),
                Format::Safetensors => of_safetensors(path)?,
                Format::Npz | Format::Csv => {
                    return Err(diagnostic!(
                        "the rows of `{}` cannot be read one by one",
                        path.display()
                    )
                    .help("write .npy files, a .safetensors or a .parquet file"));
                }
            }
        };
        Ok(RawArrays { arrays })
    }

    fn array(&self, name: &str) -> Result<&RawArray> {
        self.arrays.get(name).ok_or_else(|| missing(self, name))
    }
}

impl Source for RawArrays {
    fn arrays(&self) -> BTreeMap<String, ArrayType> {
        self.arrays.iter().map(|(name, array)| (name.clone(), array.ty.clone())).collect()
    }

    fn read_range(&self, array: &str, rows: Range<usize>) -> Result<Literal> {
        self.array(array)?.read_range(array, rows)
    }

    fn read(&self, array: &str, rows: &[usize]) -> Result<Literal> {
        self.array(array)?.read(array, rows)
    }
}

fn of_folder(folder: &Path) -> Result<BTreeMap<String, RawArray>> {
    let mut arrays = BTreeMap::new();
    for file in atomic::entries("read", folder)? {
        if Format::of(&file) == Ok(Format::Npy) {
            let name = stem(&file);
            if arrays.contains_key(&name) {
                return Err(crate::data::two_files(folder, &name));
            }
            arrays.insert(name, of_npy(&file)?);
        }
    }
    if arrays.is_empty() {
        return Err(diagnostic!("the folder `{}` has no .npy file", folder.display()));
    }
    Ok(arrays)
}

fn of_npy(path: &Path) -> Result<RawArray> {
    let layout = npy::layout(&Map::open(path)?)
        .map_err(|error| error.context(format_args!("cannot read `{}`", path.display())))?;
    if layout.fortran && layout.shape.len() > 1 {
        return Err(diagnostic!(
            "the rows of `{}` cannot be read one by one: it is in Fortran order",
            path.display()
        )
        .help("write it in C order: `numpy.save(path, numpy.ascontiguousarray(a))`"));
    }
    let ty = ArrayType { dtype: layout.dtype, shape: layout.shape };
    RawArray::open(path, layout.start as u64, ty, layout.big_endian)
}

fn of_safetensors(path: &Path) -> Result<BTreeMap<String, RawArray>> {
    let file = SafetensorsFile::open(path)?;
    let names = file.names().map(str::to_owned);
    names
        .map(|name| {
            let (ty, start) = file.place(&name)?;
            Ok((name, RawArray::open(path, start, ty, false)?))
        })
        .collect()
}

/// An array in row-major order within a file.
#[derive(Debug)]
pub(super) struct RawArray {
    path: PathBuf,
    file: File,
    /// Offset of the first element.
    start: u64,
    ty: ArrayType,
    big_endian: bool,
}

impl RawArray {
    /// Opens a file for an array at the offset `start`. The caller has checked that the file has
    /// all of its bytes.
    pub fn open(path: &Path, start: u64, ty: ArrayType, big_endian: bool) -> Result<RawArray> {
        let (file, _) = map::regular_file(path)?;
        Ok(RawArray { path: path.to_owned(), file, start, ty, big_endian })
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
        let shape = self.ty.shape_of(rows);
        let literal = match self.ty.dtype {
            DType::U8 => Literal::from_vec(&shape, bytes),
            dtype => Literal::from_bytes(dtype, &shape, &bytes),
        };
        literal.map_err(|error| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::source::read_whole;
    use crate::data::{Arrays, safetensors};
    use wengert_core::Scalar;

    #[test]
    fn rows_of_npy_files_are_those_of_the_whole_files() {
        let folder = tempfile::tempdir().unwrap();
        for dtype in DType::ALL.into_iter().filter(|d| *d != DType::BF16 && !d.is_float8()) {
            let values: Vec<_> = (0..15).map(|i| Scalar::from_i64(dtype, i - 2)).collect();
            let whole = Literal::from_scalars(dtype, &[5, 3], &values).unwrap();
            npy::write(folder.path().join(format!("{dtype}.npy")), &whole).unwrap();
        }
        let data = RawArrays::open(folder.path()).unwrap();
        let read = crate::data::read_all(folder.path()).unwrap();
        assert_eq!(read_whole(&data).unwrap(), read);
        for name in read.keys() {
            let rows = [4, 0, 1, 2, 2];
            assert_eq!(data.read(name, &rows).unwrap(), read.read(name, &rows).unwrap(), "{name}");
        }
        let sum = |source: &dyn Source| {
            let mut hasher = crc32fast::Hasher::new();
            source.fingerprint(&mut hasher).unwrap();
            hasher.finalize()
        };
        assert_eq!(sum(&data), sum(&read));
    }

    #[test]
    fn bad_npy_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let says = |text: &str| {
            let error = RawArrays::open(&path).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("x.npy"), "{error}");
        };
        npy::write(&path, &Literal::zeros(DType::F32, &[10, 4])).unwrap();
        let good = std::fs::read(&path).unwrap();
        let open = RawArrays::open(&path).unwrap();
        assert!(open.read("x", &[10]).unwrap_err().message.contains("has 10 rows, not row 10"));
        assert!(open.read("y", &[0]).unwrap_err().to_string().contains("it has `x`"));
        std::fs::write(&path, &good[..good.len() - 1]).unwrap();
        says("has 160 bytes of data, found 159");
        // Cut short while it is open.
        let error = open.read("x", &[3, 9]).unwrap_err().to_string();
        assert!(error.contains("x.npy") && error.contains("ends before row 9"), "{error}");
        let text = String::from_utf8_lossy(&good[10..128]).replace("False", "True ");
        std::fs::write(&path, [&good[..10], text.as_bytes(), &good[128..]].concat()).unwrap();
        says("Fortran order");
    }

    #[test]
    fn rows_of_safetensors_are_those_of_the_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.safetensors");
        let arrays: Arrays = DType::ALL
            .into_iter()
            .map(|dtype| {
                let values: Vec<_> = (0..12).map(|i| Scalar::from_i64(dtype, i - 2)).collect();
                (dtype.to_string(), Literal::from_scalars(dtype, &[4, 3], &values).unwrap())
            })
            .collect();
        safetensors::write(&path, arrays.iter().map(|(k, v)| (k.as_str(), v))).unwrap();
        let data = RawArrays::open(&path).unwrap();
        assert_eq!(read_whole(&data).unwrap(), arrays);
        for name in arrays.keys() {
            let rows = [3, 1, 0];
            assert_eq!(data.read(name, &rows).unwrap(), arrays.read(name, &rows).unwrap());
        }
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 2]).unwrap();
        let error = RawArrays::open(&path).unwrap_err().to_string();
        assert!(error.contains("a.safetensors") && error.contains("cut short"), "{error}");
    }
}
