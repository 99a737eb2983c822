//! Infrequent functions: those of f64, rounded. The error is that of the rounding, except in
//! about one case in 2²⁰. It is at most 0.51 ULP, also around zeros of the result, since the
//! error of f64 is far below a unit of f32 there.

use crate::math::f64 as double;
use crate::math::value::Single;

macro_rules! rounded {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name<V: Single>(x: V) -> V {
            V::narrow(double::$name(x.widen()))
        }
    )*};
}
rounded! {
    /// log₂ x; error at most 0.51 ULP. See [`double::log2`].
    log2
    /// asin x; error at most 0.51 ULP. See [`double::asin`].
    asin
    /// acos x; error at most 0.51 ULP. See [`double::acos`].
    acos
    /// sinh x; error at most 0.51 ULP. See [`double::sinh`].
    sinh
    /// cosh x; error at most 0.51 ULP. See [`double::cosh`].
    cosh
    /// asinh x; error at most 0.51 ULP. See [`double::asinh`].
    asinh
    /// acosh x; error at most 0.51 ULP. See [`double::acosh`].
    acosh
    /// atanh x; error at most 0.51 ULP. See [`double::atanh`].
    atanh
    /// ∛x; error at most 0.51 ULP. See [`double::cbrt`].
    cbrt
    /// erfc x; error at most 0.51 ULP. See [`double::erfc`].
    erfc
    /// The inverse of erf; error at most 0.51 ULP. See [`double::erf_inv`].
    erf_inv
    /// ln |Γ(x)|; error at most 0.51 ULP. See [`double::lgamma`].
    lgamma
    /// ψ(x); error at most 0.51 ULP. See [`double::digamma`].
    digamma
}

/// ψ⁽ⁿ⁾(x), n ≥ 1. See [`double::polygamma`].
#[inline(always)]
pub fn polygamma<V: Single>(n: u32, x: V) -> V {
    V::narrow(double::polygamma(n, x.widen()))
}
