//! A checksum over a whole safetensors file, in its header.
//!
//! The format has no checksum. A file whose damage must be detected, such as a checkpoint, begins
//! its header with `{"__metadata__":{"crc32":"0f1e2d3c"}`: the CRC-32 (IEEE 802.3) of all bytes
//! of the file, the length of the header included, with the eight digits counted as zeros. Other
//! readers ignore the entry as metadata.
//!
//! CRC-32 suffices since damage is accidental here, not an attack. It detects every single
//! flipped bit and every burst of up to 32 bits in a file of any length, and two flipped bits
//! less than 2³² − 1 bits (512 MiB) apart. Of other damage it misses one case in 2³². It runs at
//! memory bandwidth.

use std::ops::Range;
use wengert_core::{Diagnostic, Result};

/// Key of the metadata.
pub(super) const KEY: &str = "crc32";
/// Value of the metadata before the checksum is known.
pub(super) const NO_DIGITS: &str = "00000000";
/// Beginning of the header, up to the digits.
const BEGINNING: &[u8] = b"{\"__metadata__\":{\"crc32\":\"";
/// Offset of the header, after its length.
const HEADER: usize = 8;
/// Offsets of the digits.
const DIGITS: Range<usize> = HEADER + BEGINNING.len()..HEADER + BEGINNING.len() + NO_DIGITS.len();

/// The checksum's digits for a file whose digits are zeros, passed in parts. The first part
/// contains the digits.
pub(super) fn digits<'a>(parts: impl IntoIterator<Item = impl AsRef<[u8]> + 'a>) -> String {
    let mut hasher = crc32fast::Hasher::new();
    parts.into_iter().for_each(|part| hasher.update(part.as_ref()));
    format!("{:08x}", hasher.finalize())
}

/// Checks a file's contents against their checksum. Returns its digits; none if they have none.
///
/// Error: the checksum does not match.
pub(super) fn verified(bytes: &[u8]) -> Result<Option<&str>> {
    if bytes.get(HEADER..DIGITS.start) != Some(BEGINNING) {
        return Ok(None);
    }
    let damaged = || {
        Diagnostic::new("its contents do not match its checksum")
            .help("the file was damaged after it was written")
    };
    let found = bytes.get(DIGITS).and_then(|digits| str::from_utf8(digits).ok());
    let found = found.ok_or_else(damaged)?;
    let wanted = digits([&bytes[..DIGITS.start], NO_DIGITS.as_bytes(), &bytes[DIGITS.end..]]);
    if wanted == found { Ok(Some(found)) } else { Err(damaged()) }
}
