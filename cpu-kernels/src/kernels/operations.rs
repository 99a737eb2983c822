//! The operations of the scalar instructions, as defined by [`wengert_core::nest::ScalarOp`].
//! They are branch-free where that lets loops over them be vectorised.

use wengert_core::math;

/// An instruction of one operand.
pub(crate) trait Unary<T> {
    /// Type of the result.
    type Result: Copy;
    /// The result.
    fn apply(x: T) -> Self::Result;
}

/// An instruction of two operands of one type.
pub(crate) trait Binary<T> {
    /// Type of the result.
    type Result: Copy;
    /// The result.
    fn apply(x: T, y: T) -> Self::Result;
}

/// An instruction of three operands.
pub(crate) trait Ternary<A, T> {
    /// The result.
    fn apply(x: A, y: T, z: T) -> T;
}

/// A `bool` in memory: a byte, 0 or 1.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
#[repr(transparent)]
pub(crate) struct Boolean(pub u8);

macro_rules! operations {
    ($($name:ident)*) => {$( pub(crate) struct $name; )*};
}
operations! {
    Neg Abs Not Popcnt Clz Floor Ceil RoundEven Trunc Sqrt Exp Expm1 Log Log1p Sin Cos Tanh Erf
    Log2 Asin Acos Sinh Cosh Asinh Acosh Atanh Cbrt Erfc ErfInv Lgamma Digamma
    Add Sub Mul Div Rem Min Max Pow Atan2 And Or Xor
    ShiftLeft ShiftRightLogical ShiftRightArithmetic MulHigh Fma
    Eq Ne Lt Le Select ZeroOrProduct
}

macro_rules! unary {
    ($op:ident $t:ty, |$x:ident| $body:expr) => {
        impl Unary<$t> for $op {
            type Result = $t;
            #[inline(always)]
            fn apply($x: $t) -> $t {
                $body
            }
        }
    };
}

macro_rules! binary {
    ($op:ident $t:ty, |$x:ident, $y:ident| $body:expr) => {
        impl Binary<$t> for $op {
            type Result = $t;
            #[inline(always)]
            fn apply($x: $t, $y: $t) -> $t {
                $body
            }
        }
    };
}

macro_rules! compare {
    ($($t:ty)*) => {$(
        compare!(@ Eq $t, |x, y| x == y);
        compare!(@ Ne $t, |x, y| x != y);
        compare!(@ Lt $t, |x, y| x < y);
        compare!(@ Le $t, |x, y| x <= y);
    )*};
    (@ $op:ident $t:ty, |$x:ident, $y:ident| $body:expr) => {
        impl Binary<$t> for $op {
            type Result = Boolean;
            #[inline(always)]
            fn apply($x: $t, $y: $t) -> Boolean {
                Boolean(u8::from($body))
            }
        }
    };
}
compare!(Boolean u8 i8 i32 i64 u32 u64 f32 f64);

macro_rules! functions {
    ($t:ident: $($op:ident $function:ident),*) => {
        $(unary!($op $t, |x| math::$t::$function(x));)*
    };
}

macro_rules! float {
    ($t:ident) => {
        unary!(Neg $t, |x| -x);
        unary!(Abs $t, |x| x.abs());
        unary!(Floor $t, |x| x.floor());
        unary!(Ceil $t, |x| x.ceil());
        unary!(RoundEven $t, |x| x.round_ties_even());
        unary!(Trunc $t, |x| x.trunc());
        unary!(Sqrt $t, |x| x.sqrt());
        functions!($t: Exp exp, Expm1 expm1, Log log, Log1p log1p, Sin sin, Cos cos, Tanh tanh);
        functions!($t: Erf erf, Log2 log2, Asin asin, Acos acos, Sinh sinh, Cosh cosh);
        functions!($t: Asinh asinh, Acosh acosh, Atanh atanh, Cbrt cbrt, Erfc erfc);
        functions!($t: ErfInv erf_inv, Lgamma lgamma, Digamma digamma);
        binary!(Add $t, |x, y| x + y);
        binary!(Sub $t, |x, y| x - y);
        binary!(Mul $t, |x, y| x * y);
        binary!(Div $t, |x, y| x / y);
        binary!(Rem $t, |x, y| x % y);
        binary!(Pow $t, |x, y| math::$t::pow(x, y));
        binary!(Atan2 $t, |x, y| math::$t::atan2(x, y));
        binary!(Min $t, |x, y| {
            let less = if x < y { x } else { y };
            // Only zeros are equal with different bits: OR of the sign bits gives −0.
            let least = if x == y { $t::from_bits(x.to_bits() | y.to_bits()) } else { less };
            if x.is_nan() { x } else { least }
        });
        binary!(Max $t, |x, y| {
            let greater = if x > y { x } else { y };
            let greatest = if x == y { $t::from_bits(x.to_bits() & y.to_bits()) } else { greater };
            if x.is_nan() { x } else { greatest }
        });
        impl Ternary<$t, $t> for Fma {
            #[inline(always)]
            fn apply(x: $t, y: $t, z: $t) -> $t {
                x.mul_add(y, z)
            }
        }
    };
}
float!(f32);
float!(f64);

