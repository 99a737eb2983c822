//! Dtypes and types of values.

use crate::proto::TypeProto;
use crate::refusal::{Class, refuse};
use wengert_core::{DType, Diagnostic, Result};

/// The dtype with a number of `TensorProto.DataType`.
///
/// # Errors
/// The library has no such dtype, or the schema has none.
pub(crate) fn dtype(number: i32) -> Result<DType> {
    let unknown = |name: &str| Err(refuse(Class::DType, format!("a tensor of {name}")));
    Ok(match number {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => return unknown("uint16"),
        5 => return unknown("int16"),
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
        18 => return unknown("float8e4m3fnuz"),
        19 => DType::F8E5M2,
        20 => return unknown("float8e5m2fnuz"),
        21 => return unknown("uint4"),
        22 => return unknown("int4"),
        23 => return unknown("float4e2m1"),
        24 => return unknown("float8e8m0"),
        25 => return unknown("uint2"),
        26 => return unknown("int2"),
        27 => return unknown("float6e2m3"),
        28 => return unknown("float6e3m2"),
        other => return Err(Diagnostic::new(format!("the dtype has number {other}"))),
    })
}

/// The largest extent of an input. Sums and products of two are exact integers.
const LARGEST_EXTENT: i64 = 1 << 31;

/// The type of an input.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum ValueType {
    Tensor {
        dtype: DType,
        /// `None` if the rank is not known.
        shape: Option<Vec<Extent>>,
    },
    Sequence,
    Optional,
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
        if proto.sequence_type.is_some() {
            return Ok(ValueType::Sequence);
        }
        if proto.optional_type.is_some() {
            return Ok(ValueType::Optional);
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
        Ok(ValueType::Tensor { dtype: dtype(tensor.elem_type.unwrap_or_default())?, shape })
    }
}
