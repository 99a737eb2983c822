//! ln |Γ(x)| and its derivative.
//!
//! From 8 on, Stirling's series is used. Below 8, the argument is moved up by 8: Γ(x + 8) =
//! Γ(x)·x(x + 1)…(x + 7), and with w = x(x + 7) the product is w(w + 6)(w + 10)(w + 12), four
//! positive factors. Left of ½ the reflections Γ(x)·Γ(1 − x) = π/sin πx and ψ(x) = ψ(1 − x) −
//! π·cot πx are used, where πx is reduced exactly, since integers are subtracted from x. Sums are
//! computed in pairs, so cancellation at the zeros leaves an absolute error far below a unit in
//! the last place of 1.

use super::log::logarithm_of_pair;
use super::pair::{Pair, ordered_sum, product, sum};
use crate::math::polynomial;
use crate::math::value::{Double, select};

/// The reduced argument of both functions.
struct Argument<V: Double> {
    /// Whether x is below ½ and has been reflected.
    reflected: V::Mask,
    /// Whether y is below 8 and is moved up.
    moved: V::Mask,
    /// y or y + 8.
    z: Pair<V>,
    /// y·(y + 7) where y is moved; a moderate number elsewhere.
    w: Pair<V>,
    /// 2y + 7, its derivative.
    slope: Pair<V>,
    /// ln z.
    logarithm: Pair<V>,
}

impl<V: Double> Argument<V> {
    #[inline(always)]
    fn new(x: V) -> Self {
        let c = |value| x.literal(value);
        let reflected = x.is_below(c(0.5));
        let (one_less, low) = sum(c(1.0), -x);
        let y = Pair::select(reflected, Pair { high: one_less, low }, Pair::of(x));
        let moved = y.high.is_below(c(8.0));
        let z = Pair::select(moved, y.plus(Pair::of(c(8.0))), y);
        let small = Pair::select(moved, y, Pair::of(c(1.0)));
        let seven_more = small.plus(Pair::of(c(7.0)));
        Argument {
            reflected,
            moved,
            z,
            w: small.times(seven_more),
            slope: small.plus(seven_more),
            logarithm: logarithm_of_pair(z, c(0.0)),
        }
    }

    /// w + constant.
    #[inline(always)]
    fn factor(&self, constant: f64) -> Pair<V> {
        self.w.plus(Pair::of(self.w.high.literal(constant)))
    }
}

/// sin(πr)/π = r·(1 + s·P(s)) for s = r² and |r| ≤ ½, of positive r.
#[inline(always)]
fn sine_over_pi<V: Double>(r: V) -> Pair<V> {
    let (s, s_low) = product(r, r);
    let p = polynomial(
        s,
        [
            -1.6449340668482264,
            0.8117424252833536,
            -0.19075182412208389,
            0.026147847817640922,
            -0.002346081035170168,
            0.00014842878972770888,
            -6.975851212142348e-06,
            2.5303274566671434e-07,
            -7.114052818770147e-09,
        ],
    );
    let (high, low) = ordered_sum(r.literal(1.0), s * p);
    Pair::of(r).times(Pair { high, low: s_low.mul_add(p, low) })
}

/// cos πr = 1 + s·P(s).
#[inline(always)]
fn cosine_of_pi<V: Double>(r: V) -> Pair<V> {
    let c = |value| r.literal(value);
    let (s, s_low) = product(r, r);
    let p = polynomial(
        s,
        [
            4.0587121264167685,
            -1.3352627688545824,
            0.23533063035860233,
            -0.025806891384027284,
            0.0019295742401671152,
            -0.00010463763434072599,
            4.301203720851614e-06,
            -1.3479054836358117e-07,
        ],
    );
    // −π²/2 + s·P as a pair, since the cosine cancels as r approaches ½.
    let (p, p_low) = ordered_sum(c(-4.934802200544679), s * p);
    let slope = Pair { high: p, low: p_low + c(-3.1316235595366806e-16) };
    Pair::of(c(1.0)).plus(Pair { high: s, low: s_low }.times(slope))
}

