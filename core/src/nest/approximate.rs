//! Approximate instructions: what they stand for, and the bounds of their errors.
//!
//! An approximate instruction, `approx_exp` for example, stands for the exact function, `exp`. A
//! device computes it with any error up to a bound. So it is the one exception to the rule that a
//! nest determines every bit of its result. The compiler inserts these instructions only if the
//! [target](crate::Target::with_approximate_functions) is asked for them.
//!
//! - The interpreters and CPUs compute the exact function. Its value is one of those within the
//!   bound, so a nest with approximate instructions has the bits of the nest without them there.
//! - GPUs use the instructions of their special function units.
//!
//! Operands and result are f32. Halves are computed in f32 within a nest, so they profit too.
//!
//! # Bounds
//!
//! The error is the distance from the function over the reals. Each bound follows from the maximum
//! error that the PTX ISA states for the instruction, and from the roundings of the scaling around
//! it:
//!
//! | instruction | on GPUs | error at most |
//! |---|---|---|
//! | `approx_exp` | `ex2.approx.ftz(x · log₂ e)` | (2⁻²² + 1.25 · 2⁻²⁴ · \|x\|) · eˣ + 2⁻¹²⁶ |
//! | `approx_log` | `lg2.approx(x) · ln 2`, with its sign | 1.3 · 2⁻²² · \|ln x\| + 0.7 · 2⁻²² |
//! | `approx_tanh` | `tanh.approx` | 2⁻¹¹ · \|tanh x\| + 2⁻¹⁴⁹ |
//! | `approx_sqrt` | `sqrt.approx` | 2⁻²³ · √x |
//! | `approx_div` | `div.full` | 2⁻²² · \|x / y\| + 2⁻¹⁴⁸ |
//!
//! - `ex2.approx` errs by 2 ulp. The product x · log₂ e has two relative errors: 2⁻²⁴ of its
//!   rounding, and 0.224 · 2⁻²⁴ of the constant. Results below 2⁻¹²⁶ become 0.
//! - `lg2.approx` errs by 2⁻²² absolutely between ½ and 2, and by 2⁻²² relatively elsewhere. The
//!   product with ln 2 adds 2⁻²⁴ of its rounding and 0.05 · 2⁻²⁴ of the constant. Near 1, where
//!   the logarithm is small, no relative bound holds. A result of the wrong sign becomes 0, so that
//!   `sqrt(−2 · log(u))` with u ≤ 1 is never NaN.
//! - `div.full` errs by 2 ulp. The absolute term is 2 ulp of a subnormal quotient.
//!
//! Infinities and NaN are those of the exact function, and so are the results for operands ±0. A
//! finite result whose bound reaches beyond the greatest number of f32 may be infinite. Identities
//! need not hold: x / x may be another number than 1, and |tanh x| may exceed 1.
//!
//! `sin` and `cos` have no such instruction: PTX bounds the errors of `sin.approx` and `cos.approx`
//! in −π..π only.

use super::{Instr, Nest, ScalarOp};
use crate::dtype::DType;

/// A bound of an error: `(relative + per_operand · |x|) · |exact| + absolute`, for operand x.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ErrorBound {
    /// The part that is relative to the exact result.
    pub relative: f64,
    /// The part that is relative to the exact result, for each unit of the operand's magnitude.
    pub per_operand: f64,
    /// The part that does not depend on the result.
    pub absolute: f64,
}

/// 2⁻²⁴, half a unit in the last place of f32 at 1.
const HALF_ULP: f64 = f32::EPSILON as f64 / 2.0;

/// The least positive number of f32, 2⁻¹⁴⁹.
const LEAST: f64 = f32::from_bits(1) as f64;

impl ErrorBound {
    /// The bound of an approximate instruction; `None` for all others.
    pub fn of(op: ScalarOp) -> Option<ErrorBound> {
        let bound = |relative, absolute| ErrorBound { relative, per_operand: 0.0, absolute };
        Some(match op {
            ScalarOp::ApproxExp => ErrorBound {
                per_operand: 1.25 * HALF_ULP,
                ..bound(4.0 * HALF_ULP, f64::from(f32::MIN_POSITIVE))
            },
            ScalarOp::ApproxLog => bound(5.2 * HALF_ULP, 2.8 * HALF_ULP),
            ScalarOp::ApproxTanh => bound(1.0 / 2048.0, LEAST),
            ScalarOp::ApproxSqrt => bound(2.0 * HALF_ULP, 0.0),
            ScalarOp::ApproxDiv => bound(4.0 * HALF_ULP, 2.0 * LEAST),
            _ => return None,
        })
    }

    /// The greatest error at an operand `x` with that exact result.
    pub fn at(&self, x: f64, exact: f64) -> f64 {
        // The operand may be infinite, where eˣ is 0 and tanh x is ±1.
        let relative = match self.per_operand == 0.0 || exact == 0.0 {
            true => self.relative,
            false => self.relative + self.per_operand * x.abs(),
        };
        relative * exact.abs() + self.absolute
    }
}

