//! Hugging Face's `safetensors`: several tensors by name. It is the format of weights and
//! checkpoints.
//!
//! Reading maps the file and checks the header against its length; each tensor is copied out on
//! request. Written files are ordered by dtype (larger elements first, which keeps every tensor
//! aligned), then by name, like those of the reference implementation. Their only metadata is an
//! optional checksum ([`write_checked`]), so the same tensors give the same bytes. A checksum in
//! the file is verified.

mod write;

use super::map::Map;
use super::parts::region::{Region, copy};
use super::parts::{self, Parts};
use super::source::ArrayType;
use super::{Arrays, checksum, listed};
use crate::available_memory;
use ::safetensors::Dtype;
use ::safetensors::tensor::{Metadata, TensorInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use wengert_core::{DType, Diagnostic, Literal, Result, TensorType, diagnostic};

pub(crate) use write::{Image, order, to_bytes_checked, write_each};
pub use write::{Written, write, write_checked};

/// The format's limit on the length of the header.
const LONGEST_HEADER: u64 = 100_000_000;

/// A file opened for reading.
#[derive(Debug)]
pub struct SafetensorsFile {
    path: PathBuf,
    map: Map,
    /// Offset of the data.
    start: usize,
    entries: BTreeMap<String, TensorInfo>,
    /// The digits of its checksum, if it has one.
    checksum: Option<String>,
    /// The files with the other tensors, if it is the index of a checkpoint.
    parts: Option<Parts>,
}

impl SafetensorsFile {
    /// Maps a file and checks its header: every tensor lies within the file, none overlap, no
    /// byte is left over. Verifies the checksum, if there is one. If the file is the index of a
    /// [checkpoint in parts](super::parts), the parts are opened and verified, too, and its tensors
    /// are joined when they are read.
    pub fn open(path: impl AsRef<Path>) -> Result<SafetensorsFile> {
        let path = path.as_ref();
        let context =
            |error: Diagnostic| error.context(format_args!("cannot read `{}`", path.display()));
        let file = SafetensorsFile::with_parts(path, Map::open(path)?).map_err(context)?;
        match file.damage()? {
            Some(damage) => Err(context(damage)),
            None => Ok(file),
        }
    }

    /// A mapped file, and the list of its parts, if it has any. Parts are opened when they are read
    /// or [verified](Self::damage).
    ///
    /// Errors do not name the file. It is damaged, or is a part itself.
    pub(crate) fn with_parts(path: &Path, map: Map) -> Result<SafetensorsFile> {
        let mut file = SafetensorsFile::alone(path, map)?;
        if file.entries.contains_key(parts::PART) {
            return Err(diagnostic!("it is a part of a checkpoint").help(
                "give the file that lists the parts, `checkpoint-STEP.safetensors` in the same \
                 folder",
            ));
        }
        file.parts = Parts::of(&file)?;
        Ok(file)
    }

    /// A mapped file by itself. Errors do not name the file.
    pub(crate) fn alone(path: &Path, map: Map) -> Result<SafetensorsFile> {
        let (start, entries) = header(&map)?;
        let checksum = checksum::verified(&map)?.map(str::to_owned);
        Ok(SafetensorsFile { path: path.to_owned(), map, start, entries, checksum, parts: None })
    }

    /// What is wrong with the parts of a checkpoint; none of another file. All are read.
    ///
    /// Error: a part cannot be read, which is no damage.
    pub(crate) fn damage(&self) -> Result<Option<Diagnostic>> {
        self.parts.as_ref().map_or(Ok(None), Parts::damage)
    }

    /// The digits of its checksum, if it has one.
    pub(crate) fn checksum(&self) -> Option<&str> {
        self.checksum.as_deref()
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file.
    pub(crate) fn length(&self) -> u64 {
        self.map.len() as u64
    }

    /// Names of the tensors within this file.
    pub(super) fn names_of_file(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Names of the tensors, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let own = self.entries.keys().map(String::as_str).filter(|name| *name != parts::INDEX);
        let divided = self.parts.iter().flat_map(Parts::names);
        own.chain(divided).collect::<BTreeSet<&str>>().into_iter()
    }

    /// Type of the tensor `name`, without reading it.
    pub fn ty(&self, name: &str) -> Result<TensorType> {
        let ArrayType { dtype, shape } = self.array_type(name)?;
        Ok(TensorType::new(dtype, shape))
    }

    /// [`ty`](Self::ty) as numbers.
    pub(crate) fn array_type(&self, name: &str) -> Result<ArrayType> {
        if let Some(ty) = self.parts.as_ref().and_then(|parts| parts.ty(name)) {
            return Ok(ty);
        }
        let info = self.info(name)?;
        let dtype = dtype_from(info).map_err(self.at(name))?;
        Ok(ArrayType { dtype, shape: info.shape.clone() })
    }

    /// Type of the tensor `name`, and the offset of its elements in the file.
    ///
    /// Error: the tensor is divided into parts.
    pub(super) fn place(&self, name: &str) -> Result<(ArrayType, u64)> {
        let ty = self.array_type(name)?;
        if self.parts.as_ref().is_some_and(|parts| parts.ty(name).is_some()) {
            let file = self.path.display();
            return Err(diagnostic!("`{name}` of `{file}` is divided among several files")
                .help("rows of data are read from one file: give a file with whole arrays"));
        }
        Ok((ty, (self.start + self.info(name)?.data_offsets.0) as u64))
    }

    /// Reads the tensor `name`.
    pub fn read(&self, name: &str) -> Result<Literal> {
        match &self.parts {
            Some(parts) if parts.ty(name).is_some() => {
                let region = Region::whole(&self.array_type(name)?.shape);
                parts.read(name, &region).map_err(self.at(name))
            }
            _ => tensor(&self.map[self.start..], self.info(name)?).map_err(self.at(name)),
        }
    }

    /// Reads a part of the tensor `name`. No more of it is in memory.
    pub(crate) fn read_region(&self, name: &str, region: &Region) -> Result<Literal> {
        let ArrayType { dtype, shape } = self.array_type(name)?;
        match &self.parts {
            Some(parts) if parts.ty(name).is_some() => parts.read(name, region),
            _ => {
                let mut bytes = room(dtype, region)?;
                let whole = Region::whole(&shape);
                copy(&mut bytes, region, self.bytes(name)?, &whole, dtype.size());
                Literal::from_bytes(dtype, &region.shape(), &bytes)
            }
        }
        .map_err(self.at(name))
    }

    /// The bytes of the tensor `name`, which is not divided.
    pub(super) fn bytes(&self, name: &str) -> Result<&[u8]> {
        let (from, to) = self.info(name)?.data_offsets;
        Ok(&self.map[self.start..][from..to])
    }

    /// Reads every tensor.
    pub fn read_all(&self) -> Result<Arrays> {
        self.names().map(|name| Ok((name.to_owned(), self.read(name)?))).collect()
    }

    fn info(&self, name: &str) -> Result<&TensorInfo> {
        self.entries.get(name).ok_or_else(|| {
            let names: Vec<_> = self.names().collect();
            diagnostic!("`{}` has no tensor `{name}`", self.path.display())
                .help(format!("it has {}", listed(&names)))
        })
    }

    fn at(&self, name: &str) -> impl Fn(Diagnostic) -> Diagnostic {
        let what = format!("cannot read `{name}` of `{}`", self.path.display());
        move |error| error.context(&what)
    }
}

/// Zeros for a part of a tensor.
///
/// Error: there is not enough memory.
pub(super) fn room(dtype: DType, region: &Region) -> Result<Vec<u8>> {
    let shape = region.shape();
    let bytes = shape.iter().product::<usize>() * dtype.size();
    available_memory::check(bytes as u64, || format!("a tensor of shape {shape:?}"))?;
    Ok(vec![0; bytes])
}

/// Start of the data, and the header's entry of every tensor; both checked against the bytes.
fn header(bytes: &[u8]) -> Result<(usize, BTreeMap<String, TensorInfo>)> {
    const DAMAGED: &str = "the file is damaged, was cut short, or is no safetensors file";
    let bad = |what: String| Diagnostic::new(what).help(DAMAGED);
    let (length, rest) =
        bytes.split_first_chunk::<8>().ok_or_else(|| bad("there are fewer than 8 bytes".into()))?;
    let length = u64::from_le_bytes(*length);
    if length > LONGEST_HEADER || length > rest.len() as u64 {
        return Err(bad(format!(
            "the header would have {length} bytes, the file has {}",
            bytes.len()
        )));
    }
    let (text, data) = rest.split_at(length as usize);
    // `Metadata` checks in checked arithmetic that the tensors cover the data without a gap or an
    // overlap. The end of the last tensor is compared with the end of the file here.
    let metadata: Metadata = serde_json::from_slice(text)
        .map_err(|error| bad(format!("the header is not valid: {error}")))?;
    if metadata.data_len() != data.len() {
        return Err(bad(format!(
            "the header speaks of {} bytes of data, the file has {}",
            metadata.data_len(),
            data.len()
        )));
    }
    let entries = metadata.tensors().into_iter().map(|(name, info)| (name, info.clone())).collect();
    Ok((8 + length as usize, entries))
}

/// Reads every tensor of a file's contents, which must have a checksum. Errors do not name the
/// file.
pub(crate) fn parse_checked(bytes: &[u8]) -> Result<Arrays> {
    if checksum::verified(bytes)?.is_some() {
        return parse(bytes);
    }
    Err(no_checksum())
}

/// The error for a checkpoint without a checksum.
pub(crate) fn no_checksum() -> Diagnostic {
    Diagnostic::new("it has no checksum")
        .help("the file was damaged, or is no checkpoint of this version")
}

/// Reads every tensor of a file's contents. Errors do not name the file.
pub(crate) fn parse(bytes: &[u8]) -> Result<Arrays> {
    let (start, entries) = header(bytes)?;
    entries
        .into_iter()
        .map(|(name, info)| {
            let literal =
                tensor(&bytes[start..], &info).map_err(|e| e.context(format_args!("`{name}`")))?;
            Ok((name, literal))
        })
        .collect()
}

/// The tensor of `info`, whose range the header's check has found to be within `data`.
fn tensor(data: &[u8], info: &TensorInfo) -> Result<Literal> {
    let (from, to) = info.data_offsets;
    available_memory::check((to - from) as u64, || format!("a tensor of shape {:?}", info.shape))?;
    Literal::from_bytes(dtype_from(info)?, &info.shape, &data[from..to])
}

/// The dtypes, with their names in the format.
const DTYPES: [(DType, Dtype); 13] = [
    (DType::Bool, Dtype::BOOL),
    (DType::U8, Dtype::U8),
    (DType::I8, Dtype::I8),
    (DType::I32, Dtype::I32),
    (DType::I64, Dtype::I64),
    (DType::U32, Dtype::U32),
    (DType::U64, Dtype::U64),
    (DType::F16, Dtype::F16),
    (DType::BF16, Dtype::BF16),
    (DType::F32, Dtype::F32),
    (DType::F64, Dtype::F64),
    (DType::F8E4M3FN, Dtype::F8_E4M3),
    (DType::F8E5M2, Dtype::F8_E5M2),
];

fn dtype_from(info: &TensorInfo) -> Result<DType> {
    let found = DTYPES.iter().find(|(_, name)| *name == info.dtype);
    let known = found.map(|(dtype, _)| *dtype);
    known.ok_or_else(|| diagnostic!("elements of type {:?} are not supported", info.dtype))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::safetensors::SafeTensors;
    use std::fs;
    use wengert_core::Scalar;

    #[test]
    fn round_trip_of_every_dtype_checked_by_the_reference() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let literals: Vec<_> = DType::ALL
            .into_iter()
            .map(|dtype| {
                let values: Vec<_> = (0..6).map(|i| Scalar::from_i64(dtype, i - 2)).collect();
                (
                    format!("layers.0.{dtype}"),
                    Literal::from_scalars(dtype, &[2, 3], &values).unwrap(),
                )
            })
            .chain([
                ("empty".into(), Literal::zeros(DType::F32, &[0, 3])),
                ("scalar".into(), 1.5f32.into()),
            ])
            .collect();
        let named = || literals.iter().map(|(name, literal)| (name.as_str(), literal));
        write(&path, named()).unwrap();
        let bytes = fs::read(&path).unwrap();
        let reference = SafeTensors::deserialize(&bytes).unwrap();
        let file = SafetensorsFile::open(&path).unwrap();
        assert_eq!(file.names().count(), literals.len());
        for (name, literal) in named() {
            assert_eq!(file.read(name).unwrap(), *literal);
            assert_eq!(file.ty(name).unwrap(), literal.ty());
            let theirs = reference.tensor(name).unwrap();
            assert_eq!((theirs.shape(), theirs.data()), (literal.shape(), &literal.to_bytes()[..]));
        }
        // The bytes equal the reference's, whatever the order of the tensors.
        let theirs = ::safetensors::serialize(reference.tensors(), None).unwrap();
        assert!(bytes == theirs);
        write(&path, named().rev()).unwrap();
        assert!(bytes == fs::read(&path).unwrap());
    }

    #[test]
    fn mistakes_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let says = |bytes: &[u8], text: &str| {
            fs::write(&path, bytes).unwrap();
            let error = SafetensorsFile::open(&path).unwrap_err();
            assert!(
                error.message.contains("w.safetensors") && error.message.contains(text),
                "{error}"
            );
        };
        let with = |header: &str, data: &[u8]| {
            [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
        };
        says(b"", "fewer than 8 bytes");
        says(&u64::MAX.to_le_bytes(), "the header would have");
        says(&with("{", b""), "not valid");
        says(
            &with(r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, &[0; 5]),
            "4 bytes of data, the file has 5",
        );
        says(
            &with(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, &[0; 4]),
            "not valid",
        );
        // Eight tensors whose sizes add up to 2^64 must not wrap around to an acceptable sum.
        let eighth = 1u64 << 61;
        let entries: Vec<_> = (0..8u64)
            .map(|i| {
                let end = (i + 1).saturating_mul(eighth);
                format!(
                    r#""{i}":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{end}]}}"#,
                    end - i * eighth,
                    i * eighth
                )
            })
            .collect();
        says(&with(&format!("{{{}}}", entries.join(",")), b""), "w.safetensors");
        fs::write(
            &path,
            with(r#"{"a":{"dtype":"I16","shape":[1],"data_offsets":[0,2]}}"#, &[0; 2]),
        )
        .unwrap();
        let file = SafetensorsFile::open(&path).unwrap();
        assert!(file.read("a").unwrap_err().message.contains("I16"));
        assert!(file.read("b").unwrap_err().to_string().contains("it has `a`"));
    }

    #[test]
    fn a_checksum_finds_every_flipped_bit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        // A name equal to the digits that represent no checksum.
        let tensors =
            [("00000000", &Literal::from(1.0f32)), ("b", &Literal::zeros(DType::U8, &[5]))];
        write_checked(&path, tensors).unwrap();
        let good = fs::read(&path).unwrap();
        assert_eq!(
            SafeTensors::deserialize(&good).unwrap().names().len(),
            2,
            "others read it, too"
        );
        assert_eq!(SafetensorsFile::open(&path).unwrap().read("b").unwrap(), *tensors[1].1);
        assert_eq!(parse_checked(&good).unwrap()["00000000"], *tensors[0].1);
        for bit in 0..8 * good.len() {
            let mut damaged = good.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(parse_checked(&damaged).is_err(), "bit {bit}");
        }
        for length in 0..good.len() {
            assert!(parse_checked(&good[..length]).is_err(), "{length} bytes");
        }
        write(&path, tensors).unwrap();
        assert!(
            parse_checked(&fs::read(&path).unwrap()).unwrap_err().message.contains("no checksum")
        );
        let last = good.len() - 1;
        fs::write(&path, [&good[..last], &[good[last] ^ 1]].concat()).unwrap();
        assert!(
            SafetensorsFile::open(&path).unwrap_err().message.contains("do not match its checksum")
        );
    }

    #[test]
    fn damaged_files_do_not_panic() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        write(&path, [("a", &Literal::from(1.0f32)), ("b", &Literal::zeros(DType::U8, &[4]))])
            .unwrap();
        let good = fs::read(&path).unwrap();
        for i in 0..good.len() {
            for change in
                [good[..i].to_vec(), [&good[..i], &[good[i] ^ 1], &good[i + 1..]].concat()]
            {
                fs::write(&path, change).unwrap();
                let _ = SafetensorsFile::open(&path).and_then(|f| f.read_all());
            }
        }
    }
}