/// ln |Γ(x)|. +∞ at 0, −1, −2, … and at ±∞.
///
/// The error is at most 1 ULP of the result or, where that is smaller (at the zeros left of ½;
/// each unit interval below −2 has two), 2⁻⁵² absolute. Around the zeros at 1 and 2 the result is
/// a polynomial times the distance to the zero.
#[inline(always)]
pub fn lgamma<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = Argument::new(x);
    // Stirling: (z − ½)(ln z − 1) + (ln 2π − 1)/2 + 1/12z − …
    let reciprocal = c(1.0) / a.z.high;
    let series = reciprocal
        * polynomial(
            reciprocal * reciprocal,
            [
                0.08333333333333333,
                -0.002777777777777778,
                0.0007936507936507937,
                -0.0005952380952380953,
                0.0008417508417508417,
                -0.0019175269175269176,
                0.00641025641025641,
                -0.029550653594771242,
                0.17964437236883057,
                -1.3924322169059011,
            ],
        );
    let main = a.z.plus(Pair::of(c(-0.5))).times(a.logarithm.plus(Pair::of(c(-1.0))));
    let constant = Pair::new(c(0.4189385332046727), c(1.6728209650585413e-17) + series);
    let risen = a.w.times(a.factor(12.0)).times(a.factor(6.0).times(a.factor(10.0)));
    let fallen = logarithm_of_pair(risen, c(0.0));
    let fallen = Pair::select(a.moved, fallen, Pair::of(c(0.0)));
    let general = main.plus(constant).minus(fallen);

    // Around 1 and 2, computed from the exact distance.
    let one = select(a.reflected, -x, x - c(1.0));
    let p = polynomial(
        one,
        [
            0.8224670334241132,
            -0.40068563438653176,
            0.2705808084277849,
            -0.20738555102848663,
            0.16955717699721762,
            -0.14404989680709082,
            0.12550966956288892,
            -0.11133426191125885,
            0.10009945361088847,
            -0.09095425193911744,
            0.08335407011543369,
            -0.07692406588470722,
            0.07142473478527483,
            -0.06685589614201817,
            0.06268193728389056,
            -0.05634559613893786,
            0.05316994128182998,
            -0.07030514060970308,
            0.06694575880566159,
        ],
    );
    let at_one =
        Pair::of(one).times(Pair::new(c(-0.5772156649015329), c(5.054099895018655e-18) + one * p));
    let two = select(a.reflected, -(x + c(1.0)), x - c(2.0));
    let p = polynomial(
        two,
        [
            0.3224670334241132,
            -0.0673523010531981,
            0.020580808427782493,
            -0.007385551028672929,
            0.0028905103310961798,
            -0.0011927539118795978,
            0.0005096694977776849,
            -0.00022315474529034925,
            9.945856404568995e-05,
            -4.492674353207371e-05,
            2.048531152632477e-05,
            -9.429030700904535e-06,
            4.606000664660723e-06,
            -2.1487074444082146e-06,
        ],
    );
    let at_two =
        Pair::of(two).times(Pair::new(c(0.42278433509846713), c(4.9430873296734885e-18) + two * p));
    let value = Pair::select(one.abs().is_below(c(0.25)), at_one, general);
    let value = Pair::select(two.abs().is_below(c(0.25)), at_two, value);

    // Reflected: −ln |sin πx/π| − ln Γ(1 − x).
    let r = (x - x.round_even()).abs();
    let sine = sine_over_pi(r);
    let subnormal = sine.high.is_below(c(f64::MIN_POSITIVE));
    let scaled = Pair { high: sine.high * c(18_014_398_509_481_984.0), low: c(0.0) };
    let logarithm = logarithm_of_pair(
        Pair::select(subnormal, scaled, sine),
        select(subnormal, c(54.0), c(0.0)),
    );
    let left = Pair { high: -logarithm.high, low: -logarithm.low }.minus(value).rounded();
    // If the result overflows, its low part is invalid. A zero is positive.
    let right =
        select(value.high.is_below(c(f64::MAX)), value.rounded() + c(0.0), c(f64::INFINITY));
    let result = select(a.reflected, left, right);
    let pole = a.reflected & r.equals(c(0.0));
    let result = select(pole | x.abs().equals(c(f64::INFINITY)), c(f64::INFINITY), result);
    select(x.is_nan(), x, result)
}

/// ψ(x), the derivative of ln Γ. NaN at its poles 0, −1, −2, …, where it has no sign, and at −∞.
///
/// The error is at most 1 ULP of the result or, where that is smaller (at the zeros), absolute
/// 2⁻⁵⁵ for positive arguments and 2⁻⁵² for negative ones.
#[inline(always)]
pub fn digamma<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = Argument::new(x);
    // ln z − 1/2z − 1/12z² + …
    let reciprocal = c(1.0) / a.z.high;
    let square = reciprocal * reciprocal;
    let series = polynomial(
        square,
        [
            0.08333333333333333,
            -0.008333333333333333,
            0.003968253968253968,
            -0.004166666666666667,
            0.007575757575757576,
            -0.021092796092796094,
            0.08333333333333333,
            -0.4432598039215686,
            3.0539543302701198,
            -26.456212121212122,
        ],
    );
    let (half, half_low) =
        (reciprocal * c(0.5), reciprocal.mul_add(-a.z.high, c(1.0)) * reciprocal * c(0.5));
    let tail = Pair::new(half, square.mul_add(series, half_low));
    // 1/x + … + 1/(x + 7) = (2x + 7)·(1/w + 1/(w + 6) + 1/(w + 10) + 1/(w + 12)), as one fraction.
    let (outer, inner) = (a.w.times(a.factor(12.0)), a.factor(6.0).times(a.factor(10.0)));
    let twice = a.w.plus(a.w);
    let outer_slope = twice.plus(Pair::of(c(12.0)));
    let inner_slope = twice.plus(Pair::of(c(16.0)));
    let numerator = outer_slope.times(inner).plus(outer.times(inner_slope)).times(a.slope);
    let fallen = numerator.over(outer.times(inner));
    let fallen = Pair::select(a.moved, fallen, Pair::of(c(0.0)));
    let right = a.logarithm.minus(tail).minus(fallen);

    // Reflected: ψ(1 − x) − π·cos πr / sin πr, odd in r.
    let rest = x - x.round_even();
    let r = rest.abs();
    let cotangent = cosine_of_pi(r).over(sine_over_pi(r));
    let negative = rest.is_negative();
    let cotangent =
        Pair::select(negative, Pair { high: -cotangent.high, low: -cotangent.low }, cotangent);
    // ψ(x) = −1/x − γ + O(x). Below 1e-300 only −1/x counts, and the pair of the cotangent may
    // overflow.
    let difference = right.minus(cotangent).rounded();
    let left = select(r.is_below(c(1e-300)), -(c(1.0) / rest), difference);
    let result = select(a.reflected, left, right.rounded());
    let result = select(x.equals(c(f64::INFINITY)), x, result);
    let undefined = (a.reflected & r.equals(c(0.0))) | x.equals(c(f64::NEG_INFINITY));
    let result = select(undefined, c(f64::NAN), result);
    select(x.is_nan(), x, result)
}
