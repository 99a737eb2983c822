//! `reduce_precision`: rounding to a float format of fewer bits, stored in the dtype.

use crate::op::prelude::*;

attributes! {
    /// `reduce_precision %x {exponent_bits=5, mantissa_bits=10}`: x rounded to a format with so
    /// many bits, as XLA has it: the significand to nearest even; numbers above the format's
    /// range become ±∞, and those below its least normal number ±0 (the narrow format has no
    /// subnormal numbers). Where `exponent_bits` is not less than the dtype's, its range stays,
    /// subnormal numbers included; where `mantissa_bits` is not less, significands stay. NaN
    /// stays.
    ///
    /// As in lax the derivative is the op itself, applied to the tangent: derivatives have the
    /// reduced precision, too.
    ReducePrecision {
        /// Bits of the exponent, at least 1.
        exponent_bits: usize,
        /// Stored bits of the significand.
        mantissa_bits: usize,
    }
}

/// Bits of the exponent and of the stored significand.
fn format(dtype: DType) -> (u32, u32) {
    match dtype {
        DType::F16 => (5, 10),
        DType::BF16 => (8, 7),
        DType::F32 => (8, 23),
        _ => (11, 52),
    }
}

impl ReducePrecision {
    /// The bits of the result from those of the operand. On the bits of any format, rounding is
    /// an addition.
    fn reduced(&self, dtype: DType, x: Scalar) -> Scalar {
        let (exponent_bits, mantissa_bits) = format(dtype);
        let sign = x.bits() & (1 << (exponent_bits + mantissa_bits));
        let mut size = x.bits() ^ sign;
        let infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
        if size > infinity {
            return x;
        }
        if (self.mantissa_bits as u64) < u64::from(mantissa_bits) {
            let cut = mantissa_bits - self.mantissa_bits as u32;
            let last = (size >> cut) & 1;
            size = (size + (1 << (cut - 1)) - 1 + last) >> cut << cut;
        }
        if (self.exponent_bits as u64) < u64::from(exponent_bits) {
            // The exponents of numbers that are normal in both formats.
            let (bias, reduced) =
                ((1 << (exponent_bits - 1)) - 1, (1 << (self.exponent_bits - 1)) - 1);
            let exponent = size >> mantissa_bits;
            if exponent > bias + reduced {
                size = infinity;
            } else if exponent <= bias - reduced {
                size = 0;
            }
        }
        Scalar::from_bits(dtype, sign | size)
    }

    /// Emits the result for an operand of `dtype`, widened to f32 if it is a half.
    fn emit(&self, c: &mut dyn ElementContext, dtype: DType, x: Reg) -> Reg {
        let wide = c.dtype(x);
        let bits = if wide == DType::F64 { DType::U64 } else { DType::U32 };
        let ((exponent_bits, mantissa_bits), (_, wide_mantissa)) = (format(dtype), format(wide));
        let number = |c: &mut dyn ElementContext, value| c.constant(Scalar::from_f64(wide, value));
        let integer =
            |c: &mut dyn ElementContext, value: u64| c.constant(Scalar::from_bits(bits, value));
        let size = c.scalar(ScalarOp::Abs, &[x]);
        let mut result = size;
        if (self.mantissa_bits as u64) < u64::from(mantissa_bits) {
            let cut = wide_mantissa - self.mantissa_bits as u32;
            let size_bits = c.bitcast(size, bits);
            let (shift, one) = (integer(c, u64::from(cut)), integer(c, 1));
            let last = c.scalar(ScalarOp::ShiftRightLogical, &[size_bits, shift]);
            let last = c.scalar(ScalarOp::And, &[last, one]);
            let below_half = integer(c, (1 << (cut - 1)) - 1);
            let sum = c.scalar(ScalarOp::Add, &[size_bits, below_half]);
            let sum = c.scalar(ScalarOp::Add, &[sum, last]);
            let kept = integer(c, !((1u64 << cut) - 1) & (u64::MAX >> (64 - bits.bits())));
            let kept = c.scalar(ScalarOp::And, &[sum, kept]);
            result = c.bitcast(kept, wide);
            if dtype == DType::F16 {
                // Subnormal numbers of f16 are normal in f32, but are spaced like fixed-point
                // numbers.
                let unit = 2f64.powi(-14 - self.mantissa_bits as i32);
                let (up, down) = (number(c, 1.0 / unit), number(c, unit));
                let scaled = c.scalar(ScalarOp::Mul, &[size, up]);
                let whole = c.scalar(ScalarOp::RoundEven, &[scaled]);
                let fixed = c.scalar(ScalarOp::Mul, &[whole, down]);
                let edge = number(c, 2f64.powi(-14));
                let subnormal = c.scalar(ScalarOp::Lt, &[size, edge]);
                result = c.scalar(ScalarOp::Select, &[subnormal, fixed, result]);
            }
        }
        if (self.exponent_bits as u64) < u64::from(exponent_bits) {
            let reduced = (1i32 << (self.exponent_bits - 1)) - 1;
            let (over, under) =
                (number(c, 2f64.powi(reduced + 1)), number(c, 2f64.powi(1 - reduced)));
            let (zero, infinity) = (number(c, 0.0), number(c, f64::INFINITY));
            let overflows = c.scalar(ScalarOp::Le, &[over, result]);
            let underflows = c.scalar(ScalarOp::Lt, &[result, under]);
            result = c.scalar(ScalarOp::Select, &[underflows, zero, result]);
            result = c.scalar(ScalarOp::Select, &[overflows, infinity, result]);
        }
        let sign = integer(c, 1 << (bits.bits() - 1));
        let x_bits = c.bitcast(x, bits);
        let sign = c.scalar(ScalarOp::And, &[x_bits, sign]);
        let result = c.bitcast(result, bits);
        let signed = c.scalar(ScalarOp::Or, &[result, sign]);
        let signed = c.bitcast(signed, wide);
        let ordered = c.scalar(ScalarOp::Eq, &[x, x]);
        c.scalar(ScalarOp::Select, &[ordered, signed, x])
    }
}

impl Operation for ReducePrecision {
    named!(
        "reduce_precision",
        "x rounded to `exponent_bits` and `mantissa_bits`. An exponent narrower than the dtype's \
         has no subnormal numbers. The derivative is the op itself."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        Domain::Float.check(x.dtype)?;
        ensure!(self.exponent_bits != 0, "a format without exponent";
            help "`exponent_bits` is at least 1");
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let dtype = e.results[0].dtype;
        let rounded = |v: f64| self.reduced(dtype, Scalar::from_f64(dtype, v)).to_f64();
        e.map(|x| x.real().apply("reduce_precision", rounded).map(Cell::Real))
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let dtype = l.operands[0].dtype;
        Compute::element(move |c, index| {
            let x = c.operand(0, index);
            if !dtype.is_half() {
                return self.emit(c, dtype, x);
            }
            let x = c.convert(x, DType::F32);
            let result = self.emit(c, dtype, x);
            c.convert(result, dtype)
        })
    }

    const DERIVATIVE: Derivative = Derivative::Linear(|t| {
        let Op::ReducePrecision(op) = t.op else { unreachable!("this op's own rule") };
        let reduced = |ct: &_| Tensor::apply(op.clone(), &[ct]);
        vec![t.cotangents[0].as_ref().map(reduced)]
    });

    const TRAITS: Traits = Traits::elementwise(Cost::Cheap);
}
