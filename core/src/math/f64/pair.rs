//! Numbers of twice the precision: unevaluated sums of two floats, the second of which is at most
//! half a unit in the last place of the first. The sum and the product of two floats are such
//! pairs, without error (Dekker, Knuth).

use crate::math::value::Double;

/// a + b = high + low, where a is 0 or its exponent is at least that of b.
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

/// a · b = high + low, except for underflow.
#[inline(always)]
pub(super) fn product<V: Double>(a: V, b: V) -> (V, V) {
    let product = a * b;
    (product, a.mul_add(b, -product))
}

/// A number as high + low, where |low| is at most about half a unit in the last place of high.
#[derive(Clone, Copy)]
pub(super) struct Pair<V> {
    pub high: V,
    pub low: V,
}

impl<V: Double> Pair<V> {
    /// A float.
    #[inline(always)]
    pub fn of(value: V) -> Self {
        Pair { high: value, low: value.literal(0.0) }
    }

    /// high + low, where low is so small that the sum does not carry.
    #[inline(always)]
    pub fn new(high: V, low: V) -> Self {
        let (high, low) = ordered_sum(high, low);
        Pair { high, low }
    }

    /// Self + other, with an error of about 2⁻¹⁰⁵ of the larger operand.
    #[inline(always)]
    pub fn plus(self, other: Self) -> Self {
        let (high, low) = sum(self.high, other.high);
        Pair::new(high, low + (self.low + other.low))
    }

    /// Self − other.
    #[inline(always)]
    pub fn minus(self, other: Self) -> Self {
        self.plus(Pair { high: -other.high, low: -other.low })
    }

    /// Self · other, with a relative error of about 2⁻¹⁰².
    #[inline(always)]
    pub fn times(self, other: Self) -> Self {
        let (high, low) = product(self.high, other.high);
        Pair::new(high, self.high.mul_add(other.low, self.low.mul_add(other.high, low)))
    }

    /// Self / other, with a relative error of about 2⁻¹⁰⁰.
    #[inline(always)]
    pub fn over(self, other: Self) -> Self {
        let quotient = self.high / other.high;
        let rest =
            quotient.mul_add(-other.high, self.high) + quotient.mul_add(-other.low, self.low);
        Pair::new(quotient, rest / other.high)
    }

    /// The square root of a positive number.
    #[inline(always)]
    pub fn sqrt(self) -> Self {
        let root = self.high.sqrt();
        let rest = root.mul_add(-root, self.high) + self.low;
        Pair::new(root, rest * self.high.literal(0.5) / root)
    }

    /// Half of the pair.
    #[inline(always)]
    pub fn halved(self) -> Self {
        let half = self.high.literal(0.5);
        Pair { high: self.high * half, low: self.low * half }
    }

    /// `yes` where the condition holds, else `no`.
    #[inline(always)]
    pub fn select(condition: V::Mask, yes: Self, no: Self) -> Self {
        Pair {
            high: V::choose(condition, yes.high, no.high),
            low: V::choose(condition, yes.low, no.low),
        }
    }

    /// The nearest float.
    #[inline(always)]
    pub fn rounded(self) -> V {
        self.high + self.low
    }
}
