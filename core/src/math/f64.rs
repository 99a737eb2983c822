//! Elementary functions of f64: those of the `libm` crate, which is Rust throughout and so gives the same bits on
//! every machine.

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident = $libm:ident;)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name(x: f64) -> f64 {
            libm::$libm(x)
        }
    )*};
}

unary! {
    /// eˣ; error at most 1 ULP.
    exp = exp;
    /// eˣ − 1; error at most 1 ULP.
    expm1 = expm1;
    /// ln x; error at most 1 ULP. −∞ at ±0, NaN below.
    log = log;
    /// ln(1 + x); error at most 1 ULP. −∞ at −1, NaN below.
    log1p = log1p;
    /// sin x for every x; error at most 1 ULP. NaN at ±∞.
    sin = sin;
    /// cos x for every x; error at most 1 ULP. NaN at ±∞.
    cos = cos;
    /// tanh x; error at most 2 ULP.
    tanh = tanh;
    /// erf x; error at most 1 ULP.
    erf = erf;
}

/// xʸ; error at most 1 ULP. Special values as in C99.
#[inline]
pub fn pow(x: f64, y: f64) -> f64 {
    libm::pow(x, y)
}

/// Angle of the point (x, y) in −π..=π; error at most 1 ULP. Signs of zeros and infinities as in C99's `atan2`.
#[inline]
pub fn atan2(y: f64, x: f64) -> f64 {
    libm::atan2(y, x)
}
