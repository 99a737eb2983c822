//! The table of elementwise ops of one operand.

use crate::interpret::special;
use crate::op::derivative::Sign;
use crate::op::prelude::*;
use crate::op::unary::{
    bits_only, floats_only, instruction, one_less_square, scaled, scaled_wide, unary,
};
use std::f64::consts;

/// Constants of `gelu_tanh`: the factor of x³, and 2√(2/π).
const GELU_CUBE: f64 = 0.044715;
const GELU_SCALE: f64 = consts::FRAC_2_SQRT_PI * consts::SQRT_2;

unary! {
    /// −x. Integers wrap.
    Neg neg Number Cheap {
        real: |x| Ok(x.neg()),
        bits: |x, _| x.wrapping_neg(),
        compute: instruction(ScalarOp::Neg),
        derivative: Derivative::SignedSum(&[Sign::Minus]),
    }
    /// |x|. Its derivative at 0 is 0. The least integer wraps.
    Abs abs Number Cheap {
        real: |x| Ok(if x.is_negative() { x.neg() } else { x.clone() }),
        bits: |x, d| if d.is_unsigned_integer() { x } else { x.wrapping_abs() },
        compute: instruction(ScalarOp::Abs),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.sign())),
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
    }
    /// The largest integer ≤ x.
    Floor floor Float Cheap {
        real: |x| Ok(if x.is_zero() { x.clone() } else { x.floor() }),
        bits: floats_only,
        compute: instruction(ScalarOp::Floor),
        derivative: Derivative::Zero,
    }
    /// The least integer ≥ x.
    Ceil ceil Float Cheap {
        real: |x| Ok(if x.is_zero() { x.clone() } else { x.neg().floor().neg() }),
        bits: floats_only,
        compute: instruction(ScalarOp::Ceil),
        derivative: Derivative::Zero,
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
    }
    /// x².
    Square square Number Cheap {
        real: |x| Ok(x.mul(x)),
        bits: |x, _| x.wrapping_mul(x),
        compute: |c, x| c.scalar(ScalarOp::Mul, &[x, x]),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x + x)),
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
    }
    /// √x, correctly rounded; NaN below 0. Its derivative at 0 is +∞.
    Sqrt sqrt Float Expensive {
        real: |x| x.apply("sqrt", libm::sqrt),
        bits: floats_only,
        compute: instruction(ScalarOp::Sqrt),
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| 0.5 / y)),
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
    }
    /// eˣ.
    Exp exp Float Expensive {
        real: |x| x.apply("exp", libm::exp),
        bits: floats_only,
        compute: instruction(ScalarOp::Exp),
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| y.clone())),
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
    }
    /// eˣ − 1, accurate near 0.
    Expm1 expm1 Float Expensive {
        real: |x| x.apply("expm1", libm::expm1),
        bits: floats_only,
        compute: instruction(ScalarOp::Expm1),
        // Not y + 1, which cancels for large negative x.
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.exp())),
    }
    /// ln x; −∞ at 0, NaN below.
    Log log Float Expensive {
        real: |x| x.apply("log", libm::log),
        bits: floats_only,
        compute: instruction(ScalarOp::Log),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.reciprocal())),
    }
    /// ln(1 + x), accurate near 0; −∞ at −1, NaN below.
    Log1p log1p Float Expensive {
        real: |x| x.apply("log1p", libm::log1p),
        bits: floats_only,
        compute: instruction(ScalarOp::Log1p),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| (x + 1.0).reciprocal())),
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
    }
    /// The approximation of the activation `gelu` by x/2 · (1 + tanh(√(2/π) · (x + 0.044715·x³))).
    ///
    /// It is x · logistic(2√(2/π) · (x + 0.044715·x³)), since (1 + tanh u)/2 = logistic(2u). That
    /// is shorter than tanh, and does not cancel for negative x.
    GeluTanh gelu_tanh Float Expensive {
        real: |x| x.apply("gelu_tanh", |x| {
            x / (1.0 + libm::exp((x * x * GELU_CUBE + 1.0) * x * -GELU_SCALE))
        }),
        bits: floats_only,
        compute: |c, x| {
            let constant = |c: &mut dyn ElementContext, value| {
                let dtype = c.dtype(x);
                c.constant(Scalar::from_f64(dtype, value))
            };
            let (cube, one) = (constant(c, GELU_CUBE), constant(c, 1.0));
            let scale = constant(c, GELU_SCALE);
            let square = c.scalar(ScalarOp::Mul, &[x, x]);
            let term = c.scalar(ScalarOp::Mul, &[square, cube]);
            let sum = c.scalar(ScalarOp::Add, &[term, one]);
            let product = c.scalar(ScalarOp::Mul, &[sum, x]);
            let inner = c.scalar(ScalarOp::Mul, &[product, scale]);
            let share = Unary::Logistic.emit(c, inner);
            c.scalar(ScalarOp::Mul, &[x, share])
        },
        derivative: Derivative::Nonlinear(|j| scaled_wide(j, |x| {
            let square = x.square();
            let share = ((&square * GELU_CUBE + 1.0) * x * GELU_SCALE).logistic();
            let slope = (square * (3.0 * GELU_CUBE * GELU_SCALE) + GELU_SCALE) * x;
            // For large |x| the slope of the logistic function is 0 and that of its operand
            // infinite.
            &share + (&share * &(1.0 - &share)).scaled_by(&slope)
        })),
    }
    /// sin x.
    Sin sin Float Expensive {
        real: |x| x.apply("sin", libm::sin),
        bits: floats_only,
        compute: instruction(ScalarOp::Sin),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.cos())),
    }
    /// cos x.
    Cos cos Float Expensive {
        real: |x| x.apply("cos", libm::cos),
        bits: floats_only,
        compute: instruction(ScalarOp::Cos),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| -x.sin())),
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
    }
    /// tanh x.
    Tanh tanh Float Expensive {
        real: |x| x.apply("tanh", libm::tanh),
        bits: floats_only,
        compute: instruction(ScalarOp::Tanh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| 1.0 - y * y)),
    }
    /// sinh x = (eˣ − e⁻ˣ) / 2.
    Sinh sinh Float Expensive {
        real: |x| x.apply("sinh", libm::sinh),
        bits: floats_only,
        compute: instruction(ScalarOp::Sinh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.cosh())),
    }
    /// cosh x = (eˣ + e⁻ˣ) / 2.
    Cosh cosh Float Expensive {
        real: |x| x.apply("cosh", libm::cosh),
        bits: floats_only,
        compute: instruction(ScalarOp::Cosh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.sinh())),
    }
    /// asin x, in −π/2..=π/2; NaN beyond ±1. Its derivative 1/√(1 − x²) is +∞ at ±1 and NaN beyond.
    Asin asin Float Expensive {
        real: |x| x.apply("asin", libm::asin),
        bits: floats_only,
        compute: instruction(ScalarOp::Asin),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| one_less_square(x).rsqrt())),
    }
    /// acos x, in 0..=π; NaN beyond ±1. Its derivative −1/√(1 − x²) is −∞ at ±1 and NaN beyond.
    Acos acos Float Expensive {
        real: |x| x.apply("acos", libm::acos),
        bits: floats_only,
        compute: instruction(ScalarOp::Acos),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| -one_less_square(x).rsqrt())),
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
    }
    /// asinh x = ln(x + √(x² + 1)).
    Asinh asinh Float Expensive {
        real: |x| x.apply("asinh", libm::asinh),
        bits: floats_only,
        compute: instruction(ScalarOp::Asinh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| (x.square() + 1.0).rsqrt())),
    }
    /// acosh x = ln(x + √(x² − 1)); NaN below 1. Its derivative 1/√(x² − 1) is +∞ at 1 and NaN
    /// below.
    Acosh acosh Float Expensive {
        real: |x| x.apply("acosh", special::acosh),
        bits: floats_only,
        compute: instruction(ScalarOp::Acosh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| ((x - 1.0) * (x + 1.0)).rsqrt())),
    }
    /// atanh x = ½·ln((1 + x)/(1 − x)); ±∞ at ±1, NaN beyond. Its derivative 1/(1 − x²) is +∞ at
    /// ±1. Beyond ±1 it is the value of this formula, not NaN.
    Atanh atanh Float Expensive {
        real: |x| x.apply("atanh", libm::atanh),
        bits: floats_only,
        compute: instruction(ScalarOp::Atanh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| one_less_square(x).reciprocal())),
    }
    /// ∛x, also for negative x. Its derivative 1/(3·∛x²) is +∞ at 0.
    Cbrt cbrt Float Expensive {
        real: |x| x.apply("cbrt", libm::cbrt),
        bits: floats_only,
        compute: instruction(ScalarOp::Cbrt),
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| (y.square() * 3.0).reciprocal())),
    }
    /// log₂ x; −∞ at 0, NaN below.
    Log2 log2 Float Expensive {
        real: |x| x.apply("log2", libm::log2),
        bits: floats_only,
        compute: instruction(ScalarOp::Log2),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| (x * consts::LN_2).reciprocal())),
    }
    /// erf x = 2/√π ∫₀ˣ e^(−t²) dt.
    Erf erf Float Expensive {
        real: |x| x.apply("erf", libm::erf),
        bits: floats_only,
        compute: instruction(ScalarOp::Erf),
        derivative: Derivative::Nonlinear(|j| {
            scaled(j, |x, _| (-x.square()).exp() * consts::FRAC_2_SQRT_PI)
        }),
    }
    /// Complement of a bool, or of each bit of an integer.
    Not not Bits Cheap {
        real: bits_only,
        bits: |x, d| if d == DType::Bool { (x == 0) as i64 } else { !x },
        compute: instruction(ScalarOp::Not),
        derivative: Derivative::Zero,
    }
    /// Population count: the number of bits of x that are 1.
    Popcnt popcnt Integer Cheap {
        real: bits_only,
        bits: |x, d| Scalar::from_i64(d, x).bits().count_ones().into(),
        compute: instruction(ScalarOp::Popcnt),
        derivative: Derivative::Zero,
    }
    /// Number of leading zero bits of x. For x = 0 it is the dtype's width in bits.
    Clz clz Integer Cheap {
        real: bits_only,
        bits: |x, d| {
            i64::from(Scalar::from_i64(d, x).bits().leading_zeros()) - i64::from(64 - d.bits())
        },
        compute: instruction(ScalarOp::Clz),
        derivative: Derivative::Zero,
    }
    /// The identity, for any dtype, with derivative 0. Differentiation treats the result as a
    /// constant. Compilation removes it.
    StopGradient stop_gradient Any Free {
        real: |x| Ok(x.clone()),
        bits: |x, _| x,
        compute: |_, x| x,
        derivative: Derivative::Zero,
    }
    /// erfc x = 1 − erf x, also accurate where the result is tiny.
    Erfc erfc Float Expensive {
        real: |x| x.apply("erfc", libm::erfc),
        bits: floats_only,
        compute: instruction(ScalarOp::Erfc),
        derivative: Derivative::Nonlinear(|j| {
            scaled(j, |x, _| (-x.square()).exp() * -consts::FRAC_2_SQRT_PI)
        }),
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
    }
    /// ln |Γ(x)|: +∞ at the poles 0, −1, −2, … and at ±∞. Its derivative is `digamma`.
    Lgamma lgamma Float Expensive {
        real: |x| x.apply("lgamma", libm::lgamma),
        bits: floats_only,
        compute: instruction(ScalarOp::Lgamma),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.digamma())),
    }
    /// ψ(x), the derivative of ln Γ. It is NaN at the poles 0, −1, −2, …, as in lax, because its
    /// sign is undefined there. Its derivative is `polygamma` of order 1.
    Digamma digamma Float Expensive {
        real: |x| x.apply("digamma", special::digamma),
        bits: floats_only,
        compute: instruction(ScalarOp::Digamma),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.polygamma(1))),
    }
}
