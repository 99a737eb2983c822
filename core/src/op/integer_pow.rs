//! `integer_pow`: xⁿ for a constant integer n, by multiplications only.

use crate::op::prelude::*;

attributes! {
    /// `integer_pow %x {exponent=3}`: xⁿ. Products are made in a fixed order, that of repeated
    /// squaring: the powers x, x², x⁴, … are multiplied, lowest first, where n has a bit. x⁻ⁿ is
    /// 1 / xⁿ, for floats only. x⁰ is 1, for NaN and 0 as well. Integers wrap. The derivative is
    /// n·xⁿ⁻¹, and 0 for n = 0.
    IntegerPow {
        /// n.
        exponent: i64,
    }
}

/// Largest magnitude of an exponent: all of i32, with room for repeated derivatives.
const MOST: i64 = 1 << 40;

/// x to a positive power, with `multiply` as the product.
fn power<T: Clone>(x: T, exponent: u64, mut multiply: impl FnMut(&T, &T) -> T) -> T {
    let (mut square, mut rest) = (x, exponent);
    let mut product: Option<T> = None;
    loop {
        if rest & 1 == 1 {
            product = Some(match product {
                Some(product) => multiply(&product, &square),
                None => square.clone(),
            });
        }
        rest >>= 1;
        if rest == 0 {
            return product.expect("the exponent is positive, so it has a bit");
        }
        square = multiply(&square, &square);
    }
}

impl Operation for IntegerPow {
    named!(
        "integer_pow",
        "x to the power `exponent`, by repeated squaring. It is exact where the products are. A \
         negative power is 1 / xⁿ, for floats only; x⁰ is 1. The derivative is n·xⁿ⁻¹."
    );

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        let dtype = x.dtype;
        Domain::Number.check(dtype)?;
        if !(-MOST..=MOST).contains(&self.exponent) {
            bail!("exponent {} is out of range", self.exponent;
                help "exponents are at most 2^40 in magnitude; `pow` takes any");
        }
        ensure!(self.exponent >= 0 || dtype.is_float(), "exponent {} for {dtype}", self.exponent;
            help "a negative power of an integer is none: convert the operand to a float");
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        let (dtype, size) = (e.results[0].dtype, self.exponent.unsigned_abs());
        e.map(|cell| {
            Ok(match cell {
                Cell::Real(_) if size == 0 => Cell::Real(R::from_i64(1)),
                Cell::Bits(_) if size == 0 => Cell::Bits(1),
                Cell::Real(x) => {
                    let power = power(x.clone(), size, R::mul);
                    Cell::Real(if self.exponent < 0 { R::from_i64(1).div(&power)? } else { power })
                }
                Cell::Bits(bits) => {
                    Cell::Bits(wrap(power(*bits, size, |a, b| a.wrapping_mul(*b)), dtype))
                }
            })
        })
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::element(|c, index| {
            let x = c.operand(0, index);
            widened(c, &[x], |c, x| {
                let one = c.constant(Scalar::one(c.dtype(x[0])));
                if self.exponent == 0 {
                    return one;
                }
                let size = self.exponent.unsigned_abs();
                let power = power(x[0], size, |a, b| c.scalar(ScalarOp::Mul, &[*a, *b]));
                if self.exponent < 0 { c.scalar(ScalarOp::Div, &[one, power]) } else { power }
            })
        })
    }

    const DERIVATIVE: Derivative = Derivative::Nonlinear(|j| {
        let Op::IntegerPow(IntegerPow { exponent }) = j.op else {
            unreachable!("this op's own rule")
        };
        let (x, tangent) = (&j.operands[0], j.tangents[0].as_ref());
        let coefficient = || match exponent {
            1 => x.ones_like(),
            2 => x + x,
            n => x.integer_pow(n - 1) * *n as f64,
        };
        vec![tangent.filter(|_| *exponent != 0).map(|t| t.scaled_by(&coefficient()))]
    });

    fn traits(&self) -> Traits {
        let cost = if self.exponent < 0 { Cost::Expensive } else { Cost::Cheap };
        Traits::elementwise(cost)
    }
}