/// Exact instructions and the approximate ones for them.
const PAIRS: [(ScalarOp, ScalarOp); 5] = [
    (ScalarOp::Exp, ScalarOp::ApproxExp),
    (ScalarOp::Log, ScalarOp::ApproxLog),
    (ScalarOp::Tanh, ScalarOp::ApproxTanh),
    (ScalarOp::Sqrt, ScalarOp::ApproxSqrt),
    (ScalarOp::Div, ScalarOp::ApproxDiv),
];

impl ScalarOp {
    /// The instruction for the exact function: the instruction itself if it is not approximate.
    pub fn exact(self) -> ScalarOp {
        PAIRS.iter().find(|(_, approximate)| *approximate == self).map_or(self, |pair| pair.0)
    }

    /// Whether a device may compute any value within a [bound](ErrorBound).
    pub fn is_approximate(self) -> bool {
        self.exact() != self
    }

    /// The approximate instruction for the same function of f32, if there is one.
    pub fn approximate(self) -> Option<ScalarOp> {
        PAIRS.iter().find(|(exact, _)| *exact == self).map(|pair| pair.1)
    }
}

/// The nest with approximate instructions in its bodies, wherever there is one for an instruction
/// on f32; `None` if there is none. Combiners stay exact: back ends know some of them by their
/// programs, and an error would occur at every step of a reduction.
pub fn approximated(nest: &Nest) -> Option<Nest> {
    let mut changed = nest.clone();
    let mut is_changed = false;
    for instr in changed.phases.iter_mut().flat_map(|phase| &mut phase.body) {
        let Instr::Scalar { result, op, .. } = instr else { continue };
        if nest.registers[*result] != DType::F32 {
            continue;
        }
        if let Some(approximate) = op.approximate() {
            *op = approximate;
            is_changed = true;
        }
    }
    is_changed.then_some(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nest::evaluate::evaluate;
    use crate::scalar::Scalar;

    /// The function of an approximate instruction over the reals.
    fn function(op: ScalarOp, [x, y]: [f64; 2]) -> f64 {
        match op {
            ScalarOp::ApproxExp => libm::exp(x),
            ScalarOp::ApproxLog => libm::log(x),
            ScalarOp::ApproxTanh => libm::tanh(x),
            ScalarOp::ApproxSqrt => libm::sqrt(x),
            ScalarOp::ApproxDiv => x / y,
            _ => unreachable!("no approximate instruction"),
        }
    }

    /// Numbers of every exponent and sign.
    fn samples() -> impl Iterator<Item = f32> {
        (0..=255u32).flat_map(|exponent| {
            [0, 1, 0x12_3456, 0x40_0000, 0x7f_ffff]
                .into_iter()
                .flat_map(move |part| [0, 1 << 31].map(|sign| sign | exponent << 23 | part))
                .map(f32::from_bits)
        })
    }

    #[test]
    fn values_are_those_of_the_exact_instruction_and_within_the_bound() {
        for op in ScalarOp::ALL.iter().copied().filter(|op| op.is_approximate()) {
            let bound = ErrorBound::of(op).expect("every approximate instruction has a bound");
            let mut finite = 0;
            for x in samples() {
                for y in [1.0f32, -3.0, 1e-30, 7.5e20] {
                    let operands = &[Scalar::from(x), Scalar::from(y)][..op.arity()];
                    let value = evaluate(op, operands, DType::F32);
                    assert_eq!(value, evaluate(op.exact(), operands, DType::F32), "{op:?} {x} {y}");
                    let exact = function(op, [x.into(), y.into()]);
                    if exact.abs() < f32::MAX.into() {
                        finite += 1;
                        let error = (value.to_f64() - exact).abs();
                        assert!(error <= bound.at(x.into(), exact), "{op:?} {x} {y}: {error:e}");
                    }
                }
            }
            assert!(finite > 1000, "{op:?}");
        }
    }

    #[test]
    fn each_stands_for_one_exact_instruction_of_f32() {
        for op in ScalarOp::ALL.iter().copied() {
            assert_eq!(op.is_approximate(), op.name().starts_with("approx_"), "{op:?}");
            assert_eq!(ErrorBound::of(op).is_some(), op.is_approximate(), "{op:?}");
            let Some(approximate) = op.approximate() else { continue };
            assert_eq!(approximate.exact(), op);
            assert_eq!(approximate.name(), format!("approx_{}", op.name()));
            let check = |op: ScalarOp, dtype| op.check(&vec![dtype; op.arity()], dtype);
            assert_eq!(check(approximate, DType::F32), Ok(()));
            for dtype in DType::ALL.iter().copied().filter(|dtype| *dtype != DType::F32) {
                let error = check(approximate, dtype).unwrap_err();
                let name = approximate.name();
                assert!(error.starts_with(&format!("`{name}` takes f32, not {dtype}")), "{error}");
            }
        }
    }
}
