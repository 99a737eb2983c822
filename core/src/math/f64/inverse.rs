//! Inverses of the trigonometric and hyperbolic functions. The arctangent is
//! [`atan2`](super::atan2) with 1.
//!
//! Around 0 each is x + x³·P(x²), with a polynomial from Chebyshev interpolation in arithmetic of
//! 300 bits. Each leaves a relative error of the result below 2⁻⁵⁹. Elsewhere they are computed
//! from logarithms of pairs, or from half the angle.

use super::log::logarithm_of_pair;
use super::pair::{Pair, ordered_sum};
use crate::math::polynomial;
use crate::math::value::{Double, select};

const HALF_PI_LOW: f64 = 6.123233995736766e-17;
const PI_LOW: f64 = 1.2246467991473532e-16;

/// (asin √s − √s)/s^(3/2) for s in 0..=¼.
#[inline(always)]
fn arcsine_rest<V: Double>(s: V) -> V {
    polynomial(
        s,
        [
            0.16666666666666666,
            0.07500000000000118,
            0.044642857142551895,
            0.03038194447553234,
            0.02237215744350722,
            0.017352816540325496,
            0.01396378001220357,
            0.011566459612121669,
            0.009621842970100282,
            0.009319560794767446,
            0.0030448799094556773,
            0.019554513336123378,
            -0.01924167174674304,
            0.02961201126495512,
        ],
    )
}

/// For a in 0..=1: whether a is above ½, r = √((1 − a)/2), asin r − r, and, for a below ½,
/// asin a − a.
#[inline(always)]
fn halves<V: Double>(a: V) -> (V::Mask, V, V, V) {
    let c = |value| a.literal(value);
    let large = a.is_above(c(0.5));
    // asin a = π/2 − 2·asin √((1 − a)/2); the difference is exact.
    let z = c(0.5) * (c(1.0) - a);
    let s = select(large, z, a * a);
    let rest = s * arcsine_rest(s);
    let root = z.sqrt();
    let root_low = root.mul_add(-root, z) * c(0.5) / root;
    let root_low = select(z.equals(c(0.0)), c(0.0), root_low);
    (large, root, root.mul_add(rest, root_low), a * rest)
}

/// asin x; error at most 0.7 ULP. NaN beyond ±1.
#[inline(always)]
pub fn asin<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    let (large, root, root_rest, rest) = halves(a);
    let (high, low) = ordered_sum(c(std::f64::consts::FRAC_PI_2), c(-2.0) * root);
    let far = high + (low + (c(HALF_PI_LOW) - c(2.0) * root_rest));
    select(large, far, a + rest).with_sign_of(x)
}

/// acos x; error at most 0.7 ULP. NaN beyond ±1.
#[inline(always)]
pub fn acos<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let (large, root, root_rest, rest) = halves(x.abs());
    let (high, low) = ordered_sum(c(std::f64::consts::FRAC_PI_2), -x);
    let near = high + (low + (c(HALF_PI_LOW) - rest.with_sign_of(x)));
    let (high, low) = ordered_sum(c(std::f64::consts::PI), c(-2.0) * root);
    let left = high + (low + (c(PI_LOW) - c(2.0) * root_rest));
    let right = c(2.0) * (root + root_rest);
    select(large, select(x.is_negative(), left, right), near)
}

/// 2²⁸: from here on x² ± 1 and x² have the same logarithm.
const LARGE: f64 = 268_435_456.0;

/// ln(a + √(a² + offset)) for a ≥ ¼ and offset 1, or a ≥ 1.25 and offset −1.
#[inline(always)]
fn logarithm_with_root<V: Double>(a: V, offset: f64) -> V {
    let c = |value| a.literal(value);
    let large = a.is_above(c(LARGE));
    let b = select(large, c(2.0), a);
    let root = Pair::of(b).times(Pair::of(b)).plus(Pair::of(c(offset))).sqrt();
    // For large a, ln 2a.
    let argument = Pair::select(large, Pair::of(a), Pair::of(b).plus(root));
    let value = logarithm_of_pair(argument, select(large, c(-1.0), c(0.0))).rounded();
    // Infinity and NaN are returned unchanged.
    select(a.is_below(c(f64::INFINITY)), value, a)
}

/// asinh x; error at most 0.7 ULP.
#[inline(always)]
pub fn asinh<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    let s = a * a;
    let p = polynomial(
        s,
        [
            -0.16666666666666666,
            0.0749999999999981,
            -0.04464285714204502,
            0.030381944310606052,
            -0.022372148019673684,
            0.017352248439529816,
            -0.013950646754171058,
            0.011321899492553458,
            -0.007705172758838713,
        ],
    );
    let near = (a * s).mul_add(p, a);
    select(a.is_below(c(0.25)), near, logarithm_with_root(a, 1.0)).with_sign_of(x)
}

/// acosh x; error at most 0.7 ULP. NaN below 1.
#[inline(always)]
pub fn acosh<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    // acosh(1 + t) = √(2t)·(1 + t·P(t)); t is exact where this is used.
    let t = x - c(1.0);
    let p = polynomial(
        t,
        [
            -0.08333333333333333,
            0.018749999999999902,
            -0.005580357142841682,
            0.001898871526808857,
            -0.0006991299403753739,
            0.00027113635560366,
            -0.00010909339389276784,
            4.50711735159591e-05,
            -1.8802276161807287e-05,
            7.362060681404412e-06,
            -1.997698244118709e-06,
        ],
    );
    let square = t + t;
    let root = square.sqrt();
    let root_low = root.mul_add(-root, square) * c(0.5) / root;
    let root_low = select(t.equals(c(0.0)), c(0.0), root_low);
    let near = root + (root * t).mul_add(p, root_low);
    select(t.is_below(c(0.25)), near, logarithm_with_root(x, -1.0))
}

/// atanh x; error at most 0.7 ULP. ±∞ at ±1, NaN beyond.
#[inline(always)]
pub fn atanh<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    let s = a * a;
    let p = polynomial(
        s,
        [
            0.3333333333333333,
            0.20000000000000032,
            0.14285714285697212,
            0.11111111114598056,
            0.09090908729844124,
            0.07692329119112426,
            0.06665895156771022,
            0.05899449571380944,
            0.05036728550743751,
            0.06376785352502805,
        ],
    );
    let near = (a * s).mul_add(p, a);
    // ½·ln((1 + a)/(1 − a)).
    let (up, up_low) = ordered_sum(c(1.0), a);
    let (down, down_low) = ordered_sum(c(1.0), -a);
    let quotient = Pair { high: up, low: up_low }.over(Pair { high: down, low: down_low });
    let far = logarithm_of_pair(quotient, c(0.0)).halved().rounded();
    let far = select(a.equals(c(1.0)), c(f64::INFINITY), far);
    let far = select(a.is_at_most(c(1.0)), far, c(f64::NAN));
    select(a.is_below(c(0.25)), near, far).with_sign_of(x)
}
