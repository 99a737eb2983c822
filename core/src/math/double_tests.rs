//! The functions of f64 against [`exact`]: over every exponent, around their seams, and in hard
//! cases.

use super::exact::{self, Exact};
use super::{f64 as double, reference::VALUES, ulp_bound};
use crate::dtype::DType;
use crate::nest::ScalarOp::{self, *};
use wengert_testing::Random;

fn run(op: ScalarOp, x: f64, y: f64) -> f64 {
    match op {
        Exp => double::exp(x),
        Expm1 => double::expm1(x),
        Log => double::log(x),
        Log1p => double::log1p(x),
        Sin => double::sin(x),
        Cos => double::cos(x),
        Tanh => double::tanh(x),
        Erf => double::erf(x),
        Pow => double::pow(x, y),
        Atan2 => double::atan2(x, y),
        other => panic!("{other:?} is not approximate"),
    }
}

/// The value for ordinary arguments: x and y are finite, x is not 0, x is positive for logarithm
/// and power, and the result is no special case.
fn value(op: ScalarOp, x: f64, y: f64) -> Exact {
    let number = Exact::of(x);
    match op {
        Exp => exact::exp(number),
        Expm1 => exact::expm1(number),
        Log => exact::log(number),
        Log1p => exact::log1p(number),
        Sin => exact::sine(number, 0),
        Cos => exact::sine(number, 1),
        Tanh => exact::tanh(number),
        Erf => exact::erf(number),
        Pow => exact::pow(number, Exact::of(y)),
        Atan2 => exact::atan2(number, Exact::of(y)),
        other => panic!("{other:?} is not approximate"),
    }
}

/// Error in ULP, as `ulp_bound` defines it.
fn error(got: f64, value: Exact) -> f64 {
    let beyond = Exact::new(1, 1024);
    let clamped = |v: Exact| {
        if !v.is_zero() && v.binade() >= 1024 {
            if v.is_negative() { -beyond.clone() } else { beyond.clone() }
        } else {
            v
        }
    };
    if got.is_nan() {
        return f64::INFINITY;
    }
    let got = if got.is_infinite() {
        clamped(Exact::new(got.signum() as i64, 2000))
    } else {
        Exact::of(got)
    };
    let value = clamped(value);
    let binade = if value.is_zero() { -1022 } else { value.binade().clamp(-1022, 1023) };
    (got - value).abs().scaled(52 - binade).near()
}

/// Checks against the bound and returns the error.
fn check(op: ScalarOp, x: f64, y: f64) -> f64 {
    let (got, value) = (run(op, x, y), value(op, x, y));
    let error = error(got, value.clone());
    let bound = ulp_bound(op, DType::F64).expect("defined on f64");
    assert!(
        error <= bound,
        "{op:?}({x:e}, {y:e}) = {got:e}, exactly {:e}: {error} ULP, stated {bound}",
        value.near()
    );
    assert!(
        value.is_zero() || got == 0.0 || got.is_sign_negative() == value.is_negative(),
        "sign of {op:?}({x:e}, {y:e})"
    );
    error
}

const UNARY: [ScalarOp; 8] = [Exp, Expm1, Log, Log1p, Sin, Cos, Tanh, Erf];

/// Whether the reference supports this argument, and its result is not far out of range.
fn ordinary(op: ScalarOp, x: f64) -> bool {
    x != 0.0
        && x.is_finite()
        && match op {
            Exp | Expm1 => x.abs() < 1000.0,
            Log => x > 0.0,
            Log1p => x > -1.0,
            // The reference computes e^(2x); larger arguments are not needed.
            Tanh => x.abs() < 1000.0,
            _ => true,
        }
}

#[test]
fn in_every_exponent() {
    let mut random = Random(1);
    let mask = (1 << 52) - 1;
    for op in UNARY {
        for exponent in 0..0x7ff_u64 {
            for mantissa in [0, mask, random.bits() & mask] {
                for sign in [0, 1 << 63] {
                    let x = f64::from_bits(sign | exponent << 52 | mantissa);
                    if ordinary(op, x) {
                        check(op, x, 0.0);
                    }
                }
            }
        }
    }
}