macro_rules! integer {
    ($t:ident, $unsigned:ident, $signed:ident, $wide:ident) => {
        unary!(Neg $t, |x| x.wrapping_neg());
        unary!(Not $t, |x| !x);
        unary!(Popcnt $t, |x| x.count_ones() as $t);
        unary!(Clz $t, |x| x.leading_zeros() as $t);
        binary!(Add $t, |x, y| x.wrapping_add(y));
        binary!(Sub $t, |x, y| x.wrapping_sub(y));
        binary!(Mul $t, |x, y| x.wrapping_mul(y));
        binary!(Div $t, |x, y| if y == 0 { !0 } else { x.wrapping_div(y) });
        binary!(Rem $t, |x, y| if y == 0 { x } else { x.wrapping_rem(y) });
        binary!(Min $t, |x, y| if x < y { x } else { y });
        binary!(Max $t, |x, y| if x > y { x } else { y });
        binary!(And $t, |x, y| x & y);
        binary!(Or $t, |x, y| x | y);
        binary!(Xor $t, |x, y| x ^ y);
        // A negative distance is a large unsigned one.
        binary!(ShiftLeft $t, |x, y| {
            let shifted = x.wrapping_shl(y as u32);
            if (y as $unsigned) < $t::BITS as $unsigned { shifted } else { 0 }
        });
        binary!(ShiftRightLogical $t, |x, y| {
            let shifted = (x as $unsigned).wrapping_shr(y as u32) as $t;
            if (y as $unsigned) < $t::BITS as $unsigned { shifted } else { 0 }
        });
        binary!(ShiftRightArithmetic $t, |x, y| {
            let distance =
                if (y as $unsigned) < $t::BITS as $unsigned { y as u32 } else { $t::BITS - 1 };
            (x as $signed).wrapping_shr(distance) as $t
        });
        binary!(MulHigh $t, |x, y| (((x as $wide) * (y as $wide)) >> $t::BITS) as $t);
    };
}
integer!(u8, u8, i8, u32);
integer!(i8, u8, i8, i32);
integer!(i32, u32, i32, i64);
integer!(i64, u64, i64, i128);
integer!(u32, u32, i32, u64);
integer!(u64, u64, i64, u128);
unary!(Abs u8, |x| x);
unary!(Abs u32, |x| x);
unary!(Abs u64, |x| x);
unary!(Abs i8, |x| x.wrapping_abs());
unary!(Abs i32, |x| x.wrapping_abs());
unary!(Abs i64, |x| x.wrapping_abs());

unary!(Not Boolean, |x| Boolean(x.0 ^ 1));
binary!(And Boolean, |x, y| Boolean(x.0 & y.0));
binary!(Or Boolean, |x, y| Boolean(x.0 | y.0));
binary!(Xor Boolean, |x, y| Boolean(x.0 ^ y.0));

impl Ternary<f32, f32> for ZeroOrProduct {
    #[inline(always)]
    fn apply(x: f32, y: f32, z: f32) -> f32 {
        let product = y * z;
        if x == 0.0 { 0.0 } else { product }
    }
}

impl<T> Ternary<Boolean, T> for Select {
    #[inline(always)]
    fn apply(x: Boolean, y: T, z: T) -> T {
        if x.0 != 0 { y } else { z }
    }
}
