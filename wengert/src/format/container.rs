//! The outer shape of Wengert's binary files: a table of named, checksummed sections.
//!
//! ```text
//! offset  bytes  what
//! 0       8      magic: 0x89, six letters that name the kind of file, line feed
//! 8       4      version of the format
//! 12      4      number of sections, n
//! 16      40·n   the table; per section:
//!                  16  name, padded with zero bytes
//!                   8  offset from the start of the file
//!                   8  length
//!                   4  CRC-32 (IEEE) of the contents
//!                   4  zero
//! 16+40·n 4      CRC-32 of everything above
//! …              the sections in the table's order, each at a multiple of 8; gaps are zero bytes
//! ```
//!
//! Numbers are little endian. The first byte is not ASCII and the eighth is a line feed, so that
//! a file which went through a text-mode transfer is recognised as damaged. The layout is unique:
//! offsets follow from the lengths, and a reader refuses a file with gaps, overlaps or trailing
//! bytes, so each byte of a valid file is accounted for. Reading borrows; no allocation is
//! proportional to the sizes in the table.

use std::io::{self, Write};
use wengert_core::{Diagnostic, Result, diagnostic};

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `.graph`
    Graph,
    /// `.plan`
    Plan,
}

impl Kind {
    /// The first eight bytes.
    pub const fn magic(self) -> &'static [u8; 8] {
        match self {
            Kind::Graph => b"\x89WGraph\n",
            Kind::Plan => b"\x89W.Plan\n",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Kind::Graph => ".graph",
            Kind::Plan => ".plan",
        }
    }
}

const ENTRY: usize = 40;
const NAME: usize = 16;
const MOST_SECTIONS: usize = 64;

/// One section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section<'a> {
    /// At most 16 bytes of ASCII.
    pub name: &'a str,
    /// The contents.
    pub bytes: &'a [u8],
}

/// The contents of a section to be written. They need not be in memory in one piece.
pub trait Contents {
    /// Number of bytes.
    fn length(&self) -> usize;
    /// Writes these bytes. They are the same each time.
    fn write_to(&self, out: &mut dyn Write) -> io::Result<()>;
}

impl<B: AsRef<[u8]>> Contents for B {
    fn length(&self) -> usize {
        self.as_ref().len()
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.as_ref())
    }
}

/// The checksum of what is written.
struct Checksum(crc32fast::Hasher);

impl Write for Checksum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Assembles a file in memory, as [`write_to`].
pub fn write(kind: Kind, version: u32, sections: &[Section<'_>]) -> Vec<u8> {
    let parts: Vec<(&str, &dyn Contents)> =
        sections.iter().map(|s| (s.name, &s.bytes as &dyn Contents)).collect();
    let mut file = Vec::new();
    write_to(kind, version, &parts, &mut file).expect("memory takes all bytes");
    file
}

/// Writes a file. Names must be ASCII, 1 to 16 bytes, each once; all callers in this library
/// comply. Contents are produced twice: for the checksum, which precedes them, and for the file.
///
/// Error: that of `out`.
pub fn write_to(
    kind: Kind,
    version: u32,
    sections: &[(&str, &dyn Contents)],
    out: &mut dyn Write,
) -> io::Result<()> {
    assert!(sections.len() <= MOST_SECTIONS, "the writers of this library know their few sections");
    let head = 16 + ENTRY * sections.len() + 4;
    let mut table = Vec::with_capacity(head);
    table.extend(kind.magic());
    table.extend(version.to_le_bytes());
    table.extend((sections.len() as u32).to_le_bytes());
    let mut end = head;
    for (name, contents) in sections {
        assert!(
            name.is_ascii() && (1..=NAME).contains(&name.len()),
            "`{name}` names a section of this library"
        );
        let offset = end.next_multiple_of(8);
        end = offset + contents.length();
        let mut checksum = Checksum(crc32fast::Hasher::new());
        contents.write_to(&mut checksum)?;
        let mut padded = [0; NAME];
        padded[..name.len()].copy_from_slice(name.as_bytes());
        table.extend(padded);
        table.extend((offset as u64).to_le_bytes());
        table.extend((contents.length() as u64).to_le_bytes());
        table.extend(checksum.0.finalize().to_le_bytes());
        table.extend([0; 4]);
    }
    table.extend(crc32fast::hash(&table).to_le_bytes());
    out.write_all(&table)?;
    let mut end = head;
    for (_, contents) in sections {
        let offset = end.next_multiple_of(8);
        out.write_all(&[0; 8][..offset - end])?;
        contents.write_to(out)?;
        end = offset + contents.length();
    }
    Ok(())
}

/// Splits a file into its version and its sections. Errors do not name the file.
pub fn read<'a>(kind: Kind, versions: &[u32], file: &'a [u8]) -> Result<(u32, Vec<Section<'a>>)> {
    let mut head = Head { file, at: 0 };
    let magic = head.take::<8>().unwrap_or([0; 8]);
    if &magic != kind.magic() {
        let other = [Kind::Graph, Kind::Plan].into_iter().find(|k| k.magic() == &magic);
        return Err(match other {
            Some(other) => {
                diagnostic!("this is a {} file, not a {} file", other.name(), kind.name())
            }
            None => diagnostic!("this is no {} file: it does not begin with its mark", kind.name()),
        });
    }
    let version = u32::from_le_bytes(head.take()?);
    if !versions.contains(&version) {
        let known: Vec<_> = versions.iter().map(u32::to_string).collect();
        return Err(diagnostic!("version {version} of the {} format is not known", kind.name())
            .help(format!(
                "this program reads {}; a newer one may have written the file",
                known.join(", ")
            )));
    }
    let count = u32::from_le_bytes(head.take()?) as usize;
    if count > MOST_SECTIONS {
        return Err(damaged(format!("{count} sections are stated, {MOST_SECTIONS} is the most")));
    }
    let mut table = Vec::with_capacity(count);
    for _ in 0..count {
        let name = head.bytes(NAME)?;
        let offset = u64::from_le_bytes(head.take()?);
        let length = u64::from_le_bytes(head.take()?);
        let sum = u32::from_le_bytes(head.take()?);
        let zero = u32::from_le_bytes(head.take()?);
        table.push((name, offset, length, sum, zero));
    }
    let stated = head.at;
    if u32::from_le_bytes(head.take()?) != crc32fast::hash(&file[..stated]) {
        return Err(damaged("the checksum of the table of sections is wrong"));
    }
    let mut sections: Vec<Section<'a>> = Vec::with_capacity(count);
    let mut end = head.at;
    for (name, offset, length, sum, zero) in table {
        let letters = name.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        let name = std::str::from_utf8(&name[..letters])
            .ok()
            .filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_graphic()))
            .ok_or_else(|| damaged("the name of a section is not valid"))?;
        let start = end.next_multiple_of(8);
        let length = usize::try_from(length).ok().filter(|_| zero == 0 && offset == start as u64);
        let bytes =
            length.and_then(|length| file.get(start..start.checked_add(length)?)).ok_or_else(
                || damaged(format!("section `{name}` is not where it must be, or is cut short")),
            )?;
        if file[end..start].iter().any(|b| *b != 0) {
            return Err(damaged(format!("there are bytes between sections before `{name}`")));
        }
        if crc32fast::hash(bytes) != sum {
            return Err(damaged(format!("the checksum of section `{name}` is wrong")));
        }
        if sections.iter().any(|s| s.name == name) {
            return Err(damaged(format!("there are two sections `{name}`")));
        }
        sections.push(Section { name, bytes });
        end = start + bytes.len();
    }
    if end != file.len() {
        return Err(damaged(format!("{} bytes follow the last section", file.len() - end)));
    }
    Ok((version, sections))
}

