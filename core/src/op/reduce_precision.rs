//! `reduce_precision`: rounding to a float format of fewer bits, stored in the dtype.

use super::attribute::{attributes, named};
use super::compute::{Compute, ElementContext};
use super::derivative::Derivative;
use super::elementwise::Domain;
use super::sample::{Sample, floats, values};
use super::{Cost, Entry, Op, Operation, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::nest::{Reg, ScalarOp};
use crate::op::batch::Batch;
use crate::scalar::Scalar;
use crate::ty::TensorType;

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
    named!("reduce_precision");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        Domain::Float.check(operands[0].dtype)?;
        if self.exponent_bits == 0 {
            return Err(
                Diagnostic::new("a format without exponent").help("`exponent_bits` is at least 1")
            );
        }
        Ok(vec![operands[0].clone()])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        let reduced = |cell: &Cell<R>| {
            let rounded = |v: f64| self.reduced(x.dtype, Scalar::from_f64(x.dtype, v)).to_f64();
            cell.real().apply("reduce_precision", rounded).map(Cell::Real)
        };
        let cells = Cells::try_collect(x.cells.iter().map(reduced))?;
        Ok(vec![Array::new(x.dtype, x.shape.clone(), cells)])
    }

    fn compute<'a>(
        &'a self,
        operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        let dtype = operands[0].dtype;
        Compute::Element {
            rule: Box::new(move |c, index| {
                let x = c.operand(0, index);
                if !dtype.is_half() {
                    return self.emit(c, dtype, x);
                }
                let x = c.convert(x, DType::F32);
                let result = self.emit(c, dtype, x);
                c.convert(result, dtype)
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Linear(|t| {
            let Op::ReducePrecision(op) = t.op else { unreachable!("this op's own rule") };
            let reduced = |ct: &_| Tensor::apply(op.clone(), &[ct]);
            vec![t.cotangents[0].as_ref().map(reduced)]
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.elementwise(self.clone())
    }

    fn traits(&self) -> Traits {
        Traits { cost: Cost::Cheap, elementwise: true, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        use half::{bf16, f16};
        let sample = |exponent_bits, mantissa_bits, operand| {
            Sample::new(ReducePrecision { exponent_bits, mantissa_bits }, vec![operand])
        };
        let formats = [
            (5, 10),
            (8, 7),
            (4, 3),
            (5, 2),
            (1, 0),
            (8, 23),
            (11, 52),
            (20, 60),
            (11, 5),
            (3, 40),
        ];
        // Ties, both sides of the limits of small formats, subnormal numbers, infinities and NaN.
        let edges: [f64; 16] = [
            0.0,
            -0.0,
            1.0625,
            1.1875,
            -65504.0,
            65519.0,
            65520.0,
            247.9,
            248.0,
            2f64.powi(-14),
            -(2f64.powi(-15)),
            3.7 * 2f64.powi(-20),
            2f64.powi(-133) * 1.25,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
        ];
        let halves =
            [0x0180, 0x8181, 0x0001, 0x03ff, 0x0400, 0x7bff, 0x7c00, 0xfbf0].map(f16::from_bits);
        let mut samples: Vec<Sample> =
            formats.iter().map(|(e, m)| sample(*e, *m, floats(&[3, 5], -3.0, 3.0))).collect();
        samples.extend([
            sample(5, 10, values(&[16], edges)),
            sample(8, 7, values(&[16], edges)),
            sample(4, 3, values(&[16], edges.map(|v| v as f32))),
            sample(8, 5, values(&[16], edges.map(|v| v as f32))),
            sample(5, 3, values(&[16], edges.map(f16::from_f64))),
            sample(4, 3, values(&[16], edges.map(f16::from_f64))),
            sample(5, 2, values(&[16], edges.map(bf16::from_f64))),
            sample(8, 3, values(&[16], edges.map(bf16::from_f64))),
            sample(5, 2, values(&[8], halves)),
            sample(11, 0, values(&[8], halves)),
        ]);
        vec![Entry {
            name: "reduce_precision",
            doc: "x rounded to `exponent_bits` and `mantissa_bits`. An exponent narrower than the \
                  dtype's has no subnormal numbers. The derivative is the op itself.",
            derivative: "linear",
            samples,
        }]
    }
}
