//! Kernel lookup by instruction, dtype and set of vector instructions.

use super::convert::Cast;
use super::operations::*;
use super::{Fold, Kernel, LaneFold, Scan, lanes};
use crate::simd::{Simd, at_level, for_each_level};
use wengert_core::DType;
use wengert_core::half::{bf16, f16};
use wengert_core::nest::ScalarOp;

/// A conversion as an instruction of one operand.
pub(super) struct Convert<R>(std::marker::PhantomData<R>);

impl<T: Cast<R>, R: Copy> Unary<T> for Convert<R> {
    type Result = R;
    #[inline(always)]
    fn apply(x: T) -> R {
        x.cast()
    }
}

/// Evaluates `$body` with `$t` as the type of the elements of `$dtype` in memory, if the dtype is
/// of this kind; else `None`.
macro_rules! with_type {
    (float $($rest:tt)*) => { with_type!(@ [F32: f32, F64: f64] $($rest)*) };
    (integer $($rest:tt)*) => { with_type!(+ [] $($rest)*) };
    (number $($rest:tt)*) => { with_type!(+ [F32: f32, F64: f64] $($rest)*) };
    (bits $($rest:tt)*) => { with_type!(+ [Bool: Boolean] $($rest)*) };
    (comparable $($rest:tt)*) => {
        with_type!(+ [Bool: Boolean, F32: f32, F64: f64] $($rest)*)
    };
    (any $($rest:tt)*) => {
        with_type!(+ [Bool: Boolean, F16: f16, BF16: bf16, F32: f32, F64: f64] $($rest)*)
    };
    // The integers, and more.
    (+ [$($more:tt)*] $($rest:tt)*) => {
        with_type!(@ [U8: u8, I8: i8, I32: i32, I64: i64, U32: u32, U64: u64, $($more)*] $($rest)*)
    };
    (@ [$($variant:ident: $type:ty),* $(,)?] $dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            $(DType::$variant => { type $t = $type; $body })*
            #[allow(unreachable_patterns)]
            _ => None,
        }
    };
}

/// The kernel of an instruction, from rows of instructions of one shape and one kind of dtypes.
macro_rules! kernel_of {
    ($op:expr, $dtype:expr; $($shape:ident $kind:ident: $($name:ident)*;)*) => {
        match $op {
            $($(ScalarOp::$name => {
                with_type!($kind $dtype, T => Some($shape::<$name, T> as Kernel))
            })*)*
            ScalarOp::Fma => with_type!(float $dtype, T => Some(ternary::<Fma, T, T> as Kernel)),
            ScalarOp::Select => match $dtype.size() {
                1 => Some(ternary::<Select, Boolean, u8> as Kernel),
                2 => Some(ternary::<Select, Boolean, u16> as Kernel),
                4 => Some(ternary::<Select, Boolean, u32> as Kernel),
                _ => Some(ternary::<Select, Boolean, u64> as Kernel),
            },
            ScalarOp::Convert | ScalarOp::Bitcast => None,
            // The caller asks for the exact one.
            ScalarOp::ApproxExp
            | ScalarOp::ApproxLog
            | ScalarOp::ApproxTanh
            | ScalarOp::ApproxSqrt
            | ScalarOp::ApproxDiv => None,
        }
    };
}

/// A function over the numbers, for the instructions that are frequent in reductions.
macro_rules! frequent {
    ($op:expr, $dtype:expr, $($function:ident)::+ as $type:ty) => {
        frequent!(@ $op, $dtype, ($($function)::+) as $type, Add Mul Min Max)
    };
    (@ $op:expr, $dtype:expr, $function:tt as $type:ty, $($name:ident)*) => {
        match $op {
            $(ScalarOp::$name => frequent!(+ $dtype, $function as $type, $name),)*
            _ => None,
        }
    };
    (+ $dtype:expr, ($($function:ident)::+) as $type:ty, $name:ident) => {
        with_type!(number $dtype, T => Some($($function)::+::<$name, T> as $type))
    };
}

