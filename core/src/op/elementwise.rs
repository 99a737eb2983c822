//! The common part of elementwise ops: their dtypes, and the arithmetic of halves.

use crate::op::prelude::*;

/// Dtypes that an elementwise op takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Domain {
    /// f16, bf16, f32, f64.
    Float,
    /// Floats and integers.
    Number,
    /// Integers and bool.
    Bits,
    /// Integers.
    Integer,
    /// All dtypes.
    Any,
}

impl Domain {
    pub(super) fn contains(self, dtype: DType) -> bool {
        match self {
            Domain::Float => dtype.is_float(),
            Domain::Number => dtype != DType::Bool,
            Domain::Bits => !dtype.is_float(),
            Domain::Integer => dtype.is_integer(),
            Domain::Any => true,
        }
    }

    pub(super) fn check(self, dtype: DType) -> Result<()> {
        if self.contains(dtype) {
            return Ok(());
        }
        let takes = match self {
            Domain::Float => "floats",
            Domain::Number => "floats and integers",
            Domain::Bits => "integers and bool",
            Domain::Integer => "integers",
            Domain::Any => "all dtypes",
        };
        Err(Diagnostic::new(format!("takes {takes}, found {dtype}"))
            .help("convert the operand with `convert_element_type`"))
    }
}

/// Wraps an integer to its dtype, in the form of [`Cell::Bits`]. The bits of an 8-bit float are
/// wrapped already.
pub(super) fn wrap(value: i64, dtype: DType) -> i64 {
    if dtype.is_float8() {
        return value;
    }
    Scalar::from_i64(dtype, value).to_i64().expect("called for integers and bool")
}

/// Compares two integers in the form of [`Cell::Bits`](crate::interpret::Cell::Bits).
pub(super) fn compare_bits(x: i64, y: i64, dtype: DType) -> Ordering {
    if dtype == DType::U64 { (x as u64).cmp(&(y as u64)) } else { x.cmp(&y) }
}

/// Runs `f` on operands of one dtype. Halves are widened to f32 before, and the result is
/// rounded.
pub(super) fn widened(
    c: &mut dyn ElementContext,
    operands: &[Reg],
    f: impl FnOnce(&mut dyn ElementContext, &[Reg]) -> Reg,
) -> Reg {
    let dtype = c.dtype(operands[operands.len() - 1]);
    if !dtype.is_half() {
        return f(c, operands);
    }
    let wide: Vec<Reg> = operands
        .iter()
        .map(|x| if c.dtype(*x).is_half() { c.convert(*x, DType::F32) } else { *x })
        .collect();
    let result = f(c, &wide);
    if c.dtype(result) == DType::F32 { c.convert(result, dtype) } else { result }
}
