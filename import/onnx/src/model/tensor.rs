//! Tensors of a file: their values lie in one of several fields, or in another file.

use super::{Element, Reader, types};
use crate::narrow::Narrow;
use crate::proto::{StringStringEntryProto, TensorProto};
use bytes::Bytes;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use wengert_core::{DType, Diagnostic, Literal, Result, Scalar};

/// `TensorProto.DataLocation` of values in another file.
const EXTERNAL: i32 = 1;

/// A tensor of a file.
#[derive(Clone, PartialEq, Debug)]
pub struct Stored {
    /// Its numbers, in the dtype that programs have for them.
    pub literal: Literal,
    /// Its dtype, if programs lack it.
    pub narrow: Option<Narrow>,
}

/// Opens a file beside a model, by its path from the model's folder.
pub type Files<'f> = dyn Fn(&Path) -> Result<Bytes> + 'f;

/// Reads tensors whose values lie in files beside the model.
pub(crate) struct External<'f> {
    files: &'f Files<'f>,
    open: RefCell<BTreeMap<PathBuf, Bytes>>,
}

impl<'f> External<'f> {
    pub fn new(files: &'f Files<'f>) -> External<'f> {
        External { files, open: RefCell::default() }
    }

    /// The bytes of a tensor that has `wanted` of them.
    fn bytes<T>(
        &self,
        entries: &[StringStringEntryProto],
        wanted: usize,
        then: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let entry = |key: &str| {
            let found = entries.iter().find(|e| e.key.as_deref() == Some(key));
            found.and_then(|e| e.value.as_deref())
        };
        let number = |key: &str| -> Result<Option<usize>> {
            let Some(text) = entry(key) else { return Ok(None) };
            let wrong = |_| Diagnostic::new(format!("the {key} of its external data is `{text}`"));
            text.trim().parse().map(Some).map_err(wrong)
        };
        let location = entry("location")
            .ok_or_else(|| Diagnostic::new("its external data has no location"))?;
        let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
        if let Some(length) = length.filter(|length| *length != wanted) {
            return Err(Diagnostic::new(format!(
                "its external data has {length} bytes, its type {wanted}"
            )));
        }
        let file = self.open(location)?;
        let part = offset.checked_add(wanted).and_then(|end| file.get(offset..end));
        then(part.ok_or_else(|| {
            Diagnostic::new(format!(
                "file `{location}` has {} bytes, and its {wanted} bytes begin at {offset}",
                file.len()
            ))
        })?)
    }

    /// A file in the folder of the model, or below.
    fn open(&self, location: &str) -> Result<Bytes> {
        let path = Path::new(location);
        let normal = |c: Component<'_>| matches!(c, Component::Normal(_) | Component::CurDir);
        if location.is_empty() || !path.components().all(normal) {
            return Err(Diagnostic::new(format!(
                "its values are in `{location}`, outside the model's folder"
            ))
            .help("external data lie in the folder of the model, or below"));
        }
        if let Some(known) = self.open.borrow().get(path) {
            return Ok(known.clone());
        }
        let bytes = (self.files)(path)?;
        self.open.borrow_mut().insert(path.to_owned(), bytes.clone());
        Ok(bytes)
    }
}

impl Reader<'_> {
    /// The values of a tensor.
    pub(super) fn tensor(&self, proto: TensorProto) -> Result<Stored> {
        let element = types::element(proto.data_type.unwrap_or_default())?;
        let negative = || Diagnostic::new(format!("its extents are {:?}", proto.dims));
        let shape = proto
            .dims
            .iter()
            .map(|extent| usize::try_from(*extent).map_err(|_| negative()))
            .collect::<Result<Vec<usize>>>()?;
        let count = shape.iter().try_fold(1usize, |n, extent| n.checked_mul(*extent));
        let count = count.ok_or_else(negative)?;
        let wanted = match element {
            Element::Plain(dtype) => count.checked_mul(dtype.size()),
            Element::Narrow(narrow) => narrow.bytes(count),
        };
        let wanted = wanted.ok_or_else(negative)?;
        let plain = |literal: Literal| Stored { literal, narrow: None };
        let of_bytes = |bytes: &[u8]| match element {
            Element::Plain(dtype) => Literal::from_bytes(dtype, &shape, bytes).map(plain),
            Element::Narrow(narrow) => narrow
                .unpacked(&shape, bytes)
                .map(|literal| Stored { literal, narrow: Some(narrow) }),
        };
        if proto.data_location == Some(EXTERNAL) {
            return self.external.bytes(&proto.external_data, wanted, of_bytes);
        }
        if let Some(bytes) = &proto.raw_data {
            return of_bytes(bytes);
        }
        let dtype = match element {
            Element::Plain(dtype) => dtype,
            // A number of this field has those bits that the dtype has in bytes: its own, or those
            // of a byte with several numbers.
            Element::Narrow(narrow) => {
                let size = narrow.bits().div_ceil(8);
                let parts = proto.int32_data.iter().flat_map(|n| n.to_le_bytes()[..size].to_vec());
                return of_bytes(&parts.collect::<Vec<u8>>());
            }
        };
        // Other dtypes are stored in the next wider of these fields.
        let scalars: Vec<Scalar> = match dtype {
            DType::F32 => proto.float_data.into_iter().map(Scalar::of).collect(),
            DType::F64 => proto.double_data.into_iter().map(Scalar::of).collect(),
            DType::I64 => proto.int64_data.into_iter().map(Scalar::of).collect(),
            DType::U64 => proto.uint64_data.into_iter().map(Scalar::of).collect(),
            DType::U32 => proto.uint64_data.iter().map(|n| Scalar::of(*n as u32)).collect(),
            DType::Bool => proto.int32_data.iter().map(|n| Scalar::of(*n != 0)).collect(),
            _ => proto.int32_data.iter().map(|n| Scalar::from_bits(dtype, *n as u64)).collect(),
        };
        if scalars.len() != count {
            return Err(Diagnostic::new(format!(
                "it has {} values of type {dtype}{shape:?}",
                scalars.len()
            )));
        }
        Literal::from_scalars(dtype, &shape, &scalars).map(plain)
    }
}
