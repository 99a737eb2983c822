//! Polynomials.

use super::value::Float;

/// Σ `coefficients[k] · x^k` by Horner's rule with fused multiply-adds.
#[inline(always)]
pub(super) fn polynomial<V: Float, const N: usize>(x: V, coefficients: [V::Literal; N]) -> V {
    let mut sum = x.literal(coefficients[N - 1]);
    let mut k = N - 1;
    while k > 0 {
        k -= 1;
        sum = sum.mul_add(x, x.literal(coefficients[k]));
    }
    sum
}