/// The loops, compiled for one set of vector instructions.
macro_rules! level {
    ($level:ident $(, $features:literal)?) => {
        mod $level {
            use super::*;

            $(#[target_feature(enable = $features)])?
            unsafe fn unary<O: Unary<T>, T: Copy>(
                destination: *mut u8,
                a: *const u8,
                _: *const u8,
                _: *const u8,
                count: usize,
                _: u32,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { lanes::unary::<O, T>(destination, a, count) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn binary<O: Binary<T>, T: Copy>(
                destination: *mut u8,
                a: *const u8,
                b: *const u8,
                _: *const u8,
                count: usize,
                repeat: u32,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { lanes::binary::<O, T>(destination, a, b, count, repeat) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn ternary<O: Ternary<A, T>, A: Copy, T: Copy>(
                destination: *mut u8,
                a: *const u8,
                b: *const u8,
                c: *const u8,
                count: usize,
                repeat: u32,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { lanes::ternary::<O, A, T>(destination, a, b, c, count, repeat) }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn fold_of<O: Binary<T, Result = T>, T: Copy>(
                accumulators: *mut u8,
                values: *const u8,
                count: usize,
            ) {
                // SAFETY: the caller's promise is the same.
                unsafe { lanes::fold::<O, T>(accumulators, values, count) }
            }

            /// See [`super::zero_or_product`].
            pub(super) fn zero_or_product() -> Kernel {
                ternary::<ZeroOrProduct, f32, f32>
            }

            /// See [`super::scalar`].
            pub(super) fn scalar(op: ScalarOp, dtype: DType) -> Option<Kernel> {
                kernel_of! {
                    op, dtype;
                    unary number: Neg Abs;
                    unary bits: Not;
                    unary integer: Popcnt Clz;
                    unary float: Floor Ceil RoundEven Trunc Sqrt Exp Expm1 Log Log1p Sin Cos Tanh;
                    unary float: Erf Log2 Asin Acos Sinh Cosh Asinh Acosh Atanh Cbrt Erfc ErfInv;
                    unary float: Lgamma Digamma;
                    binary number: Add Sub Mul Div Rem Min Max;
                    binary float: Pow Atan2;
                    binary bits: And Or Xor;
                    binary integer: ShiftLeft ShiftRightLogical ShiftRightArithmetic MulHigh;
                    binary comparable: Eq Ne Lt Le;
                }
            }

            /// See [`super::convert`].
            pub(super) fn convert(from: DType, to: DType) -> Option<Kernel> {
                with_type!(any from, T => {
                    with_type!(any to, R => Some(unary::<Convert<R>, T> as Kernel))
                })
            }

            /// See [`super::fold`].
            pub(super) fn fold(op: ScalarOp, dtype: DType) -> Option<Fold> {
                frequent!(op, dtype, fold_of as Fold)
            }
        }
    };
}

for_each_level!(level);

/// The kernel of an instruction whose last operand has `dtype`. `None` for conversions
/// ([`convert`]) and bitcasts (moves), and if the instruction does not exist. An approximate
/// instruction has the kernel of the exact one.
pub(crate) fn scalar(op: ScalarOp, dtype: DType, simd: Simd) -> Option<Kernel> {
    if op.is_approximate() && !op.class().contains(dtype) {
        return None;
    }
    let op = op.exact();
    at_level!(simd, scalar(op, dtype))
}

/// The kernel of three operands of f32: 0 where the first is 0, else the product of the others.
pub(crate) fn zero_or_product(simd: Simd) -> Kernel {
    at_level!(simd, zero_or_product())
}

/// The kernel of a conversion.
pub(crate) fn convert(from: DType, to: DType, simd: Simd) -> Kernel {
    let hardware = match (from, to, simd) {
        #[cfg(target_arch = "x86_64")]
        (DType::F16, DType::F32, Simd::Avx2 | Simd::Avx512 | Simd::Avx512Bf16) => {
            Some(super::half_precision::widen as Kernel)
        }
        #[cfg(target_arch = "x86_64")]
        (DType::F32, DType::F16, Simd::Avx2 | Simd::Avx512 | Simd::Avx512Bf16) => {
            Some(super::half_precision::narrow as Kernel)
        }
        _ => None,
    };
    hardware.or_else(|| at_level!(simd, convert(from, to))).expect("every dtype is listed")
}

/// The fold by an instruction; frequent instructions only.
pub(crate) fn fold(op: ScalarOp, dtype: DType, simd: Simd) -> Option<Fold> {
    at_level!(simd, fold(op, dtype))
}

/// The scan by an instruction; frequent instructions only. It goes element by element, so it does
/// not depend on the vector instructions.
pub(crate) fn scan(op: ScalarOp, dtype: DType) -> Option<Scan> {
    frequent!(op, dtype, lanes::scan as Scan)
}

/// The fold into any number of lanes by an instruction; frequent instructions only. It goes
/// element by element.
pub(crate) fn lane_fold(op: ScalarOp, dtype: DType) -> Option<LaneFold> {
    frequent!(op, dtype, lanes::lane_fold as LaneFold)
}

/// The kernel that copies elements of `size` bytes.
pub(crate) fn copy(size: usize, simd: Simd) -> Kernel {
    let dtype = match size {
        1 => DType::U8,
        2 => DType::BF16,
        4 => DType::U32,
        _ => DType::U64,
    };
    convert(dtype, dtype, simd)
}
