//! Elementwise ops of one operand: one row of the table is one op, with all its facets.
//!
//! The result has the operand's shape and dtype. Halves are computed in f32 and rounded once at the end.

use super::attribute::{Attribute, Attributes};
use super::compute::{Compute, ElementContext};
use super::derivative::{Derivative, Jvp};
use super::sample::{Sample, floats};
use super::{Cost, Entry, Operation, Traits, operand_count};
use crate::diagnostic::{Diagnostic, Result};
use crate::dtype::DType;
use crate::graph::Body;
use crate::graph::tensor::Tensor;
use crate::interpret::{Array, Cell, Real};
use crate::nest::{Reg, ScalarOp};
use crate::scalar::Scalar;
use crate::ty::TensorType;
use std::cmp::Ordering;
use std::collections::BTreeMap;

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
    /// Everything.
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
            Domain::Any => "every dtype",
        };
        Err(Diagnostic::new(format!("takes {takes}, found {dtype}"))
            .help("convert the operand with `convert_element_type`"))
    }
}

/// Wraps an integer to its dtype, as [`Cell::Bits`] keeps it.
pub(super) fn wrap(value: i64, dtype: DType) -> i64 {
    Scalar::from_i64(dtype, value).to_i64().expect("called for integers and bool")
}

/// No integer facet: `infer` admits floats only.
pub(super) fn floats_only<T>(_: i64, _: DType) -> Result<T> {
    unreachable!("infer admits floats only")
}

macro_rules! unary {
    ($($(#[doc = $doc:literal])+ $variant:ident $name:literal $domain:ident $cost:ident {
        real: $real:expr,
        bits: $bits:expr,
        compute: $compute:expr,
        derivative: $derivative:expr,
        samples: [$($sample:expr),*],
    })*) => {
        /// An elementwise op of one operand.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Unary { $($(#[doc = $doc])+ $variant,)* }

        impl Unary {
            /// Every op of the table.
            pub const ALL: &[Unary] = &[$(Unary::$variant,)*];

            fn domain(self) -> Domain {
                match self { $(Unary::$variant => Domain::$domain,)* }
            }

            fn cell<R: Real>(self, x: &Cell<R>, dtype: DType) -> Result<Cell<R>> {
                fn real<R: Real>(x: &R, f: impl Fn(&R) -> Result<R>) -> Result<R> { f(x) }
                fn bits(x: i64, d: DType, f: impl Fn(i64, DType) -> Result<i64>) -> Result<i64> { f(x, d) }
                Ok(match (self, x) {
                    $((Unary::$variant, Cell::Real(x)) => Cell::Real(real(x, $real)?),
                    (Unary::$variant, Cell::Bits(x)) => Cell::Bits(wrap(bits(*x, dtype, $bits)?, dtype)),)*
                })
            }

            fn emit(self, c: &mut dyn ElementContext, x: Reg) -> Reg {
                fn run(c: &mut dyn ElementContext, x: Reg, f: impl Fn(&mut dyn ElementContext, Reg) -> Reg) -> Reg {
                    f(c, x)
                }
                match self { $(Unary::$variant => run(c, x, $compute),)* }
            }

            fn rule(self) -> Derivative {
                match self { $(Unary::$variant => $derivative,)* }
            }

            fn cost(self) -> Cost {
                match self { $(Unary::$variant => Cost::$cost,)* }
            }

            fn named(self) -> &'static str {
                match self { $(Unary::$variant => $name,)* }
            }

            fn doc(self) -> &'static str {
                match self { $(Unary::$variant => concat!($($doc, "\n"),+),)* }
            }

            fn samples(self) -> Vec<Sample> {
                match self { $(Unary::$variant => vec![$(Sample::new(self, vec![$sample])),*],)* }
            }
        }
    };
}

/// A unary op by the scalar instruction of the same meaning.
fn instruction(op: ScalarOp) -> impl Fn(&mut dyn ElementContext, Reg) -> Reg {
    move |c, x| c.scalar(op, &[x])
}

/// The tangent of a unary op from the coefficient of its operand's tangent.
fn scaled(j: &Jvp<'_>, coefficient: impl FnOnce(&Tensor, &Tensor) -> Tensor) -> Vec<Option<Tensor>> {
    let coefficient = coefficient(&j.operands[0], &j.results[0]);
    vec![j.tangents[0].as_ref().map(|t| t.scaled_by(&coefficient))]
}

