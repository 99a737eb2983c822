//! What the error analysis knows about functions of one number, by their names.

use wengert_core::nest::ScalarOp;
use wengert_core::nest::approximate::ErrorBound;

/// Functions that grow, or fall, on their whole domain.
pub(super) const MONOTONE: [&str; 21] = [
    "acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "erf", "erf_inv", "erfc", "exp",
    "exp2", "expm1", "log", "log1p", "log2", "logistic", "rsqrt", "sinh", "sqrt", "tanh",
];

/// Whether a function has a pole between two points, at whose ends it may be finite.
pub(super) fn has_pole(name: &str, low: f64, high: f64) -> bool {
    match name {
        "tan" => {
            let branch = |x: f64| (x / std::f64::consts::PI + 0.5).floor();
            branch(low) != branch(high)
        }
        // Below zero their derivatives are as large as the distances of their poles are small.
        "lgamma" | "digamma" | "polygamma" => low <= 0.0,
        _ => false,
    }
}

/// What approximate instructions add to the error of a function of f32.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Approximation {
    /// The part that is relative to the result.
    pub relative: f64,
    /// The part that is not.
    pub absolute: f64,
}

/// Beyond this magnitude of x, eˣ is 0 or infinite in f32.
const EXPONENTS: f64 = 104.0;

/// The additional error of a function whose kernel has approximate instructions: see the `compute`
/// facets of the ops of these names. `size` is the greatest magnitude of the operand. Functions
/// with other instructions only have none.
pub(super) fn approximation(name: &str, size: f64) -> Approximation {
    let of = |op| ErrorBound::of(op).expect("an approximate instruction has a bound");
    let [exp, div, sqrt] = [ScalarOp::ApproxExp, ScalarOp::ApproxDiv, ScalarOp::ApproxSqrt].map(of);
    let bound = |relative, absolute| Approximation { relative, absolute };
    let simple = |bound: ErrorBound| Approximation {
        relative: bound.relative + bound.per_operand * size.min(EXPONENTS),
        absolute: bound.absolute,
    };
    // e^−|t| / (1 + e^−|t|) or 1 / (1 + e^−|t|): the error of the power, at most twice, and that of
    // the quotient.
    let logistic = |t: f64| {
        let power = exp.relative + exp.per_operand * t.min(EXPONENTS);
        bound(power + div.relative, 2.0 * exp.absolute)
    };
    match name {
        "exp" => simple(exp),
        "log" => simple(of(ScalarOp::ApproxLog)),
        "tanh" => simple(of(ScalarOp::ApproxTanh)),
        "sqrt" => simple(sqrt),
        "rsqrt" => bound(sqrt.relative + div.relative, div.absolute),
        "tan" | QUOTIENT => simple(div),
        "logistic" => logistic(size),
        "gelu_tanh" => {
            // 2·√(2/π)·(x + 0.044715·x³), rounded up.
            let inner = logistic(1.6 * (size + 0.045 * size.powi(3)));
            bound(inner.relative, inner.absolute * size.min(f32::MAX.into()))
        }
        _ => Approximation::default(),
    }
}

/// The name of a quotient.
pub(super) const QUOTIENT: &str = "div";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Work;
    use crate::pipeline::{Options, compile_kernels};
    use wengert_core::graph::parse_program;
    use wengert_core::nest::Instr;
    use wengert_core::op::Unary;
    use wengert_core::target::Approximations;
    use wengert_core::{Op, Target};

    /// Whether the nest of an elementwise op has approximate instructions; `None` if it takes no
    /// f32.
    fn is_approximate(name: &str) -> Option<bool> {
        let text =
            format!("func @f(%x: f32[8]) -> (y: f32[8]) {{ %0: f32[8] = {name} %x return %0 }}");
        let program = parse_program(&text, "f.ir").ok()?;
        let target = Target { approximations: Approximations::Used, ..Target::cpu() };
        let function = &program.functions()[0];
        let compiled = compile_kernels(function, &target, &Options::default()).unwrap();
        Some(compiled.kernels.kernels.iter().any(|kernel| {
            let Work::Nest(nest) = &kernel.work else { panic!("`{name}` is a nest") };
            nest.phases
                .iter()
                .flat_map(|phase| &phase.body)
                .any(|instr| matches!(instr, Instr::Scalar { op, .. } if op.is_approximate()))
        }))
    }

    /// The table names every op whose kernel has approximate instructions, and no other.
    #[test]
    fn every_function_with_approximate_instructions_has_an_error() {
        let (mut all, mut bounded) = (0, 0);
        // A reciprocal is bounded as a quotient.
        for op in Unary::ALL.iter().filter(|op| **op != Unary::Reciprocal) {
            let op = Op::Unary(*op);
            let Some(is_approximate) = is_approximate(op.name()) else { continue };
            let is_bounded = approximation(op.name(), 1.0) != Approximation::default();
            assert_eq!(is_bounded, is_approximate, "{}", op.name());
            all += 1;
            bounded += usize::from(is_bounded);
        }
        assert!(all > 30 && bounded == 8, "{bounded} of {all}");
    }

    /// The error of a function made of several instructions covers the greatest errors of these.
    #[test]
    fn errors_cover_those_of_the_instructions() {
        let of = |op| ErrorBound::of(op).unwrap();
        let [exp, div, sqrt] =
            [ScalarOp::ApproxExp, ScalarOp::ApproxDiv, ScalarOp::ApproxSqrt].map(of);
        let signs = [-1.0, 0.0, 1.0];
        for n in -1600..=1600 {
            let x = f64::from(n) / 16.0;
            let power = (-x.abs()).exp();
            let logistic = (if x < 0.0 { power } else { 1.0 }) / (1.0 + power);
            let root = x.abs().sqrt();
            for (a, b) in signs.iter().flat_map(|a| signs.map(|b| (*a, b))) {
                let e = power + a * exp.at(x, power);
                let quotient = (if x < 0.0 { e } else { 1.0 }) / (1.0 + e);
                let found = quotient + b * div.at(0.0, quotient);
                let Approximation { relative, absolute } = approximation("logistic", x.abs());
                let most = relative * logistic + absolute;
                assert!((found - logistic).abs() <= most * (1.0 + 1e-6), "{x} {a} {b}");
                if x != 0.0 {
                    let inverse = 1.0 / (root + a * sqrt.at(0.0, root));
                    let found = inverse + b * div.at(0.0, inverse);
                    let Approximation { relative, absolute } = approximation("rsqrt", x.abs());
                    let most = relative / root + absolute;
                    assert!((found - 1.0 / root).abs() <= most * (1.0 + 1e-6), "{x} {a} {b}");
                }
            }
        }
    }
}
