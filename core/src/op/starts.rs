//! Where windows start, from data: what gathers, scatters and dynamic slices have in common.
//!
//! An index may be of any integer dtype. Loops take signed ones of 32 or 64 bits, so that others
//! are converted first; a u64 beyond the greatest i64 becomes that, which is as far out of
//! bounds.

use super::compute::ElementContext;
use super::{Cost, Traits, distinct_axes};
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::tensor::Tensor;
use crate::nest::{Reg, ScalarOp};
use crate::scalar::Scalar;
use crate::ty::TensorType;

/// Traits of what reads elements at indices from data.
pub(super) const LOOKUP: Traits = Traits { cost: Cost::Cheap, elementwise: false, commutative: false };

/// Checks that axes ascend and exist.
pub(super) fn ascending_axes(what: &str, axes: &[usize], rank: usize) -> Result<()> {
    distinct_axes(what, axes, rank)?;
    if axes.is_sorted() { Ok(()) } else { Err(Diagnostic::new(format!("{what} must ascend"))) }
}

/// Checks the dtype of indices.
pub(super) fn check_dtype(indices: &TensorType) -> Result<()> {
    if indices.dtype.is_integer() {
        return Ok(());
    }
    Err(Diagnostic::new(format!("indices of type {indices}")).help("indices are integers: convert them"))
}

/// Checks index vectors, which lie along the last axis, against the axes they start.
pub(super) fn check_indices(what: &str, indices: &TensorType, map: &[usize], rank: usize) -> Result<()> {
    check_dtype(indices)?;
    distinct_axes(what, map, rank)?;
    if indices.shape.last().and_then(Dim::as_extent) != Some(map.len()) {
        return Err(Diagnostic::new(format!(
            "indices of type {indices} for {} entries of {what}",
            map.len()
        ))
        .help("the last axis of the indices is the index vector, with one component for each entry"));
    }
    Ok(())
}

/// Axes of an operand that run together with axes of the indices.
pub(super) struct Batching<'a> {
    /// Of the operand, ascending.
    pub operand: &'a [usize],
    /// Of the indices, pairwise; their name.
    pub indices: (&'a str, &'a [usize]),
    /// Axes of the operand that are not for batching: those that start somewhere, and those that
    /// the window lacks; with their name.
    pub others: [(&'a str, &'a [usize]); 2],
}

impl Batching<'_> {
    /// Checks the axes against the types.
    pub fn check(&self, x: &TensorType, indices: &TensorType) -> Result<()> {
        ascending_axes("operand_batching_dims", self.operand, x.rank())?;
        let (name, axes) = self.indices;
        distinct_axes(name, axes, indices.rank() - 1)?;
        if axes.len() != self.operand.len() {
            return Err(Diagnostic::new(format!(
                "operand_batching_dims has {} entries, {name} has {}",
                self.operand.len(),
                axes.len()
            )));
        }
        for (i, j) in self.operand.iter().zip(axes) {
            if x.shape[*i] != indices.shape[*j] {
                return Err(Diagnostic::new(format!(
                    "axis {i} of {x} runs together with axis {j} of {indices}"
                ))
                .help("extents of batching axes must be equal"));
            }
            for (other, axes) in self.others {
                if axes.contains(i) {
                    return Err(Diagnostic::new(format!(
                        "axis {i} of {x} is in operand_batching_dims and in {other}"
                    )));
                }
            }
        }
        Ok(())
    }
}

/// The greatest start that an index dtype can hold.
pub(super) fn greatest(last: i64, dtype: DType) -> i64 {
    let most = match dtype {
        DType::U64 => i64::MAX,
        d => Scalar::highest(d).to_i64().expect("indices are integers"),
    };
    last.min(most)
}

/// An index as [`Cell::Bits`](crate::interpret::Cell::Bits) keeps it, as a number.
pub(super) fn number(bits: i64, dtype: DType) -> i64 {
    if dtype == DType::U64 && bits < 0 { i64::MAX } else { bits }
}

/// An index as a register that index expressions take: i32 or i64.
pub(super) fn signed(c: &mut dyn ElementContext, index: Reg) -> Reg {
    match c.dtype(index) {
        DType::I32 | DType::I64 => index,
        DType::U64 => {
            let most = c.constant(Scalar::from_i64(DType::U64, i64::MAX));
            let index = c.scalar(ScalarOp::Min, &[index, most]);
            c.convert(index, DType::I64)
        }
        DType::U32 => c.convert(index, DType::I64),
        _ => c.convert(index, DType::I32),
    }
}

/// An index as a register, clamped to `0..=last`.
pub(super) fn clamped(c: &mut dyn ElementContext, index: Reg, last: i64) -> Reg {
    let index = signed(c, index);
    let dtype = c.dtype(index);
    let zero = c.constant(Scalar::zero(dtype));
    let limit = c.constant(Scalar::from_i64(dtype, greatest(last, dtype)));
    let index = c.scalar(ScalarOp::Max, &[index, zero]);
    c.scalar(ScalarOp::Min, &[index, limit])
}

/// Indices as a tensor of i32 or i64.
pub(super) fn signed_tensor(indices: &Tensor) -> Tensor {
    match indices.dtype() {
        DType::I32 | DType::I64 => indices.clone(),
        DType::U64 => indices.min(i64::MAX).convert(DType::I64),
        DType::U32 => indices.convert(DType::I64),
        _ => indices.convert(DType::I32),
    }
}
