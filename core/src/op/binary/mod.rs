//! Elementwise ops of two operands of one type: one row of the table ([`table`]) is one op, with
//! all its facets and its method of [`Tensor`].

mod table;

use crate::op::prelude::*;

pub use table::Binary;

/// Makes the enum, its facets and the tensor methods from the table.
macro_rules! binary {
    ($($(#[doc = $doc:literal])+
    $variant:ident $name:ident $domain:ident $cost:ident $commutes:literal {
        real: $real:expr,
        bits: $bits:expr,
        compute: $compute:expr,
        derivative: $derivative:expr,
    })*) => {
        /// An elementwise op of two operands of one type.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub enum Binary { $($(#[doc = $doc])+ $variant,)* }

        impl Binary {
            /// Every op of the table.
            pub const ALL: &[Binary] = &[$(Binary::$variant,)*];

            pub(super) fn domain(self) -> Domain {
                match self { $(Binary::$variant => Domain::$domain,)* }
            }

            pub(super) fn cell<R: Real>(
                self,
                x: &Cell<R>,
                y: &Cell<R>,
                dtype: DType,
            ) -> Result<Cell<R>> {
                fn real<R: Real>(x: &R, y: &R, f: impl Fn(&R, &R) -> Result<R>) -> Result<R> {
                    f(x, y)
                }
                fn bits(x: i64, y: i64, d: DType, f: impl Fn(i64, i64, DType) -> i64) -> i64 {
                    f(x, y, d)
                }
                Ok(match (self, x, y) {
                    $((Binary::$variant, Cell::Real(x), Cell::Real(y)) => {
                        Cell::Real(real(x, y, $real)?)
                    }
                    (Binary::$variant, x, y) => {
                        Cell::Bits(wrap(bits(x.bits(), y.bits(), dtype, $bits), dtype))
                    })*
                })
            }

            pub(super) fn emit(self, c: &mut dyn ElementContext, x: Reg, y: Reg) -> Reg {
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

            pub(super) fn rule(self) -> Derivative {
                match self { $(Binary::$variant => $derivative,)* }
            }

            pub(super) fn cost(self) -> Cost {
                match self { $(Binary::$variant => Cost::$cost,)* }
            }

            pub(super) fn commutes(self) -> bool {
                match self { $(Binary::$variant => $commutes,)* }
            }

            pub(super) fn named(self) -> &'static str {
                match self { $(Binary::$variant => stringify!($name),)* }
            }

            pub(super) fn doc(self) -> &'static str {
                match self { $(Binary::$variant => concat!($($doc, "\n"),+),)* }
            }
        }

        impl Tensor {
            $($(#[doc = $doc])+
            ///
            /// Shapes broadcast as NumPy's do; a number takes the tensor's dtype.
            #[track_caller]
            pub fn $name(&self, other: impl Operand) -> Tensor {
                self.binary(Binary::$variant, &other.beside(self))
            })*
        }
    };
}

use binary;

fn instruction(op: ScalarOp) -> impl Fn(&mut dyn ElementContext, Reg, Reg) -> Reg {
    move |c, x, y| c.scalar(op, &[x, y])
}

/// No integer facet: `infer` admits floats only.
fn floats_only(_: i64, _: i64, _: DType) -> i64 {
    unreachable!("infer admits floats only")
}

/// No float facet: `infer` admits integers and bool only.
fn bits_only<R: Real>(_: &R, _: &R) -> Result<R> {
    unreachable!("infer admits integers and bool only")
}

/// The lesser or greater of two reals, by `wanted`. NaN wins, and −0 is below +0.
pub(super) fn extremum<R: Real>(x: &R, y: &R, wanted: Ordering) -> R {
    let first = match x.compare(y) {
        None => x.compare(x).is_none(),
        Some(Ordering::Equal) => x.is_negative() == (wanted == Ordering::Less),
        Some(order) => order == wanted,
    };
    if first { x.clone() } else { y.clone() }
}

/// `by(y)` if y is a valid shift of the dtype, else `beyond`.
fn shift(y: i64, dtype: DType, by: impl Fn(u32) -> i64, beyond: i64) -> i64 {
    u32::try_from(y).ok().filter(|y| *y < dtype.bits()).map_or(beyond, by)
}

/// An integer as the bits of its dtype, zero-extended.
fn zero_extended(x: i64, dtype: DType) -> u64 {
    Scalar::from_i64(dtype, x).bits()
}

/// The part of one operand in the tangent of an op that picks an operand: zero where `loses`,
/// half of `tangent` where `ties`, else `tangent`.
fn picked(tangent: Option<&Tensor>, loses: Tensor, ties: &Tensor) -> Option<Tensor> {
    tangent.map(|t| {
        let half = t * 0.5;
        loses.select(&t.zeros_like(), &ties.select(&half, t))
    })
}

/// The sum; `None` is zero.
pub(super) fn sum(a: Option<Tensor>, b: Option<Tensor>) -> Option<Tensor> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    }
}

/// `f(operand, ct)` for each operand whose cotangent is wanted.
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

impl Operation for Binary {
    named!(enum "%x, %y");

    fn infer(&self, t: &Typing<'_>) -> Result<Vec<TensorType>> {
        let [a, b] = t.exactly()?;
        ensure!(a.dtype == b.dtype, "operands have dtypes {} and {}", a.dtype, b.dtype;
            help "convert one of them with `convert_element_type`");
        ensure!(
            a.shape == b.shape,
            "operands have types {a} and {b}";
            help "shapes must be equal, or broadcast: aligned at the last axis, extents equal or 1"
        );
        self.domain().check(a.dtype)?;
        Ok(vec![a.clone()])
    }

    fn evaluate<R: Real>(&self, e: &Evaluation<'_, R>) -> Result<Vec<Array<R>>> {
        e.zip(|x, y| self.cell(x, y, e.results[0].dtype))
    }

    fn compute<'a>(&'a self, _: &Lowering<'_, 'a>) -> Compute<'a> {
        Compute::element(|c, index| {
            let operands = [c.operand(0, index), c.operand(1, index)];
            widened(c, &operands, |c, o| self.emit(c, o[0], o[1]))
        })
    }

    fn traits(&self) -> Traits {
        Traits { commutative: self.commutes(), ..Traits::elementwise(self.cost()) }
    }
}
