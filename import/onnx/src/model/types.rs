//! Dtypes and types of values.

use crate::narrow::Narrow;
use crate::proto::{ElementTypeProto, TypeProto};
use crate::refusal::{Class, refuse};
use wengert_core::{DType, Diagnostic, Result};

/// The dtype of a tensor of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Element {
    /// One that programs have.
    Plain(DType),
    /// One that they lack.
    Narrow(Narrow),
}

impl Element {
    /// The dtype of the program's tensor.
    pub fn carrier(self) -> DType {
        match self {
            Element::Plain(dtype) => dtype,
            Element::Narrow(narrow) => narrow.carrier(),
        }
    }

    /// The dtype, if programs lack it.
    pub fn narrow(self) -> Option<Narrow> {
        match self {
            Element::Plain(_) => None,
            Element::Narrow(narrow) => Some(narrow),
        }
    }
}

/// The dtype with a number of `TensorProto.DataType`, which programs must have.
///
/// # Errors
/// The library has no such dtype, or the schema has none.
pub(crate) fn dtype(number: i32) -> Result<DType> {
    match element(number)? {
        Element::Plain(dtype) => Ok(dtype),
        Element::Narrow(narrow) => Err(refuse(Class::DType, format!("a tensor of {narrow}"))),
    }
}

/// The dtype with a number of `TensorProto.DataType`.
///
/// # Errors
/// It is not imported, or the schema has none.
pub(crate) fn element(number: i32) -> Result<Element> {
    if let Some(narrow) = Narrow::of_number(number) {
        return Ok(Element::Narrow(narrow));
    }
    let unknown = |name: &str| Err(refuse(Class::DType, format!("a tensor of {name}")));
    Ok(Element::Plain(match number {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        6 => DType::I32,
        7 => DType::I64,
        8 => return unknown("strings"),
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        14 => return unknown("complex64"),
        15 => return unknown("complex128"),
        16 => DType::BF16,
        17 => DType::F8E4M3FN,
        19 => DType::F8E5M2,
        24 => return unknown("float8e8m0"),
        27 => return unknown("float6e2m3"),
        28 => return unknown("float6e3m2"),
        other => return Err(Diagnostic::new(format!("the dtype has number {other}"))),
    }))
}

/// The largest extent of an input. Sums and products of two are exact integers.
const LARGEST_EXTENT: i64 = 1 << 31;

/// The type of an input.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ValueType {
    Tensor {
        element: Element,
        /// `None` if the rank is not known.
        shape: Option<Vec<Extent>>,
    },
    /// With the type of its elements.
    Sequence(Box<ValueType>),
    /// With the type of the value that may be absent.
    Optional(Box<ValueType>),
}

/// An extent of an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Extent {
    Number(i64),
    Variable(String),
    /// Neither; it differs from all others.
    Unknown,
}

impl ValueType {
    pub(super) fn of(proto: TypeProto) -> Result<ValueType> {
        if proto.sparse_tensor_type.is_some() {
            return Err(refuse(Class::DType, "a sparse tensor"));
        }
        let inner = |of: Box<ElementTypeProto>| -> Result<Box<ValueType>> {
            let inner = of.elem_type.ok_or_else(|| {
                refuse(Class::Container, "a sequence or optional value of no type")
            })?;
            Ok(Box::new(ValueType::of(*inner)?))
        };
        if let Some(of) = proto.sequence_type {
            return Ok(ValueType::Sequence(inner(of)?));
        }
        if let Some(of) = proto.optional_type {
            return Ok(ValueType::Optional(inner(of)?));
        }
        let tensor = proto.tensor_type.ok_or_else(|| {
            refuse(Class::Container, "a value that is neither tensor, sequence nor optional")
        })?;
        let shape = tensor.shape.map(|shape| {
            let extent = |dim: crate::proto::DimensionProto| match (dim.dim_value, dim.dim_param) {
                (Some(number), _) if number >= 0 => Extent::Number(number),
                (_, Some(name)) if !name.is_empty() => Extent::Variable(name),
                _ => Extent::Unknown,
            };
            shape.dim.into_iter().map(extent).collect::<Vec<_>>()
        });
        if let Some(large) = shape.iter().flatten().find_map(|extent| match extent {
            Extent::Number(number) if *number > LARGEST_EXTENT => Some(number),
            _ => None,
        }) {
            return Err(Diagnostic::new(format!("an extent is {large}, which is beyond 2^31")));
        }
        Ok(ValueType::Tensor { element: element(tensor.elem_type.unwrap_or_default())?, shape })
    }
}
