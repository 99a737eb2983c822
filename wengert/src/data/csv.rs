//! Numeric tables as comma-separated text, plain or gzipped.
//!
//! A table is read whole; every field must be a number. Lines that begin with `#` and empty lines
//! are skipped, and the first line may name the columns. An error names line and column and shows
//! the line. Gzip is recognised by the contents, not by the name. Values pass through `f64`: an
//! integer that has no exact `f64` is an error and is not rounded.

use super::inflate::InflateLimit;
use super::text;
use crate::{atomic, available_memory};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use wengert_core::{DType, Diagnostic, Literal, Location, Result, Scalar, diagnostic, with_native};

/// Whether the first line names the columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Header {
    /// It does if any of its fields is not a number.
    Detect,
    /// It does.
    Present,
    /// It does not.
    Absent,
}

/// A table of numbers with rows of equal length.
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    path: PathBuf,
    names: Option<Vec<String>>,
    columns: usize,
    /// In row-major order.
    values: Vec<f64>,
}

impl Table {
    /// Reads a table; a compressed one within the default limit.
    pub fn read(path: impl AsRef<Path>, header: Header) -> Result<Table> {
        Table::read_within(path, header, InflateLimit::default())
    }

    /// Reads a table.
    pub fn read_within(
        path: impl AsRef<Path>,
        header: Header,
        limit: InflateLimit,
    ) -> Result<Table> {
        let path = path.as_ref();
        let text = text::read_within(path, limit)?;
        Table::parse(path, &text, header)
    }

    /// Reads the table in `text`; `path` is for messages.
    pub fn parse(path: &Path, text: &str, header: Header) -> Result<Table> {
        let mut records = Records::new(path, text);
        let mut table =
            Table { path: path.to_owned(), names: None, columns: 0, values: Vec::new() };
        let mut record = csv::StringRecord::new();
        let mut first = true;
        while let Some(start) = records.read(&mut record)? {
            let is_header = first
                && match header {
                    Header::Present => true,
                    Header::Absent => false,
                    Header::Detect => record.iter().any(|field| number(field).is_none()),
                };
            if first {
                table.columns = record.len();
            } else if record.len() != table.columns {
                let what =
                    format!("{} fields here, {} in the first line", record.len(), table.columns);
                return Err(records.mistake(start, 0, what));
            }
            first = false;
            if is_header {
                table.names = Some(record.iter().map(str::to_owned).collect());
                continue;
            }
            available_memory::grow(&mut table.values, record.len(), || {
                format!("the numbers of `{}`", path.display())
            })?;
            for (i, field) in record.iter().enumerate() {
                let value = number(field).ok_or_else(|| {
                    records.mistake(start, i, format!("`{}` is not a number", shown(field)))
                })?;
                if !is_exact(field, value) {
                    let what = format!("`{}` is no number that f64 holds exactly", shown(field));
                    return Err(records.mistake(start, i, what));
                }
                table.values.push(value);
            }
        }
        if first {
            return Err(diagnostic!("`{}` holds no table: it has no line", path.display()));
        }
        Ok(table)
    }

    /// Number of rows, the header excluded.
    pub fn rows(&self) -> usize {
        self.values.len() / self.columns
    }

    /// Number of columns.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The header, if there is one.
    pub fn names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    /// The whole table as `[rows, columns]`. Floats are rounded; a value that an integer dtype
    /// (or bool) cannot hold is an error.
    pub fn to_literal(&self, dtype: DType) -> Result<Literal> {
        self.slice(0..self.columns, dtype)
    }

    /// Consecutive columns as `[rows, number of columns]`, converted as by [`Table::to_literal`].
    pub fn slice(&self, columns: Range<usize>, dtype: DType) -> Result<Literal> {
        if columns.start > columns.end || columns.end > self.columns {
            return Err(diagnostic!(
                "`{}` has {} columns, there are no columns {}..{}",
                self.path.display(),
                self.columns,
                columns.start,
                columns.end
            ));
        }
        let what = || format!("the numbers of `{}` as {dtype}", self.path.display());
        with_native!(dtype, T => {
            let mut values: Vec<T> = Vec::new();
            available_memory::grow(&mut values, self.rows() * columns.len(), what)?;
            for (i, row) in self.values.chunks_exact(self.columns).enumerate() {
                for (j, value) in row.iter().enumerate().take(columns.end).skip(columns.start) {
                    values.push(self.element(i, j, *value, dtype)?.get::<T>());
                }
            }
            Literal::from_vec(&[self.rows(), columns.len()], values)
        })
    }

