//! Section `literals`: elements of literals, one after another, little endian and in row-major
//! order. A record states dtype and shape and takes the next literal. So no two literals share
//! bytes, and a file cannot hold more elements than bytes.

use crate::data::bytes::little_endian;
use crate::format::container::damaged;
use wengert_core::{DType, Literal, Result};

/// Appends a literal. Returns its dtype and shape for its record.
pub fn put(section: &mut Vec<u8>, literal: &Literal) -> (String, Vec<u64>) {
    section.extend_from_slice(&little_endian(literal));
    (literal.dtype().name().into(), literal.shape().iter().map(|e| *e as u64).collect())
}

/// The literals of a section that are not yet taken.
#[derive(Debug)]
pub struct Literals<'a> {
    rest: &'a [u8],
}

impl<'a> Literals<'a> {
    /// All literals of a section.
    pub fn new(section: &'a [u8]) -> Self {
        Literals { rest: section }
    }

    /// The next literal; an error if the section has too few bytes.
    pub fn take(&mut self, dtype: &str, shape: &[u64]) -> Result<Literal> {
        let dtype: DType = dtype.parse()?;
        let extents = shape.iter().map(|e| usize::try_from(*e).ok()).collect::<Option<Vec<_>>>();
        let bytes = extents
            .as_ref()
            .and_then(|extents| extents.iter().try_fold(dtype.size(), |n, e| n.checked_mul(*e)))
            .and_then(|length| self.rest.split_at_checked(length));
        let (Some(extents), Some((bytes, rest))) = (extents, bytes) else {
            return Err(damaged(format!(
                "a literal {dtype}{shape:?} is larger than what is left of section `literals`"
            )));
        };
        self.rest = rest;
        Literal::from_bytes(dtype, &extents, bytes)
    }

    /// An error if bytes are left.
    pub fn end(&self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            left => Err(damaged(format!("section `literals` has {left} bytes too many"))),
        }
    }
}
