//! The rows of Parquet files: columns of numbers, and of lists of one length.
//!
//! A column of numbers is an array `[rows]`; a column of lists that all have k numbers is an array
//! `[rows, k]`. A column of another kind (texts, dates, nested groups) is refused when it is asked
//! for, so a table may have such columns beside those that a recipe names. A null is an error that
//! names the row: a number that is not there has no value in training.
//!
//! A file is divided into row groups, and each row group has its columns one after another, packed
//! into compressed pages. Rows are decoded in blocks ([`Source::block_rows`]); to reach a row
//! within its group, the pages before it are skipped. Pages may be plain or compressed by Snappy
//! or LZ4.

use super::raw::read_at;
use super::{ArrayType, Source, checked, missing, stacked};
use crate::atomic::cannot;
use crate::available_memory;
use crate::data::map;
use ::parquet::basic::{ConvertedType, LogicalType, Type as Physical};
use ::parquet::column::reader::{ColumnReader, get_typed_column_reader};
use ::parquet::data_type::{BoolType, DataType, DoubleType, FloatType, Int32Type, Int64Type};
use ::parquet::errors::ParquetError;
use ::parquet::file::reader::{ChunkReader, FileReader, Length, SerializedFileReader};
use ::parquet::schema::types::ColumnDescriptor;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wengert_core::{DType, Diagnostic, Literal, Result, diagnostic};

/// Bytes of a block of rows.
const BLOCK: usize = 16 << 20;

/// A Parquet file.
pub struct ParquetTable {
    path: PathBuf,
    reader: SerializedFileReader<Positioned>,
    columns: BTreeMap<String, Column>,
    /// Columns that are no numbers, with their kind.
    refused: BTreeMap<String, String>,
    /// The rows of each row group.
    groups: Vec<Range<usize>>,
}

/// A column of numbers.
#[derive(Clone, Debug)]
struct Column {
    /// Its number among the leaves of the schema.
    leaf: usize,
    ty: ArrayType,
    /// Level of a value that is not null.
    defined: i16,
    is_list: bool,
}

