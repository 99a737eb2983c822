//! Operating-system strings that hold a path: `NAME=PATH`, `@PATH[KEY]`, `PATH@FUNC`.
//!
//! On Unix a path is any sequence of non-zero bytes, so such a text need not be UTF-8. The marks
//! around the path are ASCII, and are searched in the bytes. On other systems only valid Unicode
//! is split.

use std::ffi::OsStr;

/// The parts before and after the first `mark`.
pub fn split_once(text: &OsStr, mark: u8) -> Option<(&OsStr, &OsStr)> {
    let at = text.as_encoded_bytes().iter().position(|byte| *byte == mark)?;
    Some((part(text, 0, at)?, part(text, at + 1, text.len())?))
}

/// The parts before and after the last `mark`.
pub fn rsplit_once(text: &OsStr, mark: u8) -> Option<(&OsStr, &OsStr)> {
    let at = text.as_encoded_bytes().iter().rposition(|byte| *byte == mark)?;
    Some((part(text, 0, at)?, part(text, at + 1, text.len())?))
}

/// The part after a leading mark.
pub fn strip_prefix(text: &OsStr, mark: u8) -> Option<&OsStr> {
    (text.as_encoded_bytes().first() == Some(&mark)).then(|| part(text, 1, text.len()))?
}

/// The part before a trailing mark.
pub fn strip_suffix(text: &OsStr, mark: u8) -> Option<&OsStr> {
    (text.as_encoded_bytes().last() == Some(&mark)).then(|| part(text, 0, text.len() - 1))?
}

/// The bytes from `start` to `end`. Both must be adjacent to an ASCII character or an end of the
/// text.
#[cfg(unix)]
fn part(text: &OsStr, start: usize, end: usize) -> Option<&OsStr> {
    use std::os::unix::ffi::OsStrExt;
    Some(OsStr::from_bytes(&text.as_bytes()[start..end]))
}

#[cfg(not(unix))]
fn part(text: &OsStr, start: usize, end: usize) -> Option<&OsStr> {
    Some(OsStr::new(&text.to_str()?[start..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_at_ascii_marks() {
        let os = OsStr::new;
        assert_eq!(split_once(os("a=b=c"), b'='), Some((os("a"), os("b=c"))));
        assert_eq!(rsplit_once(os("a@b@c"), b'@'), Some((os("a@b"), os("c"))));
        assert_eq!((split_once(os("ab"), b'='), strip_prefix(os(""), b'@')), (None, None));
        assert_eq!(
            (strip_prefix(os("@ü"), b'@'), strip_suffix(os("ü]"), b']')),
            (Some(os("ü")), Some(os("ü")))
        );
    }

    #[cfg(unix)]
    #[test]
    fn what_is_no_utf_8_is_split_all_the_same() {
        use std::os::unix::ffi::OsStrExt;
        let os = OsStr::from_bytes;
        assert_eq!(split_once(os(b"x=\xff/a"), b'='), Some((os(b"x"), os(b"\xff/a"))));
        assert_eq!(rsplit_once(os(b"\xff@f"), b'@'), Some((os(b"\xff"), os(b"f"))));
    }
}
