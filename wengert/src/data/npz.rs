//! NumPy's `.npz`: several arrays by name, a ZIP archive of `.npy` files.
//!
//! Entries may be stored or deflated. Written archives store them, in order of name and with the
//! ZIP format's earliest date, so the same arrays give the same bytes. (Weights and images hardly
//! compress, and `numpy.savez` also stores.) An entry is read up to the size in the archive. That
//! size is refused if no deflate stream of the entry's length can expand so far, or if the
//! entries read so far would exceed the limit together ([`super::inflate`]). Stored entries count
//! too: several of them may share bytes.

use super::inflate::{Inflate, InflateLimit, exceeded};
use super::map::Map;
use super::{Arrays, listed, npy, sorted};
use crate::atomic::{self, cannot};
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use wengert_core::{Literal, Result, diagnostic};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};

/// No deflate stream expands by more than this factor: 258 bytes from two bits is the bound.
const DEFLATE_LIMIT: u64 = 1032;

/// An archive opened for reading.
#[derive(Debug)]
pub struct Npz {
    path: PathBuf,
    length: u64,
    /// Most bytes of all entries.
    limit: u64,
    /// Bytes of the entries read so far.
    inflated: u64,
    archive: ZipArchive<Cursor<Map>>,
}

impl Npz {
    /// Opens an archive and reads its directory; entries are decompressed within the default limit.
    pub fn open(path: impl AsRef<Path>) -> Result<Npz> {
        Npz::open_within(path, InflateLimit::default())
    }

    /// Opens an archive and reads its directory.
    pub fn open_within(path: impl AsRef<Path>, limit: InflateLimit) -> Result<Npz> {
        let path = path.as_ref();
        let map = Map::open(path)?;
        let length = map.len() as u64;
        let archive = ZipArchive::new(Cursor::new(map))
            .map_err(|e| cannot("read", path, &e).help(DAMAGED))?;
        Ok(Npz {
            path: path.to_owned(),
            length,
            limit: limit.of_file(length),
            inflated: 0,
            archive,
        })
    }

    /// Names of the arrays, sorted, without `.npy`.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .archive
            .file_names()
            .filter_map(|n| n.strip_suffix(".npy"))
            .map(str::to_owned)
            .collect();
        names.sort();
        names
    }

    /// Reads the array `name`.
    pub fn read(&mut self, name: &str) -> Result<Literal> {
        let what = format!("cannot read `{name}` of `{}`", self.path.display());
        let entry_name = format!("{name}.npy");
        if !self.archive.file_names().any(|n| n == entry_name) {
            return Err(diagnostic!("`{}` has no array `{name}`", self.path.display())
                .help(format!("it has {}", listed(&self.names()))));
        }
        let failed = |error: &dyn std::fmt::Display| diagnostic!("{what}: {error}").help(DAMAGED);
        let entry = self.archive.by_name(&entry_name).map_err(|e| failed(&e))?;
        let stated = entry.size();
        let packed = entry.compressed_size().min(self.length);
        let possible = match entry.compression() {
            CompressionMethod::Stored => packed,
            _ => packed.saturating_mul(DEFLATE_LIMIT),
        };
        if stated > possible {
            return Err(failed(&format_args!("{stated} bytes cannot come of {packed}")));
        }
        if self.inflated.saturating_add(stated) > self.limit {
            return Err(exceeded(&self.path, self.length, self.limit).context(&what));
        }
        self.inflated += stated;
        let inflate = Inflate {
            path: &self.path,
            compressed: self.length,
            most: stated + 1,
            limit: self.limit,
        };
        // One byte more than stated detects a stream that is too long.
        let bytes = inflate.read(entry.take(stated + 1), |e| failed(&e))?;
        if bytes.len() as u64 != stated {
            return Err(failed(&format_args!("{stated} bytes stated, {} found", bytes.len())));
        }
        npy::parse(&bytes).map_err(|error| error.context(&what))
    }

    /// Reads every array.
    pub fn read_all(&mut self) -> Result<Arrays> {
        self.names().into_iter().map(|name| Ok((name.clone(), self.read(&name)?))).collect()
    }
}

const DAMAGED: &str = "the file is damaged, was cut short, or is no npz archive";

