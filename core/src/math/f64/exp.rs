//! eˣ and the functions computed from it.

use super::pair::{Pair, ordered_sum, product, sum};
use super::{LN_2_HIGH, LN_2_LOW, ROUND};
use crate::math::polynomial;
use crate::math::value::{Double, Integer, Value, select};

/// e^(x + low) = 2ⁿ·(1 + high + rest), where the rest is below high/30.
pub(super) struct Exponential<V: Double> {
    /// n in two's complement.
    n: V::Bits,
    high: V,
    rest: V,
}

/// Reduces x + low to r = x + low − n·ln 2, |r| ≤ 0.3467, and computes e^r − 1 with an absolute
/// error of about 2⁻⁵⁸. For |x| ≤ 750 and |low| ≤ 2⁻²⁰.
///
/// LN_2_HIGH has 42 bits, so n·LN_2_HIGH is exact, and so is its difference from x. e^r = 1 + r +
/// r²/2 + r³·E(r); E was fitted by the Remez algorithm, and its error is below 2⁻⁶⁰ of e^r.
#[inline(always)]
pub(super) fn exponential<V: Double>(x: V, low: V) -> Exponential<V> {
    let c = |value| x.literal(value);
    let rounded = x.mul_add(c(std::f64::consts::LOG2_E), c(ROUND));
    let n = rounded - c(ROUND);
    let near = n.mul_add(c(-LN_2_HIGH), x);
    let (r, below) = ordered_sum(near, n.mul_add(c(-LN_2_LOW), low));
    let e = polynomial(
        r,
        [
            0.16666666666666685,
            0.0416666666666667,
            0.008333333333316739,
            0.0013888888888864985,
            0.00019841269897122307,
            2.4801587365480027e-05,
            2.7557234130081144e-06,
            2.75572383508599e-07,
            2.5112288173345884e-08,
            2.0925779485312345e-09,
        ],
    );
    let (square, square_rest) = product(r, r);
    // The rest of r is multiplied by the derivative e^r, for which 1 + r is precise enough.
    let small = below.mul_add(r, below) + c(0.5) * square_rest;
    let small = (square * r).mul_add(e, small);
    let (high, rest) = ordered_sum(r, c(0.5) * square);
    let bits = rounded.to_bits();
    Exponential { n: bits.wrapping_sub(bits.literal(ROUND.to_bits())), high, rest: rest + small }
}

/// 2ⁿ for n in −1022..=1023.
#[inline(always)]
fn power_of_two<V: Double>(n: V::Bits) -> V {
    V::from_bits(n.wrapping_add(n.literal(1023)).shift_left(52))
}

impl<V: Double> Exponential<V> {
    /// 1 + high + rest.
    #[inline(always)]
    fn significand(&self) -> V {
        let (high, low) = ordered_sum(self.high.literal(1.0), self.high);
        high + (low + self.rest)
    }

    /// The value, for n in −1100..=1100. Below the normal range it is rounded a second time.
    #[inline(always)]
    pub(super) fn value(&self) -> V {
        self.scaled(self.significand())
    }

    /// 1 + high + rest as a pair.
    #[inline(always)]
    pub(super) fn pair(&self) -> Pair<V> {
        let (high, low) = ordered_sum(self.high.literal(1.0), self.high);
        Pair::new(high, low + self.rest)
    }

    /// A number times the power of two, for n in −1100..=1100. Below the normal range it is
    /// rounded a second time.
    #[inline(always)]
    pub(super) fn scaled(&self, significand: V) -> V {
        // Two factors, the first of which stays in the normal range; n is shifted as a positive
        // number.
        let c = |value| self.n.literal(value);
        let half = self.n.wrapping_add(c(2048)).shift_right(1).wrapping_sub(c(1024));
        (significand * power_of_two(half)) * power_of_two(self.n.wrapping_sub(half))
    }

