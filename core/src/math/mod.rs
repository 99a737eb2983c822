//! Elementary functions: *the* definition of the approximated scalar instructions.
//!
//! A nest determines every bit of its result, so `exp` cannot be whatever the machine's C library has. The functions of
//! [`f32`](mod@f32) and [`f64`](mod@f64) are what [`ScalarOp::Exp`] and its like mean: the nest interpreter calls them element by element,
//! the CPU executor calls the same functions in loops over blocks, and both get the same bits on every machine. Nothing
//! here depends on how it is compiled: additions and multiplications are IEEE 754, a fused multiply-add is spelt
//! `mul_add` (one instruction where the target has it, a call with the same result where not), and Rust never contracts.
//! The sign and the payload of a NaN are the one thing that is not fixed.
//!
//! **One definition, several machines.** Each function is written once, generic over its numbers ([`value`]): straight-line code
//! of exact scalar instructions, without tables, calls and branches; a choice is a [`select`](value::select) between values that are
//! both there. On Rust's own floats it is a Rust function, and a loop over it vectorises. On symbols ([`record`]) it
//! writes itself down, and [`program`] has the result: the same function as a list of scalar instructions, for a back end
//! that cannot call Rust. A GPU's code generator puts the program in the place of the instruction and gets the CPU's bits.
//!
//! The hard functions of f32 (`sin`, `cos`, `pow`, `atan2`) work in f64 inside; the frequent ones stay in f32. Those of f64 compute with
//! pairs of floats where one is not enough. Scalar instructions of the programs, constants not counted:
//!
//! | | exp | expm1 | log | log1p | sin | cos | tanh | erf | pow | atan2 |
//! |---|---|---|---|---|---|---|---|---|---|---|
//! | f32 | 27 | 26 | 36 | 48 | 100 | 101 | 39 | 43 | 91 | 53 |
//! | f64 | 52 | 53 | 57 | 71 | 202 | 198 | 74 | 101 | 173 | 83 |
//!
//! **To add a function**: write it in [`f32`](mod@f32) and [`f64`](mod@f64) over `V: Single` and `V: Double`; name it in
//! `PROGRAMS` below, in `nest::evaluate`, and in the tests, which compare the program with the native function bit by bit and the
//! function with references; state its bound in [`ulp_bound`]. Beware of what looks harmless on one machine: the bits of
//! a NaN (they may reach a result only if that is a NaN), and products that a result does not need but that overflow (they
//! cost nothing, `select` drops them). A shift count is a constant, or see [`value::Integer::shift_left_by`].
//!
//! [`ulp_bound`] is the contract about accuracy. The bounds were measured (f32: over all 2³² arguments of the functions of one
//! argument; f64: over hundreds of thousands of arguments of each kind, against a multiple-precision library), and the tests
//! hold a sample of every exponent, the seams and the hard cases against them.

pub mod f32;
pub mod f64;
mod polynomial;
pub mod record;
pub mod value;

use crate::dtype::DType;
use crate::nest::ScalarOp;
use polynomial::polynomial;
pub use record::MathProgram;
use record::Recorder;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The program of an approximated instruction on a dtype: the steps of the native function, of which each is an exact scalar
/// instruction. Nothing for other instructions, and for dtypes on which the instruction is not defined.
pub fn program(op: ScalarOp, dtype: DType) -> Option<&'static MathProgram> {
    PROGRAMS.get(&(op, dtype))
}

static PROGRAMS: LazyLock<BTreeMap<(ScalarOp, DType), MathProgram>> = LazyLock::new(|| {
    let mut programs = BTreeMap::new();
    macro_rules! record {
        ($dtype:ident $t:ident: $($op:ident $function:ident($($operand:ident),*);)*) => {$({
            let recorder = Recorder::default();
            $(let $operand = recorder.operand::<core::primitive::$t>();)*
            let result = $t::$function($($operand),*).register();
            programs.insert((ScalarOp::$op, DType::$dtype), recorder.finish(result, DType::$dtype));
        })*};
    }
    record! { F32 f32:
        Exp exp(x);
        Expm1 expm1(x);
        Log log(x);
        Log1p log1p(x);
        Sin sin(x);
        Cos cos(x);
        Tanh tanh(x);
        Erf erf(x);
        Pow pow(x, y);
        Atan2 atan2(y, x);
    }
    record! { F64 f64:
        Exp exp(x);
        Expm1 expm1(x);
        Log log(x);
        Log1p log1p(x);
        Sin sin(x);
        Cos cos(x);
        Tanh tanh(x);
        Erf erf(x);
        Pow pow(x, y);
        Atan2 atan2(y, x);
    }
    programs
});

/// The largest error of `op` on `dtype`, in units in the last place of the exact result (`2^(max(e, e_min) − p + 1)` for a
/// result in `2^e..2^(e+1)` and a significand of p bits; an infinity counts as the next power of two beyond the largest
/// finite number).
///
/// 0.5 for what is correctly rounded, 0 for what is exact or only moves bits. Nothing for a dtype on which the instruction
/// is not defined.
pub fn ulp_bound(op: ScalarOp, dtype: DType) -> Option<core::primitive::f64> {
    use ScalarOp::*;
    if !op.class().contains(dtype) {
        return None;
    }
    if !dtype.is_float() {
        return Some(0.0);
    }
    Some(match (op, dtype) {
        (Exp, DType::F32) => 1.1,
        (Expm1 | Log1p | Tanh, DType::F32) => 1.5,
        (Log, DType::F32) => 0.9,
        (Erf, DType::F32) => 1.2,
        (Sin | Cos | Pow | Atan2, DType::F32) => 0.51,
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
