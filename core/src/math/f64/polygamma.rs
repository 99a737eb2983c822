//! Derivatives of the digamma function.

use super::pair::Pair;
use crate::math::value::{Double, select};

/// Terms of the sum that are added one by one.
const TERMS: u32 = 10;
/// B₂ⱼ/(2j)!
const EULER_MACLAURIN: [f64; 9] = [
    0.08333333333333333,
    -0.001388888888888889,
    3.306878306878307e-05,
    -8.267195767195768e-07,
    2.08767569878681e-08,
    -5.284190138687493e-10,
    1.3382536530684679e-11,
    -3.3896802963225827e-13,
    8.586062056277845e-15,
];

/// Constants of the order n ≥ 1: n! = factor · unit^(n + 1), both within the range of f64.
struct Order {
    n: u32,
    unit: f64,
    factor: f64,
}

impl Order {
    fn new(n: u32) -> Order {
        if n <= 20 {
            let factorial = (1..=u64::from(n)).product::<u64>() as f64;
            return Order { n, unit: 1.0, factor: factorial };
        }
        // About the (n + 1)-th root of n!, by Stirling's formula. The factor corrects it: a
        // product of n numbers and n + 1 reciprocals of the unit, in an order that keeps it
        // moderate.
        let size = f64::from(n);
        let unit = libm::exp(
            (size * (libm::log(size) - 1.0) + 0.5 * libm::log(size) + 0.92) / (size + 1.0),
        )
        .round();
        let (mut product, mut next, mut divisions) = (Pair::of(1.0), 1, 0);
        while next <= n || divisions <= n {
            if divisions <= n && (product.high >= 1.0 || next > n) {
                product = product.over(Pair::of(unit));
                divisions += 1;
            } else {
                product = product.times(Pair::of(f64::from(next)));
                next += 1;
            }
        }
        Order { n, unit, factor: product.rounded() }
    }
}

/// vⁿ for n ≥ 1.
#[inline(always)]
fn power<V: Double>(v: V, n: u32) -> V {
    let (mut square, mut rest, mut product) = (v, n, None);
    loop {
        if rest & 1 == 1 {
            product = Some(match product {
                Some(product) => product * square,
                None => square,
            });
        }
        rest >>= 1;
        if rest == 0 {
            break product.unwrap_or(square);
        }
        square = square * square;
    }
}

/// unit^(n + 1)·ζ(n + 1, y) = Σ (unit/(y + k))^(n + 1) over k ≥ 0, for y ≥ ½.
///
/// By the Euler-Maclaurin formula: ten terms, and with z = y + 10 and s = n + 1 the rest is
/// z^(1 − s)·(1/n + 1/2z + Σ B₂ⱼ/(2j)!·s(s + 1)…(s + 2j − 2)/z²ʲ). All significant terms are
/// positive. The error of nine terms is below 2⁻⁵⁵ of the whole for all n and y: where z is not
/// large against s, the first term outweighs the rest.
#[inline(always)]
fn zeta<V: Double>(order: &Order, y: V) -> V {
    let c = |value| y.literal(value);
    let unit = c(order.unit);
    let z = y + c(f64::from(TERMS));
    let inverse = c(1.0) / z;
    let square = inverse * inverse;
    let mut series = c(0.0);
    let s = f64::from(order.n) + 1.0;
    for (j, coefficient) in EULER_MACLAURIN.iter().enumerate().rev() {
        let rising = (0..=2 * j).fold(1.0, |product, i| product * (s + i as f64));
        series = series.mul_add(square, c(coefficient * rising));
    }
    let rest = inverse.mul_add(inverse.mul_add(series, c(0.5)), c(1.0 / f64::from(order.n)));
    let mut sum = unit * power(unit * inverse, order.n) * rest;
    // Smallest first.
    for k in (0..TERMS).rev() {
        let v = unit / (y + c(f64::from(k)));
        sum = power(v, order.n).mul_add(v, sum);
    }
    sum
}

/// ψ⁽ⁿ⁾(x), the n-th derivative of the digamma function, n ≥ 1: (−1)ⁿ⁺¹·n!·ζ(n + 1, x). The error
/// is below 2n + 6 ULP for positive x. For negative x it is below 2n + 6 units of the largest
/// term of the sum.
///
/// Left of ½, ζ(s, x) is the sum over the poles from the nearest one on. With r = x minus its
/// nearest integer, ζ(s, x) = r⁻ˢ + ζ(s, 1 + r) + (−1)ˢ·(ζ(s, 1 − r) − ζ(s, 1 − x)). All
/// arguments are at least ½, and the difference vanishes where x = r. This is exact for every
/// order, next to the poles as well. At the poles 0, −1, −2, … it is +∞ for odd n and NaN for
/// even n, where the two sides have different signs. At ∞ it is 0, at −∞ NaN.
#[inline(always)]
pub fn polygamma<V: Double>(n: u32, x: V) -> V {
    let c = |value| x.literal(value);
    let order = Order::new(n);
    let odd = n % 2 == 1;
    let reflected = x.is_below(c(0.5));
    let r = x - x.round_even();
    let direct = zeta(&order, select(reflected, c(1.0) - x, x));
    let v = c(order.unit) / r;
    let pole = power(v, n) * v;
    let (above, below) = (zeta(&order, c(1.0) + r), zeta(&order, c(1.0) - r));
    let beyond = if odd { below - direct } else { direct - below };
    let left = pole + (above + beyond);
    let sum = select(reflected, left, direct);
    let factor = if odd { order.factor } else { -order.factor };
    let result = sum * c(factor);
    let at_pole = reflected & r.equals(c(0.0));
    let of_pole = if odd { f64::INFINITY } else { f64::NAN };
    select(at_pole, c(of_pole), result)
}
