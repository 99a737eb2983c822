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

use crate::op::prelude::*;

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
    named!(
        "bitcast_convert_type",
        "The bits of x as another dtype. A dtype of 1/k of the size adds a last axis of extent k, \
         the lowest bits first (little-endian). A dtype of k times the size removes a last axis of \
         extent k. A NaN half becomes the canonical NaN if the size changes."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        ensure!(
            (x.dtype == DType::Bool) == (self.dtype == DType::Bool),
            "the bits of {} are not those of {}", x.dtype, self.dtype;
            help "bool is no other dtype's bits: convert it to u8, or compare with 0"
        );
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
        Ok(vec![TensorType::of(self.dtype, shape)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        let floats = x.dtype.is_float() || self.dtype.is_float();
        if !e.regions.rounds && floats && x.dtype != self.dtype {
            bail!("exact numbers have no bits");
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
        e.result(cells)
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let (from, to) = (l.operands[0].dtype.size(), self.dtype.size());
        if from == to {
            return Compute::element(|c, index| {
                let x = c.operand(0, index);
                c.bitcast(x, self.dtype)
            });
        }
        Compute::Decompose(Box::new(move |tensors| {
            let (x, dtype) = (&tensors[0], self.dtype);
            vec![if from > to { parts(x, dtype, from / to) } else { whole(x, dtype, to / from) }]
        }))
    }

    const DERIVATIVE: Derivative = Derivative::Zero;

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        // The axis of the parts is the last one, with and without a batch axis.
        b.unary(self.clone())
    }

    const TRAITS: Traits = Traits::elementwise(Cost::Cheap);
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
