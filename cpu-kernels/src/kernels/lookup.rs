//! Kernel lookup by instruction, dtype and set of vector instructions.

use super::convert::Cast;
use super::operations::*;
use super::{Fold, Kernel, LaneFold, Scan, lanes};
use crate::simd::Simd;
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

/// Runs `$body` with `$t` as the type of the elements of `$dtype` in memory, if it is among those
/// listed.
macro_rules! with_type {
    ($dtype:expr, $t:ident in [$($variant:ident: $type:ty),*] => $body:expr) => {
        match $dtype {
            $(DType::$variant => { type $t = $type; $body })*
            #[allow(unreachable_patterns)]
            _ => None,
        }
    };
}
macro_rules! with_float {
    ($dtype:expr, $t:ident => $body:expr) => {
        with_type!($dtype, $t in [F32: f32, F64: f64] => $body)
    };
}
macro_rules! with_integer {
    ($dtype:expr, $t:ident => $body:expr) => {
        with_type!($dtype, $t in [U8: u8, I8: i8, I32: i32, I64: i64, U32: u32, U64: u64] => $body)
    };
}
macro_rules! with_number {
    ($dtype:expr, $t:ident => $body:expr) => {
        with_type!(
            $dtype,
            $t in [
                U8: u8, I8: i8, I32: i32, I64: i64, U32: u32, U64: u64, F32: f32, F64: f64
            ] => $body
        )
    };
}
macro_rules! with_bits {
    ($dtype:expr, $t:ident => $body:expr) => {
        with_type!(
            $dtype,
            $t in [
                Bool: Boolean, U8: u8, I8: i8, I32: i32, I64: i64, U32: u32, U64: u64
            ] => $body
        )
    };
}
macro_rules! with_comparable {
    ($dtype:expr, $t:ident => $body:expr) => {
        with_type!(
            $dtype,
            $t in [
                Bool: Boolean, U8: u8, I8: i8, I32: i32, I64: i64, U32: u32, U64: u64,
                F32: f32, F64: f64
            ] => $body
        )
    };
}
macro_rules! with_any {
    ($dtype:expr, $t:ident => $body:expr) => {
        with_type!(
            $dtype,
            $t in [
                Bool: Boolean, U8: u8, I8: i8, I32: i32, I64: i64, U32: u32, U64: u64,
                F16: f16, BF16: bf16, F32: f32, F64: f64
            ] => $body
        )
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
                macro_rules! of {
                    ($shape:ident $with:ident $operation:ty) => {
                        $with!(dtype, T => Some($shape::<$operation, T> as Kernel))
                    };
                }
                match op {
                    ScalarOp::Neg => of!(unary with_number Neg),
                    ScalarOp::Abs => of!(unary with_number Abs),
                    ScalarOp::Not => of!(unary with_bits Not),
                    ScalarOp::Popcnt => of!(unary with_integer Popcnt),
                    ScalarOp::Clz => of!(unary with_integer Clz),
                    ScalarOp::Floor => of!(unary with_float Floor),
                    ScalarOp::Ceil => of!(unary with_float Ceil),
                    ScalarOp::RoundEven => of!(unary with_float RoundEven),
                    ScalarOp::Trunc => of!(unary with_float Trunc),
                    ScalarOp::Sqrt => of!(unary with_float Sqrt),
                    ScalarOp::Exp => of!(unary with_float Exp),
                    ScalarOp::Expm1 => of!(unary with_float Expm1),
                    ScalarOp::Log => of!(unary with_float Log),
                    ScalarOp::Log1p => of!(unary with_float Log1p),
                    ScalarOp::Sin => of!(unary with_float Sin),
                    ScalarOp::Cos => of!(unary with_float Cos),
                    ScalarOp::Tanh => of!(unary with_float Tanh),
                    ScalarOp::Erf => of!(unary with_float Erf),
                    ScalarOp::Log2 => of!(unary with_float Log2),
                    ScalarOp::Asin => of!(unary with_float Asin),
                    ScalarOp::Acos => of!(unary with_float Acos),
                    ScalarOp::Sinh => of!(unary with_float Sinh),
                    ScalarOp::Cosh => of!(unary with_float Cosh),
                    ScalarOp::Asinh => of!(unary with_float Asinh),
                    ScalarOp::Acosh => of!(unary with_float Acosh),
                    ScalarOp::Atanh => of!(unary with_float Atanh),
                    ScalarOp::Cbrt => of!(unary with_float Cbrt),
                    ScalarOp::Erfc => of!(unary with_float Erfc),
                    ScalarOp::ErfInv => of!(unary with_float ErfInv),
                    ScalarOp::Lgamma => of!(unary with_float Lgamma),
                    ScalarOp::Digamma => of!(unary with_float Digamma),
                    ScalarOp::Add => of!(binary with_number Add),
                    ScalarOp::Sub => of!(binary with_number Sub),
                    ScalarOp::Mul => of!(binary with_number Mul),
                    ScalarOp::Div => of!(binary with_number Div),
                    ScalarOp::Rem => of!(binary with_number Rem),
                    ScalarOp::Min => of!(binary with_number Min),
                    ScalarOp::Max => of!(binary with_number Max),
                    ScalarOp::Pow => of!(binary with_float Pow),
                    ScalarOp::Atan2 => of!(binary with_float Atan2),
                    ScalarOp::And => of!(binary with_bits And),
                    ScalarOp::Or => of!(binary with_bits Or),
                    ScalarOp::Xor => of!(binary with_bits Xor),
                    ScalarOp::ShiftLeft => of!(binary with_integer ShiftLeft),
                    ScalarOp::ShiftRightLogical => of!(binary with_integer ShiftRightLogical),
                    ScalarOp::ShiftRightArithmetic => of!(binary with_integer ShiftRightArithmetic),
                    ScalarOp::MulHigh => of!(binary with_integer MulHigh),
                    ScalarOp::Eq => of!(binary with_comparable Eq),
                    ScalarOp::Ne => of!(binary with_comparable Ne),
                    ScalarOp::Lt => of!(binary with_comparable Lt),
                    ScalarOp::Le => of!(binary with_comparable Le),
                    ScalarOp::Fma => with_float!(dtype, T => Some(ternary::<Fma, T, T> as Kernel)),
                    ScalarOp::Select => match dtype.size() {
                        1 => Some(ternary::<Select, Boolean, u8> as Kernel),
                        2 => Some(ternary::<Select, Boolean, u16> as Kernel),
                        4 => Some(ternary::<Select, Boolean, u32> as Kernel),
                        _ => Some(ternary::<Select, Boolean, u64> as Kernel),
                    },
                    ScalarOp::Convert | ScalarOp::Bitcast => None,
                }
            }

            /// See [`super::convert`].
            pub(super) fn convert(from: DType, to: DType) -> Option<Kernel> {
                with_any!(from, T => with_any!(to, R => Some(unary::<Convert<R>, T> as Kernel)))
            }

            /// See [`super::fold`].
            pub(super) fn fold(op: ScalarOp, dtype: DType) -> Option<Fold> {
                match op {
                    ScalarOp::Add => with_number!(dtype, T => Some(fold_of::<Add, T> as Fold)),
                    ScalarOp::Mul => with_number!(dtype, T => Some(fold_of::<Mul, T> as Fold)),
                    ScalarOp::Min => with_number!(dtype, T => Some(fold_of::<Min, T> as Fold)),
                    ScalarOp::Max => with_number!(dtype, T => Some(fold_of::<Max, T> as Fold)),
                    _ => None,
                }
            }
        }
    };
}

