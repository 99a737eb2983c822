//! Tuning files: the fastest algorithm for each product, GPU and library version.
//!
//! Without one, the library's heuristic decides. It gives the same algorithm for the same
//! product, GPU and version, and so the same bits. Measurements may give another algorithm each
//! time, so they are made only on request (`--autotune`), and their results are saved: runs that
//! read the same file give the same bits. An entry applies only to the GPU and version for which
//! it was measured; other entries are kept for their GPUs.
//!
//! A file also has the times of kernels of this crate beside the library's ([`Measured`]), of a
//! product alone or with the nest that follows it. The faster one computes the product.

use super::algorithm::Algorithm;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use wengert_core::{Diagnostic, Result};

/// Version of the format.
const FORMAT: u32 = 1;
/// Maximum size of a file, in bytes.
const LONGEST: u64 = 64 << 20;

/// Measured algorithms, and products of which kernels of this crate were measured too.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tuning {
    entries: BTreeMap<Key, Tuned>,
    measured: BTreeMap<Key, Measured>,
}

/// Key of an entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The GPU, by NVIDIA's name.
    pub device: String,
    /// Version of cuBLASLt: 10000 · major + 100 · minor + patch.
    pub cublas_lt: u32,
    /// The product, as [`super::Problem`] prints, with alignments and the bound of the workspace.
    pub product: String,
}

/// The algorithm of an entry.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tuned {
    /// The 64 bytes of the algorithm as hexadecimal digits.
    pub algorithm: String,
    /// The library's name of it.
    pub text: String,
    /// Microseconds of one product, as measured.
    pub microseconds: f64,
}

/// Times of a product and of what follows it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Microseconds by kernels of this crate.
    pub own: f64,
    /// Microseconds by the library, with its remaining addends and the nest in kernels of this
    /// crate.
    pub library: f64,
}

impl Measured {
    /// The reason for kernels of this crate, if they are faster.
    pub fn own(&self) -> Option<String> {
        let Measured { own, library } = self;
        (own < library).then(|| format!("they take {own:.1} us, the library {library:.1}"))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    entries: Vec<Entry>,
    /// Absent in older files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    measured: Vec<MeasuredEntry>,
}

#[derive(Serialize, Deserialize)]
struct MeasuredEntry {
    #[serde(flatten)]
    key: Key,
    #[serde(flatten)]
    measured: Measured,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    key: Key,
    #[serde(flatten)]
    tuned: Tuned,
}

impl Tuning {
    /// The entry of a key.
    pub fn get(&self, key: &Key) -> Option<&Tuned> {
        self.entries.get(key)
    }

    /// Adds an entry, or replaces it.
    pub fn insert(&mut self, key: Key, tuned: Tuned) {
        self.entries.insert(key, tuned);
    }

    /// Times of a product by this crate's kernels and by the library.
    pub fn measured(&self, key: &Key) -> Option<&Measured> {
        self.measured.get(key)
    }

    /// Adds times of a product, or replaces them.
    pub fn insert_measured(&mut self, key: Key, measured: Measured) {
        self.measured.insert(key, measured);
    }

    /// Number of algorithms.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.measured.is_empty()
    }

    /// The text of a file; the same entries give the same text.
    pub fn to_text(&self) -> String {
        let entries =
            self.entries.iter().map(|(k, t)| Entry { key: k.clone(), tuned: t.clone() }).collect();
        let measured = self.measured.iter();
        let measured = measured.map(|(k, m)| MeasuredEntry { key: k.clone(), measured: *m });
        let file = File { format: FORMAT, entries, measured: measured.collect() };
        serde_json::to_string_pretty(&file).expect("numbers and texts are written") + "\n"
    }

    /// Entries of a text.
    ///
    /// Errors: the text is no tuning file, is of another format, has an entry twice, or an
    /// algorithm that is not 64 bytes.
    pub fn from_text(text: &str) -> Result<Tuning> {
        let wrong = |what: String| {
            Diagnostic::new(what).help("remove the file and tune again with `--autotune`")
        };
        let file: File = serde_json::from_str(text)
            .map_err(|e| wrong(format!("this is no tuning file: {e}")))?;
        if file.format != FORMAT {
            return Err(wrong(format!(
                "this tuning file is of format {}, and {FORMAT} is read",
                file.format
            )));
        }
        let mut tuning = Tuning::default();
        for MeasuredEntry { key, measured } in file.measured {
            let product = key.product.clone();
            if tuning.measured.insert(key, measured).is_some() {
                return Err(wrong(format!("the times of `{product}` are there twice")));
            }
        }
        for Entry { key, tuned } in file.entries {
            if Algorithm::from_hex(&tuned.algorithm).is_none() {
                return Err(wrong(format!("the algorithm for `{}` is not 64 bytes", key.product)));
            }
            let product = key.product.clone();
            if tuning.entries.insert(key, tuned).is_some() {
                return Err(wrong(format!("`{product}` is there twice")));
            }
        }
        Ok(tuning)
    }