impl fmt::Debug for ParquetTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParquetTable").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ParquetTable {
    /// Opens a file. Its schema is read, rows are not.
    ///
    /// Errors: the file is damaged or no Parquet file; it has no column of numbers.
    pub fn open(path: impl AsRef<Path>) -> Result<ParquetTable> {
        let path = path.as_ref();
        let (file, length) = map::regular_file(path)?;
        let reader = SerializedFileReader::new(Positioned { file: Arc::new(file), length })
            .map_err(|error| {
                cannot("read", path, &error)
                    .help("the file is damaged, was cut short, or is no Parquet file")
            })?;
        let mut groups = Vec::new();
        let mut rows = 0usize;
        for group in reader.metadata().row_groups() {
            let count = usize::try_from(group.num_rows()).ok();
            let end = count.and_then(|count| rows.checked_add(count));
            let end = end.ok_or_else(|| {
                diagnostic!(
                    "cannot read `{}`: a row group has {} rows",
                    path.display(),
                    group.num_rows()
                )
            })?;
            groups.push(rows..end);
            rows = end;
        }
        let mut table = ParquetTable {
            path: path.to_owned(),
            reader,
            columns: BTreeMap::new(),
            refused: BTreeMap::new(),
            groups,
        };
        let schema = table.reader.metadata().file_metadata().schema_descr_ptr();
        for (leaf, descriptor) in schema.columns().iter().enumerate() {
            let name = schema.get_column_root(leaf).name().to_owned();
            match table.column(leaf, descriptor, rows) {
                // A group with several leaves is refused as a whole.
                Ok(column) if !table.columns.contains_key(&name) => {
                    table.columns.insert(name, column);
                }
                Ok(_) => {
                    table.columns.remove(&name);
                    table.refused.insert(name, "a group of several columns".into());
                }
                Err(kind) => {
                    table.columns.remove(&name);
                    table.refused.insert(name, kind);
                }
            }
        }
        table.columns.retain(|name, _| !table.refused.contains_key(name));
        if table.columns.is_empty() {
            let path = path.display();
            return Err(diagnostic!("`{path}` has no column of numbers")
                .help("columns of numbers, and of lists of numbers of one length, are read"));
        }
        Ok(table)
    }

    /// The column of a leaf, or its kind if it is refused.
    fn column(
        &self,
        leaf: usize,
        descriptor: &ColumnDescriptor,
        rows: usize,
    ) -> std::result::Result<Column, String> {
        let dtype = dtype_of(descriptor)?;
        let is_list = match descriptor.max_rep_level() {
            0 if descriptor.path().parts().len() == 1 => false,
            1 => true,
            0 => return Err("a field of a group".into()),
            _ => return Err("a list of lists".into()),
        };
        let mut shape = vec![rows];
        if is_list {
            let values: i64 = (self.reader.metadata().row_groups().iter())
                .map(|group| group.column(leaf).num_values().max(0))
                .fold(0, i64::saturating_add);
            let values = values as usize;
            let width = values.checked_div(rows).unwrap_or(0);
            if width * rows != values || (width == 0 && rows > 0) {
                return Err("lists of several lengths".into());
            }
            shape.push(width);
        }
        let ty = ArrayType { dtype, shape };
        Ok(Column { leaf, ty, defined: descriptor.max_def_level(), is_list })
    }

    /// Reads rows of a column within a row group. Errors are of a row of the file.
    fn read_group(
        &self,
        name: &str,
        column: &Column,
        group: usize,
        rows: Range<usize>,
    ) -> Result<Literal> {
        let failed = |error: ParquetError| {
            cannot("read", &self.path, &error)
                .context(format_args!("column `{name}`, row group {group}"))
        };
        let from = rows.start - self.groups[group].start;
        let reader = self.reader.get_row_group(group).map_err(failed)?;
        let reader = reader.get_column_reader(column.leaf).map_err(failed)?;
        let part = Part { table: self, name, column, rows, from };
        macro_rules! read {
            ($kind:ty, $to:ty) => {
                part.read::<$kind>(reader)?.into_iter().map(|v| v as $to).collect::<Vec<$to>>()
            };
        }
        let shape = column.ty.shape_of(part.rows.len());
        match column.ty.dtype {
            DType::Bool => Literal::from_vec(&shape, part.read::<BoolType>(reader)?),
            DType::I8 => Literal::from_vec(&shape, read!(Int32Type, i8)),
            DType::U8 => Literal::from_vec(&shape, read!(Int32Type, u8)),
            DType::U32 => Literal::from_vec(&shape, read!(Int32Type, u32)),
            DType::I64 => Literal::from_vec(&shape, part.read::<Int64Type>(reader)?),
            DType::U64 => Literal::from_vec(&shape, read!(Int64Type, u64)),
            DType::F32 => Literal::from_vec(&shape, part.read::<FloatType>(reader)?),
            DType::F64 => Literal::from_vec(&shape, part.read::<DoubleType>(reader)?),
            _ => Literal::from_vec(&shape, part.read::<Int32Type>(reader)?),
        }
    }
}

/// The dtype of a column's numbers, or the kind of a column that has none.
fn dtype_of(column: &ColumnDescriptor) -> std::result::Result<DType, String> {
    use ConvertedType as C;
    let logical = column.logical_type_ref();
    let width = match (logical, column.converted_type()) {
        (Some(LogicalType::Integer(int)), _) => Some((int.bit_width, int.is_signed)),
        (None, C::INT_8) => Some((8, true)),
        (None, C::UINT_8) => Some((8, false)),
        (None, C::UINT_32) => Some((32, false)),
        (None, C::UINT_64) => Some((64, false)),
        (None, C::NONE | C::INT_16 | C::UINT_16 | C::INT_32 | C::INT_64) => None,
        (Some(other), _) => return Err(format!("of the type {other:?}")),
        (None, other) => return Err(format!("of the type {other}")),
    };
    Ok(match (column.physical_type(), width) {
        (Physical::BOOLEAN, None) => DType::Bool,
        (Physical::INT32, Some((8, true))) => DType::I8,
        (Physical::INT32, Some((8, false))) => DType::U8,
        (Physical::INT32, Some((32, false))) => DType::U32,
        (Physical::INT32, _) => DType::I32,
        (Physical::INT64, Some((64, false))) => DType::U64,
        (Physical::INT64, _) => DType::I64,
        (Physical::FLOAT, None) => DType::F32,
        (Physical::DOUBLE, None) => DType::F64,
        (other, _) => return Err(format!("of the type {other}")),
    })
}

/// Rows of a column that lie in one row group.
struct Part<'a> {
    table: &'a ParquetTable,
    name: &'a str,
    column: &'a Column,
    /// By number in the file.
    rows: Range<usize>,
    /// The first one within its group.
    from: usize,
}

