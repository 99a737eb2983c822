//! `bitcast_convert_type`: the same bits as another dtype.
//!
//! Between dtypes of one size it is the identity on bits. Between sizes there is one more last
//! axis, as in lax: the parts of a wide element, or the parts that make one. The order is
//! *little-endian* on every machine: part 0 has the lowest bits. The parts are computed by shifts
//! and conversions of unsigned integers between two bitcasts of one size, so they fuse like any
//! elementwise op. There are no integers of 16 bits, so the bits of a half are extracted from,
//! and inserted into, those of an f32 by arithmetic. This is exact except for NaN, whose sign and
//! payload no operation keeps. Where the size changes, a half that is NaN becomes the canonical
//! one (`0x7e00`, bf16 `0x7fc0`).

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::sample::{Sample, values};
use super::{Batch, Cost, Entry, Operation, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dim::Dim;
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::scalar::Scalar;
use crate::ty::TensorType;

attributes! {
    /// `bitcast_convert_type %x {dtype=u32}`: the bits of x, read as another dtype. To a dtype of
    /// 1/k of the size, each element becomes k along a further last axis, the lowest bits first;
    /// to one of k times the size, the k elements along the last axis become one. Bool is
    /// excluded: not every byte is a bool.
    BitcastConvertType {
        /// Dtype of the result.
        dtype: DType,
    }
}

impl Operation for BitcastConvertType {
    named!("bitcast_convert_type");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        let x = &operands[0];
        if (x.dtype == DType::Bool) != (self.dtype == DType::Bool) {
            return Err(Diagnostic::new(format!(
                "the bits of {} are not those of {}",
                x.dtype, self.dtype
            ))
            .help("bool is no other dtype's bits: convert it to u8, or compare with 0"));
        }
        let (from, to) = (x.dtype.size(), self.dtype.size());
        let mut shape = x.shape.clone();
        if from > to {
            shape.push(Dim::from(from / to));
        }
        if from < to && shape.pop() != Some(Dim::from(to / from)) {
            let error =
                format!("an element of {} has the bits of {} of {x}", self.dtype, to / from);
            return Err(Diagnostic::new(error)
                .help(format!("give the operand a last axis of extent {}", to / from)));
        }
        Ok(vec![TensorType { dtype: self.dtype, shape }])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        if !R::ROUNDS && (x.dtype.is_float() || self.dtype.is_float()) && x.dtype != self.dtype {
            return Err(Diagnostic::new("exact numbers have no bits"));
        }
        let (from, to) = (x.dtype.size(), self.dtype.size());
        let canonical = |s: Scalar| {
            if from != to && s.to_f64().is_nan() {
                canonical_nan(s.dtype()).unwrap_or(s)
            } else {
                s
            }
        };
        let bits = |cell: &Cell<R>| canonical(cell.to_scalar(x.dtype)).bits();
        let cell = |bits: u64| Cell::from_scalar(canonical(Scalar::from_bits(self.dtype, bits)));
        let cells = if from > to {
            let mask = u64::MAX >> (64 - 8 * to);
            let part = |(bits, i): (u64, usize)| cell((bits >> (8 * to * i)) & mask);
            let count = from / to;
            let parts = (0..x.cells.len() * count).map(|n| (&x.cells[n / count], n % count));
            Cells::collect(parts.map(|(c, i)| part((bits(c), i))))?
        } else {
            let whole = |parts: &[Cell<R>]| {
                let parts = parts.iter().enumerate();
                cell(parts.fold(0, |whole, (i, part)| whole | (bits(part) << (8 * from * i))))
            };
            Cells::collect(x.cells.chunks(to / from).map(whole))?
        };
        let shape = results[0].extents().expect("the interpreter runs bound functions only");
        Ok(vec![Array::new(self.dtype, shape, cells)])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let (from, to) = (operands[0].dtype.size(), self.dtype.size());
        if from == to {
            return Compute::Element {
                rule: Box::new(|c, index| {
                    let x = c.operand(0, index);
                    c.bitcast(x, self.dtype)
                }),
                indirect: vec![],
            };
        }
        Compute::Decompose(Box::new(move |tensors| {
            let (x, dtype) = (&tensors[0], self.dtype);
            vec![if from > to { parts(x, dtype, from / to) } else { whole(x, dtype, to / from) }]
        }))
    }

    fn derivative(&self) -> Derivative {
        Derivative::Zero
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        // The axis of the parts is the last one, with and without a batch axis.
        b.unary(self.clone())
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Cheap, elementwise: true, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        vec![Entry {
            name: "bitcast_convert_type",
            doc: "The bits of x as another dtype. A dtype of 1/k of the size adds a last axis of \
                  extent k, the lowest bits first (little-endian). A dtype of k times the size \
                  removes a last axis of extent k. A NaN half becomes the canonical NaN if the \
                  size changes.",
            derivative: Derivative::Zero.kind(),
            samples: samples(),
        }]
    }
}