/// Arguments where the functions are not their argument, a constant, or out of range.
#[test]
fn where_they_curve() {
    let mut random = Random(2);
    for (op, low, high) in [
        (Exp, -746.0, 710.0),
        (Exp, -1.0, 1.0),
        (Expm1, -38.0, 60.0),
        (Expm1, -1.0, 1.0),
        (Log, 0.5, 2.0),
        (Log, 0.0, 100.0),
        (Log1p, -1.0, 1.0),
        (Log1p, 0.0, 100.0),
        (Sin, -10.0, 10.0),
        (Cos, -10.0, 10.0),
        (Tanh, 0.0, 1.0),
        (Tanh, -20.0, 20.0),
        (Erf, 0.0, 1.5),
        (Erf, -6.0, 6.0),
    ] {
        let mut worst = 0.0_f64;
        for _ in 0..3000 {
            let x = low + (high - low) * (0.5 + 0.5 * random.signed());
            if ordinary(op, x) {
                worst = worst.max(check(op, x, 0.0));
            }
        }
        // Fails if the reference is the function itself.
        assert!(worst > 0.4, "{op:?}: {worst}");
    }
}

#[test]
fn around_their_seams() {
    let seams = [
        0.25,
        0.5,
        1.0,
        1.5,
        2.0,
        4.0,
        5.93,
        6.0,
        19.06,
        20.0,
        22.0,
        36.7,
        37.43,
        38.0,
        40.0,
        708.396,
        709.782_712_893_384,
        710.0,
        745.133_219_101_941_1,
        744.44,
        746.0,
        5.0e-17,
        3.7e-9,
        1.1e-16,
        2.2e-16,
        std::f64::consts::FRAC_1_SQRT_2,
        std::f64::consts::SQRT_2,
        std::f64::consts::SQRT_2 - 1.0,
        0.292_893_218_813_452_4,
        f64::MIN_POSITIVE,
        f64::MAX,
        4_503_599_627_370_496.0,
        9_007_199_254_740_992.0,
        18_014_398_509_481_984.0,
    ];
    let half_logarithms = (1..12).map(|k| f64::from(2 * k - 1) * 0.5 * std::f64::consts::LN_2);
    let quarters = (1..60).map(|k| f64::from(k) * std::f64::consts::FRAC_PI_4);
    for center in seams.into_iter().chain(half_logarithms).chain(quarters) {
        for offset in -5..=5 {
            let x = f64::from_bits(center.to_bits().wrapping_add_signed(offset));
            for op in UNARY {
                for x in [x, -x] {
                    if ordinary(op, x) {
                        check(op, x, 0.0);
                    }
                }
            }
        }
    }
}

/// Multiples of π/2 of every magnitude, and the f64 that is closest to one.
#[test]
fn sine_and_cosine_near_multiples_of_half_pi() {
    let mut hard = vec![
        libm::scalbn(6_381_956_970_095_103.0, 797),
        libm::scalbn(5_319_372_648_326_541.0, 209),
        2.0_f64.powi(1023),
        f64::MAX,
        std::f64::consts::PI,
        3.0 * std::f64::consts::FRAC_PI_2,
    ];
    // Rounded multiples n·π/2: the f64 nearest to a multiple differs from it by its rounding
    // error.
    let mut random = Random(3);
    for power in (0..1000).step_by(7) {
        let n = Exact::new((random.bits() | 1) >> 12, power);
        hard.push((n * exact::pi().scaled(-1)).near());
    }
    for x in hard.into_iter().filter(|x| x.is_finite()) {
        for offset in -2..=2_i64 {
            let x = f64::from_bits((x.to_bits() as i64 + offset) as u64);
            if x.is_finite() {
                check(Sin, x, 0.0);
                check(Cos, x, 0.0);
                check(Sin, -x, 0.0);
            }
        }
    }
    // The hardest case, from a multiple-precision library.
    assert_eq!(double::cos(libm::scalbn(6_381_956_970_095_103.0, 797)), -4.687165924254628e-19);
}

#[test]
fn powers() {
    let mut random = Random(4);
    for k in 0..20_000 {
        let (u, v) = (random.signed(), random.signed());
        let (x, y) = match k % 5 {
            0 => {
                let x = f64::from_bits(random.bits() >> 1);
                (x, 745.0 / libm::log(x) * v)
            }
            1 => (u.abs() + 0.5, v * 1000.0),
            2 => (1.0 + u * 1e-6, v * 1e9),
            3 => (u.abs() * 100.0, (v * 20.0).round()),
            _ => (0.7 + u.abs() * 0.72, v * 2200.0),
        };
        if x > 0.0 && x.is_finite() && y.is_finite() {
            check(Pow, x, y);
        }
    }
    // Around 1, with results over the whole range; and around overflow, underflow, and the least
    // number.
    for x in
        [1.0 + f64::EPSILON, 1.0 - f64::EPSILON / 2.0, 1.0 - f64::EPSILON, 1.0 + 3.0 * f64::EPSILON]
    {
        for z in [-745.2, -745.0, -709.0, -30.0, -1.0, 1e-3, 1.0, 700.0, 709.7, 709.79] {
            check(Pow, x, z / libm::log(x));
        }
    }
    for x in [2.0, 10.0, 0.5, 1.1, 5e-324, 2e-310, f64::MAX] {
        for z in [-745.14, -745.13, -744.5, -709.0, -708.39, 709.78, 709.79, 709.0] {
            for offset in -3..=3 {
                let y = z / libm::log(x);
                check(Pow, x, f64::from_bits(y.to_bits().wrapping_add_signed(offset)));
            }
        }
    }
}