    /// Reads a file; a missing file gives no entries.
    pub fn load(path: &Path) -> Result<Tuning> {
        let wrong = |e: io::Error| Diagnostic::new(format!("cannot read {}: {e}", path.display()));
        match std::fs::metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Tuning::default()),
            Err(e) => return Err(wrong(e)),
            Ok(m) if m.len() > LONGEST => {
                return Err(Diagnostic::new(format!(
                    "{} is too long for a tuning file",
                    path.display()
                )));
            }
            Ok(_) => {}
        }
        let text = std::fs::read_to_string(path).map_err(wrong)?;
        Tuning::from_text(&text).map_err(|e| e.context(path.display()))
    }

    /// Writes a file atomically.
    pub fn save(&self, path: &Path) -> Result<()> {
        let write = || -> io::Result<()> {
            let folder =
                path.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
            std::fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(self.to_text().as_bytes())?;
            file.as_file().sync_all()?;
            file.persist(path).map(|_| ()).map_err(|e| e.error)
        };
        write().map_err(|e| Diagnostic::new(format!("cannot write {}: {e}", path.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning() -> Tuning {
        let mut tuning = Tuning::default();
        for (n, device) in ["H200", "A100"].into_iter().enumerate() {
            let key = Key { device: device.into(), cublas_lt: 131_000, product: "10x8x64".into() };
            let algorithm = format!("{n:0128x}");
            tuning
                .insert(key, Tuned { algorithm, text: "algorithm 66".into(), microseconds: 12.5 });
        }
        tuning
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/tuning.json");
        assert!(Tuning::load(&path).unwrap().is_empty());
        tuning().save(&path).unwrap();
        let read = Tuning::load(&path).unwrap();
        assert_eq!(read, tuning());
        assert_eq!(read.to_text(), tuning().to_text());
        assert_eq!(read.len(), 2);
        let key = Key { device: "H200".into(), cublas_lt: 131_000, product: "10x8x64".into() };
        assert!(read.get(&key).is_some());
        assert!(read.get(&Key { cublas_lt: 131_001, ..key }).is_none());
    }

    #[test]
    fn times_are_kept_beside_algorithms() {
        let mut with_times = tuning();
        let key = Key { device: "H200".into(), cublas_lt: 131_000, product: "10x8x64".into() };
        let times = Measured { own: 3.5, library: 4.25 };
        with_times.insert_measured(key.clone(), times);
        let text = with_times.to_text();
        let read = Tuning::from_text(&text).unwrap();
        assert_eq!((read.measured(&key), read.len()), (Some(&times), 2));
        assert_eq!(read.to_text(), text);
        assert!(times.own().unwrap().contains("3.5 us, the library 4.2"));
        assert!(Measured { own: 4.25, ..times }.own().is_none(), "on a tie the library");
        assert!(!tuning().to_text().contains("measured"), "as before there were any");
        let start = text.find("\"measured\": [").unwrap() + 13;
        let entry = &text[start..text.rfind(']').unwrap()];
        let twice =
            format!("{}{},{}{}", &text[..start], entry, entry, &text[text.rfind(']').unwrap()..]);
        assert!(Tuning::from_text(&twice).unwrap_err().to_string().contains("there twice"));
    }

    #[test]
    fn damaged_files_are_errors_that_name_them() {
        let good = tuning().to_text();
        for (bad, says) in [
            ("".to_string(), "no tuning file"),
            (good.replace("\"format\": 1", "\"format\": 2"), "format 2"),
            (good.replace("12.5", "\"x\""), "no tuning file"),
            (good.replacen("\"000", "\"00", 1), "not 64 bytes"),
            (good.replace("A100", "H200"), "there twice"),
            (good.replace("\"text\"", "\"words\""), "no tuning file"),
        ] {
            let error = Tuning::from_text(&bad).unwrap_err().to_string();
            assert!(error.contains(says) && error.contains("--autotune"), "{error}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tuning.json");
        std::fs::write(&path, "{").unwrap();
        assert!(Tuning::load(&path).unwrap_err().to_string().contains("tuning.json"));
        assert!(Tuning::load(folder.path()).is_err());
    }
}