/// The NaN that replaces every NaN of a half.
fn canonical_nan(dtype: DType) -> Option<Scalar> {
    match dtype {
        DType::F16 => Some(Scalar::from_bits(dtype, 0x7e00)),
        DType::BF16 => Some(Scalar::from_bits(dtype, 0x7fc0)),
        _ => None,
    }
}

/// The unsigned integer that holds the bits of a dtype of this size; the bits of a half are its
/// low ones.
fn container(size: usize) -> DType {
    match size {
        1 => DType::U8,
        8 => DType::U64,
        _ => DType::U32,
    }
}

/// Each element as `count` parts of a narrower dtype.
fn parts(x: &Tensor, dtype: DType, count: usize) -> Tensor {
    let bits = to_bits(x);
    let shape: Vec<Dim> = x.shape().iter().cloned().chain([Dim::from(count)]).collect();
    let axes: Vec<usize> = (0..x.rank()).collect();
    let shifts = Tensor::iota(bits.dtype(), shape.clone(), x.rank()) * (dtype.bits() as i64);
    let part = bits.broadcast_in_dim(shape, &axes).shift_right_logical(shifts);
    // A conversion drops the upper bits; for parts of 2 bytes, which have no integer dtype, a
    // mask does.
    let part = if dtype.size() == 2 { part.and(0xffffi64) } else { part };
    from_bits(&part.convert(container(dtype.size())), dtype)
}

/// Elements of a wider dtype, each from the `count` parts along the last axis.
fn whole(x: &Tensor, dtype: DType, count: usize) -> Tensor {
    let wide = container(dtype.size());
    let bits = to_bits(x).convert(wide);
    let (axis, shape) = (x.rank() - 1, &x.shape()[..x.rank() - 1]);
    let part = |i: i64| {
        let part = bits.slice_axis(axis, i, i + 1).reshape(shape.to_vec());
        part.shift_left(i * x.dtype().bits() as i64)
    };
    from_bits(&(1..count as i64).fold(part(0), |whole, i| whole.or(part(i))), dtype)
}

/// The bits as an unsigned integer, the container of the dtype.
fn to_bits(x: &Tensor) -> Tensor {
    if !x.dtype().is_half() {
        return x.bitcast(container(x.dtype().size()));
    }
    let bits = x.convert(DType::F32).bitcast(DType::U32);
    let (sign, size) = (bits.shift_right_logical(16i64).and(0x8000i64), bits.and(0x7fff_ffffi64));
    let number = if x.dtype() == DType::BF16 {
        bits.shift_right_logical(16i64)
    } else {
        // Normal numbers have 13 more bits in f32, and an exponent larger by 112. Subnormal ones
        // are multiples of 2⁻²⁴.
        let normal = (&size - (112i64 << 23)).shift_right_logical(13i64);
        let subnormal = (x.convert(DType::F32).abs() * 2f64.powi(24)).convert(DType::U32);
        let finite = size.lt(113i64 << 23).select(&subnormal, &normal);
        let infinity = size.splat(Scalar::from_i64(DType::U32, 0x7c00));
        sign.or(size.lt(0x7f80_0000i64).select(&finite, &infinity))
    };
    let nan = canonical_nan(x.dtype()).expect("a half has a canonical NaN").bits();
    size.gt(0x7f80_0000i64).select(&size.splat(Scalar::from_i64(DType::U32, nan as i64)), &number)
}

/// The elements with these bits, given in the container of the dtype.
fn from_bits(bits: &Tensor, dtype: DType) -> Tensor {
    if !dtype.is_half() {
        return bits.bitcast(dtype);
    }
    let (sign, size) = (bits.and(0x8000i64).shift_left(16i64), bits.and(0x7fffi64));
    let (number, infinity) = if dtype == DType::BF16 {
        (bits.shift_left(16i64), 0x7f80i64)
    } else {
        // Read as bits of f32, the exponent is too small by 112, for subnormal numbers too. The
        // product is exact.
        let moved = size.shift_left(13i64);
        let finite = (moved.bitcast(DType::F32) * 2f64.powi(112)).bitcast(DType::U32);
        let infinite = moved.or(0x7f80_0000i64);
        (sign.or(size.lt(0x7c00i64).select(&finite, &infinite)), 0x7c00)
    };
    let nan = size.splat(Scalar::from_i64(DType::U32, 0x7fc0_0000));
    size.gt(infinity).select(&nan, &number).bitcast(DType::F32).convert(dtype)
}