impl Part<'_> {
    fn read<T: DataType>(&self, reader: ColumnReader) -> Result<Vec<T::T>> {
        let failed = |error: &dyn fmt::Display| {
            cannot("read", &self.table.path, error)
                .context(format_args!("column `{}`, rows from {} on", self.name, self.rows.start))
        };
        let cut = || failed(&"the column has fewer rows than the file says");
        let mut reader = get_typed_column_reader::<T>(reader);
        if reader.skip_records(self.from).map_err(|error| failed(&error))? != self.from {
            return Err(cut());
        }
        let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
        let mut read = 0;
        while read < self.rows.len() {
            let (records, _, _) = reader
                .read_records(
                    self.rows.len() - read,
                    Some(&mut defined),
                    Some(&mut repeated),
                    &mut values,
                )
                .map_err(|error| failed(&error))?;
            if records == 0 {
                return Err(cut());
            }
            read += records;
        }
        let width = self.column.ty.width();
        if self.column.is_list {
            let starts = repeated
                .iter()
                .enumerate()
                .position(|(at, level)| (*level == 0) != (width > 0 && at % width == 0));
            if let Some(at) = starts.or((repeated.len() != read * width).then_some(repeated.len()))
            {
                let row = self.rows.start + (at.saturating_sub(1)) / width.max(1);
                return Err(self.wrong(row, &format!("is a list of another length than {width}")));
            }
        }
        if let Some(at) = defined.iter().position(|level| *level != self.column.defined) {
            return Err(self.wrong(self.rows.start + at / width.max(1), "has a null"));
        }
        if values.len() != read * width {
            return Err(cut());
        }
        Ok(values)
    }

    fn wrong(&self, row: usize, what: &str) -> Diagnostic {
        diagnostic!(
            "column `{}` of `{}`, row {row}: it {what}",
            self.name,
            self.table.path.display()
        )
        .help("every row has a number, or a list of as many numbers as the others")
    }
}

impl Source for ParquetTable {
    fn arrays(&self) -> BTreeMap<String, ArrayType> {
        self.columns.iter().map(|(name, column)| (name.clone(), column.ty.clone())).collect()
    }

    fn read_range(&self, array: &str, rows: Range<usize>) -> Result<Literal> {
        let column = self.columns.get(array).ok_or_else(|| missing(self, array))?;
        checked(array, &column.ty, &rows)?;
        let bytes = (rows.len() as u64).saturating_mul(column.ty.row_bytes() as u64);
        available_memory::check(bytes, || format!("{} rows of column `{array}`", rows.len()))?;
        let mut parts = Vec::new();
        for (group, all) in self.groups.iter().enumerate() {
            let part = rows.start.max(all.start)..rows.end.min(all.end);
            if !part.is_empty() {
                parts.push(self.read_group(array, column, group, part)?);
            }
        }
        match parts.as_slice() {
            [] => Ok(Literal::zeros(column.ty.dtype, &column.ty.shape_of(0))),
            [part] => Ok(part.clone()),
            parts => Ok(stacked(parts)),
        }
    }

    fn refusal(&self, array: &str) -> Option<Diagnostic> {
        let kind = self.refused.get(array)?;
        let path = self.path.display();
        Some(
            diagnostic!("column `{array}` of `{path}` is no column of numbers: it is {kind}").help(
                "columns of bool, integers and floats are read, and of lists of them of one length",
            ),
        )
    }

    fn block_rows(&self) -> Option<usize> {
        let bytes: usize = self.columns.values().map(|column| column.ty.row_bytes()).sum();
        let most = (BLOCK / bytes.max(1)).max(1);
        // Whole row groups where they are small.
        let group = self.groups.first().map_or(1, Range::len).max(1);
        Some(group.min(most))
    }
}

/// A file that is read at offsets. Threads share it without a common position.
struct Positioned {
    file: Arc<File>,
    length: u64,
}

impl Length for Positioned {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Positioned {
    type T = BufReader<From>;

    fn get_read(&self, start: u64) -> ::parquet::errors::Result<Self::T> {
        let end = self.length;
        Ok(BufReader::new(From { file: Arc::clone(&self.file), at: start, end }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ::parquet::errors::Result<Bytes> {
        // The length is that of the file's own metadata, so it is compared before memory is taken.
        if start.checked_add(length as u64).is_none_or(|end| end > self.length) {
            return Err(ParquetError::EOF(format!(
                "{length} bytes at offset {start}, but the file has {}",
                self.length
            )));
        }
        let mut bytes = vec![0; length];
        read_at(&self.file, &mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// Bytes of a file from an offset on.
struct From {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rest = self.end.saturating_sub(self.at);
        let count = (buffer.len() as u64).min(rest) as usize;
        read_at(&self.file, &mut buffer[..count], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
