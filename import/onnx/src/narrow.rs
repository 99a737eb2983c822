//! Dtypes of ONNX that programs lack.
//!
//! A tensor of such a dtype is one of a wider dtype in the program, its *carrier*: i32 for
//! integers, f32 for floats. Its numbers are always among those of the narrow dtype. What computes
//! numbers that may not be brings them back: integers lose their higher bits, as in ONNX, and
//! floats are rounded to nearest even.
//!
//! The importer carries the narrow dtype beside the tensor ([`Value::Narrow`](crate::Value)).
//! [`op`](crate::op) has a table of what each op makes of it.

use crate::refusal::{Class, refuse};
use std::fmt;
use wengert_core::op::{Binary, Unary};
use wengert_core::{DType, Diagnostic, Literal, Result, Scalar, Tensor};

/// A dtype that programs lack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Narrow {
    /// Integers of 16 bits.
    I16,
    /// Integers of 16 bits without a sign.
    U16,
    /// Integers of 4 bits.
    I4,
    /// Integers of 4 bits without a sign.
    U4,
    /// Integers of 2 bits.
    I2,
    /// Integers of 2 bits without a sign.
    U2,
    /// Floats of 4 bits: 0, ½, 1, 1½, 2, 3, 4, 6 and their negatives.
    F4E2M1,
    /// Floats of 8 bits without infinities and −0, up to 240.
    F8E4M3FNUZ,
    /// Floats of 8 bits without infinities and −0, up to 57344.
    F8E5M2FNUZ,
}

/// How the numbers of a narrow dtype are made.
#[derive(Clone, Copy)]
enum Form {
    Integer { signed: bool },
    Float(Float),
}

/// Floats of a sign, an exponent and `mantissa` bits.
#[derive(Clone, Copy)]
struct Float {
    mantissa: i32,
    bias: i32,
    largest: f64,
    /// Whether the bits of −0 are NaN.
    nan: bool,
}

impl Narrow {
    /// All of them, with their numbers in `TensorProto.DataType`.
    const ALL: [(i32, Narrow); 9] = [
        (4, Narrow::U16),
        (5, Narrow::I16),
        (18, Narrow::F8E4M3FNUZ),
        (20, Narrow::F8E5M2FNUZ),
        (21, Narrow::U4),
        (22, Narrow::I4),
        (23, Narrow::F4E2M1),
        (25, Narrow::U2),
        (26, Narrow::I2),
    ];

    /// The dtype with a number of `TensorProto.DataType`, if it is narrow.
    pub(crate) fn of_number(number: i32) -> Option<Narrow> {
        Narrow::ALL.iter().find(|(own, _)| *own == number).map(|(_, narrow)| *narrow)
    }

    /// The bits of a number.
    pub fn bits(self) -> usize {
        match self {
            Narrow::I16 | Narrow::U16 => 16,
            Narrow::F8E4M3FNUZ | Narrow::F8E5M2FNUZ => 8,
            Narrow::I4 | Narrow::U4 | Narrow::F4E2M1 => 4,
            Narrow::I2 | Narrow::U2 => 2,
        }
    }

    fn form(self) -> Form {
        let float =
            |mantissa, bias, largest, nan| Form::Float(Float { mantissa, bias, largest, nan });
        match self {
            Narrow::I16 | Narrow::I4 | Narrow::I2 => Form::Integer { signed: true },
            Narrow::U16 | Narrow::U4 | Narrow::U2 => Form::Integer { signed: false },
            Narrow::F4E2M1 => float(1, 1, 6.0, false),
            Narrow::F8E4M3FNUZ => float(3, 8, 240.0, true),
            Narrow::F8E5M2FNUZ => float(2, 16, 57344.0, true),
        }
    }

    /// Whether its numbers are integers.
    pub fn is_integer(self) -> bool {
        matches!(self.form(), Form::Integer { .. })
    }

    /// The dtype of the tensors that stand for it.
    pub fn carrier(self) -> DType {
        if self.is_integer() { DType::I32 } else { DType::F32 }
    }

    /// The least and the greatest number.
    pub fn range(self) -> (f64, f64) {
        match self.form() {
            Form::Integer { signed } => {
                let values = f64::from(1u32 << self.bits());
                if signed { (-values / 2.0, values / 2.0 - 1.0) } else { (0.0, values - 1.0) }
            }
            Form::Float(Float { largest, .. }) => (-largest, largest),
        }
    }

    /// The number of a pattern of bits.
    fn number(self, bits: u32) -> f64 {
        match self.form() {
            Form::Integer { signed } => {
                let (_, high) = self.range();
                let value = f64::from(bits);
                if signed && value > high { value - f64::from(1u32 << self.bits()) } else { value }
            }
            Form::Float(Float { mantissa, bias, nan, .. }) => {
                let sign = bits >> (self.bits() - 1);
                let rest = bits & !(1 << (self.bits() - 1));
                if nan && sign == 1 && rest == 0 {
                    return f64::NAN;
                }
                let (exponent, fraction) =
                    ((rest >> mantissa) as i32, rest & ((1 << mantissa) - 1));
                let whole = if exponent > 0 { 1u32 << mantissa } else { 0 };
                let unit = f64::powi(2.0, exponent.max(1) - bias - mantissa);
                let value = f64::from(whole | fraction) * unit;
                if sign == 1 { -value } else { value }
            }
        }
    }

