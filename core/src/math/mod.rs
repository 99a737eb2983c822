//! Elementary functions: *the* definition of the scalar instructions for them.
//!
//! A nest determines every bit of its result, so `exp` cannot depend on the machine's C library.
//! The functions of [`f32`](mod@f32) and [`f64`](mod@f64) define [`ScalarOp::Exp`] and the other
//! elementary instructions. The nest interpreter calls them element by element, the CPU
//! executor calls the same functions in loops over blocks, and both get the same bits on every
//! machine. No function depends on how it is compiled: additions and multiplications are IEEE
//! 754, a fused multiply-add is spelt `mul_add` (one instruction where the target has it, a call
//! with the same result elsewhere), and Rust never contracts. Only the sign and the payload of a
//! NaN are unspecified.
//!
//! **One definition, several machines.** Each function is written once, generic over its numbers
//! ([`value`]). It is straight-line code of exact scalar instructions, without tables, calls and
//! branches; a choice is a [`select`](value::select) between two computed values. On Rust's own
//! floats it is a Rust function, and a loop over it vectorises. On symbols ([`record`]) it
//! records its own instructions, and [`program`] returns the recording: the same function as a
//! list of scalar instructions, for a back end that cannot call Rust. A GPU's code generator
//! replaces the instruction by the program and gets the CPU's bits.
//!
//! The expensive functions of f32 (`sin`, `cos`, `pow`, `atan2`) compute in f64, and the frequent
//! ones in f32. The functions of the second table are those of f64, rounded. The functions of f64
//! use pairs of floats where one float is not precise enough. Number of scalar instructions of
//! each program, without constants:
//!
//! | | exp | expm1 | log | log1p | sin | cos | tanh | erf | pow | atan2 |
//! |---|---|---|---|---|---|---|---|---|---|---|
//! | f32 | 27 | 26 | 36 | 48 | 100 | 101 | 39 | 43 | 91 | 53 |
//! | f64 | 52 | 53 | 57 | 71 | 202 | 198 | 74 | 101 | 173 | 83 |
//!
//! | | log2 | asin | acos | sinh | cosh | asinh | acosh | atanh | cbrt | erfc | erf_inv | lgamma | digamma |
//! |---|---|---|---|---|---|---|---|---|---|---|---|---|---|
//! | f32 | 94 | 47 | 57 | 124 | 67 | 148 | 152 | 126 | 47 | 155 | 276 | 543 | 420 |
//! | f64 | 92 | 45 | 55 | 122 | 65 | 146 | 150 | 124 | 45 | 153 | 274 | 541 | 418 |
//!
//! **To add a function**: write it in [`f32`](mod@f32) and [`f64`](mod@f64) over `V: Single` and
//! `V: Double`. Name it in [`program`], in `nest::evaluate`, and in the tests, which compare the
//! program with the native function bit by bit and the function with references. State its bound
//! in [`ulp_bound`]. The bits of a NaN differ between machines; they may reach a result only if
//! the result is a NaN. A product that overflows costs nothing if the result does not need it,
//! since `select` drops it. A shift count is a constant; otherwise see
//! [`value::Integer::shift_left_by`].
//!
//! [`ulp_bound`] is the contract about accuracy. The bounds were measured (f32: over all 2³²
//! arguments of the functions of one argument; f64: over hundreds of thousands of arguments of
//! each kind, against a multiple-precision library). The tests check them on a sample of every
//! exponent, the boundaries between formulas and the hard cases.

pub mod f32;
pub mod f64;
mod polynomial;
pub mod record;
pub mod value;

use crate::dtype::DType;
use crate::nest::ScalarOp;
use crate::scalar::Scalar;
use polynomial::polynomial;
pub use record::MathProgram;
use record::Recorder;
use std::sync::LazyLock;

/// The program of an approximated instruction on a dtype: the steps of the native function, each
/// an exact scalar instruction. `None` for other instructions, and for dtypes on which the
/// instruction is not defined.
///
/// A program is recorded at its first use.
pub fn program(op: ScalarOp, dtype: DType) -> Option<&'static MathProgram> {
    macro_rules! recorded {
        ($dtype:ident $t:ident $function:ident($($operand:ident),*)) => {{
            static PROGRAM: LazyLock<MathProgram> = LazyLock::new(|| {
                let recorder = Recorder::default();
                $(let $operand = recorder.operand::<core::primitive::$t>();)*
                let result = $t::$function($($operand),*).register();
                recorder.finish(result, DType::$dtype)
            });
            Some(&*PROGRAM)
        }};
    }
    macro_rules! programs {
        ($($op:ident $function:ident $operands:tt;)*) => {
            match (op, dtype) {
                $((ScalarOp::$op, DType::F32) => recorded!(F32 f32 $function $operands),
                (ScalarOp::$op, DType::F64) => recorded!(F64 f64 $function $operands),)*
                _ => None,
            }
        };
    }
    programs! {
        Exp exp(x);
        Expm1 expm1(x);
        Log log(x);
        Log1p log1p(x);
        Sin sin(x);
        Cos cos(x);
        Tanh tanh(x);
        Erf erf(x);
        Log2 log2(x);
        Asin asin(x);
        Acos acos(x);
        Sinh sinh(x);
        Cosh cosh(x);
        Asinh asinh(x);
        Acosh acosh(x);
        Atanh atanh(x);
        Cbrt cbrt(x);
        Erfc erfc(x);
        ErfInv erf_inv(x);
        Lgamma lgamma(x);
        Digamma digamma(x);
        Pow pow(x, y);
        Atan2 atan2(y, x);
    }
}

