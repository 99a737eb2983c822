//! A checksum over a whole safetensors file, in its header.
//!
//! The format has none. A file of ours that must not be damaged unseen, a checkpoint, begins its header with
//! `{"__metadata__":{"crc32":"0f1e2d3c"}`: the CRC-32 (IEEE 802.3) of all bytes of the file, the length of the header
//! included, where the eight digits count as zeros. Other readers take the entry for a comment.
//!
//! Why CRC-32: damage is an accident here, not an attack. It finds every single flipped bit and every burst of up to 32
//! bits in a file of any length, two flipped bits wherever they are less than 2³² − 1 bits (512 MiB) apart, and other
//! damage but for one case in 2³². It runs at the speed of memory.

use std::ops::Range;
use wengert_core::{Diagnostic, Result};

/// Key of the metadata.
pub(super) const KEY: &str = "crc32";
/// Value of the metadata before the checksum is known.
pub(super) const NO_DIGITS: &str = "00000000";
/// What the header begins with, up to the digits.
const BEGINNING: &[u8] = b"{\"__metadata__\":{\"crc32\":\"";
/// Where the header begins: behind its length.
const HEADER: usize = 8;
/// Where the digits are.
const DIGITS: Range<usize> = HEADER + BEGINNING.len()..HEADER + BEGINNING.len() + NO_DIGITS.len();

/// The digits of a file whose digits are zeros, given in parts. The first part has the digits.
pub(super) fn digits<'a>(parts: impl IntoIterator<Item = impl AsRef<[u8]> + 'a>) -> String {
    let mut hasher = crc32fast::Hasher::new();
    parts.into_iter().for_each(|part| hasher.update(part.as_ref()));
    format!("{:08x}", hasher.finalize())
}

/// Checks a file's contents against their checksum. True if they have one.
///
/// Error: they do not match it.
pub(super) fn verify(bytes: &[u8]) -> Result<bool> {
    if bytes.get(HEADER..DIGITS.start) != Some(BEGINNING) {
        return Ok(false);
    }
    let damaged = || {
        Diagnostic::new("its contents do not match its checksum")
            .help("the file was damaged after it was written")
    };
    let found = bytes.get(DIGITS).ok_or_else(damaged)?;
    let wanted = digits([&bytes[..DIGITS.start], NO_DIGITS.as_bytes(), &bytes[DIGITS.end..]]);
    if wanted.as_bytes() == found { Ok(true) } else { Err(damaged()) }
}