    /// The bytes of a tensor of so many numbers.
    pub(crate) fn bytes(self, count: usize) -> Option<usize> {
        count.checked_mul(self.bits()).map(|bits| bits.div_ceil(8))
    }

    /// The numbers of packed bytes, the lowest bits first.
    pub(crate) fn unpacked(self, shape: &[usize], bytes: &[u8]) -> Result<Literal> {
        let count: usize = shape.iter().product();
        let bits = self.bits();
        let pattern = |n: usize| match bits {
            16 => u32::from(bytes[2 * n]) | (u32::from(bytes[2 * n + 1]) << 8),
            _ => (u32::from(bytes[n * bits / 8]) >> (n * bits % 8)) & ((1 << bits) - 1),
        };
        if self.bytes(count) != Some(bytes.len()) {
            return Err(Diagnostic::new(format!(
                "{count} numbers of {self} in {} bytes",
                bytes.len()
            )));
        }
        let scalar = |n| Scalar::from_f64(self.carrier(), self.number(pattern(n)));
        let scalars: Vec<Scalar> = (0..count).map(scalar).collect();
        Literal::from_scalars(self.carrier(), shape, &scalars)
    }

    /// Numbers of any dtype in this one. Integers lose their higher bits, and floats are truncated
    /// to integers. With `saturate`, a float beyond the range becomes the greatest of its sign, and
    /// else NaN, if the dtype has it.
    pub(crate) fn cast(self, x: &Tensor, saturate: bool) -> Tensor {
        let x = x.convert(self.carrier());
        match self.form() {
            Form::Integer { .. } => self.wrapped(&x),
            Form::Float(float) => float.rounded(&x, saturate),
        }
    }

    /// The integers of a carrier without their higher bits.
    fn wrapped(self, x: &Tensor) -> Tensor {
        match self.form() {
            Form::Integer { signed: true } => {
                let unused = x.full_like((32 - self.bits()) as f64);
                x.binary(Binary::ShiftLeft, &unused).binary(Binary::ShiftRightArithmetic, &unused)
            }
            _ => {
                let (_, mask) = self.range();
                x.binary(Binary::And, &x.full_like(mask))
            }
        }
    }

    /// Numbers of its carrier that may be beyond its range, brought back as ONNX does after
    /// arithmetic.
    ///
    /// # Errors
    /// It is a dtype of floats: ONNX has no arithmetic of them.
    pub(crate) fn restored(self, x: &Tensor) -> Result<Tensor> {
        match self.is_integer() {
            true => Ok(self.wrapped(x)),
            false => Err(refuse(Class::DType, format!("arithmetic of {self}"))),
        }
    }

    /// Whether all numbers of a literal are among those of the dtype.
    pub(crate) fn has(self, literal: &Literal) -> bool {
        let (low, high) = self.range();
        let floats: Vec<f64> = match self.is_integer() {
            true => vec![],
            false => (0..1u32 << self.bits()).map(|bits| self.number(bits)).collect(),
        };
        let is_own = |x: f64| match self.is_integer() {
            true => x.fract() == 0.0 && (low..=high).contains(&x),
            false => floats.iter().any(|own| *own == x || (own.is_nan() && x.is_nan())),
        };
        literal.dtype() == self.carrier() && literal.scalars().all(|x| is_own(x.to_f64()))
    }
}

impl Float {
    /// The nearest floats to those of an f32.
    fn rounded(self, x: &Tensor, saturate: bool) -> Tensor {
        let Float { mantissa, bias, largest, nan } = self;
        // The distance of neighbours is a power of two: that of the least numbers, times the power
        // of two by which x is greater. It is found by bisection, and its derivative is 0.
        let least = f64::powi(2.0, 1 - bias);
        let mut above = x.unary(Unary::Abs) * (1.0 / least);
        let mut unit = x.full_like(f64::powi(2.0, 1 - bias - mantissa));
        for exponent in [16, 8, 4, 2, 1] {
            let power = f64::powi(2.0, exponent);
            let greater = above.ge(power);
            above = greater.select(&above * (1.0 / power), &above);
            unit = greater.select(&unit * power, &unit);
        }
        let near = (x / &unit).unary(Unary::Round) * &unit;
        if !nan {
            // NaN becomes −0, as in the types of NumPy that ONNX takes for its own tests.
            return x.ne(x).select(x.full_like(-0.0), near.clamp(-largest, largest));
        }
        let held = match saturate {
            true => near.clamp(-largest, largest),
            false => {
                let beyond = near.unary(Unary::Abs).gt(largest);
                beyond.select(near.full_like(f64::NAN), &near)
            }
        };
        held.eq(0.0).select(held.zeros_like(), &held)
    }
}

impl fmt::Display for Narrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Narrow::I16 => "int16",
            Narrow::U16 => "uint16",
            Narrow::I4 => "int4",
            Narrow::U4 => "uint4",
            Narrow::I2 => "int2",
            Narrow::U2 => "uint2",
            Narrow::F4E2M1 => "float4e2m1",
            Narrow::F8E4M3FNUZ => "float8e4m3fnuz",
            Narrow::F8E5M2FNUZ => "float8e5m2fnuz",
        })
    }
}
