//! What the error analysis knows about functions of one number, by their names.

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
