//! NumPy's `.npy`: one array.
//!
//! Every dtype of a [`Literal`] except bf16 is read: bool, integers of 8, 32 and 64 bits, floats
//! of 16, 32 and 64 bits, little or big endian, in C or Fortran order, format versions 1 to 3.
//! NumPy has no bfloat16 (JAX saves it as two raw bytes, `V2`), so bf16 is refused in both
//! directions. Written files are version 1.0, little endian, C order, with the header padded so
//! that the data begins at a multiple of 64 bytes: the bytes that NumPy itself writes.
//!
//! The header is a Python literal. A hand-written parser accepts only the form that NumPy writes:
//! a dictionary of three known keys. A general parser of Python literals would follow a hostile
//! file into any depth of brackets.

use super::bytes::little_endian;
use super::map::Map;
use crate::{atomic, available_memory};
use std::io::{self, Write};
use std::path::Path;
use wengert_core::{DType, Diagnostic, Literal, Result, diagnostic, with_native};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The dtypes of the format, with their names in it.
const TYPES: [(DType, &str); 10] = [
    (DType::Bool, "b1"),
    (DType::U8, "u1"),
    (DType::I8, "i1"),
    (DType::I32, "i4"),
    (DType::I64, "i8"),
    (DType::U32, "u4"),
    (DType::U64, "u8"),
    (DType::F16, "f2"),
    (DType::F32, "f4"),
    (DType::F64, "f8"),
];

/// Reads an array.
pub fn read(path: impl AsRef<Path>) -> Result<Literal> {
    let path = path.as_ref();
    parse(&Map::open(path)?)
        .map_err(|error| error.context(format_args!("cannot read `{}`", path.display())))
}

/// Writes an array; bf16 is an error.
pub fn write(path: impl AsRef<Path>, literal: &Literal) -> Result<()> {
    let path = path.as_ref();
    let header = header_of(literal)
        .map_err(|e| e.context(format_args!("cannot write `{}`", path.display())))?;
    atomic::write(path, |file| write_to(file, &header, literal))
}

pub(super) fn write_to(file: &mut impl Write, header: &[u8], literal: &Literal) -> io::Result<()> {
    file.write_all(header)?;
    file.write_all(&little_endian(literal))
}

/// Magic, version, length and dictionary, padded to a multiple of 64 bytes.
pub(super) fn header_of(literal: &Literal) -> Result<Vec<u8>> {
    let dtype = literal.dtype();
    let Some((_, name)) = TYPES.iter().find(|(known, _)| *known == dtype) else {
        return Err(diagnostic!("the npy format has no {dtype}")
            .help("write a .safetensors file, or convert to f32 first (exact)"));
    };
    let kind = if dtype.size() == 1 { format!("|{name}") } else { format!("<{name}") };
    let mut shape = String::new();
    for extent in literal.shape() {
        shape += &format!("{extent}, ");
    }
    let shape = match literal.shape().len() {
        1 => shape.trim_end(),
        _ => shape.trim_end_matches(", "),
    };
    let mut text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    // 6 bytes of magic, 2 of version, 2 of length, and a newline at the end.
    let total = (MAGIC.len() + 4 + text.len() + 1).next_multiple_of(64);
    let length = total - MAGIC.len() - 4;
    text.extend(std::iter::repeat_n(' ', length - text.len() - 1));
    text.push('\n');
    let length =
        u16::try_from(length).map_err(|_| Diagnostic::new("too many axes for the npy format"))?;
    Ok([MAGIC, &[1, 0], &length.to_le_bytes(), text.as_bytes()].concat())
}

/// The layout of a file.
pub(super) struct Layout {
    pub dtype: DType,
    pub big_endian: bool,
    pub fortran: bool,
    pub shape: Vec<usize>,
    /// Offset of the data.
    pub start: usize,
}

/// The layout of a file's contents, whose length has been compared with the header. Reads nothing
/// but the header. Errors do not name the file.
pub(super) fn layout(bytes: &[u8]) -> Result<Layout> {
    let (header, data) = split(bytes)?;
    let Header { dtype, big_endian, fortran, shape } = Header::parse(header)?;
    let wanted = shape.iter().try_fold(dtype.size(), |n, e| n.checked_mul(*e));
    if wanted != Some(data.len()) {
        let wanted = wanted.map_or("more than 2^64".into(), |w| w.to_string());
        return Err(diagnostic!(
            "an array {dtype}{shape:?} has {wanted} bytes of data, found {}",
            data.len()
        )
        .help("the file is damaged or was cut short"));
    }
    Ok(Layout { dtype, big_endian, fortran, shape, start: bytes.len() - data.len() })
}

