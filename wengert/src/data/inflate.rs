//! Decompression with a limit.
//!
//! Deflate compresses up to 1032-fold, so a file of megabytes can ask for gigabytes of memory and
//! minutes of time. Every compressed file has a limit on its inflated bytes, all its entries
//! together. Bytes are counted as they are inflated, so a file that exceeds its limit costs no
//! more than the limit.
//!
//! The default limit is 256 MiB plus 64 times the size of the file. Tables of numbers compress 3-
//! to 20-fold, and a small file of zeros and ones is still read whole. The command's option
//! `--max-decompressed` and [`InflateLimit::bytes`] replace it.

use crate::available_memory;
use std::io::{self, Read};
use std::path::Path;
use wengert_core::plan::Bytes;
use wengert_core::{Diagnostic, Result, diagnostic};

/// Inflated bytes that every compressed file may have.
const ALWAYS: u64 = 256 << 20;
/// Further inflated bytes per byte of the file.
const FOR_EACH_BYTE: u64 = 64;

/// Most inflated bytes of one compressed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InflateLimit(Option<u64>);

impl InflateLimit {
    /// This many bytes, independent of the size of the file.
    pub fn bytes(most: u64) -> InflateLimit {
        InflateLimit(Some(most))
    }

    /// The limit for a file of so many bytes.
    pub fn of_file(self, compressed: u64) -> u64 {
        self.0.unwrap_or_else(|| ALWAYS.saturating_add(compressed.saturating_mul(FOR_EACH_BYTE)))
    }
}

/// The error for a file of `compressed` bytes that would inflate to more than `most`.
pub(super) fn exceeded(path: &Path, compressed: u64, most: u64) -> Diagnostic {
    diagnostic!(
        "`{}` has {} and would inflate to more than {} ({most} bytes)",
        path.display(),
        Bytes(compressed),
        Bytes(most)
    )
    .help(
        "if you trust the file, raise the limit: `--max-decompressed 16GiB` (in Rust, \
         `InflateLimit::bytes`)",
    )
}

/// Reads a stream of a file to its end.
pub(super) struct Inflate<'a> {
    /// The file, for messages.
    pub path: &'a Path,
    /// Its size.
    pub compressed: u64,
    /// Most bytes of this stream.
    pub most: u64,
    /// The limit of the whole file, for messages.
    pub limit: u64,
}

impl Inflate<'_> {
    /// All bytes of the stream. `failed` turns an error of the stream into a diagnostic.
    pub fn read(
        self,
        mut from: impl Read,
        failed: impl Fn(io::Error) -> Diagnostic,
    ) -> Result<Vec<u8>> {
        let mut chunk = vec![0; 256 << 10];
        let mut bytes = Vec::new();
        loop {
            let count = match from.read(&mut chunk) {
                Ok(0) => return Ok(bytes),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed(error)),
            };
            if (bytes.len() + count) as u64 > self.most {
                return Err(exceeded(self.path, self.compressed, self.limit));
            }
            available_memory::grow(&mut bytes, count, || {
                format!("the contents of `{}`", self.path.display())
            })?;
            bytes.extend_from_slice(&chunk[..count]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_end_at_their_limit() {
        let read = |most: u64, bytes: u64| {
            let inflate = Inflate { path: Path::new("a.gz"), compressed: 3, most, limit: most };
            inflate.read(io::repeat(7).take(bytes), |e| Diagnostic::new(e.to_string()))
        };
        assert_eq!(read(1 << 20, 1 << 20).unwrap().len(), 1 << 20);
        assert!(read(0, 0).unwrap().is_empty());
        // Ends even for an endless stream.
        for bytes in [(1 << 20) + 1, u64::MAX] {
            let error = read(1 << 20, bytes).unwrap_err().to_string();
            assert!(
                error.contains("--max-decompressed") && error.contains("1048576 bytes"),
                "{error}"
            );
        }
    }

    #[test]
    fn the_limit_grows_with_the_file() {
        assert_eq!(InflateLimit::default().of_file(2_000_000), (256 << 20) + 128_000_000);
        assert!(InflateLimit::default().of_file(1 << 30) > 60 << 30);
        assert_eq!(InflateLimit::default().of_file(u64::MAX), u64::MAX);
        assert_eq!(InflateLimit::bytes(7).of_file(u64::MAX), 7);
    }
}
