//! `convert_element_type`: the same numbers in another dtype.

use crate::float8::Layout;
use crate::op::float8;
use crate::op::prelude::*;

attributes! {
    /// `convert_element_type %x {dtype=f16}`: to nearest even between floats and from integers;
    /// from float to integer truncated and saturated, NaN to 0; integers wrap; to bool `x ≠ 0`.
    /// 8-bit floats overflow to infinity, f8e4m3fn to NaN.
    ConvertElementType {
        /// Dtype of the result.
        dtype: DType,
    }
}

/// An integer of at most 65 bits rounded once to a float dtype.
fn rounded(value: i128, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => value as f64,
        DType::F32 => f64::from(value as f32),
        _ => {
            // Cuts off more bits than a half and its tie have. If any cut bit was set, sets the
            // last remaining one.
            let cut = (128 - value.unsigned_abs().leading_zeros()).saturating_sub(40);
            let sticky = (value & ((1 << cut) - 1) != 0) as i128;
            Scalar::from_f64(dtype, ((value >> cut) | sticky) as f64 * f64::from(cut).exp2())
                .to_f64()
        }
    }
}

impl Operation for ConvertElementType {
    named!(
        "convert_element_type",
        "x converted to another dtype. Floats are rounded to nearest even. A conversion to \
         integers truncates and saturates, and maps NaN to 0. A conversion between integers drops \
         or extends bits. A conversion to bool is x ≠ 0. A number above those of an 8-bit float \
         becomes infinity (f8e5m2) or NaN (f8e4m3fn)."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        Ok(vec![x.with_dtype(self.dtype)])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let x = &e.operands[0];
        if x.dtype == self.dtype {
            return Ok(vec![x.clone()]);
        }
        if x.dtype.is_float8() {
            // The numbers of an 8-bit float are those of a float.
            let value = |bits: i64| Scalar::from_bits(x.dtype, bits as u64).to_f64();
            let scalar = |bits| Scalar::from_f64(self.dtype, value(bits));
            return e.map(|x| Cell::try_from_scalar(scalar(x.bits())));
        }
        let convert = |cell: &Cell<R>| match cell {
            Cell::Real(r) if self.dtype.is_float() => Cell::Real(r.clone()),
            Cell::Real(r) => Cell::from_scalar(Scalar::from_f64(self.dtype, r.to_f64())),
            Cell::Bits(b) if self.dtype.is_float() && e.regions.rounds => {
                let value =
                    if x.dtype == DType::U64 { i128::from(*b as u64) } else { i128::from(*b) };
                Cell::Real(R::from_f64(rounded(value, self.dtype)))
            }
            Cell::Bits(b) if self.dtype.is_float() => Cell::Real(match x.dtype {
                // Converts the upper 63 bits and the lowest one, since an exact number is made
                // from an i64.
                DType::U64 => {
                    R::from_i64(b >> 1 & i64::MAX).mul(&R::from_i64(2)).add(&R::from_i64(b & 1))
                }
                _ => R::from_i64(*b),
            }),
            // Larger integers than f64 has overflow.
            Cell::Bits(b) if self.dtype.is_float8() && x.dtype == DType::U64 => {
                Cell::from_scalar(Scalar::from_f64(self.dtype, *b as u64 as f64))
            }
            Cell::Bits(b) => Cell::from_scalar(Scalar::from_i64(self.dtype, *b)),
        };
        e.map(|x| Ok(convert(x)))
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let of = |dtype: DType| Layout::of(dtype).filter(|_| l.operands[0].dtype != self.dtype);
        let (from, to) = (of(l.operands[0].dtype), of(self.dtype));
        Compute::element(move |c, index| {
            let x = c.operand(0, index);
            let x = from.map_or(x, |layout| float8::decode(c, x, layout));
            match to {
                Some(layout) => float8::encode(c, x, layout),
                None => c.convert(x, self.dtype.stored()),
            }
        })
    }

    // An integer operand has no tangent, so the rule applies between floats only.
    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        vec![t.cotangents[0].as_ref().map(|ct| ct.convert(t.operands[0].ty().dtype))]
    });

    fn derivative(&self) -> Derivative {
        match self.dtype {
            d if d.is_float() => Self::DERIVATIVE,
            // Its derivative would be a difference of tangents that 8 bits do not hold, and 0 would
            // be a surprise.
            d if d.is_float8() => Derivative::Opaque,
            _ => Derivative::Zero,
        }
    }

    const TRAITS: Traits = Traits::elementwise(Cost::Cheap);

    fn traits(&self) -> Traits {
        match self.dtype.is_float8() {
            // Some 20 instructions, for a result of one byte.
            true => Traits::elementwise(Cost::Expensive),
            false => Self::TRAITS,
        }
    }
}