/// Reads the contents of a `.npy` file. Errors do not name the file.
pub fn parse(bytes: &[u8]) -> Result<Literal> {
    let Layout { dtype, big_endian, fortran, shape, start } = layout(bytes)?;
    let (size, data) = (dtype.size(), &bytes[start..]);
    // One copy, and further ones for big-endian numbers and Fortran order.
    let copies = 1 + u64::from(big_endian) + u64::from(fortran);
    available_memory::check((data.len() as u64).saturating_mul(copies), || {
        format!("an array {dtype}{shape:?}")
    })?;
    let swapped: Vec<u8>;
    let data = if big_endian {
        swapped =
            data.chunks_exact(size).flat_map(|element| element.iter().rev()).copied().collect();
        &swapped
    } else {
        data
    };
    if !fortran {
        return Literal::from_bytes(dtype, &shape, data);
    }
    let reversed: Vec<usize> = shape.iter().rev().copied().collect();
    let transposed = Literal::from_bytes(dtype, &reversed, data)?;
    Ok(with_native!(dtype, T => {
        Literal::from_array(
            &transposed.as_array::<T>().expect("read as this dtype").reversed_axes(),
        )
    }))
}

/// Header text and data.
fn split(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| {
        Diagnostic::new("this is no npy file: it does not begin with `\\x93NUMPY`")
    })?;
    let cut = || Diagnostic::new("the header is cut short");
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(cut)?;
    let (length, rest) = match version {
        [1, 0] => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            (u16::from_le_bytes(*length) as usize, rest)
        }
        [2 | 3, 0] => {
            let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
            (u32::from_le_bytes(*length) as usize, rest)
        }
        [major, minor] => {
            return Err(diagnostic!("version {major}.{minor} of the npy format is not known")
                .help("versions 1.0, 2.0 and 3.0 are"));
        }
    };
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header =
        std::str::from_utf8(header).map_err(|_| Diagnostic::new("the header is no text"))?;
    Ok((header, data))
}

struct Header {
    dtype: DType,
    big_endian: bool,
    fortran: bool,
    shape: Vec<usize>,
}

impl Header {
    /// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`, keys in any order.
    fn parse(text: &str) -> Result<Header> {
        let mut cursor = Cursor { rest: text };
        let (mut kind, mut fortran, mut shape) = (None, None, None);
        cursor.expect("{")?;
        while !cursor.accept("}") {
            let key = cursor.string()?;
            cursor.expect(":")?;
            match key {
                "descr" => kind = Some(cursor.string()?),
                "fortran_order" => fortran = Some(cursor.boolean()?),
                "shape" => shape = Some(cursor.tuple()?),
                other => {
                    return Err(diagnostic!("unknown key `{other}` in the header"));
                }
            }
            if !cursor.accept(",") {
                cursor.expect("}")?;
                break;
            }
        }
        if !cursor.rest.trim().is_empty() {
            return Err(cursor.unexpected("the end of the header"));
        }
        let missing = |key| move || diagnostic!("the header has no `{key}`");
        let (dtype, big_endian) = dtype_of(kind.ok_or_else(missing("descr"))?)?;
        let fortran = fortran.ok_or_else(missing("fortran_order"))?;
        Ok(Header { dtype, big_endian, fortran, shape: shape.ok_or_else(missing("shape"))? })
    }
}

/// `<f4` → (f32, little endian).
fn dtype_of(kind: &str) -> Result<(DType, bool)> {
    let (order, name) = match kind.as_bytes().first() {
        Some(b'<' | b'>' | b'|' | b'=') => kind.split_at(1),
        _ => ("=", kind),
    };
    let big_endian = match order {
        ">" => true,
        "=" => cfg!(target_endian = "big"),
        _ => false,
    };
    let found = TYPES.iter().find(|(_, known)| *known == if name == "?" { "b1" } else { name });
    let (dtype, _) = found.ok_or_else(|| {
        let help = match name {
            "i2" | "u2" => "convert it to 32-bit integers, e.g. `a.astype('int32')`",
            "V2" => {
                "bfloat16 has no npy type: use a .safetensors file, \
                 or convert to float32 (exact)"
            }
            _ => "bool, u1, i1, i4, i8, u4, u8, f2, f4 and f8 are read",
        };
        diagnostic!("elements of NumPy type `{kind}` are not supported").help(help)
    })?;
    Ok((*dtype, big_endian))
}

