//! Numbers of twice the precision: unevaluated sums of two floats, of which the second is at most half a unit in the last
//! place of the first. Sums and products of two floats are such pairs, without any error (Dekker, Knuth).

use crate::math::value::Double;

/// a + b = high + low, where a is 0 or its exponent not below that of b.
#[inline(always)]
pub(super) fn ordered_sum<V: Double>(a: V, b: V) -> (V, V) {
    let sum = a + b;
    (sum, (a - sum) + b)
}

/// a + b = high + low.
#[inline(always)]
pub(super) fn sum<V: Double>(a: V, b: V) -> (V, V) {
    let sum = a + b;
    let of_b = sum - a;
    let of_a = sum - of_b;
    (sum, (a - of_a) + (b - of_b))
}

/// a · b = high + low, but for underflow.
#[inline(always)]
pub(super) fn product<V: Double>(a: V, b: V) -> (V, V) {
    let product = a * b;
    (product, a.mul_add(b, -product))
}
