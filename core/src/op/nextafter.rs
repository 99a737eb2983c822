//! `nextafter`: the neighbour of a float.

use crate::op::prelude::*;

attributes! {
    /// `nextafter %x, %y`: the float of the dtype that comes next to x in the direction of y,
    /// subnormal numbers and infinities counted; y where x = y (so −0 and 0 give y); NaN if one
    /// is NaN. The derivative with respect to x is 1, since the step is one of rounding; that
    /// with respect to y is 0.
    NextAfter {}
}

/// The neighbour, computed on bits. A float without its sign is an integer in the order of
/// magnitudes, so neighbours differ by 1.
fn neighbour(dtype: DType, x: f64, y: f64) -> f64 {
    let (x, y) = (Scalar::from_f64(dtype, x), Scalar::from_f64(dtype, y));
    let (from, to) = (x.to_f64(), y.to_f64());
    if from.is_nan() || to.is_nan() {
        return f64::NAN;
    }
    if from == to {
        return to;
    }
    let sign = 1 << (dtype.bits() - 1);
    let bits = if from == 0.0 {
        (y.bits() & sign) | 1
    } else if (from < to) == (from > 0.0) {
        x.bits() + 1
    } else {
        x.bits() - 1
    };
    Scalar::from_bits(dtype, bits).to_f64()
}

/// The spacing of a dtype's magnitudes in the bits of the dtype of computation: f32 for halves.
struct Layout {
    /// The dtype of the bits.
    bits: DType,
    /// Difference between the bits of neighbours.
    step: i64,
    /// Bits of the least magnitude above 0.
    least: i64,
}

impl Layout {
    fn of(dtype: DType) -> Layout {
        match dtype {
            DType::F64 => Layout { bits: DType::U64, step: 1, least: 1 },
            DType::F32 => Layout { bits: DType::U32, step: 1, least: 1 },
            // A bf16 is the upper half of an f32.
            DType::BF16 => Layout { bits: DType::U32, step: 1 << 16, least: 1 << 16 },
            // 10 bits of the significand instead of 23; the least magnitude is 2⁻²⁴.
            _ => Layout { bits: DType::U32, step: 1 << 13, least: (127 - 24) << 23 },
        }
    }
}

/// Emits the neighbour of `x`. `x` and `y` have dtype `dtype`, widened to f32 if it is a half.
fn emit(c: &mut dyn ElementContext, dtype: DType, x: Reg, y: Reg) -> Reg {
    let (wide, layout) = (c.dtype(x), Layout::of(dtype));
    let integer = |value| Scalar::from_i64(layout.bits, value);
    let zero = c.constant(Scalar::zero(wide));
    let sign = c.constant(integer(if wide == DType::F64 { i64::MIN } else { 1 << 31 }));
    let (step, least) = (c.constant(integer(layout.step)), c.constant(integer(layout.least)));
    let (x_bits, y_bits) = (c.bitcast(x, layout.bits), c.bitcast(y, layout.bits));

    // Whether the step is away from zero.
    let rises = c.scalar(ScalarOp::Lt, &[x, y]);
    let positive = c.scalar(ScalarOp::Lt, &[zero, x]);
    let away = c.scalar(ScalarOp::Eq, &[rises, positive]);
    let size = c.scalar(ScalarOp::Abs, &[x]);
    let size_bits = c.bitcast(size, layout.bits);
    let more = c.scalar(ScalarOp::Add, &[size_bits, step]);
    let less = c.scalar(ScalarOp::Sub, &[size_bits, step]);
    let mut next = c.scalar(ScalarOp::Select, &[away, more, less]);
    if dtype == DType::F16 {
        // Below 2⁻¹⁴, and from 2⁻¹⁴ towards zero, neighbours are 2⁻²⁴ apart. The neighbour of
        // infinity is 65504.
        let number = |c: &mut dyn ElementContext, value| c.constant(Scalar::from_f64(wide, value));
        let (edge, spacing) = (number(c, 2f64.powi(-14)), number(c, 2f64.powi(-24)));
        let (greatest, infinity) = (number(c, 65504.0), number(c, f64::INFINITY));
        let more = c.scalar(ScalarOp::Add, &[size, spacing]);
        let less = c.scalar(ScalarOp::Sub, &[size, spacing]);
        let fixed = c.scalar(ScalarOp::Select, &[away, more, less]);
        let below = c.scalar(ScalarOp::Lt, &[size, edge]);
        let at = c.scalar(ScalarOp::Eq, &[size, edge]);
        let inwards = c.scalar(ScalarOp::Not, &[away]);
        let leaving = c.scalar(ScalarOp::And, &[at, inwards]);
        let subnormal = c.scalar(ScalarOp::Or, &[below, leaving]);
        let fixed = c.bitcast(fixed, layout.bits);
        next = c.scalar(ScalarOp::Select, &[subnormal, fixed, next]);
        let infinite = c.scalar(ScalarOp::Eq, &[size, infinity]);
        let greatest = c.bitcast(greatest, layout.bits);
        next = c.scalar(ScalarOp::Select, &[infinite, greatest, next]);
    }
    let is_zero = c.scalar(ScalarOp::Eq, &[x, zero]);
    let next = c.scalar(ScalarOp::Select, &[is_zero, least, next]);
    let signed = c.scalar(ScalarOp::Select, &[is_zero, y_bits, x_bits]);
    let signed = c.scalar(ScalarOp::And, &[signed, sign]);
    let next = c.scalar(ScalarOp::Or, &[next, signed]);
    let next = c.bitcast(next, wide);
    let equal = c.scalar(ScalarOp::Eq, &[x, y]);
    let next = c.scalar(ScalarOp::Select, &[equal, y, next]);
    // The result is NaN if and only if an operand is.
    let ordered = c.scalar(ScalarOp::Eq, &[x, x]);
    let other = c.scalar(ScalarOp::Eq, &[y, y]);
    let ordered = c.scalar(ScalarOp::And, &[ordered, other]);
    let nan = c.constant(Scalar::from_f64(wide, f64::NAN));
    c.scalar(ScalarOp::Select, &[ordered, next, nan])
}

impl Operation for NextAfter {
    named!(
        "nextafter",
        "The float next to x in the direction of y; y if both are equal. The derivative with \
         respect to x is 1."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x, y] = t.exactly()?;
        ensure!(x == y, "operands have types {x} and {y}";
            help "give them one dtype and one shape");
        Domain::Float.check(x.dtype)?;
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let next = |x, y| neighbour(e.results[0].dtype, x, y);
        e.zip(|x, y| x.real().apply2(y.real(), "nextafter", next).map(Cell::Real))
    }

    fn compute<'a>(&'a self, l: &Lowering<'_, 'a>) -> Compute<'a> {
        let dtype = l.operands[0].dtype;
        Compute::element(move |c, index| {
            let (x, y) = (c.operand(0, index), c.operand(1, index));
            if !dtype.is_half() {
                return emit(c, dtype, x, y);
            }
            let (x, y) = (c.convert(x, DType::F32), c.convert(y, DType::F32));
            let next = emit(c, dtype, x, y);
            c.convert(next, dtype)
        })
    }

    const DERIVATIVE: Derivative = Derivative::Nonlinear(|j| vec![j.tangents[0].clone()]);

    const TRAITS: Traits = Traits::elementwise(Cost::Cheap);
}
