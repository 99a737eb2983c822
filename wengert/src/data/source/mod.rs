//! Sources of examples: arrays whose rows are read as they are needed.
//!
//! A [`Source`] has arrays by name. The first axis of each counts examples, its *rows*. Training
//! reads rows by number, so data may be larger than memory. [`Arrays`] are a source in memory. The
//! other sources read files:
//!
//! | source | of | arrays | feature |
//! |---|---|---|---|
//! | [`RawArrays`] | an .npy file, or a folder of them | one for each file | |
//! | | a .safetensors file | its tensors | |
//! | `ParquetTable` | a .parquet file | its columns | `parquet` |
//! | `ImageFolder` | a folder of images | `image` and `label` | `images` |
//! | `TokenWindows` | text files and a tokenizer | `tokens` and `targets` | `text` |
//!
//! [`open`] chooses one by the path. It reads small data into memory.
//!
//! **Memory.** A source on disk holds no rows beyond those that it returns. Files are read at
//! offsets into buffers, not mapped: pages of a map would count as resident memory of the process
//! until the kernel takes them back.
//!
//! **Bad files.** Sizes are checked when a source is opened. An error of a row names the file and
//! the row.

#[cfg(feature = "images")]
mod images;
mod open;
#[cfg(feature = "parquet")]
mod parquet;
mod raw;
#[cfg(feature = "text")]
mod tokens;

#[cfg(feature = "images")]
pub use images::ImageFolder;
pub use open::{IN_MEMORY, ImageOptions, Opened, Opening, open};
#[cfg(feature = "parquet")]
pub use parquet::ParquetTable;
pub use raw::RawArrays;
#[cfg(feature = "text")]
pub use tokens::TokenWindows;

use super::Arrays;
use super::bytes::little_endian;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use wengert_core::{DType, Diagnostic, Literal, Result, TensorType, diagnostic, with_native};

/// The type of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayType {
    /// Type of the elements.
    pub dtype: DType,
    /// Extents. The first one counts the rows.
    pub shape: Vec<usize>,
}

impl ArrayType {
    /// The type of a literal.
    pub fn of(literal: &Literal) -> ArrayType {
        ArrayType { dtype: literal.dtype(), shape: literal.shape().to_vec() }
    }

    /// Number of rows; a scalar counts as one.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Elements of a row.
    pub fn width(&self) -> usize {
        self.shape.iter().skip(1).product()
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.width().saturating_mul(self.dtype.size())
    }

    /// Bytes of all rows.
    pub fn bytes(&self) -> u64 {
        (self.rows() as u64).saturating_mul(self.row_bytes() as u64)
    }

    /// The extents of so many rows; those of a scalar are none.
    pub fn shape_of(&self, rows: usize) -> Vec<usize> {
        match self.shape.split_first() {
            Some((_, rest)) => [&[rows], rest].concat(),
            None => Vec::new(),
        }
    }
}

impl fmt::Display for ArrayType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TensorType::new(self.dtype, self.shape.iter().copied()).fmt(f)
    }
}

/// Arrays whose rows are read as they are needed. Several threads read at the same time.
///
/// The contents must not change while a source is in use.
pub trait Source: Sync {
    /// The arrays, by name.
    fn arrays(&self) -> BTreeMap<String, ArrayType>;

    /// The rows of a range, in order.
    ///
    /// Errors: there is no such array or row; the file cannot be read or is damaged.
    fn read_range(&self, array: &str, rows: Range<usize>) -> Result<Literal>;

    /// Rows by number, in this order.
    ///
    /// Errors: those of [`read_range`](Self::read_range).
    fn read(&self, array: &str, rows: &[usize]) -> Result<Literal> {
        let parts: Result<Vec<_>> =
            runs(rows).map(|(_, run)| self.read_range(array, run)).collect();
        match parts?.as_slice() {
            [] => self.read_range(array, 0..0),
            [part] => Ok(part.clone()),
            parts => Ok(stacked(parts)),
        }
    }

    /// The whole array, if it is in memory.
    fn in_memory(&self, array: &str) -> Option<&Literal> {
        let _ = array;
        None
    }

    /// The reason why the file's array `array` is not among [`arrays`](Self::arrays), if there is
    /// one.
    fn refusal(&self, array: &str) -> Option<Diagnostic> {
        let _ = array;
        None
    }

    /// For a source that decodes rows in blocks: the rows of a block. Such a source is read block
    /// by block.
    fn block_rows(&self) -> Option<usize> {
        None
    }

    /// Adds names, types and contents to a checksum, which tells data sets apart. Of more than
    /// [`IN_MEMORY`] bytes it takes 256 rows of each array, spread evenly.
    ///
    /// Errors: those of [`read_range`](Self::read_range).
    fn fingerprint(&self, into: &mut crc32fast::Hasher) -> Result<()> {
        let arrays = self.arrays();
        let whole = bytes(&arrays) <= IN_MEMORY;
        for (name, ty) in &arrays {
            into.update(format!("{name}:{ty};").as_bytes());
            let rows = ty.rows();
            if whole {
                for range in chunks(ty, 0..rows) {
                    into.update(&little_endian(&self.read_range(name, range)?));
                }
                continue;
            }
            const SAMPLES: usize = 256;
            let step = rows.div_ceil(SAMPLES).max(1);
            for row in (0..rows).step_by(step) {
                into.update(&little_endian(&self.read_range(name, row..row + 1)?));
            }
        }
        Ok(())
    }
}

impl Source for Arrays {
    fn arrays(&self) -> BTreeMap<String, ArrayType> {
        self.iter().map(|(name, array)| (name.clone(), ArrayType::of(array))).collect()
    }

