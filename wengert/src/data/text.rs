//! Prose: UTF-8, plain or gzipped. Gzip is told by the contents, not by the name.

use super::map::Map;
use crate::atomic;
use flate2::read::MultiGzDecoder;
use std::borrow::Cow;
use std::io::{self, Read};
use std::path::Path;
use wengert_core::{Diagnostic, Result};

/// Reads a text.
///
/// Errors: the file cannot be read or decompressed; a line that is no UTF-8, which is named.
pub fn read(path: impl AsRef<Path>) -> Result<String> {
    let path = path.as_ref();
    let map = Map::open(path)?;
    let bytes = unpacked(&map).map_err(|error| atomic::cannot("read", path, &error))?;
    String::from_utf8(bytes.into_owned()).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes()[..valid].iter().filter(|b| **b == b'\n').count();
        Diagnostic::new(format!("cannot read `{}`: line {line} is no UTF-8 text", path.display()))
    })
}

/// The contents, decompressed if they are gzipped. The output grows as data comes, so it is bounded by what the
/// file really holds.
fn unpacked(bytes: &[u8]) -> io::Result<Cow<'_, [u8]>> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut text = Vec::new();
    MultiGzDecoder::new(bytes).read_to_end(&mut text)?;
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
        assert!(read(&path).unwrap_err().message.contains("line 2 is no UTF-8 text"));
    }
}