/// An error for a file that has changed since it was written.
pub(super) fn damaged(what: impl Into<String>) -> Diagnostic {
    Diagnostic::new(what).help("the file is damaged, was cut short, or was changed by hand")
}

struct Head<'a> {
    file: &'a [u8],
    at: usize,
}

impl<'a> Head<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8]> {
        let bytes = self
            .file
            .get(self.at..self.at + count)
            .ok_or_else(|| damaged("the file ends within its table of sections"))?;
        self.at += count;
        Ok(bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.bytes(N)?.try_into().expect("as many bytes as were asked for"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTIONS: [Section<'_>; 3] = [
        Section { name: "program", bytes: b"twelve bytes" },
        Section { name: "empty", bytes: b"" },
        Section { name: "sixteen-letters-", bytes: b"x" },
    ];

    #[test]
    fn round_trip() {
        let file = write(Kind::Graph, 1, &SECTIONS);
        let (version, sections) = read(Kind::Graph, &[1, 2], &file).unwrap();
        assert_eq!((version, &sections[..]), (1, &SECTIONS[..]));
        let says = |error: Diagnostic, text: &str| assert!(error.message.contains(text), "{error}");
        says(read(Kind::Plan, &[1], &file).unwrap_err(), "is a .graph file, not a .plan");
        says(read(Kind::Graph, &[2], &file).unwrap_err(), "version 1");
        says(read(Kind::Graph, &[1], b"func @f()").unwrap_err(), "no .graph file");
        assert_eq!(read(Kind::Plan, &[7], &write(Kind::Plan, 7, &[])).unwrap(), (7, vec![]));
    }

    #[test]
    fn no_damage_goes_unseen() {
        let file = write(Kind::Graph, 1, &SECTIONS);
        for i in 0..file.len() {
            assert!(read(Kind::Graph, &[1], &file[..i]).is_err(), "cut at {i}");
            for bit in 0..8 {
                let mut bad = file.clone();
                bad[i] ^= 1 << bit;
                assert!(read(Kind::Graph, &[1], &bad).is_err(), "bit {bit} of byte {i}");
            }
        }
        assert!(read(Kind::Graph, &[1], &[&file[..], b"\0"].concat()).is_err());
    }

    #[test]
    fn lying_tables_with_right_checksums() {
        let good = write(Kind::Graph, 1, &SECTIONS);
        let patched = |at: usize, bytes: &[u8]| {
            let mut file = good.clone();
            file[at..at + bytes.len()].copy_from_slice(bytes);
            let table = 16 + ENTRY * SECTIONS.len();
            let sum = crc32fast::hash(&file[..table]).to_le_bytes();
            file[table..table + 4].copy_from_slice(&sum);
            read(Kind::Graph, &[1], &file).unwrap_err().message
        };
        assert!(patched(16 + 24, &u64::MAX.to_le_bytes()).contains("not where it must be"));
        assert!(patched(16 + 16, &0u64.to_le_bytes()).contains("not where it must be"));
        assert!(patched(16 + 16, &u64::MAX.to_le_bytes()).contains("not where it must be"));
        assert!(patched(16 + 36, &[1]).contains("not where it must be"));
        assert!(patched(16 + ENTRY, b"program\0").contains("two sections"));
        assert!(patched(16, &[0; 16]).contains("name of a section"));
        assert!(patched(12, &u32::MAX.to_le_bytes()).contains("sections are stated"));
    }
}
