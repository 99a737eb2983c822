//! The error function.

use super::exp::exp_moderate;
use super::pair::{ordered_sum, product};
use crate::math::polynomial;
use crate::math::value::{Double, select};

/// erf x; error at most 0.9 ULP.
///
/// Below 1 it is x + x·P(x²); P has an error of 2⁻⁵⁹. Above it is 1 − e^(−Q(x)), and the polynomial Q was fitted to −ln erfc
/// with the weight erfc, so that the error of the *result* is below 2⁻⁵⁶·⁴: where erfc vanishes nothing is asked of Q. Both by
/// the Remez algorithm.
#[inline(always)]
pub fn erf<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    // erf 5.93 rounds to 1.
    let t = select(a.is_above(c(6.0)), c(6.0), a);
    let (s, s_low) = product(t, t);
    let p = polynomial(
        s,
        [
            0.11283791670954885,
            -0.026866170645077875,
            0.005223977624828431,
            -0.0008548326981425542,
            0.0001205533113295582,
            -1.4925595772180906e-05,
            1.64610084778027e-06,
            -1.6350396222864617e-07,
            1.466032872274226e-08,
            -1.137495573607015e-09,
            5.960685338520971e-11,
        ],
    );
    // P = p₀ + s·(p₁ + s·p), with the rounding errors of p₀, of the inner sum, and of s = x².
    let (p, p_low) = ordered_sum(c(-0.3761263890318375), s * p);
    let p =
        s.mul_add(p, c(0.1283791670955126)) + s_low.mul_add(p, s.mul_add(p_low, c(-1.2546240553654585e-17)));
    let near = p.mul_add(t, t);
    let q = polynomial(
        t,
        [
            0.636620812464139,
            0.1027705828322987,
            -0.01912756214807486,
            -0.00020304463186462043,
            0.0016758353917300539,
            -0.0005531635577798129,
            -2.1418429278092678e-05,
            0.0001104357649487437,
            -6.459545082908474e-05,
            2.4216576747658455e-05,
            -6.764471164411679e-06,
            1.4648612207112816e-06,
            -2.4720272347363835e-07,
            3.2055881876974574e-08,
            -3.0929533240700157e-09,
            2.0936379049113755e-10,
            -8.873710755484203e-12,
            1.771675485994913e-13,
        ],
    );
    // Q = c₀ + t·(c₁ + t·q), the sum and the product with their rounding errors.
    let (slope, slope_low) = ordered_sum(c(1.1283788993715038), t * q);
    let (high, low) = product(t, slope);
    let far = c(1.0) - exp_moderate(-high, t.mul_add(-slope_low, c(-2.9398778140103127e-08) - low));
    select(t.is_below(c(1.0)), near, far).with_sign_of(x)
}
