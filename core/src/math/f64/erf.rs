//! The error function, its complement and its inverse.

use super::exp::{Exponential, exp_moderate, exponential};
use super::log::log;
use super::pair::{Pair, ordered_sum, product};
use crate::math::polynomial;
use crate::math::value::{Double, select};

/// erf x for 0 ≤ x ≤ 1 (unspecified beyond): x + x·P(x²). P has an error of 2⁻⁵⁹, and the result
/// one of 0.9 ULP.
#[inline(always)]
fn near_zero<V: Double>(t: V) -> V {
    let c = |value| t.literal(value);
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
    let p = s.mul_add(p, c(0.1283791670955126))
        + s_low.mul_add(p, s.mul_add(p_low, c(-1.2546240553654585e-17)));
    p.mul_add(t, t)
}

/// erf x; error at most 0.9 ULP.
///
/// Below 1 it is x + x·P(x²). Above 1 it is 1 − e^(−Q(x)). The polynomial Q was fitted to −ln
/// erfc with the weight erfc, so the error of the *result* is below 2⁻⁵⁶·⁴ and Q may be imprecise
/// where erfc vanishes. Both were fitted by the Remez algorithm.
#[inline(always)]
pub fn erf<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    // erf 5.93 rounds to 1.
    let t = select(a.is_above(c(6.0)), c(6.0), a);
    let near = near_zero(t);
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
    // Q = c₀ + t·(c₁ + t·q); the sum and the product carry their rounding errors.
    let (slope, slope_low) = ordered_sum(c(1.1283788993715038), t * q);
    let (high, low) = product(t, slope);
    let far = c(1.0) - exp_moderate(-high, t.mul_add(-slope_low, c(-2.9398778140103127e-08) - low));
    select(t.is_below(c(1.0)), near, far).with_sign_of(x)
}

/// erfc a = e^(−a²)·g for 0.46 ≤ a ≤ 27.3: both factors.
///
/// (1 + 2a)·e^(a²)·erfc a is nearly constant. A polynomial in (a − 4)/(a + 4), by Chebyshev
/// interpolation, approximates it with an error of 2⁻⁵⁸. a² and the denominator are pairs, so the
/// exponential of a large a² loses no precision.
#[inline(always)]
fn tail<V: Double>(a: V) -> (Exponential<V>, Pair<V>) {
    let c = |value| a.literal(value);
    let t = (a - c(4.0)) / (a + c(4.0));
    let p = polynomial(
        t,
        [
            -0.13962111684056255,
            0.015379652102619186,
            0.068097054254697,
            -0.10103906603626402,
            0.09373283499820202,
            -0.06633036581335483,
            0.037167515539712155,
            -0.016197734041394005,
            0.005031969960672337,
            -0.0007577734265172568,
            -0.00019925662523409294,
            0.00015062239999773846,
            -2.4399310667062257e-05,
            -1.1224480522773435e-05,
            5.709408401021813e-06,
            2.991567818579882e-07,
            -8.236602126599479e-07,
            6.737730732569588e-08,
            1.0656673048701635e-07,
            -1.2355543590734308e-08,
            -1.0782994969964605e-08,
        ],
    );
    let g = Pair::new(c(1.2329951186255526), c(-4.426931163560299e-17) + t * p);
    let (high, low) = ordered_sum(c(1.0), a + a);
    // Above ½ the larger summand is 2a.
    let swapped = ordered_sum(a + a, c(1.0));
    let large = a.is_above(c(0.5));
    let denominator = Pair { high, low: select(large, swapped.1, low) };
    let (square, square_low) = product(a, a);
    (exponential(-square, -square_low), g.over(denominator))
}

/// erfc x = 1 − erf x; error at most 1 ULP up to 27.2, where it vanishes. Results below the
/// normal range are rounded a second time.
#[inline(always)]
pub fn erfc<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    let small = select(a.is_above(c(1.0)), c(1.0), a);
    let near = c(1.0) - near_zero(small).with_sign_of(x);
    let t = select(a.is_above(c(27.3)), c(27.3), a);
    let t = select(t.is_below(c(0.46)), c(0.46), t);
    let (e, g) = tail(t);
    let right = e.scaled(e.pair().times(g).rounded());
    let far = select(x.is_negative(), c(2.0) - right, right);
    let result = select(a.is_below(c(0.5)), near, far);
    select(x.is_nan(), x, result)
}

/// The inverse of erf; error at most 1.5 ULP. ±∞ at ±1, NaN beyond.
///
/// The first y, with an error of 2⁻²⁴, comes from polynomials in w = −ln(1 − x²) below 5 and in
/// √w above. One step of Halley's method with erf y − x cubes the error. Around 1 the difference
/// is that of erfc y and 1 − x, which is exact, so the tail loses no precision.
#[inline(always)]
pub fn erf_inv<V: Double>(x: V) -> V {
    let c = |value| x.literal(value);
    let a = x.abs();
    let complement = c(1.0) - a;
    let w = -log(complement * (c(1.0) + a));
    let low = polynomial(
        w,
        [
            0.8862269242011682,
            0.23201371276215604,
            0.0115491651169281,
            -0.0023352705948701436,
            -0.00012653947431269757,
            4.404880432627389e-05,
            4.15066323659101e-06,
            -2.0082713391634615e-06,
            2.2430430152617083e-07,
            -8.931925970242814e-09,
        ],
    );
    let high = polynomial(
        w.sqrt() - c(4.0),
        [
            3.8397839232613156,
            1.0094928418949516,
            0.0012570133010749932,
            -0.0008655228432735879,
            0.00033131909325517794,
            -0.00012679381225960657,
            4.1859578176049104e-05,
            -2.205724913940656e-05,
            2.6760430262895873e-05,
            -1.5250095094232586e-05,
            1.1706151164132744e-06,
            1.5583507307182094e-06,
            -3.643816395419055e-07,
        ],
    );
    let y = a * select(w.is_below(c(5.0)), low, high);
    let t = select(y.is_below(c(0.46)), c(0.46), y);
    let (e, g) = tail(t);
    let exponential = e.value();
    // (erf y − x) / erf′ y, with erf′ y = 2/√π·e^(−y²).
    let far = complement - exponential * g.rounded();
    let near = near_zero(y) - a;
    let close = y.is_below(c(0.47));
    let (square, square_low) = product(y, y);
    let slope = select(close, exp_moderate(-square, -square_low), exponential);
    let step = select(close, near, far) / (slope * c(std::f64::consts::FRAC_2_SQRT_PI));
    let step = step / step.mul_add(y, c(1.0));
    let result = y - step;
    let result = select(a.equals(c(1.0)), c(f64::INFINITY), result);
    let result = select(a.is_at_most(c(1.0)), result, c(f64::NAN));
    result.with_sign_of(x)
}
