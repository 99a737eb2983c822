//! Decompression with a limit.
//!
//! A deflate stream expands up to 1032 times, so a file of megabytes can ask for gigabytes of memory and minutes
//! of time. Every compressed file has a limit on the bytes that it may inflate to, all its entries together.
//! Bytes are counted while they come, so a file that exceeds its limit costs no more than the limit.
//!
//! The default limit is 256 MiB and 64 times the size of the file: tables of numbers shrink 3 to 20 times, and a
//! small file of zeros and ones is still read whole. The command's option `--max-decompressed` and
//! [`InflateLimit::bytes`] replace it.

use crate::available_memory;
use std::io::{self, Read};
use std::path::Path;
use wengert_core::plan::Bytes;
use wengert_core::{Diagnostic, Result};

/// Bytes that every compressed file may inflate to.
const ALWAYS: u64 = 256 << 20;
/// Bytes beyond them, for each byte of the file.
const FOR_EACH_BYTE: u64 = 64;

/// Most bytes that one compressed file may inflate to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InflateLimit(Option<u64>);

impl InflateLimit {
    /// So many bytes, whatever the size of the file.
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
    Diagnostic::new(format!(
        "`{}` has {} and would inflate to more than {} ({most} bytes)",
        path.display(),
        Bytes(compressed),
        Bytes(most)
    ))
    .help(
        "if you trust the file, raise the limit: `--max-decompressed 16GiB` (in Rust, `InflateLimit::bytes`)",
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
    /// All bytes of the stream. `failed` makes a diagnostic of an error of the stream.
    pub fn read(self, mut from: impl Read, failed: impl Fn(io::Error) -> Diagnostic) -> Result<Vec<u8>> {
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
        // One that never ends ends here.
        for bytes in [(1 << 20) + 1, u64::MAX] {
            let error = read(1 << 20, bytes).unwrap_err().to_string();
            assert!(error.contains("--max-decompressed") && error.contains("1048576 bytes"), "{error}");
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
