//! 8-bit floats in ops: which ops take them, and their conversions as scalar instructions.
//!
//! Kernels have no 8-bit floats. Their elements are loaded and stored as u8, the bits, so an op
//! that moves elements needs nothing of its own. A conversion is computed from the bits by
//! integers, so it fuses like any elementwise op and has the same bits on every device. The
//! interpreter has the definition, [`crate::float8`], with which these programs share no code.

use super::compute::ElementContext;
use super::{Op, ScatterKind, Unary};
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::float8::Layout;
use crate::nest::{Reg, ScalarOp};
use crate::scalar::Scalar;
use crate::ty::TensorType;

/// Error: one of these, operands or results of the op, is of 8-bit floats, and the op computes with
/// their numbers.
pub(super) fn check(op: &Op, types: &[TensorType]) -> Result<()> {
    let found = types.iter().find(|ty| ty.dtype.is_float8());
    let Some(ty) = found.filter(|_| !stores(op)) else { return Ok(()) };
    Err(Diagnostic::new(format!("there is no arithmetic in {}, found {ty}", ty.dtype)).help(
        "8-bit floats are stored, moved and converted: convert the operand to bf16 or f32, and \
         the result back",
    ))
}

/// Whether an op moves, chooses or converts elements, or leaves them to its regions.
fn stores(op: &Op) -> bool {
    let stores = match op {
        Op::Constant(_)
        | Op::ConvertElementType(_)
        | Op::BitcastConvertType(_)
        | Op::Select(_)
        | Op::SelectN(_)
        | Op::Cond(_)
        | Op::Switch(_)
        | Op::Scan(_)
        | Op::While(_)
        | Op::Checkpoint(_)
        | Op::FunctionCall(_)
        | Op::CustomJvp(_)
        | Op::CustomVjp(_) => true,
        Op::Scatter(scatter) => scatter.kind == ScatterKind::Replace,
        Op::Unary(op) => *op == Unary::StopGradient,
        _ => false,
    };
    stores || op.traits().movement
}

/// A float dtype as [`encode`] reads its bits.
struct Wide {
    float: DType,
    bits: DType,
    mantissa: u32,
    bias: i32,
}

const F32: Wide = Wide { float: DType::F32, bits: DType::U32, mantissa: 23, bias: 127 };
const F64: Wide = Wide { float: DType::F64, bits: DType::U64, mantissa: 52, bias: 1023 };

/// Instructions on unsigned integers of one dtype.
struct Bits<'c> {
    c: &'c mut dyn ElementContext,
    dtype: DType,
}

impl Bits<'_> {
    fn constant(&mut self, value: u64) -> Reg {
        self.c.constant(Scalar::from_bits(self.dtype, value))
    }

    /// An instruction whose last operand is a constant.
    fn with(&mut self, op: ScalarOp, x: Reg, value: u64) -> Reg {
        let value = self.constant(value);
        self.c.scalar(op, &[x, value])
    }

    /// `on_true` where `x < value`, else `on_false`.
    fn below(&mut self, x: Reg, value: u64, on_true: Reg, on_false: Reg) -> Reg {
        let holds = self.with(ScalarOp::Lt, x, value);
        self.c.scalar(ScalarOp::Select, &[holds, on_true, on_false])
    }
}