    /// One column as `[rows]`, converted as by [`Table::to_literal`].
    pub fn column(&self, column: usize, dtype: DType) -> Result<Literal> {
        self.slice(column..column.saturating_add(1), dtype)?.reshape(&[self.rows()])
    }

    fn element(&self, row: usize, column: usize, value: f64, dtype: DType) -> Result<Scalar> {
        let scalar = Scalar::from_f64(dtype, value);
        if dtype.is_real() || scalar.to_f64() == value {
            return Ok(scalar);
        }
        let name =
            self.names.as_ref().map_or(String::new(), |names| format!(" (`{}`)", names[column]));
        Err(diagnostic!(
            "`{}`: {value} in row {}, column {}{name} is no {dtype}",
            self.path.display(),
            row + 1,
            column + 1,
        ))
    }
}

/// Writes a literal of at most two axes, one row per line, without a header; gzipped if the name
/// ends in `.gz`.
pub fn write(path: impl AsRef<Path>, literal: &Literal) -> Result<()> {
    let path = path.as_ref();
    let columns = match literal.shape() {
        [] | [_] => 1,
        [_, columns] => *columns,
        shape => {
            return Err(diagnostic!(
                "cannot write `{}`: a table has two axes, the array has shape {shape:?}",
                path.display()
            )
            .help("write an .npy file"));
        }
    };
    atomic::write(path, |file| {
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gz")) {
            // No name and no time stamp goes into the gzip header.
            let mut packed = GzEncoder::new(file, Compression::default());
            write_rows(&mut packed, literal, columns)?;
            packed.finish()?;
            Ok(())
        } else {
            write_rows(file, literal, columns)
        }
    })
}

fn write_rows(file: &mut impl Write, literal: &Literal, columns: usize) -> io::Result<()> {
    for (i, scalar) in literal.scalars().enumerate() {
        let separator = if (i + 1) % columns == 0 { '\n' } else { ',' };
        match scalar.dtype() {
            DType::Bool => write!(file, "{}{separator}", scalar.bits())?,
            // A table cannot represent the payload of a NaN.
            _ if scalar.to_f64().is_nan() => write!(file, "nan{separator}")?,
            _ => write!(file, "{scalar}{separator}")?,
        }
    }
    Ok(())
}

fn number(field: &str) -> Option<f64> {
    field.parse().ok()
}

/// False for an integer that `f64` would round.
fn is_exact(field: &str, value: f64) -> bool {
    let digits = field.trim_start_matches(['+', '-']);
    if value.abs() < 9007199254740992.0 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return true;
    }
    field.parse::<i128>().is_ok_and(|integer| value as i128 == integer)
}

fn shown(field: &str) -> String {
    field.chars().take(40).collect()
}

/// The records of a text. Empty lines and lines that begin with `#` are skipped.
pub(crate) struct Records<'a> {
    path: &'a Path,
    text: &'a str,
    reader: csv::Reader<&'a [u8]>,
}

impl<'a> Records<'a> {
    /// The records of `text`; `path` is for messages.
    pub(crate) fn new(path: &'a Path, text: &'a str) -> Self {
        let reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .comment(Some(b'#'))
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        Records { path, text, reader }
    }

    /// Reads the next record, and returns the byte where it begins; `None` at the end.
    pub(crate) fn read(&mut self, record: &mut csv::StringRecord) -> Result<Option<usize>> {
        let read = self.reader.read_record(record);
        if !read.map_err(|error| atomic::cannot("read", self.path, &error))? {
            return Ok(None);
        }
        // The reader's position is before the lines that it skips.
        let stated = record.position().map_or(0, |p| p.byte() as usize);
        let mut rest = &self.text[stated.min(self.text.len())..];
        loop {
            rest = rest.trim_start_matches(['\r', '\n']);
            if !rest.starts_with('#') {
                return Ok(Some(self.text.len() - rest.len()));
            }
            rest = &rest[rest.find('\n').unwrap_or(rest.len())..];
        }
    }

    /// The error for field `field` of the record that begins at byte `start`.
    fn mistake(&self, start: usize, field: usize, what: String) -> Diagnostic {
        let mut column = 1;
        let (mut seen, mut quoted) = (0, false);
        for c in self.text[start..].chars() {
            if seen == field && (quoted || c != ' ') {
                break;
            }
            match c {
                '"' => quoted = !quoted,
                ',' if !quoted => seen += 1,
                _ => {}
            }
            column += 1;
        }
        let what = format_args!(", field {}: {what}", field + 1);
        mistake(self.path, self.text, (start, column), what)
    }
}

