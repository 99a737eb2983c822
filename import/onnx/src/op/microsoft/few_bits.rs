//! Products with matrices of a few bits.

use crate::op::{Call, one};
use crate::refusal::{Class, refuse};
use crate::value::Value;
use wengert_core::op::Binary;
use wengert_core::{DType, Diagnostic, Dim, Result, Tensor};

/// Integers of a few bits, packed in bytes along the last axis, the lowest bits first.
fn unpacked(bytes: &Tensor, bits: i64) -> Result<Tensor> {
    if bytes.rank() == 0 {
        return Err(Diagnostic::new(format!("{} is no list of packed integers", bytes.ty())));
    }
    let mask = (1u32 << bits) - 1;
    let parts: Vec<Tensor> = (0..8 / bits)
        .map(|n| {
            let shift = bytes.full_like((n * bits) as f64);
            let low = bytes.binary(Binary::ShiftRightLogical, &shift);
            low.binary(Binary::And, &low.full_like(f64::from(mask)))
        })
        .collect();
    let last = bytes.rank() - 1;
    let mut shape = bytes.shape().to_vec();
    shape[last] = shape[last]
        .checked_mul(&Dim::constant(8 / bits))
        .ok_or_else(|| Diagnostic::new("its elements are too many"))?;
    Ok(Tensor::stack(&parts, last as i64 + 1).reshape(shape))
}

/// A product with a matrix of integers of 2, 4 or 8 bits, whose blocks of a row have a scale.
pub(super) fn matmul(call: &Call<'_, '_, '_>) -> Result<Vec<Value>> {
    let (x, packed) = (call.ranked(0, 1)?, call.tensor(1)?);
    let bits = call.int("bits", 4)?;
    if ![2, 4, 8].contains(&bits) {
        return call.refuse("bits", bits);
    }
    if call.given(4).is_some() {
        return Err(refuse(Class::Attribute, "operand 4, `g_idx`, is given"));
    }
    let [rows, blocks, _] = packed.shape() else {
        return Err(Diagnostic::new(format!("{} has three axes", packed.ty())));
    };
    let size = Dim::constant(call.int("block_size", 0)?);
    let values = unpacked(&packed, bits)?;
    if values.shape()[2] != size {
        let found = &values.shape()[2];
        return Err(Diagnostic::new(format!("blocks of {found} numbers, not of {size}")));
    }
    let per_block = [rows.clone(), blocks.clone()];
    let scales = call.tensor(2)?.reshape(per_block.clone()).unsqueeze(2);
    let dtype = scales.dtype();
    let zeros = match call.optional(3)? {
        None => scales.full_like(f64::from(1u32 << (bits - 1))),
        Some(zeros) if zeros.dtype() == DType::U8 => {
            let packed = match zeros.rank() {
                1 => zeros.reshape([
                    rows.clone(),
                    zeros.shape()[0].checked_exact_div(rows).ok_or_else(|| {
                        Diagnostic::new(format!("zero points {} for {rows} rows", zeros.ty()))
                    })?,
                ]),
                _ => zeros,
            };
            let all = unpacked(&packed, bits)?;
            all.slice_axis(1, 0, blocks.clone()).convert(dtype).unsqueeze(2)
        }
        Some(zeros) => zeros.reshape(per_block).convert(dtype).unsqueeze(2),
    };
    let weights = (values.convert(dtype) - zeros) * scales;
    let columns =
        blocks.checked_mul(&size).ok_or_else(|| Diagnostic::new("its elements are too many"))?;
    let all = weights.reshape([rows.clone(), columns]);
    // The last block may be partial.
    let inner = x.shape()[x.rank() - 1].clone();
    let weights = all.slice_axis(1, 0, inner).convert(x.dtype());
    let product = x.matmul(&weights.matrix_transpose());
    one(match call.optional(5)? {
        Some(bias) => product + bias,
        None => product,
    })
}
