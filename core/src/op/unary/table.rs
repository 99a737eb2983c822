//! The table of elementwise ops of one operand.

use super::{bits_only, floats_only, instruction, one_less_square, scaled, unary};
use crate::build::tensor::Tensor;
use crate::diagnostic::Result;
use crate::dtype::DType;
use crate::interpret::{Cell, Real, special};
use crate::nest::{Reg, ScalarOp};
use crate::op::Cost;
use crate::op::compute::ElementContext;
use crate::op::derivative::{Derivative, Sign};
use crate::op::elementwise::{Domain, wrap};
use crate::op::sample::{Sample, floats, values};
use crate::scalar::Scalar;
use std::cmp::Ordering;
use std::f64::consts;

unary! {
    /// −x. Integers wrap.
    Neg neg Number Cheap {
        real: |x| Ok(x.neg()),
        bits: |x, _| x.wrapping_neg(),
        compute: instruction(ScalarOp::Neg),
        derivative: Derivative::SignedSum(&[Sign::Minus]),
        samples: [floats(&[3, 5], -2.0, 2.0), values(&[4], [1i32, -7, i32::MIN, 0])],
    }
    /// |x|. Its derivative at 0 is 0. The least integer wraps.
    Abs abs Number Cheap {
        real: |x| Ok(if x.is_negative() { x.neg() } else { x.clone() }),
        bits: |x, d| if d.is_unsigned_integer() { x } else { x.wrapping_abs() },
        compute: instruction(ScalarOp::Abs),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.sign())),
        samples: [
            floats(&[3, 5], -2.0, -0.1),
            floats(&[3, 5], 0.1, 2.0),
            values(&[3], [-7i8, i8::MIN, 5])
        ],
    }
    /// −1, 0 or 1, by the sign of x. ±0 and NaN are returned unchanged.
    Sign sign Number Cheap {
        real: |x| Ok(match x.compare(&Real::from_i64(0)) {
            Some(Ordering::Less) => Real::from_i64(-1),
            Some(Ordering::Greater) => Real::from_i64(1),
            _ => x.clone(),
        }),
        bits: |x, d| if d.is_unsigned_integer() { (x != 0) as i64 } else { x.signum() },
        compute: |c, x| {
            let dtype = c.dtype(x);
            let (zero, one) = (c.constant(Scalar::zero(dtype)), c.constant(Scalar::one(dtype)));
            let positive = c.scalar(ScalarOp::Lt, &[zero, x]);
            let result = c.scalar(ScalarOp::Select, &[positive, one, x]);
            if dtype.is_unsigned_integer() {
                return result;
            }
            let minus = c.constant(Scalar::from_i64(dtype, -1));
            let negative = c.scalar(ScalarOp::Lt, &[x, zero]);
            c.scalar(ScalarOp::Select, &[negative, minus, result])
        },
        derivative: Derivative::Zero,
        samples: [
            floats(&[3, 5], -2.0, -0.1),
            floats(&[3, 5], 0.1, 2.0),
            values(&[4], [-7i32, 0, 5, i32::MIN]),
            values(&[3], [0u64, u64::MAX, 5])
        ],
    }
    /// The largest integer ≤ x.
    Floor floor Float Cheap {
        real: |x| Ok(if x.is_zero() { x.clone() } else { x.floor() }),
        bits: floats_only,
        compute: instruction(ScalarOp::Floor),
        derivative: Derivative::Zero,
        samples: [floats(&[3, 5], -1.9, -1.1), floats(&[3, 5], 3.1, 3.9)],
    }
    /// The least integer ≥ x.
    Ceil ceil Float Cheap {
        real: |x| Ok(if x.is_zero() { x.clone() } else { x.neg().floor().neg() }),
        bits: floats_only,
        compute: instruction(ScalarOp::Ceil),
        derivative: Derivative::Zero,
        samples: [floats(&[3, 5], -1.9, -1.1), floats(&[3, 5], 3.1, 3.9), floats(&[5], -0.9, -0.1)],
    }
    /// The nearest integer; halfway cases round to even.
    Round round Float Cheap {
        real: |x| x.apply("round", libm::rint).or_else(|_| {
            let (low, half) = (x.floor(), R::from_f64(0.5));
            let up = low.add(&R::from_i64(1));
            let even = low.mul(&half).floor().add(&low.mul(&half).floor()) == low;
            Ok(match x.sub(&low).compare(&half) {
                Some(Ordering::Greater) => up,
                Some(Ordering::Equal) if !even => up,
                _ => low,
            })
        }),
        bits: floats_only,
        compute: instruction(ScalarOp::RoundEven),
        derivative: Derivative::Zero,
        samples: [floats(&[3, 5], -1.4, -0.6), floats(&[3, 5], 2.6, 3.4)],
    }
    /// x².
    Square square Number Cheap {
        real: |x| Ok(x.mul(x)),
        bits: |x, _| x.wrapping_mul(x),
        compute: |c, x| c.scalar(ScalarOp::Mul, &[x, x]),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x + x)),
        samples: [floats(&[3, 5], -2.0, 2.0), values(&[3], [-7i32, 46341, 5])],
    }
    /// 1 / x.
    Reciprocal reciprocal Float Expensive {
        real: |x| R::from_i64(1).div(x),
        bits: floats_only,
        compute: |c, x| {
            let one = c.constant(Scalar::one(c.dtype(x)));
            c.scalar(ScalarOp::Div, &[one, x])
        },
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| -(y * y))),
        samples: [floats(&[3, 5], 0.5, 3.0), floats(&[3, 5], -3.0, -0.5)],
    }
    /// √x, correctly rounded; NaN below 0. Its derivative at 0 is +∞.
    Sqrt sqrt Float Expensive {
        real: |x| x.apply("sqrt", libm::sqrt),
        bits: floats_only,
        compute: instruction(ScalarOp::Sqrt),
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| 0.5 / y)),
        samples: [floats(&[3, 5], 0.1, 5.0)],
    }
    /// 1 / √x; ±∞ at ±0 (rSqrt of IEEE 754-2019), NaN below.
    Rsqrt rsqrt Float Expensive {
        real: |x| x.apply("rsqrt", |x| 1.0 / libm::sqrt(x)),
        bits: floats_only,
        compute: |c, x| {
            let root = c.scalar(ScalarOp::Sqrt, &[x]);
            let one = c.constant(Scalar::one(c.dtype(x)));
            c.scalar(ScalarOp::Div, &[one, root])
        },
        // From the result, which is a residual anyway. y² exceeds the dtype's range only if the
        // whole does.
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| (y * -0.5) * y.square())),
        samples: [floats(&[3, 5], 0.2, 5.0)],
    }
    /// eˣ.
    Exp exp Float Expensive {
        real: |x| x.apply("exp", libm::exp),
        bits: floats_only,
        compute: instruction(ScalarOp::Exp),
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| y.clone())),
        samples: [floats(&[3, 5], -3.0, 3.0)],
    }
    /// 2ˣ.
    Exp2 exp2 Float Expensive {
        real: |x| x.apply("exp2", libm::exp2),
        bits: floats_only,
        compute: |c, x| {
            let two = c.constant(Scalar::from_i64(c.dtype(x), 2));
            c.scalar(ScalarOp::Pow, &[two, x])
        },
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| y * consts::LN_2)),
        samples: [floats(&[3, 5], -3.0, 3.0)],
    }
    /// eˣ − 1, accurate near 0.
    Expm1 expm1 Float Expensive {
        real: |x| x.apply("expm1", libm::expm1),
        bits: floats_only,
        compute: instruction(ScalarOp::Expm1),
        // Not y + 1, which cancels for large negative x.
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.exp())),
        samples: [floats(&[3, 5], -2.0, 2.0)],
    }
    /// ln x; −∞ at 0, NaN below.
    Log log Float Expensive {
        real: |x| x.apply("log", libm::log),
        bits: floats_only,
        compute: instruction(ScalarOp::Log),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.reciprocal())),
        samples: [floats(&[3, 5], 0.1, 5.0)],
    }
    /// ln(1 + x), accurate near 0; −∞ at −1, NaN below.
    Log1p log1p Float Expensive {
        real: |x| x.apply("log1p", libm::log1p),
        bits: floats_only,
        compute: instruction(ScalarOp::Log1p),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| (x + 1.0).reciprocal())),
        samples: [floats(&[3, 5], -0.5, 3.0)],
    }
    /// 1 / (1 + e⁻ˣ), accurate for both signs of x.
    Logistic logistic Float Expensive {
        real: |x| x.apply("logistic", |x| {
            let e = libm::exp(-x.abs());
            (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
        }),
        bits: floats_only,
        compute: |c, x| {
            let dtype = c.dtype(x);
            let (zero, one) = (c.constant(Scalar::zero(dtype)), c.constant(Scalar::one(dtype)));
            // e never overflows, and small results on the negative side stay accurate.
            let size = c.scalar(ScalarOp::Abs, &[x]);
            let minus = c.scalar(ScalarOp::Neg, &[size]);
            let e = c.scalar(ScalarOp::Exp, &[minus]);
            let negative = c.scalar(ScalarOp::Lt, &[x, zero]);
            let numerator = c.scalar(ScalarOp::Select, &[negative, e, one]);
            let denominator = c.scalar(ScalarOp::Add, &[one, e]);
            c.scalar(ScalarOp::Div, &[numerator, denominator])
        },
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| y * &(1.0 - y))),
        samples: [floats(&[3, 5], -4.0, 4.0)],
    }
    /// sin x.
    Sin sin Float Expensive {
        real: |x| x.apply("sin", libm::sin),
        bits: floats_only,
        compute: instruction(ScalarOp::Sin),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.cos())),
        samples: [floats(&[3, 5], -4.0, 4.0)],
    }
    /// cos x.
    Cos cos Float Expensive {
        real: |x| x.apply("cos", libm::cos),
        bits: floats_only,
        compute: instruction(ScalarOp::Cos),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| -x.sin())),
        samples: [floats(&[3, 5], -4.0, 4.0)],
    }
    /// tan x, as sin x / cos x.
    Tan tan Float Expensive {
        real: |x| x.apply("tan", libm::tan),
        bits: floats_only,
        compute: |c, x| {
            let (sin, cos) = (c.scalar(ScalarOp::Sin, &[x]), c.scalar(ScalarOp::Cos, &[x]));
            c.scalar(ScalarOp::Div, &[sin, cos])
        },
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| 1.0 + y * y)),
        samples: [floats(&[3, 5], -1.2, 1.2)],
    }
    /// tanh x.
    Tanh tanh Float Expensive {
        real: |x| x.apply("tanh", libm::tanh),
        bits: floats_only,
        compute: instruction(ScalarOp::Tanh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| 1.0 - y * y)),
        samples: [floats(&[3, 5], -2.0, 2.0)],
    }
    /// sinh x = (eˣ − e⁻ˣ) / 2.
    Sinh sinh Float Expensive {
        real: |x| x.apply("sinh", libm::sinh),
        bits: floats_only,
        compute: instruction(ScalarOp::Sinh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.cosh())),
        samples: [
            floats(&[3, 5], -3.0, 3.0),
            values(&[5], [-0.0f32, 100.0, -89.0, f32::INFINITY, f32::NAN])
        ],
    }
    /// cosh x = (eˣ + e⁻ˣ) / 2.
    Cosh cosh Float Expensive {
        real: |x| x.apply("cosh", libm::cosh),
        bits: floats_only,
        compute: instruction(ScalarOp::Cosh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.sinh())),
        samples: [floats(&[3, 5], -3.0, 3.0)],
    }
    /// asin x, in −π/2..=π/2; NaN beyond ±1. Its derivative 1/√(1 − x²) is +∞ at ±1 and NaN beyond.
    Asin asin Float Expensive {
        real: |x| x.apply("asin", libm::asin),
        bits: floats_only,
        compute: instruction(ScalarOp::Asin),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| one_less_square(x).rsqrt())),
        samples: [floats(&[3, 5], -0.9, 0.9), values(&[5], [-0.0f32, 1.0, -1.0, 1.5, f32::NAN])],
    }
    /// acos x, in 0..=π; NaN beyond ±1. Its derivative −1/√(1 − x²) is −∞ at ±1 and NaN beyond.
    Acos acos Float Expensive {
        real: |x| x.apply("acos", libm::acos),
        bits: floats_only,
        compute: instruction(ScalarOp::Acos),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| -one_less_square(x).rsqrt())),
        samples: [floats(&[3, 5], -0.9, 0.9), values(&[5], [-0.0f32, 1.0, -1.0, 1.5, f32::NAN])],
    }
    /// atan x, in −π/2..=π/2: the angle of the point (1, x).
    Atan atan Float Expensive {
        real: |x| x.apply("atan", libm::atan),
        bits: floats_only,
        compute: |c, x| {
            let one = c.constant(Scalar::one(c.dtype(x)));
            c.scalar(ScalarOp::Atan2, &[x, one])
        },
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| (x.square() + 1.0).reciprocal())),
        samples: [
            floats(&[3, 5], -3.0, 3.0),
            values(&[4], [-0.0f32, f32::INFINITY, f32::NEG_INFINITY, f32::NAN])
        ],
    }
    /// asinh x = ln(x + √(x² + 1)).
    Asinh asinh Float Expensive {
        real: |x| x.apply("asinh", libm::asinh),
        bits: floats_only,
        compute: instruction(ScalarOp::Asinh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| (x.square() + 1.0).rsqrt())),
        samples: [
            floats(&[3, 5], -3.0, 3.0),
            values(&[4], [-0.0f32, 1e30, f32::NEG_INFINITY, f32::NAN])
        ],
    }
    /// acosh x = ln(x + √(x² − 1)); NaN below 1. Its derivative 1/√(x² − 1) is +∞ at 1 and NaN
    /// below.
    Acosh acosh Float Expensive {
        real: |x| x.apply("acosh", special::acosh),
        bits: floats_only,
        compute: instruction(ScalarOp::Acosh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| ((x - 1.0) * (x + 1.0)).rsqrt())),
        samples: [
            floats(&[3, 5], 1.2, 4.0),
            values(&[5], [1.0f32, 0.5, 1e30, f32::INFINITY, f32::NAN])
        ],
    }
    /// atanh x = ½·ln((1 + x)/(1 − x)); ±∞ at ±1, NaN beyond. Its derivative 1/(1 − x²) is +∞ at
    /// ±1. Beyond ±1 it is the value of this formula, not NaN.
    Atanh atanh Float Expensive {
        real: |x| x.apply("atanh", libm::atanh),
        bits: floats_only,
        compute: instruction(ScalarOp::Atanh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| one_less_square(x).reciprocal())),
        samples: [floats(&[3, 5], -0.9, 0.9), values(&[5], [-0.0f32, 1.0, -1.0, 1.5, f32::NAN])],
    }
    /// ∛x, also for negative x. Its derivative 1/(3·∛x²) is +∞ at 0.
    Cbrt cbrt Float Expensive {
        real: |x| x.apply("cbrt", libm::cbrt),
        bits: floats_only,
        compute: instruction(ScalarOp::Cbrt),
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| (y.square() * 3.0).reciprocal())),
        samples: [
            floats(&[3, 5], 0.2, 5.0),
            floats(&[3, 5], -5.0, -0.2),
            values(&[5], [-0.0f32, -27.0, 1e-44, f32::NEG_INFINITY, f32::NAN])
        ],
    }
    /// log₂ x; −∞ at 0, NaN below.
    Log2 log2 Float Expensive {
        real: |x| x.apply("log2", libm::log2),
        bits: floats_only,
        compute: instruction(ScalarOp::Log2),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| (x * consts::LN_2).reciprocal())),
        samples: [
            floats(&[3, 5], 0.1, 5.0),
            values(&[6], [0.0f32, 8.0, 1e-44, -1.0, f32::INFINITY, f32::NAN])
        ],
    }
    /// erf x = 2/√π ∫₀ˣ e^(−t²) dt.
    Erf erf Float Expensive {
        real: |x| x.apply("erf", libm::erf),
        bits: floats_only,
        compute: instruction(ScalarOp::Erf),
        derivative: Derivative::Nonlinear(|j| {
            scaled(j, |x, _| (-x.square()).exp() * consts::FRAC_2_SQRT_PI)
        }),
        samples: [floats(&[3, 5], -2.0, 2.0)],
    }
    /// Complement of a bool, or of each bit of an integer.
    Not not Bits Cheap {
        real: bits_only,
        bits: |x, d| if d == DType::Bool { (x == 0) as i64 } else { !x },
        compute: instruction(ScalarOp::Not),
        derivative: Derivative::Zero,
        samples: [
            values(&[2], [true, false]),
            values(&[3], [0u8, 255, 9]),
            values(&[3], [0i64, -1, 9])
        ],
    }
    /// Population count: the number of bits of x that are 1.
    Popcnt popcnt Integer Cheap {
        real: bits_only,
        bits: |x, d| Scalar::from_i64(d, x).bits().count_ones().into(),
        compute: instruction(ScalarOp::Popcnt),
        derivative: Derivative::Zero,
        samples: [
            values(&[5], [0i8, -1, 1, i8::MIN, 0x55]),
            values(&[4], [0u8, 255, 1, 0x80]),
            values(&[5], [0i32, -1, 7, i32::MIN, 0x5555_5555]),
            values(&[3], [u32::MAX, 0, 0x8000_0001]),
            values(&[4], [0i64, -1, i64::MIN, 0x0f0f_0f0f_0f0f_0f0f]),
            values(&[3], [u64::MAX, 1 << 63 | 1, 0])
        ],
    }
    /// Number of leading zero bits of x. For x = 0 it is the dtype's width in bits.
    Clz clz Integer Cheap {
        real: bits_only,
        bits: |x, d| {
            i64::from(Scalar::from_i64(d, x).bits().leading_zeros()) - i64::from(64 - d.bits())
        },
        compute: instruction(ScalarOp::Clz),
        derivative: Derivative::Zero,
        samples: [
            values(&[5], [0i8, -1, 1, i8::MIN, 0x35]),
            values(&[4], [0u8, 255, 1, 0x40]),
            values(&[5], [0i32, -1, 7, i32::MIN, 0x0055_5555]),
            values(&[3], [u32::MAX, 0, 0x4000_0001]),
            values(&[4], [0i64, -1, 1 << 33, 0x0f0f_0f0f]),
            values(&[3], [u64::MAX, 1 << 62 | 1, 0])
        ],
    }
    /// The identity, for any dtype, with derivative 0. Differentiation treats the result as a
    /// constant. Compilation removes it.
    StopGradient stop_gradient Any Free {
        real: |x| Ok(x.clone()),
        bits: |x, _| x,
        compute: |_, x| x,
        derivative: Derivative::Zero,
        samples: [
            floats(&[3, 5], -2.0, 2.0),
            values(&[4], [-0.0f32, f32::INFINITY, f32::NAN, 1e-40]),
            values(&[2], [i32::MIN, 5]),
            values(&[2], [u64::MAX, 0]),
            values(&[2], [true, false])
        ],
    }
    /// erfc x = 1 − erf x, also accurate where the result is tiny.
    Erfc erfc Float Expensive {
        real: |x| x.apply("erfc", libm::erfc),
        bits: floats_only,
        compute: instruction(ScalarOp::Erfc),
        derivative: Derivative::Nonlinear(|j| {
            scaled(j, |x, _| (-x.square()).exp() * -consts::FRAC_2_SQRT_PI)
        }),
        samples: [
            floats(&[3, 5], -2.0, 3.0),
            values(&[5], [9.0f32, 11.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN])
        ],
    }
    /// The inverse of erf; ±∞ at ±1, NaN beyond. Its derivative is √π/2·e^(y²), where y is the
    /// result; +∞ at ±1.
    ErfInv erf_inv Float Expensive {
        real: |x| x.apply("erf_inv", special::erf_inv),
        bits: floats_only,
        compute: instruction(ScalarOp::ErfInv),
        derivative: Derivative::Nonlinear(|j| {
            scaled(j, |_, y| y.square().exp() * (1.0 / consts::FRAC_2_SQRT_PI))
        }),
        samples: [
            floats(&[3, 5], -0.95, 0.95),
            values(&[6], [-0.0f32, 1.0, -1.0, 0.999_999_9, 1.5, f32::NAN])
        ],
    }
    /// ln |Γ(x)|: +∞ at the poles 0, −1, −2, … and at ±∞. Its derivative is `digamma`.
    Lgamma lgamma Float Expensive {
        real: |x| x.apply("lgamma", libm::lgamma),
        bits: floats_only,
        compute: instruction(ScalarOp::Lgamma),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.digamma())),
        samples: [
            floats(&[3, 5], 0.3, 9.5),
            floats(&[3, 5], -1.8, -1.2),
            values(&[6], [0.0f32, -3.0, 1.0, 2.0, f32::NEG_INFINITY, f32::NAN])
        ],
    }
    /// ψ(x), the derivative of ln Γ. It is NaN at the poles 0, −1, −2, …, as in lax, because its
    /// sign is undefined there. Its derivative is `polygamma` of order 1.
    Digamma digamma Float Expensive {
        real: |x| x.apply("digamma", special::digamma),
        bits: floats_only,
        compute: instruction(ScalarOp::Digamma),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.polygamma(1))),
        samples: [
            floats(&[3, 5], 1.8, 9.5),
            floats(&[3, 5], 0.2, 1.1),
            floats(&[3, 5], -1.4, -1.1),
            values(&[5], [0.0f32, -3.0, 1e30, f32::INFINITY, f32::NAN])
        ],
    }
}