/// A program that gives an instruction's bits for some operands only.
#[derive(Clone, Copy, Debug)]
pub struct Moderate {
    /// The largest size of the operand.
    pub bound: Scalar,
    /// The program, shorter than that of [`program`].
    pub program: &'static MathProgram,
}

/// The shorter program of an instruction of one operand where its size is moderate, which is the
/// usual case. A back end that can branch uses it. `None` if there is no such program.
pub fn moderate(op: ScalarOp, dtype: DType) -> Option<Moderate> {
    static EXP: LazyLock<MathProgram> = LazyLock::new(|| {
        let recorder = Recorder::default();
        let result = f32::exp_moderate(recorder.operand::<core::primitive::f32>()).register();
        recorder.finish(result, DType::F32)
    });
    let bound = Scalar::from(f32::MODERATE);
    (op == ScalarOp::Exp && dtype == DType::F32).then(|| Moderate { bound, program: &EXP })
}

/// The n-th derivative of the digamma function on f32 or f64, n ≥ 1, as a program. Each order has
/// a program of its own; there is no such instruction. `None` for other dtypes.
pub fn polygamma(order: u32, dtype: DType) -> Option<MathProgram> {
    let recorder = Recorder::default();
    let result = match dtype {
        DType::F32 => f32::polygamma(order, recorder.operand::<core::primitive::f32>()).register(),
        DType::F64 => f64::polygamma(order, recorder.operand::<core::primitive::f64>()).register(),
        _ => return None,
    };
    Some(recorder.finish(result, dtype))
}

/// The largest error of `op` on `dtype`, in units in the last place of the exact result
/// (`2^(max(e, e_min) − p + 1)` for a result in `2^e..2^(e+1)` and a significand of p bits; an
/// infinity counts as the next power of two beyond the largest finite number).
///
/// For `lgamma` and `digamma` of f64 the unit is at least that of 1, so the bound is absolute
/// where the result is small (at their zeros).
///
/// 0.5 for correctly rounded instructions; 0 for exact ones and those that only move bits. `None`
/// for a dtype on which the instruction is not defined. The bound of an
/// [approximate instruction](crate::nest::approximate) is that of the exact one, whose value it has
/// in the interpreters and on CPUs.
pub fn ulp_bound(op: ScalarOp, dtype: DType) -> Option<core::primitive::f64> {
    use ScalarOp::*;
    if !op.class().contains(dtype) {
        return None;
    }
    if !dtype.is_float() {
        return Some(0.0);
    }
    Some(match (op.exact(), dtype) {
        (Exp, DType::F32) => 1.1,
        (Expm1 | Log1p | Tanh, DType::F32) => 1.5,
        (Log, DType::F32) => 0.9,
        (Erf, DType::F32) => 1.2,
        (Sin | Cos | Pow | Atan2, DType::F32) => 0.51,
        // The functions of f64, rounded once more.
        (
            Log2 | Asin | Acos | Sinh | Cosh | Asinh | Acosh | Atanh | Cbrt | Erfc | ErfInv
            | Lgamma | Digamma,
            DType::F32,
        ) => 0.51,
        (Log2 | Cbrt, _) => 0.51,
        (Asin | Acos | Sinh | Asinh | Acosh | Atanh, _) => 0.6,
        (Cosh, _) => 0.8,
        (Erfc, _) => 1.0,
        (ErfInv | Lgamma | Digamma, _) => 2.0,
        (Log | Log1p | Tanh, _) => 0.7,
        (Exp | Expm1 | Sin | Cos | Pow, _) => 0.8,
        (Erf, _) => 0.9,
        (Atan2, _) => 0.95,
        (Sqrt | Add | Sub | Mul | Div | Fma | Convert, _) => 0.5,
        _ => 0.0,
    })
}

#[cfg(test)]
mod double_tests;
#[cfg(test)]
mod exact;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod values;
