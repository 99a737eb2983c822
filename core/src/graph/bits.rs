//! Bits of tensors as other dtypes.
//!
//! `bitcast_convert_type` is an op between dtypes of one size, where nothing is done. Between sizes lax has a further last axis: the parts of a wide
//! element, the lowest bits first, or the parts that make one. Here that is a composite of shifts and conversions on unsigned integers,
//! between two bitcasts of one size; so it fuses like any elementwise work. There are no integers of 16 bits, so the bits of a half are taken
//! from, and put into, those of an f32 by arithmetic. That is exact but for NaN, whose sign and payload no operation keeps.

use super::tensor::Tensor;
use crate::diagnostic::Diagnostic;
use crate::dim::Dim;
use crate::dtype::DType;
use crate::op::BitcastConvertType;
use crate::scalar::Scalar;

/// The unsigned integer that holds the bits of a dtype; those of a half are its low ones.
fn container(size: usize) -> DType {
    match size {
        1 => DType::U8,
        8 => DType::U64,
        _ => DType::U32,
    }
}

impl Tensor {
    /// `bitcast_convert_type`: the same bits as another dtype. To one of 1/k of the size, the result has a further last axis of extent k, the lowest bits first;
    /// to one of k times the size, a last axis of extent k vanishes. A NaN of a half is the canonical one if the size changes.
    ///
    /// Errors: bool, which is no other's bits; a last axis that is not of extent k.
    #[track_caller]
    pub fn bitcast(&self, dtype: DType) -> Tensor {
        let (from, to) = (self.dtype().size(), dtype.size());
        if from == to || self.error().is_some() || self.dtype() == DType::Bool || dtype == DType::Bool {
            return Tensor::apply(BitcastConvertType { dtype }, &[self]);
        }
        if from > to { self.parts(dtype, from / to) } else { self.whole(dtype, to / from) }
    }

    /// Each element as `count` parts of a narrower dtype.
    #[track_caller]
    fn parts(&self, dtype: DType, count: usize) -> Tensor {
        let bits = self.packed_bits();
        let shape: Vec<Dim> = self.shape().iter().cloned().chain([Dim::from(count)]).collect();
        let axes: Vec<usize> = (0..self.rank()).collect();
        let shifts = Tensor::iota(bits.dtype(), shape.clone(), self.rank()) * (dtype.bits() as i64);
        let part = bits.broadcast_in_dim(shape, &axes).shift_right_logical(shifts);
        // A conversion drops the upper bits; where there is no integer so narrow, a mask does.
        let part = if dtype.size() == 2 { part.and(0xffffi64) } else { part };
        part.convert(container(dtype.size())).unpacked_bits(dtype)
    }

    /// Elements of a wider dtype, each of the `count` parts along the last axis.
    #[track_caller]
    fn whole(&self, dtype: DType, count: usize) -> Tensor {
        let last = self.rank().checked_sub(1);
        let Some(axis) = last.filter(|axis| self.shape()[*axis].as_constant() == Some(count as i64)) else {
            return self.fail(
                Diagnostic::new(format!("an element of {dtype} has the bits of {count} of {}", self.ty()))
                    .help(format!("give the operand a last axis of extent {count}")),
            );
        };
        let wide = container(dtype.size());
        let bits = self.packed_bits().convert(wide);
        let shifts = Tensor::iota(wide, self.shape().to_vec(), axis) * (self.dtype().bits() as i64);
        // The parts have no bit in common, so their sum is made of all of them.
        bits.shift_left(shifts).sum_axes(&[axis]).unpacked_bits(dtype)
    }

    /// The bits as an unsigned integer.
    #[track_caller]
    fn packed_bits(&self) -> Tensor {
        let bits = match self.dtype() {
            DType::BF16 => return self.convert(DType::F32).bitcast(DType::U32).shift_right_logical(16i64),
            DType::F16 => self.convert(DType::F32).bitcast(DType::U32),
            dtype => return self.bitcast(container(dtype.size())),
        };
        let (sign, size) = (bits.shift_right_logical(16i64).and(0x8000i64), bits.and(0x7fff_ffffi64));
        // Normal numbers have 13 bits more in f32, and an exponent that is larger by 112; subnormal ones are multiples of 2⁻²⁴.
        let normal = (&size - (112i64 << 23)).shift_right_logical(13i64);
        let subnormal = (self.convert(DType::F32).abs() * 2f64.powi(24)).convert(DType::U32);
        let finite = size.lt(113i64 << 23).select(&subnormal, &normal);
        let infinity = size.splat(Scalar::from_i64(DType::U32, 0x7c00));
        let nan = size.splat(Scalar::from_i64(DType::U32, 0x7e00));
        let infinite = size.gt(0x7f80_0000i64).select(&nan, &infinity);
        sign.or(size.lt(0x7f80_0000i64).select(&finite, &infinite))
    }

    /// What has these bits; `self` is the container.
    #[track_caller]
    fn unpacked_bits(&self, dtype: DType) -> Tensor {
        match dtype {
            DType::BF16 => return self.shift_left(16i64).bitcast(DType::F32).convert(dtype),
            DType::F16 => {}
            dtype => return self.bitcast(dtype),
        }
        let (sign, size) = (self.and(0x8000i64).shift_left(16i64), self.and(0x7fffi64));
        // As bits of f32 the exponent is too small by 112, of subnormal numbers as well; the product is exact.
        let moved = size.shift_left(13i64);
        let finite = (moved.bitcast(DType::F32) * 2f64.powi(112)).bitcast(DType::U32);
        let infinite = moved.or(0x7f80_0000i64);
        let size = size.lt(0x7c00i64).select(&finite, &infinite);
        sign.or(size).bitcast(DType::F32).convert(dtype)
    }
}
