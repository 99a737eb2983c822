//! The table of elementwise ops of two operands.

use crate::build::operators::Operand;
use crate::nest::scalar::{integer_div, integer_rem};
use crate::op::binary::{
    binary, bits_only, each, extremum, floats_only, instruction, picked, scaled, shift, sum,
    zero_extended,
};
use crate::op::derivative::Sign;
use crate::op::prelude::*;

binary! {
    /// x + y. Integers wrap.
    Add add Number Cheap true {
        real: |x, y| Ok(x.add(y)),
        bits: |x, y, _| x.wrapping_add(y),
        compute: instruction(ScalarOp::Add),
        derivative: Derivative::SignedSum(&[Sign::Plus, Sign::Plus]),
    }
    /// x − y. Integers wrap.
    Sub sub Number Cheap false {
        real: |x, y| Ok(x.sub(y)),
        bits: |x, y, _| x.wrapping_sub(y),
        compute: instruction(ScalarOp::Sub),
        derivative: Derivative::SignedSum(&[Sign::Plus, Sign::Minus]),
    }
    /// x · y. Integers wrap.
    Mul mul Number Cheap true {
        real: |x, y| Ok(x.mul(y)),
        bits: |x, y, _| x.wrapping_mul(y),
        compute: instruction(ScalarOp::Mul),
        derivative: Derivative::LinearIn(
            &[0, 1],
            |j| scaled(j, |_, y, _| y.clone(), |x, _, _| x.clone()),
            |t| each(t, |i, ct| ct.scaled_by(t.operands[1 - i].known())),
        ),
    }
    /// x / y. Integers truncate; x / 0 is −1 (all bits set), and the least integer / −1 wraps.
    Div div Number Expensive false {
        real: |x, y| x.div(y),
        bits: integer_div,
        compute: instruction(ScalarOp::Div),
        derivative: Derivative::LinearIn(
            &[0],
            |j| scaled(j, |_, y, _| y.reciprocal(), |_, y, z| -(z / y)),
            |t| each(t, |_, ct| ct.scaled_by(&t.operands[1].known().reciprocal())),
        ),
    }
    /// The remainder of truncating division, with the sign of x. For integers, x rem 0 is x.
    Rem rem Number Expensive false {
        real: |x, y| {
            if x.compare(x).is_none() || y.is_zero() || y.compare(y).is_none() {
                return x.apply2(y, "rem", libm::fmod);
            }
            x.apply2(y, "rem", libm::fmod).or_else(|_| {
                let quotient = x.div(y)?;
                let whole = if quotient.compare(&Real::from_i64(0)) == Some(Ordering::Less) {
                    quotient.neg().floor().neg()
                } else {
                    quotient.floor()
                };
                Ok(x.sub(&whole.mul(y)))
            })
        },
        bits: integer_rem,
        compute: instruction(ScalarOp::Rem),
        derivative: Derivative::Nonlinear(|j| scaled(
            j,
            |x, _, _| x.ones_like(),
            // x = q · y + z with an integer q.
            |x, y, z| -((x - z) / y).round(),
        )),
    }
    /// The strong product: coefficient · tangent, but +0 where the tangent (the second operand) is
    /// 0, even for an infinite or NaN coefficient. All jvp rules of elementwise ops scale tangents
    /// by it.
    MulZero mul_zero Float Cheap false {
        real: |x, y| Ok(if y.is_zero() { Real::from_i64(0) } else { x.mul(y) }),
        bits: floats_only,
        compute: |c, x, y| {
            let zero = c.constant(Scalar::zero(c.dtype(y)));
            let is_zero = c.scalar(ScalarOp::Eq, &[y, zero]);
            let product = c.scalar(ScalarOp::Mul, &[x, y]);
            c.scalar(ScalarOp::Select, &[is_zero, zero, product])
        },
        derivative: Derivative::LinearIn(
            &[0, 1],
            // The op is linear in the coefficient, too, and constant where the tangent is zero.
            // So both products are strong.
            |j| {
                let (c, t) = (&j.operands[0], &j.operands[1]);
                let first = j.tangents[0].as_ref().map(|dc| t.scaled_by(dc));
                let second = j.tangents[1].as_ref().map(|dt| dt.scaled_by(c));
                vec![sum(first, second)]
            },
            |t| each(t, |i, ct| match i {
                0 => ct.scaled_by(t.operands[1].known()),
                _ => ct.scaled_by(t.operands[0].known()),
            }),
        ),
    }
    /// The greater operand. NaN if one is NaN; −0 is below +0. Equal operands receive half of the
    /// gradient each.
    Max max Number Cheap true {
        real: |x, y| Ok(extremum(x, y, Ordering::Greater)),
        bits: |x, y, d| if compare_bits(x, y, d) == Ordering::Less { y } else { x },
        compute: instruction(ScalarOp::Max),
        derivative: Derivative::Nonlinear(|j| {
            let (x, y, ties) = (&j.operands[0], &j.operands[1], j.operands[0].eq(&j.operands[1]));
            let first = picked(j.tangents[0].as_ref(), x.lt(y), &ties);
            vec![sum(first, picked(j.tangents[1].as_ref(), y.lt(x), &ties))]
        }),
    }
    /// The smaller operand. NaN if one is NaN; −0 is below +0. Equal operands receive half of the
    /// gradient each.
    Min min Number Cheap true {
        real: |x, y| Ok(extremum(x, y, Ordering::Less)),
        bits: |x, y, d| if compare_bits(x, y, d) == Ordering::Greater { y } else { x },
        compute: instruction(ScalarOp::Min),
        derivative: Derivative::Nonlinear(|j| {
            let (x, y, ties) = (&j.operands[0], &j.operands[1], j.operands[0].eq(&j.operands[1]));
            let first = picked(j.tangents[0].as_ref(), x.gt(y), &ties);
            vec![sum(first, picked(j.tangents[1].as_ref(), y.gt(x), &ties))]
        }),
    }
    /// xʸ. The derivative with respect to x is 0 where y = 0. The derivative with respect to y is 0
    /// where x = 0, including 0⁰ = 1.
    Pow pow Float Expensive false {
        real: |x, y| x.apply2(y, "pow", libm::pow),
        bits: floats_only,
        compute: instruction(ScalarOp::Pow),
        derivative: Derivative::Nonlinear(|j| scaled(
            j,
            |x, y, _| y.eq(0.0).select(&y.zeros_like(), &(y * &x.pow(y - 1.0))),
            |x, _, z| x.eq(0.0).select(&x.zeros_like(), &(z * &x.log())),
        )),
    }
    /// The angle of the point with ordinate x (the first operand) and abscissa y, in −π..=π.
    Atan2 atan2 Float Expensive false {
        real: |x, y| x.apply2(y, "atan2", libm::atan2),
        bits: floats_only,
        compute: instruction(ScalarOp::Atan2),
        derivative: Derivative::Nonlinear(|j| scaled(
            j,
            |x, y, _| y / (x.square() + y.square()),
            |x, y, _| -x / (x.square() + y.square()),
        )),
    }
    /// Conjunction of bools; bitwise conjunction of integers.
    And and Bits Cheap true {
        real: bits_only,
        bits: |x, y, _| x & y,
        compute: instruction(ScalarOp::And),
        derivative: Derivative::Zero,
    }
    /// Disjunction of bools; bitwise disjunction of integers.
    Or or Bits Cheap true {
        real: bits_only,
        bits: |x, y, _| x | y,
        compute: instruction(ScalarOp::Or),
        derivative: Derivative::Zero,
    }
    /// Exclusive disjunction of bools; bitwise exclusive disjunction of integers.
    Xor xor Bits Cheap true {
        real: bits_only,
        bits: |x, y, _| x ^ y,
        compute: instruction(ScalarOp::Xor),
        derivative: Derivative::Zero,
    }
    /// x shifted left by y bits; 0 where y is not in 0..bits.
    ShiftLeft shift_left Integer Cheap false {
        real: bits_only,
        bits: |x, y, d| shift(y, d, |y| x << y, 0),
        compute: instruction(ScalarOp::ShiftLeft),
        derivative: Derivative::Zero,
    }
    /// x shifted right by y bits, filled with zeros; 0 where y is not in 0..bits.
    ShiftRightLogical shift_right_logical Integer Cheap false {
        real: bits_only,
        bits: |x, y, d| shift(y, d, |y| (zero_extended(x, d) >> y) as i64, 0),
        compute: instruction(ScalarOp::ShiftRightLogical),
        derivative: Derivative::Zero,
    }
    /// x shifted right by y bits, filled with its highest bit, for unsigned dtypes too. Where y is
    /// not in 0..bits, every bit of the result is that bit.
    ShiftRightArithmetic shift_right_arithmetic Integer Cheap false {
        real: bits_only,
        bits: |x, y, d| {
            let unused = 64 - d.bits();
            let signed = x << unused >> unused;
            shift(y, d, |y| signed >> y, signed >> 63)
        },
        compute: instruction(ScalarOp::ShiftRightArithmetic),
        derivative: Derivative::Zero,
    }
}
