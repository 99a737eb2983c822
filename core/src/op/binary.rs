//! Elementwise ops of two operands of one type: one row of the table is one op, with all its facets.

use super::attribute::{Attribute, Attributes};
use super::compute::{Compute, ElementContext};
use super::derivative::{Derivative, Jvp, Transpose};
use super::sample::{Sample, floats};
use super::unary::{Domain, widened, wrap};
use super::{Cost, Entry, Operation, Traits, Unary, operand_count};
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::graph::Body;
use crate::graph::tensor::Tensor;
use crate::interpret::{Array, Cell, Real};
use crate::nest::{Reg, ScalarOp};
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::collections::BTreeMap;

macro_rules! binary {
    ($($(#[doc = $doc:literal])+ $variant:ident $name:literal $domain:ident $cost:ident $commutes:literal {
        real: $real:expr,
        bits: $bits:expr,
        compute: $compute:expr,
        derivative: $derivative:expr,
        samples: [$(($a:expr, $b:expr)),*],
    })*) => {
        /// An elementwise op of two operands of one type.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Binary { $($(#[doc = $doc])+ $variant,)* }

        impl Binary {
            /// Every op of the table.
            pub const ALL: &[Binary] = &[$(Binary::$variant,)*];

            fn domain(self) -> Domain {
                match self { $(Binary::$variant => Domain::$domain,)* }
            }

            fn cell<R: Real>(self, x: &Cell<R>, y: &Cell<R>, dtype: DType) -> Result<Cell<R>> {
                fn real<R: Real>(x: &R, y: &R, f: impl Fn(&R, &R) -> Result<R>) -> Result<R> { f(x, y) }
                fn bits(x: i64, y: i64, d: DType, f: impl Fn(i64, i64, DType) -> i64) -> i64 { f(x, y, d) }
                Ok(match (self, x, y) {
                    $((Binary::$variant, Cell::Real(x), Cell::Real(y)) => Cell::Real(real(x, y, $real)?),
                    (Binary::$variant, x, y) => Cell::Bits(wrap(bits(x.bits(), y.bits(), dtype, $bits), dtype)),)*
                })
            }

            fn emit(self, c: &mut dyn ElementContext, x: Reg, y: Reg) -> Reg {
                fn run(
                    c: &mut dyn ElementContext,
                    x: Reg,
                    y: Reg,
                    f: impl Fn(&mut dyn ElementContext, Reg, Reg) -> Reg,
                ) -> Reg {
                    f(c, x, y)
                }
                match self { $(Binary::$variant => run(c, x, y, $compute),)* }
            }

            fn rule(self) -> Derivative {
                match self { $(Binary::$variant => $derivative,)* }
            }

            fn cost(self) -> Cost {
                match self { $(Binary::$variant => Cost::$cost,)* }
            }

            fn commutes(self) -> bool {
                match self { $(Binary::$variant => $commutes,)* }
            }

            fn named(self) -> &'static str {
                match self { $(Binary::$variant => $name,)* }
            }

            fn doc(self) -> &'static str {
                match self { $(Binary::$variant => concat!($($doc, "\n"),+),)* }
            }

            fn samples(self) -> Vec<Sample> {
                match self { $(Binary::$variant => vec![$(Sample::new(self, vec![$a, $b])),*],)* }
            }
        }
    };
}

fn instruction(op: ScalarOp) -> impl Fn(&mut dyn ElementContext, Reg, Reg) -> Reg {
    move |c, x, y| c.scalar(op, &[x, y])
}

/// No integer facet: `infer` admits floats only.
fn floats_only(_: i64, _: i64, _: DType) -> i64 {
    unreachable!("infer admits floats only")
}

/// The sum of those that are not zero.
pub(super) fn sum(a: Option<Tensor>, b: Option<Tensor>) -> Option<Tensor> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    }
}

