//! Starts of windows from data: the common part of gathers, scatters and dynamic slices.
//!
//! An index may be of any integer dtype. Loops take i32 and i64, so other dtypes are converted
//! first. A u64 above the greatest i64 becomes that i64, which is out of bounds as well.

use crate::op::prelude::*;

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
    Err(Diagnostic::new(format!("indices of type {indices}"))
        .help("indices are integers: convert them"))
}

/// Checks index vectors, which are along the last axis, against the operand's axes of their
/// components.
pub(super) fn check_indices(
    what: &str,
    indices: &TensorType,
    map: &[usize],
    rank: usize,
) -> Result<()> {
    check_dtype(indices)?;
    distinct_axes(what, map, rank)?;
    ensure!(
        indices.shape.last().and_then(Dim::as_extent) == Some(map.len()),
        "indices of type {indices} for {} entries of {what}", map.len();
        help "the last axis of the indices is the index vector, with one component for each entry"
    );
    Ok(())
}

/// Axes of an operand that are paired with axes of the indices.
pub(super) struct Batching<'a> {
    /// Axes of the operand, ascending.
    pub operand: &'a [usize],
    /// The name of the indices' attribute, and the paired axes of the indices.
    pub indices: (&'a str, &'a [usize]),
    /// The other axes of the operand, which must not be batching axes: those with a start, and
    /// those that the window lacks; each with the attribute's name.
    pub others: [(&'a str, &'a [usize]); 2],
}

impl Batching<'_> {
    /// Checks the axes against the types.
    pub fn check(&self, x: &TensorType, indices: &TensorType) -> Result<()> {
        ascending_axes("operand_batching_dims", self.operand, x.rank())?;
        let (name, axes) = self.indices;
        distinct_axes(name, axes, indices.rank() - 1)?;
        ensure!(
            axes.len() == self.operand.len(),
            "operand_batching_dims has {} entries, {name} has {}",
            self.operand.len(),
            axes.len()
        );
        for (i, j) in self.operand.iter().zip(axes) {
            ensure!(
                x.shape[*i] == indices.shape[*j],
                "axis {i} of {x} runs together with axis {j} of {indices}";
                help "extents of batching axes must be equal"
            );
            for (other, axes) in self.others {
                ensure!(
                    !axes.contains(i),
                    "axis {i} of {x} is in operand_batching_dims and in {other}"
                );
            }
        }
        Ok(())
    }
}

/// The lesser of `last` and the greatest start that the index dtype can hold.
pub(super) fn greatest(last: i64, dtype: DType) -> i64 {
    let most = match dtype {
        DType::U64 => i64::MAX,
        d => Scalar::highest(d).to_i64().expect("indices are integers"),
    };
    last.min(most)
}

/// The index that a [`Cell::Bits`](crate::interpret::Cell::Bits) holds, as a number.
pub(super) fn number(bits: i64, dtype: DType) -> i64 {
    if dtype == DType::U64 && bits < 0 { i64::MAX } else { bits }
}

/// An index as a register of a dtype that index expressions take: i32 or i64.
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
