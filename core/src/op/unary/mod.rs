//! Elementwise ops of one operand: one row of the table ([`table`]) is one op, with all its
//! facets and its method of [`Tensor`].
//!
//! The result has the operand's shape and dtype. Halves are computed in f32 and rounded once at
//! the end.

mod table;

use crate::op::prelude::*;

pub use table::Unary;

/// No integer facet: `infer` admits floats only.
fn floats_only(_: i64, _: DType) -> i64 {
    unreachable!("infer admits floats only")
}

/// No float facet: `infer` admits integers and bool only.
fn bits_only<R: Real>(_: &R) -> Result<R> {
    unreachable!("infer admits integers and bool only")
}

/// Emits the scalar instruction of the same meaning.
fn instruction(op: ScalarOp) -> impl Fn(&mut dyn ElementContext, Reg) -> Reg {
    move |c, x| c.scalar(op, &[x])
}

/// The tangent of a unary op from the coefficient of its operand's tangent.
fn scaled(
    j: &Jvp<'_>,
    coefficient: impl FnOnce(&Tensor, &Tensor) -> Tensor,
) -> Vec<Option<Tensor>> {
    let coefficient = coefficient(&j.operands[0], &j.results[0]);
    vec![j.tangents[0].as_ref().map(|t| t.scaled_by(&coefficient))]
}

/// The tangent of a unary op from the coefficient of its operand's tangent, which is a formula of
/// several ops. Halves are computed in f32 and rounded once at the end, like the op itself.
fn scaled_wide(j: &Jvp<'_>, coefficient: impl FnOnce(&Tensor) -> Tensor) -> Vec<Option<Tensor>> {
    let x = &j.operands[0];
    let dtype = x.dtype();
    let wide = |t: &Tensor| if dtype.is_half() { t.convert(DType::F32) } else { t.clone() };
    let tangent = j.tangents[0].as_ref().map(|t| {
        let tangent = wide(t).scaled_by(&coefficient(&wide(x)));
        if dtype.is_half() { tangent.convert(dtype) } else { tangent }
    });
    vec![tangent]
}

/// 1 − x², without cancellation at ±1.
fn one_less_square(x: &Tensor) -> Tensor {
    let less: Tensor = 1.0 - x;
    less * (x + 1.0)
}

/// Makes the enum, its facets and the tensor methods from the table.
macro_rules! unary {
    ($($(#[doc = $doc:literal])+ $variant:ident $name:ident $domain:ident $cost:ident {
        real: $real:expr,
        bits: $bits:expr,
        compute: $compute:expr,
        derivative: $derivative:expr,
    })*) => {
        /// An elementwise op of one operand.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Unary { $($(#[doc = $doc])+ $variant,)* }

        impl Unary {
            /// Every op of the table.
            pub const ALL: &[Unary] = &[$(Unary::$variant,)*];

            pub(super) fn domain(self) -> Domain {
                match self { $(Unary::$variant => Domain::$domain,)* }
            }

            pub(super) fn cell<R: Real>(self, x: &Cell<R>, dtype: DType) -> Result<Cell<R>> {
                fn real<R: Real>(x: &R, f: impl Fn(&R) -> Result<R>) -> Result<R> { f(x) }
                fn bits(x: i64, d: DType, f: impl Fn(i64, DType) -> i64) -> i64 { f(x, d) }
                Ok(match (self, x) {
                    $((Unary::$variant, Cell::Real(x)) => Cell::Real(real(x, $real)?),
                    (Unary::$variant, Cell::Bits(x)) => {
                        Cell::Bits(wrap(bits(*x, dtype, $bits), dtype))
                    })*
                })
            }

            pub(super) fn emit(self, c: &mut dyn ElementContext, x: Reg) -> Reg {
                fn run(
                    c: &mut dyn ElementContext,
                    x: Reg,
                    f: impl Fn(&mut dyn ElementContext, Reg) -> Reg,
                ) -> Reg {
                    f(c, x)
                }
                match self { $(Unary::$variant => run(c, x, $compute),)* }
            }

            pub(super) fn rule(self) -> Derivative {
                match self { $(Unary::$variant => $derivative,)* }
            }

            pub(super) fn cost(self) -> Cost {
                match self { $(Unary::$variant => Cost::$cost,)* }
            }

            pub(super) fn named(self) -> &'static str {
                match self { $(Unary::$variant => stringify!($name),)* }
            }

            pub(super) fn doc(self) -> &'static str {
                match self { $(Unary::$variant => concat!($($doc, "\n"),+),)* }
            }
        }

        impl Tensor {
            $($(#[doc = $doc])+
            #[track_caller]
            pub fn $name(&self) -> Tensor {
                self.unary(Unary::$variant)
            })*
        }
    };
}

use unary;

impl Operation for Unary {
    named!(enum "%x");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [x] = t.exactly()?;
        self.domain().check(x.dtype)?;
        Ok(vec![x.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        e.map(|x| self.cell(x, e.results[0].dtype))
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::element(|c, index| {
            let x = c.operand(0, index);
            widened(c, &[x], |c, x| self.emit(c, x[0]))
        })
    }

    fn traits(&self) -> Traits {
        Traits::elementwise(self.cost())
    }
}