/// The f32 of the number with these bits (u8). Exact.
pub(super) fn decode(c: &mut dyn ElementContext, bits: Reg, layout: Layout) -> Reg {
    let wide = c.convert(bits, DType::U32);
    let mut b = Bits { c, dtype: DType::U32 };
    let sign = b.with(ScalarOp::And, wide, 0x80);
    let sign = b.with(ScalarOp::ShiftLeft, sign, 24);
    let size = b.with(ScalarOp::And, wide, 0x7f);
    // A normal number has the same fraction, and an exponent smaller by the biases' difference.
    let moved = b.with(ScalarOp::ShiftLeft, size, u64::from(F32.mantissa - layout.mantissa));
    let difference = ((F32.bias - layout.bias) as u64) << F32.mantissa;
    let normal = b.with(ScalarOp::Add, moved, difference);
    // A subnormal number is a multiple of the least one.
    let multiple = b.c.convert(size, DType::F32);
    let least = Scalar::of(f32::exp2((1 - layout.bias - layout.mantissa as i32) as f32));
    let least = b.c.constant(least);
    let subnormal = b.c.scalar(ScalarOp::Mul, &[multiple, least]);
    let subnormal = b.c.bitcast(subnormal, DType::U32);
    let finite = b.below(size, 1 << layout.mantissa, subnormal, normal);
    let infinite = u64::from(f32::INFINITY.to_bits());
    let nan = b.constant(u64::from(f32::NAN.to_bits()));
    let special = if layout.overflow == layout.nan {
        nan
    } else {
        let infinity = b.constant(infinite);
        b.below(size, u64::from(layout.overflow) + 1, infinity, nan)
    };
    let size = b.below(size, u64::from(layout.special()), finite, special);
    // The sign of a NaN is not kept.
    let signed = b.c.scalar(ScalarOp::Or, &[size, sign]);
    let result = b.below(size, infinite + 1, signed, size);
    b.c.bitcast(result, DType::F32)
}

/// The bits (u8) of the nearest number, ties to even, of an element of any dtype but 8-bit floats.
pub(super) fn encode(c: &mut dyn ElementContext, value: Reg, layout: Layout) -> Reg {
    // f32 has all halves. It has all integers below 2²⁴, and larger ones overflow.
    let of = if c.dtype(value) == DType::F64 { F64 } else { F32 };
    let value = c.convert(value, of.float);
    let bits = c.bitcast(value, of.bits);
    let mut b = Bits { c, dtype: of.bits };
    let sign = b.with(ScalarOp::ShiftRightLogical, bits, u64::from(of.bits.bits() - 8));
    let sign = b.with(ScalarOp::And, sign, 0x80);
    let size = b.with(ScalarOp::And, bits, u64::MAX >> (65 - of.bits.bits()));
    let exponent = |exponent: i32| ((exponent + of.bias) as u64) << of.mantissa;
    // Half a unit less than the last bit to keep, and that bit: the sum carries into it if the
    // rest is more than half a unit, or half a unit and the bit is odd.
    let cut = of.mantissa - layout.mantissa;
    let last = b.with(ScalarOp::ShiftRightLogical, size, u64::from(cut));
    let last = b.with(ScalarOp::And, last, 1);
    let carried = b.with(ScalarOp::Add, size, (1 << (cut - 1)) - 1);
    let carried = b.c.scalar(ScalarOp::Add, &[carried, last]);
    let normal = b.with(ScalarOp::ShiftRightLogical, carried, u64::from(cut));
    let normal = b.with(ScalarOp::Sub, normal, ((of.bias - layout.bias) as u64) << layout.mantissa);
    // A sum with a number whose last bit is the least subnormal number rounds to its multiples.
    let round = exponent(1 - layout.bias - layout.mantissa as i32 + of.mantissa as i32);
    let rounding = b.constant(round);
    let rounding = b.c.bitcast(rounding, of.float);
    let positive = b.c.bitcast(size, of.float);
    let sum = b.c.scalar(ScalarOp::Add, &[positive, rounding]);
    let sum = b.c.bitcast(sum, of.bits);
    let subnormal = b.with(ScalarOp::Sub, sum, round);
    let finite = b.below(size, exponent(1 - layout.bias), subnormal, normal);
    let overflow = b.constant(u64::from(layout.overflow));
    let rounded = b.below(finite, u64::from(layout.special()), finite, overflow);
    let signed = b.c.scalar(ScalarOp::Or, &[rounded, sign]);
    let nan = b.constant(u64::from(layout.nan));
    let infinity = exponent(of.bias + 1);
    let result = b.below(size, infinity + 1, signed, nan);
    b.c.convert(result, DType::U8)
}