unary! {
    /// −x. Integers wrap.
    Neg "neg" Number Cheap {
        real: |x| Ok(x.neg()),
        bits: |x, _| Ok(x.wrapping_neg()),
        compute: instruction(ScalarOp::Neg),
        derivative: Derivative::Linear(|t| vec![t.cotangents[0].as_ref().map(|ct| -ct)]),
        samples: [floats(&[3, 5], -2.0, 2.0)],
    }
    /// |x|. Its derivative at 0 is 0. The least integer wraps.
    Abs "abs" Number Cheap {
        real: |x| Ok(if x.compare(&Real::from_i64(0)) == Some(Ordering::Less) || x.to_f64().is_sign_negative() {
            x.neg()
        } else {
            x.clone()
        }),
        bits: |x, d| Ok(if d.is_unsigned_integer() { x } else { x.wrapping_abs() }),
        compute: instruction(ScalarOp::Abs),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| x.unary(Unary::Sign))),
        samples: [floats(&[3, 5], -2.0, -0.1), floats(&[3, 5], 0.1, 2.0)],
    }
    /// −1, 0 or 1 by the sign of x; ±0 and NaN stay as they are.
    Sign "sign" Number Cheap {
        real: |x| Ok(match x.compare(&Real::from_i64(0)) {
            Some(Ordering::Less) => Real::from_i64(-1),
            Some(Ordering::Greater) => Real::from_i64(1),
            _ => x.clone(),
        }),
        bits: |x, d| Ok(if d.is_unsigned_integer() { (x != 0) as i64 } else { x.signum() }),
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
        samples: [floats(&[3, 5], -2.0, -0.1), floats(&[3, 5], 0.1, 2.0)],
    }
    /// Largest integer not above x.
    Floor "floor" Float Cheap {
        real: |x| Ok(if x.is_zero() { x.clone() } else { x.floor() }),
        bits: floats_only,
        compute: instruction(ScalarOp::Floor),
        derivative: Derivative::Zero,
        samples: [floats(&[3, 5], -1.9, -1.1), floats(&[3, 5], 3.1, 3.9)],
    }
    /// eˣ.
    Exp "exp" Float Expensive {
        real: |x| x.apply("exp", libm::exp),
        bits: floats_only,
        compute: instruction(ScalarOp::Exp),
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| y.clone())),
        samples: [floats(&[3, 5], -3.0, 3.0)],
    }
    /// ln x; −∞ at 0, NaN below.
    Log "log" Float Expensive {
        real: |x| x.apply("log", libm::log),
        bits: floats_only,
        compute: instruction(ScalarOp::Log),
        derivative: Derivative::Nonlinear(|j| scaled(j, |x, _| 1.0 / x)),
        samples: [floats(&[3, 5], 0.1, 5.0)],
    }
    /// tanh x.
    Tanh "tanh" Float Expensive {
        real: |x| x.apply("tanh", libm::tanh),
        bits: floats_only,
        compute: instruction(ScalarOp::Tanh),
        derivative: Derivative::Nonlinear(|j| scaled(j, |_, y| 1.0 - y * y)),
        samples: [floats(&[3, 5], -2.0, 2.0)],
    }
}

impl Operation for Unary {
    fn name(&self) -> &'static str {
        self.named()
    }

    fn infer(&self, operands: &[TensorType], _regions: &[Body]) -> Result<Vec<TensorType>> {
        operand_count(operands, 1)?;
        self.domain().check(operands[0].dtype)?;
        Ok(vec![operands[0].clone()])
    }

    fn evaluate<R: Real>(&self, operands: &[Array<R>], _results: &[TensorType]) -> Result<Vec<Array<R>>> {
        let x = &operands[0];
        let cells = x.cells.iter().map(|c| self.cell(c, x.dtype)).collect::<Result<Vec<_>>>()?;
        Ok(vec![Array::new(x.dtype, x.shape.clone(), cells)])
    }

    fn compute(&self, _operands: &[TensorType], _results: &[TensorType]) -> Compute<'_> {
        Compute::Element {
            rule: Box::new(|c, index| {
                let x = c.operand(0, index);
                widened(c, &[x], |c, x| self.emit(c, x[0]))
            }),
            indirect: vec![],
        }
    }

    fn derivative(&self) -> Derivative {
        self.rule()
    }

    fn traits(&self) -> Traits {
        Traits { cost: self.cost(), elementwise: true, commutative: false }
    }

    fn attributes(&self) -> Attributes {
        Attributes::new()
    }

    fn parse(name: &str, _attributes: &mut BTreeMap<String, Attribute>) -> Option<Result<Self>> {
        Unary::ALL.iter().copied().find(|u| u.named() == name).map(Ok)
    }

    fn entries() -> Vec<Entry> {
        Unary::ALL
            .iter()
            .map(|u| Entry {
                name: u.named(),
                doc: u.doc(),
                derivative: u.rule().kind(),
                samples: u.samples(),
            })
            .collect()
    }
}

/// Runs `f` on operands of one dtype; halves are widened to f32 before and the result is rounded after.
pub(super) fn widened(
    c: &mut dyn ElementContext,
    operands: &[Reg],
    f: impl FnOnce(&mut dyn ElementContext, &[Reg]) -> Reg,
) -> Reg {
    let dtype = c.dtype(operands[operands.len() - 1]);
    if !dtype.is_half() {
        return f(c, operands);
    }
    let wide: Vec<Reg> =
        operands.iter().map(|x| if c.dtype(*x).is_half() { c.convert(*x, DType::F32) } else { *x }).collect();
    let result = f(c, &wide);
    if c.dtype(result) == DType::F32 { c.convert(result, dtype) } else { result }
}