#[test]
fn angles_of_points() {
    let mut random = Random(5);
    for k in 0..20_000 {
        let (u, v) = (random.signed(), random.signed());
        let bits = random.bits();
        let exponent = bits & 0x7ff << 52;
        let (y, x) = match k % 5 {
            0 => (f64::from_bits(bits), f64::from_bits(random.bits())),
            1 => (u, v),
            2 => (u * 10.0, v * 1e-8),
            3 => (u, u * (1.0 + v * 0.1)),
            // One exponent, including subnormal and huge ones.
            _ => (
                f64::from_bits(exponent | random.bits() >> 12),
                f64::from_bits(exponent | random.bits() >> 12),
            ),
        };
        if x != 0.0 && y != 0.0 && x.is_finite() && y.is_finite() {
            check(Atan2, y, x);
        }
    }
    for tiny in [5e-324, 1e-323, 1.5e-323, f64::MIN_POSITIVE, 1e-300] {
        for other in [5e-324, 2e-323, f64::MIN_POSITIVE, 1.0, 3.0, 1e300, f64::MAX] {
            for (y, x) in [(tiny, other), (other, tiny), (-tiny, -other), (-other, tiny)] {
                check(Atan2, y, x);
            }
        }
    }
    check(Atan2, f64::MAX, f64::MAX);
    check(Atan2, -f64::MAX, -f64::MAX / 2.0);
}

fn specials() -> Vec<f64> {
    let positive = [
        0.0,
        1.0,
        0.5,
        1.5,
        2.0,
        3.0,
        1e-310,
        5e-324,
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::INFINITY,
        f64::NAN,
        9_007_199_254_740_991.0,
        9_007_199_254_740_992.0,
        4_503_599_627_370_495.5,
        4_503_599_627_370_497.0,
        1e-20,
    ];
    positive.into_iter().flat_map(|v| [v, -v]).collect()
}

/// Equal, or both NaN, including the sign of zero. Rounding errors of the reference are allowed.
fn agrees(got: f64, wanted: f64) -> bool {
    if wanted == 0.0 || !wanted.is_finite() {
        return got.to_bits() == wanted.to_bits() || (got.is_nan() && wanted.is_nan());
    }
    (got - wanted).abs() <= wanted.abs() * 2.5 * f64::EPSILON
}

/// Against another implementation, which follows C99.
#[test]
fn special_values_are_those_of_c99() {
    for x in specials() {
        for y in specials() {
            assert!(
                agrees(double::pow(x, y), libm::pow(x, y)),
                "pow({x:e}, {y:e}) = {:e}",
                double::pow(x, y)
            );
            assert!(agrees(double::atan2(x, y), libm::atan2(x, y)), "atan2({x:e}, {y:e})");
        }
        for (op, reference) in UNARY.into_iter().zip([
            libm::exp,
            libm::expm1,
            libm::log,
            libm::log1p,
            libm::sin,
            libm::cos,
            libm::tanh,
            libm::erf,
        ]) {
            let (got, wanted) = (run(op, x, 0.0), reference(x));
            // The least result may be rounded up or down.
            assert!(
                agrees(got, wanted) || (got - wanted).abs() < 1e-323,
                "{op:?}({x:e}) = {got:e}"
            );
        }
    }
}

#[test]
fn against_sixty_digits() {
    for &(op, x, y, high, low) in VALUES {
        let got = run(op, x, y);
        let exponent = ((high.to_bits() >> 52) & 0x7ff) as i32 - 1023;
        let error = ((got - high) - low).abs() / 2.0_f64.powi(exponent - 52);
        let bound = ulp_bound(op, DType::F64).expect("defined on f64");
        assert!(error <= bound, "{op:?}({x}, {y}) = {got}: {error} ULP, stated {bound}");
        // This also checks the reference of the other tests.
        let reference = value(op, x, y) - Exact::of(high) - Exact::of(low);
        assert!(
            reference.is_zero() || reference.binade() < i64::from(exponent) - 100,
            "{op:?}({x}, {y})"
        );
    }
}