    fn read_range(&self, array: &str, rows: Range<usize>) -> Result<Literal> {
        let literal = self.get(array).ok_or_else(|| missing(self, array))?;
        let ty = ArrayType::of(literal);
        checked(array, &ty, &rows)?;
        Ok(take(literal, &ty, std::iter::once(rows)))
    }

    fn read(&self, array: &str, rows: &[usize]) -> Result<Literal> {
        let literal = self.get(array).ok_or_else(|| missing(self, array))?;
        let ty = ArrayType::of(literal);
        for (_, run) in runs(rows) {
            checked(array, &ty, &run)?;
        }
        Ok(take(literal, &ty, rows.iter().map(|row| *row..row + 1)))
    }

    fn in_memory(&self, array: &str) -> Option<&Literal> {
        self.get(array)
    }

    fn fingerprint(&self, into: &mut crc32fast::Hasher) -> Result<()> {
        for (name, array) in self {
            into.update(format!("{name}:{};", array.ty()).as_bytes());
            into.update(&little_endian(array));
        }
        Ok(())
    }
}

/// Reads every array of a source.
///
/// Errors: an array cannot be read; there is not enough memory.
pub fn read_whole(source: &dyn Source) -> Result<Arrays> {
    let read = |(name, ty): (String, ArrayType)| {
        crate::available_memory::check(ty.bytes(), || format!("the array `{name}`"))?;
        let array = source.read_range(&name, 0..ty.rows())?;
        Ok((name, array))
    };
    source.arrays().into_iter().map(read).collect()
}

/// Bytes of all arrays.
pub fn bytes(arrays: &BTreeMap<String, ArrayType>) -> u64 {
    arrays.values().fold(0, |sum, ty| sum.saturating_add(ty.bytes()))
}

/// Divides rows into ranges of about 1 MiB each, of at least one row.
pub fn chunks(ty: &ArrayType, rows: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let step = ((1 << 20) / ty.row_bytes().max(1)).max(1);
    let end = rows.end;
    rows.step_by(step).map(move |from| from..end.min(from + step))
}

/// The error for an array that a source does not have.
pub(crate) fn missing(source: &dyn Source, array: &str) -> Diagnostic {
    source.refusal(array).unwrap_or_else(|| {
        let arrays = source.arrays();
        let names: Vec<_> = arrays.keys().collect();
        diagnostic!("the data has no array `{array}`")
            .help(format!("it has {}", super::listed(&names)))
    })
}

/// Checks that an array has these rows.
pub(crate) fn checked(array: &str, ty: &ArrayType, rows: &Range<usize>) -> Result<()> {
    if rows.start <= rows.end && rows.end <= ty.rows() {
        return Ok(());
    }
    Err(diagnostic!(
        "array `{array}` has {} rows, not row {}",
        ty.rows(),
        rows.end.saturating_sub(1)
    ))
}

/// Runs of consecutive rows, each with its position in `rows`.
pub(crate) fn runs(rows: &[usize]) -> impl Iterator<Item = (usize, Range<usize>)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = &rows[at..];
        let first = *rest.first()?;
        let run = 1 + rest.windows(2).take_while(|pair| pair[1] == pair[0] + 1).count();
        let from = at;
        at += run;
        Some((from, first..first + run))
    })
}

/// Rows of an array in memory.
pub(crate) fn take(
    literal: &Literal,
    ty: &ArrayType,
    rows: impl Iterator<Item = Range<usize>>,
) -> Literal {
    let width = ty.width();
    with_native!(literal.dtype(), T => {
        let all = literal.as_slice::<T>().expect("the dtype is its own");
        let mut taken = Vec::new();
        let mut count = 0;
        for run in rows {
            taken.extend_from_slice(&all[run.start * width..run.end * width]);
            count += run.len();
        }
        Literal::from_vec(&ty.shape_of(count), taken).expect("rows of the array fill as many rows")
    })
}

/// The rows of several arrays of one dtype and width, one after another.
pub(crate) fn stacked(parts: &[Literal]) -> Literal {
    let first = ArrayType::of(&parts[0]);
    let count = parts.iter().map(|part| ArrayType::of(part).rows()).sum();
    with_native!(first.dtype, T => {
        let mut all = Vec::with_capacity(count * first.width());
        for part in parts {
            all.extend_from_slice(part.as_slice::<T>().expect("parts have one dtype"));
        }
        Literal::from_vec(&first.shape_of(count), all).expect("parts have one width")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_maximal() {
        let found: Vec<_> = runs(&[3, 4, 5, 1, 0, 7, 8]).collect();
        assert_eq!(found, [(0, 3..6), (3, 1..2), (4, 0..1), (5, 7..9)]);
        assert_eq!(runs(&[]).count(), 0);
    }

    #[test]
    fn arrays_in_memory_are_a_source() {
        let x = Literal::from_vec(&[4, 2], (0..8).collect::<Vec<i32>>()).unwrap();
        let data = Arrays::from([("x".to_owned(), x), ("n".to_owned(), 5i64.into())]);
        let rows = data.read("x", &[3, 0, 1]).unwrap();
        assert_eq!(rows, Literal::from_vec(&[3, 2], vec![6i32, 7, 0, 1, 2, 3]).unwrap());
        assert_eq!(data.read("x", &[]).unwrap().shape(), [0, 2]);
        assert_eq!(data.read_range("n", 0..1).unwrap(), 5i64.into());
        for (error, says) in [
            (data.read("x", &[1, 4]), "array `x` has 4 rows, not row 4"),
            (data.read("y", &[0]), "it has `n`, `x`"),
        ] {
            assert!(error.unwrap_err().to_string().contains(says));
        }
    }
}