    /// Half of the value minus 1, so that it stays finite, as a sum whose second term is much
    /// smaller; for n in −1000..=1024.
    #[inline(always)]
    fn less_one_halved(&self) -> (V, V) {
        let scale: V = power_of_two(self.n.wrapping_sub(self.n.literal(1)));
        let half = scale.literal(0.5);
        // 2ⁿ⁻¹ − ½ in two parts. For n < 0 the second is 0 or negligible.
        let base = scale - half;
        let base_rest = (scale - base) - half;
        let (high, low) = ordered_sum(base, scale * self.high);
        (high, low + scale.mul_add(self.rest, base_rest))
    }
}

/// eˣ; error at most 0.6 ULP in the normal range, and 0.8 ULP below it, where results are rounded
/// a second time.
#[inline(always)]
pub fn exp<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    // Beyond these bounds the result is 0 or infinite. The comparisons let a NaN pass.
    let x = select(x.is_above(c(710.0)), c(710.0), x);
    let x = select(x.is_below(c(-746.0)), c(-746.0), x);
    exponential(x, c(0.0)).value()
}

/// e^(x + low) for −700 ≤ x ≤ 700, with one scaling fewer.
#[inline(always)]
pub(super) fn exp_moderate<V: Double>(x: V, low: V) -> V {
    let e = exponential(x, low);
    e.significand() * power_of_two(e.n)
}

/// eˣ − 1; error at most 0.8 ULP.
#[inline(always)]
pub fn expm1<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let clamped = select(x.is_above(c(710.0)), c(710.0), x);
    let clamped = select(clamped.is_below(c(-40.0)), c(-40.0), clamped);
    let (high, low) = exponential(clamped, c(0.0)).less_one_halved();
    let result = c(2.0) * (high + low);
    // Below 2⁻⁵⁴ the result is x. This keeps the sign of −0.
    select(x.abs().is_below(c(5.0e-17)), x, result)
}

/// tanh x; error at most 0.7 ULP.
#[inline(always)]
pub fn tanh<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    // tanh 19.1 rounds to 1.
    let t = select(a.is_above(c(20.0)), c(20.0), a);
    // With E = (e^(2t) − 1) / 2: E / (E + 1), in pairs.
    let (e, e_rest) = exponential(c(2.0) * t, c(0.0)).less_one_halved();
    let (e, e_rest) = ordered_sum(e, e_rest);
    let (denominator, rest) = sum(e, c(1.0));
    let rest = rest + e_rest;
    let reciprocal = c(1.0) / denominator;
    let quotient = e * reciprocal;
    let remainder = quotient.mul_add(-denominator, e) + quotient.mul_add(-rest, e_rest);
    let result = remainder.mul_add(reciprocal, quotient);
    // Below 2⁻²⁸ the result is x.
    select(a.is_below(c(3.7e-9)), a, result).with_sign_of(x)
}

/// sinh x; error at most 0.8 ULP. ±∞ beyond the largest number.
///
/// With E = e^|x| − 1 it is (E + E/(E + 1))/2. From 20 on it is e^|x|/2; the other term is below
/// 2⁻⁵⁶.
#[inline(always)]
pub fn sinh<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    let t = select(a.is_above(c(711.0)), c(711.0), a);
    let e = exponential(t, c(0.0));
    let (high, low) = e.less_one_halved();
    let half = Pair::new(high, low);
    let twice = half.plus(half);
    let near = half.plus(half.over(twice.plus(Pair::of(c(1.0))))).rounded();
    let far = e.scaled(e.significand() * c(0.5));
    let result = select(t.is_below(c(20.0)), near, far);
    // Below 2⁻²⁸ the result is x.
    select(a.is_below(c(3.7e-9)), a, result).with_sign_of(x)
}

/// cosh x = e^|x|/2 + e^−|x|/2; error at most 0.8 ULP. ∞ beyond the largest number.
#[inline(always)]
pub fn cosh<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    let t = select(a.is_above(c(711.0)), c(711.0), a);
    let e = exponential(t, c(0.0));
    let pair = e.pair();
    // For n ≤ 30. For larger n this term is negligible.
    let scale = power_of_two::<V>(e.n.wrapping_sub(e.n.literal(1)));
    let (half, low) = (pair.high * scale, pair.low * scale);
    let near = half + (low + c(0.25) / half);
    let far = e.scaled(e.significand() * c(0.5));
    select(t.is_below(c(20.0)), near, far)
}
