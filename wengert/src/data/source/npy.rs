//! The rows of .npy files.

use super::raw::RawRows;
use super::{ArrayType, Source, missing};
use crate::atomic;
use crate::data::map::Map;
use crate::data::{Format, npy, stem};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use wengert_core::{Literal, Result, diagnostic};

/// An .npy file, or the .npy files of a folder, each an array named by its stem: `x_train.npy` is
/// `x_train`.
///
/// ```
/// use wengert::data::source::{NpyFiles, Source};
/// use wengert::data::npy;
/// use wengert::Literal;
/// # fn main() -> wengert::Result<()> {
/// let folder = tempfile::tempdir().expect("a folder for temporary files");
/// let x = Literal::from_vec(&[3, 2], vec![1u8, 2, 3, 4, 5, 6])?;
/// npy::write(folder.path().join("x.npy"), &x)?;
/// let data = NpyFiles::open(folder.path())?;
/// assert_eq!(data.read("x", &[2, 0])?, Literal::from_vec(&[2, 2], vec![5u8, 6, 1, 2])?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct NpyFiles {
    arrays: BTreeMap<String, RawRows>,
}

impl NpyFiles {
    /// Opens a file, or every .npy file of a folder. Headers are read, rows are not.
    ///
    /// Errors: a file is damaged, was cut short, or is in Fortran order; two files have one name;
    /// the folder has no .npy file.
    pub fn open(path: impl AsRef<Path>) -> Result<NpyFiles> {
        let path = path.as_ref();
        if !path.is_dir() {
            return Ok(NpyFiles { arrays: [(stem(path), rows_of(path)?)].into() });
        }
        let mut arrays = BTreeMap::new();
        for file in atomic::entries("read", path)? {
            if Format::of(&file) == Ok(Format::Npy) {
                let name = stem(&file);
                if arrays.contains_key(&name) {
                    return Err(super::super::two_files(path, &name));
                }
                arrays.insert(name, rows_of(&file)?);
            }
        }
        if arrays.is_empty() {
            return Err(diagnostic!("the folder `{}` has no .npy file", path.display()));
        }
        Ok(NpyFiles { arrays })
    }

    fn rows(&self, array: &str) -> Result<&RawRows> {
        self.arrays.get(array).ok_or_else(|| missing(self, array))
    }
}

fn rows_of(path: &Path) -> Result<RawRows> {
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
    RawRows::open(path, layout.start as u64, ty, layout.big_endian)
}

impl Source for NpyFiles {
    fn arrays(&self) -> BTreeMap<String, ArrayType> {
        self.arrays.iter().map(|(name, rows)| (name.clone(), rows.ty().clone())).collect()
    }

    fn read_range(&self, array: &str, rows: Range<usize>) -> Result<Literal> {
        self.rows(array)?.read_range(array, rows)
    }

    fn read(&self, array: &str, rows: &[usize]) -> Result<Literal> {
        self.rows(array)?.read(array, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::source::{Source, read_whole};
    use wengert_core::{DType, Scalar};

    #[test]
    fn rows_are_those_of_the_whole_file() {
        let folder = tempfile::tempdir().unwrap();
        for dtype in DType::ALL.into_iter().filter(|d| *d != DType::BF16 && !d.is_float8()) {
            let values: Vec<_> = (0..15).map(|i| Scalar::from_i64(dtype, i - 2)).collect();
            let whole = Literal::from_scalars(dtype, &[5, 3], &values).unwrap();
            npy::write(folder.path().join(format!("{dtype}.npy")), &whole).unwrap();
        }
        let data = NpyFiles::open(folder.path()).unwrap();
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
    fn bad_files_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let says = |text: &str| {
            let error = NpyFiles::open(&path).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("x.npy"), "{error}");
        };
        npy::write(&path, &Literal::zeros(DType::F32, &[10, 4])).unwrap();
        let good = std::fs::read(&path).unwrap();
        let open = NpyFiles::open(&path).unwrap();
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
}
