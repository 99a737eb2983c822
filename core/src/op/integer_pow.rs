//! `integer_pow`: xⁿ for a constant integer n, by multiplications only.

use super::attribute::{attributes, named};
use super::compute::Compute;
use super::derivative::Derivative;
use super::elementwise::{Domain, widened, wrap};
use super::sample::{Sample, floats, values};
use super::{Cost, Entry, Op, Operation, Traits, operand_count};
use crate::build::tensor::Tensor;
use crate::diagnostic::{Diagnostic, Result};
use crate::graph::Region;
use crate::interpret::{Array, Cell, Cells, Real, Regions};
use crate::nest::ScalarOp;
use crate::op::batch::Batch;
use crate::scalar::Scalar;
use crate::ty::TensorType;

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
    named!("integer_pow");

    fn infer(&self, operands: &[TensorType], _regions: &[Region]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        let dtype = operands[0].dtype;
        Domain::Number.check(dtype)?;
        if !(-MOST..=MOST).contains(&self.exponent) {
            return Err(Diagnostic::new(format!("exponent {} is out of range", self.exponent))
                .help("exponents are at most 2^40 in magnitude; `pow` takes any"));
        }
        if self.exponent < 0 && !dtype.is_float() {
            return Err(Diagnostic::new(format!("exponent {} for {dtype}", self.exponent))
                .help("a negative power of an integer is none: convert the operand to a float"));
        }
        Ok(vec![operands[0].clone()])
    }

    fn evaluate<R: Real>(
        &self,
        operands: &[Array<R>],
        _results: &[TensorType],
        _regions: &Regions<'_>,
    ) -> Result<Vec<Array<R>>> {
        let (x, size) = (&operands[0], self.exponent.unsigned_abs());
        let cell = |cell: &Cell<R>| {
            Ok(match cell {
                Cell::Real(_) if size == 0 => Cell::Real(R::from_i64(1)),
                Cell::Bits(_) if size == 0 => Cell::Bits(1),
                Cell::Real(x) => {
                    let power = power(x.clone(), size, R::mul);
                    Cell::Real(if self.exponent < 0 { R::from_i64(1).div(&power)? } else { power })
                }
                Cell::Bits(bits) => {
                    Cell::Bits(wrap(power(*bits, size, |a, b| a.wrapping_mul(*b)), x.dtype))
                }
            })
        };
        let cells = Cells::try_collect(x.cells.iter().map(cell))?;
        Ok(vec![Array::new(x.dtype, x.shape.clone(), cells)])
    }

    fn compute<'a>(
        &'a self,
        _operands: &[TensorType],
        _results: &[TensorType],
        _regions: &'a [Region],
    ) -> Compute<'a> {
        Compute::Element {
            rule: Box::new(|c, index| {
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
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        Derivative::Nonlinear(|j| {
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
        })
    }

    fn batch(&self, b: &Batch<'_>) -> Vec<Tensor> {
        b.elementwise(self.clone())
    }

    fn traits(&self) -> Traits {
        let cost = if self.exponent < 0 { Cost::Expensive } else { Cost::Cheap };
        Traits { cost, elementwise: true, commutative: false }
    }

    fn entries() -> Vec<Entry> {
        let sample = |exponent, operand| Sample::new(IntegerPow { exponent }, vec![operand]);
        let mut samples: Vec<Sample> =
            (-4..=7).map(|exponent| sample(exponent, floats(&[3, 5], 0.5, 2.0))).collect();
        samples.extend([
            sample(3, floats(&[3, 5], -2.0, -0.5)),
            sample(-3, floats(&[3, 5], -2.0, -0.5)),
            sample(37, values(&[4], [2.0f32, -0.5, -1.0, 0.25])),
            sample(0, values(&[4], [0.0f32, -0.0, f32::NAN, f32::INFINITY])),
            sample(-1, values(&[4], [0.0f32, -0.0, f32::INFINITY, -4.0])),
            sample(-2, values(&[3], [0.0f64, -0.0, f64::NEG_INFINITY])),
            sample(i64::from(i32::MAX), values(&[2], [1.0f32, -1.0])),
            sample(i64::from(i32::MIN), values(&[2], [1.0f32, -1.0])),
            sample(5, values(&[4], [-7i32, 0, 1, i32::MAX])),
            sample(0, values(&[2], [0u8, 9])),
            sample(3, values(&[3], [-7i8, 5, i8::MIN])),
            sample(2, values(&[2], [u64::MAX, 1 << 33])),
        ]);
        vec![Entry {
            name: "integer_pow",
            doc: "x to the power `exponent`, by repeated squaring. It is exact where the products \
                  are. A negative power is 1 / xⁿ, for floats only; x⁰ is 1. The derivative is \
                  n·xⁿ⁻¹.",
            derivative: "nonlinear",
            samples,
        }]
    }
}
