//! Special functions of `f64` that libm lacks, for the graph interpreter.
//!
//! They share no code with [`crate::math`], which they test: they iterate to a fixed point and
//! use recurrences instead of reflections.

/// The inverse of erf by Newton's method. The difference is computed with erf or erfc, whichever
/// is exact.
pub(crate) fn erf_inv(x: f64) -> f64 {
    if x.is_nan() || x.abs() > 1.0 {
        return f64::NAN;
    }
    if x == 0.0 || x.abs() == 1.0 {
        return if x == 0.0 { x } else { f64::INFINITY.copysign(x) };
    }
    let a = x.abs();
    // Starts below the root. Since erf is concave there, Newton's method increases monotonically.
    let mut y = if a < 0.9 { a * 0.886 } else { libm::sqrt(-libm::log(1.0 - a)) * 0.8 };
    for _ in 0..200 {
        let slope = std::f64::consts::FRAC_2_SQRT_PI * libm::exp(-y * y);
        let missing = if a < 0.5 { a - libm::erf(y) } else { libm::erfc(y) - (1.0 - a) };
        let next = y + missing / slope;
        if (next - y).abs() <= y * 1e-16 {
            y = next;
            break;
        }
        y = next;
    }
    y.copysign(x)
}

/// libm's acosh, but NaN below 1, where libm returns numbers for large negative arguments.
pub(crate) fn acosh(x: f64) -> f64 {
    if x < 1.0 { f64::NAN } else { libm::acosh(x) }
}

/// The Bernoulli numbers B₂, B₄, ….
const BERNOULLI: [f64; 14] = [
    1.0 / 6.0,
    -1.0 / 30.0,
    1.0 / 42.0,
    -1.0 / 30.0,
    5.0 / 66.0,
    -691.0 / 2730.0,
    7.0 / 6.0,
    -3617.0 / 510.0,
    43867.0 / 798.0,
    -174611.0 / 330.0,
    854513.0 / 138.0,
    -236364091.0 / 2730.0,
    8553103.0 / 6.0,
    -23749461029.0 / 870.0,
];

/// Whether x is 0, −1, −2, ….
fn is_pole(x: f64) -> bool {
    x <= 0.0 && x == x.floor()
}

/// The derivative of ln Γ by the recurrence ψ(x) = ψ(x + 1) − 1/x and the asymptotic series.
pub(crate) fn digamma(x: f64) -> f64 {
    if x == f64::INFINITY || x.is_nan() {
        return x;
    }
    if is_pole(x) {
        return f64::NAN;
    }
    if x < -1e5 {
        // For large negative x the recurrence would be too long. Besides the logarithm only cot
        // πx contributes.
        let cotangent = 1.0 / libm::tan(std::f64::consts::PI * (x - x.round()));
        return libm::log(-x) - 0.5 / x - std::f64::consts::PI * cotangent;
    }
    let (mut z, mut steps) = (x, Vec::new());
    while z < 12.0 {
        steps.push(1.0 / z);
        z += 1.0;
    }
    let mut series = 0.0;
    for (j, number) in BERNOULLI.iter().enumerate().rev() {
        series = series / (z * z) + number / (2.0 * (j as f64 + 1.0));
    }
    // Adds the smallest terms first.
    let tail = steps.iter().rev().fold(series / (z * z) + 0.5 / z, |sum, step| sum + step);
    libm::log(z) - tail
}

/// The derivative of order n ≥ 1 of [`digamma`]: (−1)ⁿ⁺¹·n!·Σ (x + k)^(−n − 1). The sum has at
/// least 60 terms; the Euler-Maclaurin formula gives the remainder.
pub(crate) fn polygamma(n: usize, x: f64) -> f64 {
    let odd = n % 2 == 1;
    if is_pole(x) && x != f64::NEG_INFINITY {
        return if odd { f64::INFINITY } else { f64::NAN };
    }
    if x == f64::INFINITY || x.is_nan() || x < -1e5 {
        // Arguments below −1e5 are not supported.
        return if x == f64::INFINITY { if odd { 0.0 } else { -0.0 } } else { f64::NAN };
    }
    let s = n as f64 + 1.0;
    // n!·base^(−s) with growing and shrinking factors interleaved, so that no intermediate
    // overflows before the result does.
    let term = |base: f64| {
        let (mut value, mut up, mut down) = (1.0 / base, 1, 0);
        while up <= n || down < n {
            if down < n && (value.abs() >= 1.0 || up > n) {
                (value, down) = (value / base, down + 1);
            } else {
                (value, up) = (value * up as f64, up + 1);
            }
        }
        value
    };
    if x > 1e10 {
        // The first two terms of the asymptotic series, (n−1)!/xⁿ·(1 + n/2x). The factors do not
        // underflow before the result does.
        let lead = (1..n).fold(1.0 / x, |value, k| value * k as f64 / x);
        let total = lead * (1.0 + n as f64 / 2.0 / x);
        return if odd { total } else { -total };
    }
    let (mut z, mut sum) = (x, Vec::new());
    while sum.len() < 60 || z < 30.0 {
        sum.push(term(z));
        z += 1.0;
    }
    let mut coefficient = s / 2.0 / z;
    let mut rest = z / n as f64 + 0.5;
    for (j, number) in BERNOULLI.iter().enumerate() {
        rest += number * coefficient;
        let k = 2.0 * j as f64;
        coefficient *= (s + k + 1.0) * (s + k + 2.0) / ((k + 3.0) * (k + 4.0)) / (z * z);
        if coefficient * number.abs() < rest * 1e-18 {
            break;
        }
    }
    let total = sum.iter().rev().fold(term(z) * rest, |total, term| total + term);
    if odd { total } else { -total }
}
