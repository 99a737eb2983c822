//! Text files: UTF-8, plain or gzipped. Gzip is recognised by the contents, not by the name.

use super::inflate::{Inflate, InflateLimit};
use super::map::Map;
use crate::{atomic, available_memory};
use flate2::read::MultiGzDecoder;
use std::borrow::Cow;
use std::path::Path;
use std::str::Utf8Error;
use wengert_core::{Diagnostic, Result, diagnostic};

/// Reads a text, decompressed within the default limit.
///
/// Errors: those of [`read_within`].
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    read_within(path, InflateLimit::default())
}

/// Reads a text.
///
/// Errors: the file cannot be read or decompressed, or exceeds the limit; a line that is not
/// UTF-8, which the error names.
pub fn read_within(path: impl AsRef<Path>, limit: InflateLimit) -> Result<String> {
    let path = path.as_ref();
    let map = Map::open(path)?;
    let bytes = unpacked(path, &map, limit)?;
    if let Cow::Borrowed(bytes) = &bytes {
        available_memory::check(bytes.len() as u64, || {
            format!("the contents of `{}`", path.display())
        })?;
    }
    String::from_utf8(bytes.into_owned())
        .map_err(|error| not_utf8(path, error.as_bytes(), error.utf8_error()))
}

/// The error for the contents `bytes` of a file, which are not UTF-8.
pub(crate) fn not_utf8(path: &Path, bytes: &[u8], error: Utf8Error) -> Diagnostic {
    let line = 1 + bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count();
    diagnostic!("cannot read `{}`: line {line} is not UTF-8 text", path.display())
}

/// The contents, decompressed if they are gzipped.
fn unpacked<'a>(path: &Path, bytes: &'a [u8], limit: InflateLimit) -> Result<Cow<'a, [u8]>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(Cow::Borrowed(bytes));
    }
    let compressed = bytes.len() as u64;
    let most = limit.of_file(compressed);
    let inflate = Inflate { path, compressed, most, limit: most };
    let text =
        inflate.read(MultiGzDecoder::new(bytes), |error| atomic::cannot("read", path, &error))?;
    Ok(Cow::Owned(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    #[test]
    fn plain_and_gzipped_are_told_apart_and_damage_is_named() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("a.txt");
        let write = |bytes: &[u8]| std::fs::write(&path, bytes).unwrap();
        write("Öl\nund Wein\n".as_bytes());
        assert_eq!(read(&path).unwrap(), "Öl\nund Wein\n");
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all("Öl\nund Wein\n".as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        write(&packed);
        assert_eq!(read(&path).unwrap(), "Öl\nund Wein\n");
        write(&packed[..packed.len() - 9]);
        assert!(read(&path).unwrap_err().message.contains("a.txt"));
        write(b"good\nb\xffd\n");
        assert!(read(&path).unwrap_err().message.contains("line 2 is not UTF-8 text"));
    }

    /// Members of a gzip file are decompressed one after another; the limit is for all of them.
    #[test]
    fn a_bomb_ends_at_the_limit() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("bomb.csv.gz");
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(&vec![b'0'; 1 << 20]).unwrap();
        let member = member.finish().unwrap();
        // 512 MiB in 4 MB or so.
        std::fs::write(&path, member.repeat(512)).unwrap();
        assert!(std::fs::metadata(&path).unwrap().len() < 3 << 20);
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("bomb.csv.gz") && error.contains("--max-decompressed"), "{error}");
        assert_eq!(read_within(&path, InflateLimit::bytes(512 << 20)).unwrap().len(), 512 << 20);
        assert!(read_within(&path, InflateLimit::bytes((512 << 20) - 1)).is_err());
    }
}