fn samples() -> Vec<Sample> {
    let sample = |dtype, operand| Sample::new(BitcastConvertType { dtype }, vec![operand]);
    // Zeros, a subnormal number, the least and the greatest normal ones, an infinity, and NaNs
    // with a sign and a payload.
    let f16s = || {
        [
            0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x3c01, 0xfbff, 0x7c00, 0xfc00, 0x7e01, 0xfd00,
            0x4248,
        ]
    };
    let bf16s = || {
        [
            0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x3f81, 0xff7f, 0x7f80, 0xff80, 0x7fc1, 0xffa0,
            0x4049,
        ]
    };
    let f16 = |shape: &[usize]| values(shape, f16s().map(half::f16::from_bits));
    let bf16 = |shape: &[usize]| values(shape, bf16s().map(half::bf16::from_bits));
    let bytes: [u8; 16] =
        [0, 1, 0x7f, 0xff, 0x18, 0x2d, 0x44, 0x54, 0xfb, 0x21, 0x09, 0x40, 0xdb, 0x0f, 0x49, 0xc0];
    vec![
        sample(DType::U32, values(&[3], [1.5f32, -0.0, f32::INFINITY])),
        sample(DType::F32, values(&[3], [0x3f80_0000u32, 0x8000_0000, 3])),
        sample(DType::I64, values(&[2], [1.5f64, -2.25])),
        sample(DType::F64, values(&[2], [0x3ff0_0000_0000_0000i64, 0])),
        sample(DType::I8, values(&[3], [255u8, 0, 7])),
        sample(DType::U8, values(&[3], [-1i8, 0, 7])),
        sample(DType::I32, values(&[2], [u32::MAX, 5])),
        sample(DType::U64, values(&[2], [-1i64, 5])),
        sample(
            DType::BF16,
            values(&[2], [half::f16::from_bits(0x3c00), half::f16::from_bits(0x4200)]),
        ),
        // Parts of an element: of 4, 8 and 2 bytes; of scalars, several axes and no elements.
        sample(DType::U8, values(&[3], [1.5f32, -0.0, f32::NEG_INFINITY])),
        sample(DType::I8, values(&[], [0x80ff_7f01u32])),
        sample(
            DType::U8,
            values(&[2, 3], [1.5f64, -0.0, 5e-324, f64::MAX, -std::f64::consts::PI, 0.1]),
        ),
        sample(DType::I32, values(&[2], [i64::MIN + 7, 0x0123_4567_89ab_cdef])),
        sample(DType::F32, values(&[3], [1.5f64, -2.25, 1e300])),
        sample(DType::F16, values(&[3], [0x7c00_3c00u32, 0x8001_fbff, 0x0400_83ff])),
        sample(DType::BF16, values(&[3], [0x7f80_3f80i32, 0x0001_ff7f, 0x0080_807f])),
        sample(DType::F16, values(&[2], [1.5f32, -0.1])),
        sample(DType::BF16, values(&[1, 2], [0x4000_3c00_8001_0400u64, 0x7c00_fc00_7e01_fd00])),
        sample(DType::U8, f16(&[12])),
        sample(DType::I8, bf16(&[3, 4])),
        sample(DType::U8, values(&[0, 3], [0.0f32; 0])),
        // Elements from parts.
        sample(DType::F32, values(&[4, 4], bytes)),
        sample(DType::I64, values(&[2, 8], bytes)),
        sample(DType::F64, values(&[2, 1, 8], bytes)),
        sample(DType::U32, values(&[4], [-1i8, 0, 127, -128])),
        sample(DType::F16, values(&[8, 2], bytes)),
        sample(DType::BF16, values(&[8, 2], bytes)),
        sample(DType::U32, f16(&[6, 2])),
        sample(DType::U64, bf16(&[3, 4])),
        sample(DType::F32, bf16(&[2, 3, 2])),
        sample(DType::F64, f16(&[3, 4])),
        sample(DType::F64, values(&[2, 2], [0u32, 0x3ff8_0000, 7, 0])),
        sample(DType::I64, values(&[2], [-1i32, 5])),
        sample(DType::U32, values(&[0, 4], [0u8; 0])),
    ]
}
