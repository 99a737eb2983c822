//! The table of elementwise ops of one operand.

use super::{bits_only, floats_only, instruction, scaled, unary};
use crate::diagnostic::Result;
use crate::dtype::DType;
use crate::graph::tensor::Tensor;
use crate::interpret::{Cell, Real};
use crate::nest::{Reg, ScalarOp};
use crate::op::Cost;
use crate::op::compute::ElementContext;
use crate::op::derivative::Derivative;
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
        derivative: Derivative::Linear(|t| vec![t.cotangents[0].as_ref().map(|ct| -ct)]),
        samples: [floats(&[3, 5], -2.0, 2.0), values(&[4], [1i32, -7, i32::MIN, 0])],
    }
    /// |x|. Its derivative at 0 is 0. The least integer wraps.
    Abs abs Number Cheap {
        real: |x| Ok(if x.is_negative() { x.neg() } else { x.clone() }),
        bits: |x, d| if d.is_unsigned_integer() { x } else { x.wrapping_abs() },
        compute: instruction(ScalarOp::Abs),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.sign())),
        samples: [floats(&[3, 5], -2.0, -0.1), floats(&[3, 5], 0.1, 2.0), values(&[3], [-7i8, i8::MIN, 5])],
    }
    /// −1, 0 or 1 by the sign of x; ±0 and NaN stay as they are.
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
    /// Largest integer not above x.
    Floor floor Float Cheap {
        real: |x| Ok(if x.is_zero() { x.clone() } else { x.floor() }),
        bits: floats_only,
        compute: instruction(ScalarOp::Floor),
        derivative: Derivative::Zero,
        samples: [floats(&[3, 5], -1.9, -1.1), floats(&[3, 5], 3.1, 3.9)],
    }
    /// Least integer not below x.
    Ceil ceil Float Cheap {
        real: |x| Ok(if x.is_zero() { x.clone() } else { x.neg().floor().neg() }),
        bits: floats_only,
        compute: instruction(ScalarOp::Ceil),
        derivative: Derivative::Zero,
        samples: [floats(&[3, 5], -1.9, -1.1), floats(&[3, 5], 3.1, 3.9), floats(&[5], -0.9, -0.1)],
    }
    /// Nearest integer; halfway cases go to the even one.
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
    /// 1 / √x; +∞ at 0, NaN below.
    Rsqrt rsqrt Float Expensive {
        real: |x| x.apply("rsqrt", |x| 1.0 / libm::sqrt(x)),
        bits: floats_only,
        compute: |c, x| {
            let root = c.scalar(ScalarOp::Sqrt, &[x]);
            let one = c.constant(Scalar::one(c.dtype(x)));
            c.scalar(ScalarOp::Div, &[one, root])
        },
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, y| -0.5 * (y / x))),
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
        // Not y + 1, which cancels where x is very negative.
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
    /// 1 / (1 + e⁻ˣ), accurate on both sides.
    Logistic logistic Float Expensive {
        real: |x| x.apply("logistic", |x| {
            let e = libm::exp(-x.abs());
            (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
        }),
        bits: floats_only,
        compute: |c, x| {
            let dtype = c.dtype(x);
            let (zero, one) = (c.constant(Scalar::zero(dtype)), c.constant(Scalar::one(dtype)));
            // e never overflows, and its small values are kept on the negative side.
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
    /// cosh x = (eˣ + e⁻ˣ) / 2, from t = e^(|x|/2), whose square would overflow where the result does not.
    Cosh cosh Float Expensive {
        real: |x| x.apply("cosh", libm::cosh),
        bits: floats_only,
        compute: |c, x| {
            let half = c.constant(Scalar::from_f64(c.dtype(x), 0.5));
            let magnitude = c.scalar(ScalarOp::Abs, &[x]);
            let exponent = c.scalar(ScalarOp::Mul, &[magnitude, half]);
            let t = c.scalar(ScalarOp::Exp, &[exponent]);
            let half_t = c.scalar(ScalarOp::Mul, &[half, t]);
            let large = c.scalar(ScalarOp::Mul, &[half_t, t]);
            let inverse = c.scalar(ScalarOp::Div, &[half, t]);
            let small = c.scalar(ScalarOp::Div, &[inverse, t]);
            c.scalar(ScalarOp::Add, &[large, small])
        },
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| (x.exp() - (-x).exp()) * 0.5)),
        samples: [floats(&[3, 5], -3.0, 3.0)],
    }
    /// erf x = 2/√π ∫₀ˣ e^(−t²) dt.
    Erf erf Float Expensive {
        real: |x| x.apply("erf", libm::erf),
        bits: floats_only,
        compute: instruction(ScalarOp::Erf),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| (-x.square()).exp() * consts::FRAC_2_SQRT_PI)),
        samples: [floats(&[3, 5], -2.0, 2.0)],
    }
    /// Complement: of a bool, or of every bit of an integer.
    Not not Bits Cheap {
        real: bits_only,
        bits: |x, d| if d == DType::Bool { (x == 0) as i64 } else { !x },
        compute: instruction(ScalarOp::Not),
        derivative: Derivative::Zero,
        samples: [values(&[2], [true, false]), values(&[3], [0u8, 255, 9]), values(&[3], [0i64, -1, 9])],
    }
    /// Number of bits of x that are 1.
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
    /// Number of zero bits of x above the highest bit that is 1; as many as the dtype has where x = 0.
    Clz clz Integer Cheap {
        real: bits_only,
        bits: |x, d| i64::from(Scalar::from_i64(d, x).bits().leading_zeros()) - i64::from(64 - d.bits()),
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
    /// x itself, of any dtype, with the derivative 0: what is behind it counts as a constant. Compiling removes it.
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
}