/// Writes named arrays, sorted by name; bf16 and repeated names are errors.
pub fn write<'a>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (&'a str, &'a Literal)>,
) -> Result<()> {
    let path = path.as_ref();
    let arrays = sorted(path, arrays)?;
    let mut entries = Vec::with_capacity(arrays.len());
    for (name, literal) in arrays {
        if name.is_empty() || name.contains('\0') {
            return Err(diagnostic!("cannot write `{}`: an array needs a name", path.display()));
        }
        let header = npy::header_of(literal).map_err(|e| {
            e.context(format_args!("cannot write `{name}` to `{}`", path.display()))
        })?;
        entries.push((format!("{name}.npy"), header, literal));
    }
    atomic::write(path, |file| {
        let mut archive = ZipWriter::new(file);
        for (name, header, literal) in &entries {
            let bytes = literal.len() as u64 * literal.dtype().size() as u64 + header.len() as u64;
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored)
                .last_modified_time(DateTime::default())
                .unix_permissions(0o644)
                .large_file(bytes > u32::MAX as u64 - 1);
            archive.start_file(name.as_str(), options)?;
            npy::write_to(&mut archive, header, literal)?;
        }
        archive.finish()?;
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray_npy::{NpzReader, NpzWriter};
    use std::fs::{self, File};
    use std::io::Write;
    use wengert_core::DType;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn another_implementation_reads_what_we_write_and_the_reverse() {
        let folder = folder();
        let path = folder.path().join("a.npz");
        let (x, y) = (ndarray::arr2(&[[1.5f32, -2.0], [0.25, 3.0]]), ndarray::arr1(&[1i64, -2, 3]));
        write(&path, [("y", &y.clone().into()), ("layers/0", &x.clone().into())]).unwrap();
        let mut theirs = NpzReader::new(File::open(&path).unwrap()).unwrap();
        assert_eq!(theirs.by_name::<ndarray::OwnedRepr<f32>, ndarray::Ix2>("layers/0").unwrap(), x);
        assert_eq!(theirs.by_name::<ndarray::OwnedRepr<i64>, ndarray::Ix1>("y").unwrap(), y);

        let mut writer = NpzWriter::new(File::create(&path).unwrap());
        writer.add_array("x", &x.t()).unwrap();
        writer.add_array("y", &y).unwrap();
        writer.finish().unwrap();
        let mut ours = Npz::open(&path).unwrap();
        assert_eq!(ours.names(), ["x", "y"]);
        assert_eq!(ours.read("x").unwrap(), Literal::from_array(&x.t()));
        assert_eq!(ours.read("y").unwrap(), Literal::from_array(&y));
        let error = ours.read("z").unwrap_err().to_string();
        assert!(error.contains("no array `z`") && error.contains("`x`, `y`"), "{error}");
    }

    #[test]
    fn same_contents_same_bytes_in_any_order() {
        let folder = folder();
        let (one, two) = (folder.path().join("1.npz"), folder.path().join("2.npz"));
        let (a, b) = (Literal::from(1.0f32), Literal::zeros(DType::Bool, &[3]));
        write(&one, [("a", &a), ("b", &b)]).unwrap();
        write(&two, [("b", &b), ("a", &a)]).unwrap();
        assert_eq!(fs::read(&one).unwrap(), fs::read(&two).unwrap());
        assert!(write(&one, [("a", &a), ("a", &b)]).unwrap_err().message.contains("two arrays"));
        assert!(
            write(&one, [("a", &Literal::zeros(DType::BF16, &[]))])
                .unwrap_err()
                .message
                .contains("bf16")
        );
    }

    #[test]
    fn deflated_entries_and_bombs() {
        let folder = folder();
        let path = folder.path().join("a.npz");
        let literal = Literal::zeros(DType::F64, &[1000, 1000]);
        let mut archive = ZipWriter::new(File::create(&path).unwrap());
        archive
            .start_file(
                "z.npy",
                SimpleFileOptions::default().compression_method(CompressionMethod::Deflated),
            )
            .unwrap();
        npy::write_to(&mut archive, &npy::header_of(&literal).unwrap(), &literal).unwrap();
        archive.finish().unwrap().flush().unwrap();
        assert!(fs::metadata(&path).unwrap().len() < 20_000);
        assert_eq!(Npz::open(&path).unwrap().read("z").unwrap(), literal);
        // The limit is for the sum of all reads; an entry that is read twice counts twice.
        let within = |most: u64| Npz::open_within(&path, InflateLimit::bytes(most)).unwrap();
        within(8_000_128).read("z").unwrap();
        let error = within(8_000_127).read("z").unwrap_err().to_string();
        assert!(error.contains("--max-decompressed") && error.contains("`z`"), "{error}");
        let mut twice = within(16_000_000);
        twice.read("z").unwrap();
        assert!(twice.read("z").unwrap_err().to_string().contains("--max-decompressed"));
        // State 4 GB instead of 8 MB, in the local header and in the directory.
        let good = fs::read(&path).unwrap();
        let size = (8_000_000u32 + 128).to_le_bytes();
        let mut bad = good.clone();
        for at in 0..bad.len() - 4 {
            if bad[at..at + 4] == size {
                bad[at..at + 4].copy_from_slice(&0xffff_fff0u32.to_le_bytes());
            }
        }
        assert_ne!(bad, good);
        fs::write(&path, bad).unwrap();
        let error = Npz::open(&path).unwrap().read("z").unwrap_err();
        assert!(error.message.contains("cannot come of"), "{error}");
    }

    #[test]
    fn damaged_archives_do_not_panic() {
        let folder = folder();
        let path = folder.path().join("a.npz");
        write(&path, [("a", &Literal::from(1.0f32)), ("b", &Literal::zeros(DType::U8, &[4]))])
            .unwrap();
        let good = fs::read(&path).unwrap();
        for i in 0..good.len() {
            for change in [good[..i].to_vec(), {
                let mut bad = good.clone();
                bad[i] ^= 0x81;
                bad
            }] {
                fs::write(&path, change).unwrap();
                if let Ok(mut file) = Npz::open(&path) {
                    let _ = file.read_all();
                }
            }
        }
    }
}