level!(portable);
#[cfg(target_arch = "x86_64")]
level!(avx2, "avx2,fma,f16c");
#[cfg(target_arch = "x86_64")]
level!(avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c");

/// Calls the function compiled for the level.
macro_rules! at_level {
    ($simd:expr, $function:ident($($argument:expr),*)) => {
        match $simd {
            Simd::Portable => portable::$function($($argument),*),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx2 => avx2::$function($($argument),*),
            #[cfg(target_arch = "x86_64")]
            Simd::Avx512 | Simd::Avx512Bf16 => avx512::$function($($argument),*),
            #[cfg(not(target_arch = "x86_64"))]
            _ => portable::$function($($argument),*),
        }
    };
}

/// The kernel of an instruction whose last operand has `dtype`. `None` for conversions
/// ([`convert`]) and bitcasts (moves), and if the instruction does not exist.
pub(crate) fn scalar(op: ScalarOp, dtype: DType, simd: Simd) -> Option<Kernel> {
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
    match op {
        ScalarOp::Add => with_number!(dtype, T => Some(lanes::scan::<Add, T> as Scan)),
        ScalarOp::Mul => with_number!(dtype, T => Some(lanes::scan::<Mul, T> as Scan)),
        ScalarOp::Min => with_number!(dtype, T => Some(lanes::scan::<Min, T> as Scan)),
        ScalarOp::Max => with_number!(dtype, T => Some(lanes::scan::<Max, T> as Scan)),
        _ => None,
    }
}

/// The fold into any number of lanes by an instruction; frequent instructions only. It goes
/// element by element.
pub(crate) fn lane_fold(op: ScalarOp, dtype: DType) -> Option<LaneFold> {
    match op {
        ScalarOp::Add => with_number!(dtype, T => Some(lanes::lane_fold::<Add, T> as LaneFold)),
        ScalarOp::Mul => with_number!(dtype, T => Some(lanes::lane_fold::<Mul, T> as LaneFold)),
        ScalarOp::Min => with_number!(dtype, T => Some(lanes::lane_fold::<Min, T> as LaneFold)),
        ScalarOp::Max => with_number!(dtype, T => Some(lanes::lane_fold::<Max, T> as LaneFold)),
        _ => None,
    }
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