/// The cotangent `ct` for each operand that wants one, through `f(operand, ct)`.
fn each(t: &Transpose<'_>, f: impl Fn(usize, &Tensor) -> Tensor) -> Vec<Option<Tensor>> {
    let ct = t.cotangents[0].as_ref().expect("a transpose rule is called with a cotangent");
    t.operands.iter().enumerate().map(|(i, o)| o.is_linear().then(|| f(i, ct))).collect()
}

/// The jvp of an op of two operands from the coefficients of their tangents.
fn scaled(
    j: &Jvp<'_>,
    first: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Tensor,
    second: impl FnOnce(&Tensor, &Tensor, &Tensor) -> Tensor,
) -> Vec<Option<Tensor>> {
    let (x, y, z) = (&j.operands[0], &j.operands[1], &j.results[0]);
    let a = j.tangents[0].as_ref().map(|t| t.scaled_by(&first(x, y, z)));
    let b = j.tangents[1].as_ref().map(|t| t.scaled_by(&second(x, y, z)));
    vec![sum(a, b)]
}

binary! {
    /// x + y. Integers wrap.
    Add "add" Number Cheap true {
        real: |x, y| Ok(x.add(y)),
        bits: |x, y, _| x.wrapping_add(y),
        compute: instruction(ScalarOp::Add),
        derivative: Derivative::Linear(|t| each(t, |_, ct| ct.clone())),
        samples: [(floats(&[3, 5], -2.0, 2.0), floats(&[3, 5], -2.0, 2.0))],
    }
    /// x − y. Integers wrap.
    Sub "sub" Number Cheap false {
        real: |x, y| Ok(x.sub(y)),
        bits: |x, y, _| x.wrapping_sub(y),
        compute: instruction(ScalarOp::Sub),
        derivative: Derivative::Linear(|t| each(t, |i, ct| if i == 0 { ct.clone() } else { -ct })),
        samples: [(floats(&[3, 5], -2.0, 2.0), floats(&[3, 5], -2.0, 2.0))],
    }
    /// x · y. Integers wrap.
    Mul "mul" Number Cheap true {
        real: |x, y| Ok(x.mul(y)),
        bits: |x, y, _| x.wrapping_mul(y),
        compute: instruction(ScalarOp::Mul),
        derivative: Derivative::LinearIn(
            |j| scaled(j, |_, y, _| y.clone(), |x, _, _| x.clone()),
            |t| each(t, |i, ct| ct.scaled_by(t.operands[1 - i].known())),
        ),
        samples: [(floats(&[3, 5], -2.0, 2.0), floats(&[3, 5], -2.0, 2.0))],
    }
    /// x / y. Integers truncate; see [`ScalarOp::Div`] for division by zero.
    Div "div" Number Expensive false {
        real: |x, y| x.div(y),
        bits: |x, y, d| crate::nest::scalar::integer_div(x, y, d),
        compute: instruction(ScalarOp::Div),
        derivative: Derivative::LinearIn(
            |j| scaled(j, |_, y, _| 1.0 / y, |_, y, z| -(z / y)),
            |t| each(t, |_, ct| ct.scaled_by(&(1.0 / t.operands[1].known()))),
        ),
        samples: [(floats(&[3, 5], -2.0, 2.0), floats(&[3, 5], 0.5, 2.0))],
    }
    /// The remainder of the division truncated towards zero, with the sign of x. Integers: x rem 0 is x.
    Rem "rem" Number Expensive false {
        real: |x, y| {
            if x.compare(x).is_none() || y.is_zero() || y.compare(y).is_none() {
                return x.apply2(y, "rem", libm::fmod);
            }
            x.apply2(y, "rem", libm::fmod).or_else(|_| {
                let quotient = x.div(y)?;
                let whole = if quotient.compare(&Real::from_i64(0)) == Some(std::cmp::Ordering::Less) {
                    quotient.neg().floor().neg()
                } else {
                    quotient.floor()
                };
                Ok(x.sub(&whole.mul(y)))
            })
        },
        bits: |x, y, d| crate::nest::scalar::integer_rem(x, y, d),
        compute: instruction(ScalarOp::Rem),
        derivative: Derivative::Nonlinear(|j| scaled(
            j,
            |x, _, _| x.ones_like(),
            |x, y, _| {
                let quotient = x / y;
                -(quotient.unary(Unary::Sign) * quotient.unary(Unary::Abs).unary(Unary::Floor))
            },
        )),
        samples: [(floats(&[3, 5], 3.1, 3.9), floats(&[3, 5], 0.81, 0.99))],
    }
    /// The strong product: coefficient · tangent, but +0 wherever the tangent (the second operand) is zero, even against
    /// an infinite or NaN coefficient. All jvp rules of elementwise ops scale tangents with it.
    MulZero "mul_zero" Float Cheap false {
        real: |x, y| Ok(if y.is_zero() { Real::from_i64(0) } else { x.mul(y) }),
        bits: floats_only,
        compute: |c, x, y| {
            let zero = c.constant(Scalar::zero(c.dtype(y)));
            let is_zero = c.scalar(ScalarOp::Eq, &[y, zero]);
            let product = c.scalar(ScalarOp::Mul, &[x, y]);
            c.scalar(ScalarOp::Select, &[is_zero, zero, product])
        },
        derivative: Derivative::LinearIn(
            // In the coefficient it is linear too, and constant where the tangent is zero: hence scaled twice.
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
        samples: [(floats(&[3, 5], -2.0, 2.0), floats(&[3, 5], -2.0, 2.0))],
    }
}

impl Operation for Binary {
    fn name(&self) -> &'static str {
        self.named()
    }

    fn infer(&self, operands: &[TensorType], _regions: &[Body]) -> Result<Vec<TensorType>> {
        operand_count(operands, 2)?;
        let (a, b) = (&operands[0], &operands[1]);
        if a.dtype != b.dtype {
            return Err(Diagnostic::new(format!("operands have dtypes {} and {}", a.dtype, b.dtype))
                .help("convert one of them with `convert_element_type`"));
        }
        if a.shape != b.shape {
            return Err(Diagnostic::new(format!("operands have types {a} and {b}"))
                .help("shapes must be equal, or broadcast: aligned at the last axis, extents equal or 1"));
        }
        self.domain().check(a.dtype)?;
        Ok(vec![a.clone()])
    }

    fn evaluate<R: Real>(&self, operands: &[Array<R>], _results: &[TensorType]) -> Result<Vec<Array<R>>> {
        let (x, y) = (&operands[0], &operands[1]);
        let cells = x
            .cells
            .iter()
            .zip(y.cells.iter())
            .map(|(a, b)| self.cell(a, b, x.dtype))
            .collect::<Result<Vec<_>>>()?;
        Ok(vec![Array::new(x.dtype, x.shape.clone(), cells)])
    }

    fn compute(&self, _operands: &[TensorType], _results: &[TensorType]) -> Compute<'_> {
        Compute::Element {
            rule: Box::new(|c, index| {
                let operands = [c.operand(0, index), c.operand(1, index)];
                widened(c, &operands, |c, o| self.emit(c, o[0], o[1]))
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        self.rule()
    }

    fn traits(&self) -> Traits {
        Traits { cost: self.cost(), elementwise: true, commutative: self.commutes() }
    }

    fn attributes(&self) -> Attributes {
        Attributes::new()
    }

    fn parse(name: &str, _attributes: &mut BTreeMap<String, Attribute>) -> Option<Result<Self>> {
        Binary::ALL.iter().copied().find(|b| b.named() == name).map(Ok)
    }

    fn entries() -> Vec<Entry> {
        Binary::ALL
            .iter()
            .map(|b| Entry {
                name: b.named(),
                doc: b.doc(),
                derivative: b.rule().kind(),
                samples: b.samples(),
            })
            .collect()
    }
}