/// Parses the few forms of a header, skipping blanks.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn accept(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start();
        match rest.strip_prefix(token) {
            Some(after) => {
                self.rest = after;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<()> {
        if self.accept(token) { Ok(()) } else { Err(self.unexpected(&format!("`{token}`"))) }
    }

    fn string(&mut self) -> Result<&'a str> {
        let rest = self.rest.trim_start();
        for quote in ['\'', '"'] {
            if let Some((text, after)) = rest.strip_prefix(quote).and_then(|r| r.split_once(quote))
            {
                self.rest = after;
                return Ok(text);
            }
        }
        if rest.starts_with('[') {
            return Err(Diagnostic::new("arrays of records are not supported")
                .help("save each field by itself"));
        }
        Err(self.unexpected("a quoted string"))
    }

    fn boolean(&mut self) -> Result<bool> {
        if self.accept("True") {
            Ok(true)
        } else if self.accept("False") {
            Ok(false)
        } else {
            Err(self.unexpected("`True` or `False`"))
        }
    }

    /// `()`, `(3,)`, `(3, 4)`; Python 2 wrote `3L`.
    fn tuple(&mut self) -> Result<Vec<usize>> {
        let mut extents = Vec::new();
        self.expect("(")?;
        while !self.accept(")") {
            let rest = self.rest.trim_start();
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let extent = rest[..digits].parse().map_err(|_| self.unexpected("an extent"))?;
            extents.push(extent);
            self.rest = &rest[digits..];
            self.accept("L");
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(extents)
    }

    fn unexpected(&self, wanted: &str) -> Diagnostic {
        let found: String = self.rest.trim().chars().take(20).collect();
        diagnostic!("the header is damaged: expected {wanted}, found `{found}`")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wengert_core::Scalar;

    fn file(kind: &str, fortran: &str, shape: &str, data: &[u8]) -> Vec<u8> {
        let text =
            format!("{{'descr': '{kind}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
        [MAGIC, &[1, 0], &(text.len() as u16).to_le_bytes(), text.as_bytes(), data].concat()
    }

    #[test]
    fn round_trip_of_every_dtype_and_rank() {
        for dtype in DType::ALL {
            for shape in [&[][..], &[0], &[6], &[2, 3], &[2, 0, 3], &[1, 2, 1, 3]] {
                let values: Vec<_> = (0..shape.iter().product())
                    .map(|i: usize| Scalar::from_i64(dtype, i as i64 - 2))
                    .collect();
                let literal = Literal::from_scalars(dtype, shape, &values).unwrap();
                let Ok(header) = header_of(&literal) else {
                    assert!(dtype == DType::BF16 || dtype.is_float8());
                    continue;
                };
                let mut bytes = Vec::new();
                write_to(&mut bytes, &header, &literal).unwrap();
                assert_eq!(parse(&bytes).unwrap(), literal);
                assert_eq!(header.len() % 64, 0);
            }
        }
    }

    #[test]
    fn big_endian_and_fortran_order() {
        let big = file(">i4", "False", "(2,)", &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe]);
        assert_eq!(parse(&big).unwrap().as_slice::<i32>().unwrap(), [1, -2]);
        // Fortran order stores columns one after another: [[1, 2, 3], [4, 5, 6]].
        let columns = file("|u1", "True", "(2, 3)", &[1, 4, 2, 5, 3, 6]);
        let array = parse(&columns).unwrap();
        assert_eq!(array.shape(), [2, 3]);
        assert_eq!(array.as_slice::<u8>().unwrap(), [1, 2, 3, 4, 5, 6]);
        let both = file(
            ">f8",
            "True",
            "(1, 2)",
            &[1.5f64.to_be_bytes(), (-2.0f64).to_be_bytes()].concat(),
        );
        assert_eq!(parse(&both).unwrap().as_slice::<f64>().unwrap(), [1.5, -2.0]);
    }

    #[test]
    fn the_bytes_are_those_that_numpy_writes() {
        // numpy.save of numpy.array([[1.0, 2.0]], dtype='<f4')
        let literal = Literal::from_vec(&[1, 2], vec![1.0f32, 2.0]).unwrap();
        let mut text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }".to_owned();
        text.extend(std::iter::repeat_n(' ', 117 - text.len()));
        text.push('\n');
        let mut expected = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        expected.extend(text.as_bytes());
        assert_eq!(header_of(&literal).unwrap(), expected);
        let vector = header_of(&Literal::from(ndarray::arr1(&[1u8]))).unwrap();
        assert!(String::from_utf8_lossy(&vector).contains("'shape': (1,), }"));
    }

    #[test]
    fn mistakes_are_named() {
        let message = |bytes: &[u8]| parse(bytes).unwrap_err().to_string();
        assert!(message(b"PK").contains("no npy file"));
        assert!(message(b"\x93NUMPY\x01").contains("cut short"));
        assert!(message(b"\x93NUMPY\x09\x00\x00\x00").contains("version 9.0"));
        assert!(message(&file("<V2", "False", "()", &[0, 0])).contains("bfloat16"));
        assert!(message(&file("<i2", "False", "()", &[0, 0])).contains("int32"));
        assert!(
            message(&file("<f4", "False", "(2,)", &[0; 7])).contains("8 bytes of data, found 7")
        );
        assert!(message(&file("<f4", "False", "(2,)", &[0; 9])).contains("found 9"));
        let huge = file("<f8", "False", "(4294967296, 4294967296)", &[]);
        assert!(message(&huge).contains("more than 2^64"));
        assert!(
            message(&file("<f8", "False", "(18446744073709551616,)", &[])).contains("an extent")
        );
        assert!(message(&file("<f8", "Maybe", "()", &[])).contains("`True` or `False`"));
        assert!(message(&file("|b1", "False", "(1,)", &[2])).contains("neither 0 nor 1"));
        assert!(message(&file("|u1", "False", "((((", &[])).contains("an extent"));
    }

    #[test]
    fn damaged_files_do_not_panic() {
        let good = file("<f4", "False", "(2, 2)", &[0; 16]);
        for i in 0..good.len() {
            assert!(parse(&good[..i]).is_err());
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[i] ^= 1 << bit;
                let _ = parse(&bad);
            }
        }
    }
}
