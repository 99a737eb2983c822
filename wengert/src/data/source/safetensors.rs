//! The rows of a .safetensors file.

use super::raw::RawRows;
use super::{ArrayType, Source, missing};
use crate::data::safetensors::SafetensorsFile;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use wengert_core::{Literal, Result};

/// The tensors of a .safetensors file, by rows.
#[derive(Debug)]
pub struct SafetensorsRows {
    arrays: BTreeMap<String, RawRows>,
}

impl SafetensorsRows {
    /// Opens a file. The header is read and its checksum verified, if it has one.
    ///
    /// Errors: the file is damaged, was cut short, or has elements of an unknown type.
    pub fn open(path: impl AsRef<Path>) -> Result<SafetensorsRows> {
        let path = path.as_ref();
        let file = SafetensorsFile::open(path)?;
        let names: Vec<String> = file.names().map(str::to_owned).collect();
        let rows = |name: String| {
            let (ty, start) = file.place(&name)?;
            Ok((name, RawRows::open(path, start, ty, false)?))
        };
        Ok(SafetensorsRows { arrays: names.into_iter().map(rows).collect::<Result<_>>()? })
    }

    fn rows(&self, array: &str) -> Result<&RawRows> {
        self.arrays.get(array).ok_or_else(|| missing(self, array))
    }
}

impl Source for SafetensorsRows {
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
    use crate::data::source::read_whole;
    use crate::data::{Arrays, safetensors};
    use wengert_core::{DType, Scalar};

    #[test]
    fn rows_are_those_of_the_whole_file() {
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
        let data = SafetensorsRows::open(&path).unwrap();
        assert_eq!(read_whole(&data).unwrap(), arrays);
        for name in arrays.keys() {
            let rows = [3, 1, 0];
            assert_eq!(data.read(name, &rows).unwrap(), arrays.read(name, &rows).unwrap());
        }
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 2]).unwrap();
        let error = SafetensorsRows::open(&path).unwrap_err().to_string();
        assert!(error.contains("a.safetensors") && error.contains("cut short"), "{error}");
    }
}