/// The error `what` at the line of byte `start` and a column.
pub(crate) fn mistake(
    path: &Path,
    text: &str,
    (start, column): (usize, u32),
    what: fmt::Arguments<'_>,
) -> Diagnostic {
    let line = line_at(text, start);
    diagnostic!("`{}`, line {line}{what}", path.display())
        .at(Location::source(path.display().to_string(), line, column), "")
        .excerpt(text, line, column)
}

/// The number of the line with byte `start`, from 1.
pub(crate) fn line_at(text: &str, start: usize) -> u32 {
    u32::try_from(text[..start].matches('\n').count()).unwrap_or(u32::MAX - 1) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Table> {
        Table::parse(Path::new("t.csv"), text, Header::Detect)
    }

    #[test]
    fn tables_with_and_without_header() {
        let table = parse("# made by hand\n\nx,\"y,z\",label\n1, 2.5,3\r\n-4,inf,6\n").unwrap();
        assert_eq!(table.names().unwrap(), ["x", "y,z", "label"]);
        assert_eq!((table.rows(), table.columns()), (2, 3));
        assert_eq!(
            table.slice(0..2, DType::F32).unwrap().as_slice::<f32>().unwrap(),
            [1.0, 2.5, -4.0, f32::INFINITY]
        );
        assert_eq!(table.column(2, DType::I32).unwrap(), Literal::from(ndarray::arr1(&[3i32, 6])));
        assert_eq!(parse("1,2\n").unwrap().names(), None);
        assert!(Table::parse(Path::new("t.csv"), "x,y\n", Header::Absent).is_err());
    }

    #[test]
    fn mistakes_have_line_and_column() {
        let error = parse("a,b\n1,2\n\n# note\n3,  oops\n").unwrap_err();
        assert_eq!(error.places[0].0, Location::source("t.csv", 5, 5), "{error}");
        assert!(error.to_string().contains("line 5, field 2: `oops` is not a number"), "{error}");
        assert!(error.to_string().contains("3,  oops\n      |     ^"), "{error}");
        let error = parse("1,2\n3\n").unwrap_err();
        assert!(
            error.message.contains("line 2") && error.message.contains("1 fields here, 2"),
            "{error}"
        );
        assert!(parse("").unwrap_err().message.contains("no line"));
        assert!(parse("9007199254740993\n").unwrap_err().message.contains("exactly"));
        assert!(
            parse("1\n9999999999999999999999999999999999999999999\n")
                .unwrap_err()
                .message
                .contains("exactly")
        );
        assert!(parse("9007199254740994\n1e300\n").is_ok());
        let table = parse("a,b\n1,2.5\n300,-1\n").unwrap();
        assert!(
            table
                .to_literal(DType::I32)
                .unwrap_err()
                .message
                .contains("2.5 in row 1, column 2 (`b`)")
        );
        assert!(table.column(0, DType::U8).unwrap_err().message.contains("300 in row 2"));
        assert!(table.column(2, DType::F32).unwrap_err().message.contains("has 2 columns"));
    }

    #[test]
    fn files_round_trip_plain_and_gzipped() {
        let folder = tempfile::tempdir().unwrap();
        let literal = Literal::from_vec(&[2, 2], vec![0.1f32, -0.0, 1e-40, f32::NAN]).unwrap();
        for name in ["a.csv", "a.csv.gz"] {
            let path = folder.path().join(name);
            write(&path, &literal).unwrap();
            let once = std::fs::read(&path).unwrap();
            assert_eq!(once.starts_with(&[0x1f, 0x8b]), name.ends_with("gz"));
            assert_eq!(
                Table::read(&path, Header::Absent).unwrap().to_literal(DType::F32).unwrap(),
                literal
            );
            write(&path, &literal).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), once, "same contents, same bytes");
        }
        let path = folder.path().join("a.csv.gz");
        let packed = std::fs::read(&path).unwrap();
        std::fs::write(&path, &packed[..packed.len() - 9]).unwrap();
        assert!(Table::read(&path, Header::Absent).unwrap_err().message.contains("a.csv.gz"));
        std::fs::write(&path, b"1,2\n\xff,3\n").unwrap();
        assert!(Table::read(&path, Header::Absent).unwrap_err().message.contains("line 2"));
    }
}
