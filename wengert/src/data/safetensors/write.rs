//! Writing safetensors files.

use super::super::bytes::little_endian;
use super::super::source::ArrayType;
use super::super::{checksum, sorted};
use super::{DTYPES, LONGEST_HEADER};
use crate::atomic;
use crate::format::container::Contents;
use ::safetensors::Dtype;
use ::safetensors::tensor::{Metadata, TensorInfo};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::path::Path;
use wengert_core::{DType, Diagnostic, Literal, Result};

/// A file that was written with a checksum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Written {
    /// Bytes of the file.
    pub bytes: u64,
    /// The digits of its checksum.
    pub checksum: String,
}

/// Writes named tensors; a repeated name is an error.
pub fn write<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (&'a str, &'a Literal)>,
) -> Result<()> {
    let path = path.as_ref();
    let image = Image::new(sorted(path, tensors)?).map_err(|error| cannot(path, error))?;
    atomic::write(path, |file| image.write_to(file))
}

/// [`write()`], with a checksum over the whole file, which every reader of this crate verifies.
pub fn write_checked<'a>(
    path: impl AsRef<Path>,
    tensors: impl IntoIterator<Item = (&'a str, &'a Literal)>,
) -> Result<Written> {
    let path = path.as_ref();
    let (image, checksum) =
        Image::checked(sorted(path, tensors)?).map_err(|error| cannot(path, error))?;
    atomic::write(path, |file| image.write_to(file))?;
    Ok(Written { bytes: image.length() as u64, checksum })
}

/// [`write()`] of tensors that `each` gives one after another. It gets the names in the order in
/// which it has to give the tensors, and gives all of them, also after an error of the file.
pub(crate) fn write_each(
    path: &Path,
    types: &BTreeMap<String, ArrayType>,
    each: impl FnOnce(&[&str], &mut dyn FnMut(&Literal)) -> Result<()>,
) -> Result<()> {
    let named = types.iter().map(|(name, ty)| (name.as_str(), ty.clone())).collect();
    let (header, order) = layout(named, None).map_err(|error| cannot(path, error))?;
    let names: Vec<&str> = types.keys().map(String::as_str).collect();
    let names: Vec<&str> = order.into_iter().map(|n| names[n]).collect();
    let (mut each, mut given) = (Some(each), Ok(()));
    let written = atomic::write(path, |file| {
        let each = each.take().expect("a file is filled once");
        let mut result = write_header(&header, file);
        given = each(&names, &mut |literal| {
            if result.is_ok() {
                result = file.write_all(&little_endian(literal));
            }
        });
        match &given {
            Ok(()) => result,
            Err(error) => Err(io::Error::other(error.message.clone())),
        }
    });
    if let Some(each) = each {
        // The file could not be created.
        each(&names, &mut |_| {})?;
    }
    given.and(written)
}

/// The order of tensors in a file.
pub(crate) fn order(types: &BTreeMap<String, ArrayType>) -> Vec<&str> {
    let mut names: Vec<(&str, DType)> =
        types.iter().map(|(name, ty)| (name.as_str(), ty.dtype)).collect();
    // Stable: by name within a dtype.
    names.sort_by_key(|(_, dtype)| Reverse(named(*dtype)));
    names.into_iter().map(|(name, _)| name).collect()
}

/// What [`write_checked`] writes.
pub(crate) fn to_bytes_checked<'a>(
    tensors: impl IntoIterator<Item = (&'a str, &'a Literal)>,
) -> Result<Vec<u8>> {
    let (image, _) = Image::checked(sorted(Path::new("memory"), tensors)?)?;
    let mut bytes = Vec::with_capacity(image.length());
    image.write_to(&mut bytes).map_err(|error| Diagnostic::new(error.to_string()))?;
    Ok(bytes)
}

fn cannot(path: &Path, error: Diagnostic) -> Diagnostic {
    error.context(format_args!("cannot write `{}`", path.display()))
}

/// The layout of a file before it is written.
pub(crate) struct Image<'a> {
    header: String,
    tensors: Vec<&'a Literal>,
}

impl<'a> Image<'a> {
    /// Lays out tensors with distinct names, sorted by name.
    pub(crate) fn new(tensors: Vec<(&'a str, &'a Literal)>) -> Result<Image<'a>> {
        Image::with(tensors, None)
    }

    /// [`new`](Self::new), with a checksum, whose digits are returned, too.
    fn checked(tensors: Vec<(&'a str, &'a Literal)>) -> Result<(Image<'a>, String)> {
        let metadata = HashMap::from([(checksum::KEY.to_owned(), checksum::NO_DIGITS.to_owned())]);
        let mut image = Image::with(tensors, Some(metadata))?;
        let length = (image.header.len() as u64).to_le_bytes();
        let parts = [Cow::from(&length[..]), Cow::from(image.header.as_bytes())];
        let digits = checksum::digits(
            parts.into_iter().chain(image.tensors.iter().map(|t| little_endian(t))),
        );
        image.header = image.header.replacen(checksum::NO_DIGITS, &digits, 1);
        Ok((image, digits))
    }

    fn with(
        tensors: Vec<(&'a str, &'a Literal)>,
        metadata: Option<HashMap<String, String>>,
    ) -> Result<Image<'a>> {
        let types = tensors.iter().map(|(name, literal)| (*name, ArrayType::of(literal))).collect();
        let (header, order) = layout(types, metadata)?;
        Ok(Image { header, tensors: order.into_iter().map(|n| tensors[n].1).collect() })
    }

    /// Writes the contents of the file.
    pub(crate) fn write_to(&self, file: &mut (impl Write + ?Sized)) -> io::Result<()> {
        write_header(&self.header, file)?;
        self.tensors.iter().try_for_each(|literal| file.write_all(&little_endian(literal)))
    }
}

impl Contents for Image<'_> {
    fn length(&self) -> usize {
        let bytes = |literal: &&Literal| literal.len() * literal.dtype().size();
        8 + self.header.len() + self.tensors.iter().map(bytes).sum::<usize>()
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        Image::write_to(self, out)
    }
}

/// The header of a file with these tensors, which are sorted by name, and the order of their
/// elements in the file.
fn layout(
    tensors: Vec<(&str, ArrayType)>,
    metadata: Option<HashMap<String, String>>,
) -> Result<(String, Vec<usize>)> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    // Stable: by name within a dtype.
    order.sort_by_key(|n| Reverse(named(tensors[*n].1.dtype)));
    let mut offset = 0;
    let infos = order.iter().map(|n| {
        let (name, ty) = &tensors[*n];
        let from = offset;
        offset += ty.shape.iter().product::<usize>() * ty.dtype.size();
        let info = TensorInfo {
            dtype: named(ty.dtype),
            shape: ty.shape.clone(),
            data_offsets: (from, offset),
        };
        ((*name).to_owned(), info)
    });
    let text = |error: &dyn std::fmt::Display| Diagnostic::new(error.to_string());
    let metadata = Metadata::new(metadata, infos.collect()).map_err(|error| text(&error))?;
    let mut header = serde_json::to_string(&metadata).map_err(|error| text(&error))?;
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    if header.len() as u64 > LONGEST_HEADER {
        return Err(Diagnostic::new(
            "the header would be longer than the safetensors format allows",
        ));
    }
    Ok((header, order))
}

fn write_header(header: &str, file: &mut (impl Write + ?Sized)) -> io::Result<()> {
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())
}

/// The name of a dtype in the format.
fn named(dtype: DType) -> Dtype {
    let found = DTYPES.iter().find(|(known, _)| *known == dtype);
    found.expect("the table has every dtype").1
}
