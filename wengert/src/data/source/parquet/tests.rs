//! Tests with files written by the crate's own writer.

use super::*;
use crate::data::source::read_whole;
use ::parquet::file::properties::WriterProperties;
use ::parquet::file::writer::SerializedFileWriter;
use ::parquet::schema::parser::parse_message_type;
use tempfile::TempDir;

const SCHEMA: &str = "message schema {
    REQUIRED FLOAT x;
    OPTIONAL INT32 label (INTEGER(8,false));
    REQUIRED GROUP pixels (LIST) { REPEATED GROUP list { REQUIRED DOUBLE element; } }
    REQUIRED BYTE_ARRAY name (UTF8);
    REQUIRED INT64 when (TIMESTAMP_MILLIS);
}";

/// 10 rows in groups of 4. `skip` leaves out the label of a row, `short` a pixel of a row.
fn file(skip: Option<usize>, short: Option<usize>) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let properties = WriterProperties::builder()
        .set_compression(::parquet::basic::Compression::SNAPPY)
        .set_data_page_row_count_limit(3)
        .set_write_batch_size(1);
    let mut writer = SerializedFileWriter::new(
        File::create(&path).unwrap(),
        Arc::new(parse_message_type(SCHEMA).unwrap()),
        Arc::new(properties.build()),
    )
    .unwrap();
    for rows in [0..4usize, 4..8, 8..10] {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let x: Vec<f32> = rows.clone().map(|row| row as f32 / 2.0).collect();
        column.typed::<FloatType>().write_batch(&x, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let kept: Vec<usize> = rows.clone().filter(|row| Some(*row) != skip).collect();
        let labels: Vec<i32> = kept.iter().map(|row| 250 + (*row as i32) % 6).collect();
        let defined: Vec<i16> = rows.clone().map(|row| i16::from(Some(row) != skip)).collect();
        column.typed::<Int32Type>().write_batch(&labels, Some(&defined), None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let (mut pixels, mut repeated) = (Vec::new(), Vec::new());
        for row in rows.clone() {
            // A list with one number less, and the next one with one more.
            let length = match short {
                Some(short) if row == short => 2,
                Some(short) if row == short + 1 => 4,
                _ => 3,
            };
            for at in 0..length {
                pixels.push((row * 3 + at) as f64);
                repeated.push(i16::from(at > 0));
            }
        }
        let defined = vec![1i16; pixels.len()];
        let typed = column.typed::<DoubleType>();
        typed.write_batch(&pixels, Some(&defined), Some(&repeated)).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let names: Vec<_> = rows.clone().map(|row| format!("row {row}").as_str().into()).collect();
        let typed = column.typed::<::parquet::data_type::ByteArrayType>();
        typed.write_batch(&names, None, None).unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let times: Vec<i64> = rows.clone().map(|row| row as i64).collect();
        column.typed::<Int64Type>().write_batch(&times, None, None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
    (folder, path)
}

#[test]
fn columns_are_arrays() {
    let (_folder, path) = file(None, None);
    let table = ParquetTable::open(&path).unwrap();
    let arrays = read_whole(&table).unwrap();
    let x: Vec<f32> = (0..10).map(|row| row as f32 / 2.0).collect();
    assert_eq!(arrays["x"], Literal::from_vec(&[10], x).unwrap());
    let labels: Vec<u8> = (0..10).map(|row| 250 + row % 6).collect();
    assert_eq!(arrays["label"], Literal::from_vec(&[10], labels).unwrap());
    let pixels: Vec<f64> = (0..30).map(f64::from).collect();
    assert_eq!(arrays["pixels"], Literal::from_vec(&[10, 3], pixels).unwrap());
    assert_eq!(arrays.len(), 3);
    assert_eq!(table.block_rows(), Some(4));
    for name in arrays.keys() {
        for from in 0..10 {
            for to in from..=10 {
                let read = table.read_range(name, from..to).unwrap();
                assert_eq!(read, arrays.read_range(name, from..to).unwrap(), "{name} {from}..{to}");
            }
        }
        let rows = [9, 3, 4, 5, 0];
        assert_eq!(table.read(name, &rows).unwrap(), arrays.read(name, &rows).unwrap());
    }
}

#[test]
fn columns_of_another_kind_are_named() {
    let (_folder, path) = file(None, None);
    let table = ParquetTable::open(&path).unwrap();
    for (name, says) in [
        ("name", "column `name` of `"),
        ("name", "is no column of numbers: it is of the type UTF8"),
        ("when", "is no column of numbers: it is of the type TIMESTAMP"),
        ("y", "the data has no array `y`"),
        ("y", "it has `label`, `pixels`, `x`"),
    ] {
        let error = table.read(name, &[0]).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn bad_rows_are_named() {
    let (_folder, path) = file(Some(6), None);
    let table = ParquetTable::open(&path).unwrap();
    assert!(table.read("label", &[5, 7]).is_ok());
    let error = table.read_range("label", 4..8).unwrap_err().to_string();
    assert!(error.contains("`label`") && error.contains("row 6: it has a null"), "{error}");
    let (_folder, path) = file(None, Some(5));
    let table = ParquetTable::open(&path).unwrap();
    assert!(table.read_range("pixels", 0..5).is_ok());
    let error = table.read_range("pixels", 4..8).unwrap_err().to_string();
    assert!(error.contains("row 5: it is a list of another length than 3"), "{error}");
}

#[test]
fn damaged_files_are_errors() {
    let (_folder, path) = file(None, None);
    let good = std::fs::read(&path).unwrap();
    for length in [0, 3, 11, good.len() / 2, good.len() - 1] {
        std::fs::write(&path, &good[..length]).unwrap();
        let error = ParquetTable::open(&path).unwrap_err().to_string();
        assert!(error.contains("t.parquet"), "{error}");
    }
    let mut stream = crate::random::SplitMix64::new(3);
    for _ in 0..400 {
        let mut bad = good.clone();
        let at = stream.below(bad.len() as u64) as usize;
        bad[at] ^= 1 << stream.below(8);
        std::fs::write(&path, &bad).unwrap();
        if let Ok(table) = ParquetTable::open(&path) {
            for (name, ty) in table.arrays() {
                if ty.rows() <= 100 {
                    let _ = table.read_range(&name, 0..ty.rows());
                }
            }
        }
    }
}
