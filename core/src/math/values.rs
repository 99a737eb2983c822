//! The infrequent functions of f64 and f32 against values of a multiple-precision library, which
//! `values.py` computes.

use super::{f32 as single, f64 as double, ulp_bound};
use crate::dtype::DType;
use crate::nest::ScalarOp::{self, *};
use std::collections::BTreeMap;

type F32 = f32;
type F64 = f64;

/// Function, argument, and the value as the nearest f64 and the rest.
fn values() -> impl Iterator<Item = (&'static str, F64, F64, F64)> {
    include_str!("values.txt").lines().map(|line| {
        let mut words = line.split(' ');
        let name = words.next().expect("a name");
        let mut number = || {
            F64::from_bits(
                u64::from_str_radix(words.next().expect("four words"), 16).expect("bits"),
            )
        };
        (name, number(), number(), number())
    })
}

/// A function of one number.
type Function<F = F64> = fn(F) -> F;

fn of(name: &str) -> (ScalarOp, Function, Function<F32>) {
    match name {
        "log2" => (Log2, double::log2, single::log2),
        "asin" => (Asin, double::asin, single::asin),
        "acos" => (Acos, double::acos, single::acos),
        "sinh" => (Sinh, double::sinh, single::sinh),
        "cosh" => (Cosh, double::cosh, single::cosh),
        "asinh" => (Asinh, double::asinh, single::asinh),
        "acosh" => (Acosh, double::acosh, single::acosh),
        "atanh" => (Atanh, double::atanh, single::atanh),
        "cbrt" => (Cbrt, double::cbrt, single::cbrt),
        "erfc" => (Erfc, double::erfc, single::erfc),
        "erf_inv" => (ErfInv, double::erf_inv, single::erf_inv),
        "lgamma" => (Lgamma, double::lgamma, single::lgamma),
        "digamma" => (Digamma, double::digamma, single::digamma),
        other => panic!("{other}"),
    }
}

/// The unit in the last place of a normal number.
fn unit(value: F64) -> F64 {
    let exponent = ((value.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    libm::scalbn(1.0, exponent.max(-1022) - 52)
}

#[test]
fn the_functions_keep_their_bounds() {
    let mut worst: BTreeMap<&str, F64> = BTreeMap::new();
    for (name, x, high, low) in values().filter(|v| !v.0.starts_with("polygamma")) {
        let (op, function, narrow) = of(name);
        // The unit that `ulp_bound` defines around zeros.
        let least = if matches!(op, Lgamma | Digamma) { unit(1.0) } else { 0.0 };
        let got = function(x);
        let error = ((got - high) - low).abs() / unit(high).max(least);
        let bound = ulp_bound(op, DType::F64).expect("defined on f64");
        assert!(
            error <= bound,
            "{name}({x:e}) = {got:e}, exactly {high:e}: {error} ULP, stated {bound}"
        );
        let worst = worst.entry(name).or_default();
        *worst = worst.max(error);
        // If the argument is exact in f32, the function of f32 is checked as well.
        if F64::from(x as F32) == x && high.abs() < 1e38 && high.abs() > 1e-37 {
            let error = (F64::from(narrow(x as F32)) - high).abs() / (unit(high) * 2f64.powi(29));
            assert!(error <= 0.51, "{name}({x:e}) in f32: {error} ULP");
        }
    }
    assert_eq!(worst.len(), 13);
    // Fails if the reference is the function itself.
    assert!(worst.values().all(|worst| *worst > 0.4), "{worst:?}");
}

/// Around 1 and 2 the logarithm of the gamma function keeps its relative precision, and so do
/// both functions left of 0 for small arguments.
#[test]
fn what_is_promised_of_lgamma_near_its_positive_zeros() {
    for (name, x, high, low) in values().filter(|v| v.0 == "lgamma" && v.1 > 0.3) {
        let error = ((double::lgamma(x) - high) - low).abs() / unit(high);
        assert!(error <= 1.0, "{name}({x:e}): {error} ULP");
    }
    // ln Γ(1 + t) = −γ·t + ….
    for t in [1e-10, -1e-10, 2.0_f64.powi(-52)] {
        let expected = -0.577_215_664_901_532_9 * ((1.0 + t) - 1.0);
        assert!((double::lgamma(1.0 + t) / expected - 1.0).abs() < 1e-9);
    }
}

#[test]
fn polygamma_keeps_its_bound() {
    let mut count = 0;
    for (name, x, high, low) in values().filter(|v| v.0.starts_with("polygamma")) {
        let n: u32 = name["polygamma".len()..].parse().expect("an order");
        let got = double::polygamma(n, x);
        // The term of the nearest pole, the first term of the sum left of ½.
        let r = x - x.round();
        let pole = if x < 0.5 {
            (1..=n).map(F64::from).fold(1.0 / r.abs(), |v, k| v * k / r.abs())
        } else {
            0.0
        };
        let error = ((got - high) - low).abs() / unit(high.abs().max(pole));
        assert!(
            error <= F64::from(2 * n + 6),
            "{name}({x:e}) = {got:e}, exactly {high:e}: {error} ULP"
        );
        let narrow = F64::from(single::polygamma(n, x as F32));
        if F64::from(x as F32) == x && high.abs() < 1e38 && high.abs() > 1e-37 {
            assert!((narrow / high - 1.0).abs() < 1e-7, "{name}({x:e}) in f32 = {narrow:e}");
        }
        count += 1;
    }
    assert!(count >= 200);
}

/// At the least and the greatest arguments of both dtypes. The values are from mpmath.
#[test]
fn at_the_least_and_greatest_arguments() {
    let inf = F64::INFINITY;
    let least = F64::from_bits(1);
    // x, then ln |Γ|, ψ, ψ′ and ψ″ there.
    let rows = [
        (least, [744.440_071_921_381_2, -inf, inf, -inf]),
        (-least, [744.440_071_921_381_2, inf, inf, inf]),
        (1e-320, [736.827_240_890_973_9, -inf, inf, -inf]),
        (-1e-320, [736.827_240_890_973_9, inf, inf, inf]),
        (5.5e-309, [709.794_045_642_921_7, -inf, inf, -inf]),
        (-5.5e-309, [709.794_045_642_921_7, inf, inf, inf]),
        (5.6e-309, [709.776_027_137_419, -1.785_714_285_714_286_4e308, inf, -inf]),
        (-5.6e-309, [709.776_027_137_419, 1.785_714_285_714_286_4e308, inf, inf]),
        (F64::MIN_POSITIVE, [708.396_418_532_264_1, -4.494_232_837_155_79e307, inf, -inf]),
        (-F64::MIN_POSITIVE, [708.396_418_532_264_1, 4.494_232_837_155_79e307, inf, inf]),
        (1e-300, [690.775_527_898_213_7, -9.999_999_999_999_999e299, inf, -inf]),
        (-1e-300, [690.775_527_898_213_7, 9.999_999_999_999_999e299, inf, inf]),
        (F64::MAX, [inf, 709.782_712_893_384, 5.562_684_646_268_003e-309, -0.0]),
    ];
    let near = |got: F64, wanted: F64, what: &str| {
        let same = got == wanted || ((got - wanted) / unit(wanted)).abs() <= 1.0;
        assert!(same && !got.is_nan(), "{what}: {got:e}, not {wanted:e}");
    };
    for (x, [lgamma, digamma, trigamma, tetragamma]) in rows {
        near(double::lgamma(x), lgamma, &format!("lgamma({x:e})"));
        near(double::digamma(x), digamma, &format!("digamma({x:e})"));
        near(double::polygamma(1, x), trigamma, &format!("polygamma1({x:e})"));
        near(double::polygamma(2, x), tetragamma, &format!("polygamma2({x:e})"));
        // The interpreter's own functions agree.
        near(
            crate::interpret::special::digamma(x),
            digamma,
            &format!("interpreted digamma({x:e})"),
        );
        near(
            crate::interpret::special::polygamma(1, x),
            trigamma,
            &format!("interpreted polygamma1({x:e})"),
        );
        near(
            crate::interpret::special::polygamma(2, x),
            tetragamma,
            &format!("interpreted polygamma2({x:e})"),
        );
        // Every order has its sign on each side of the pole.
        for n in 3..30 {
            let signed = if n % 2 == 1 || x < 0.0 { inf } else { -inf };
            if x.abs() < 1.0 {
                assert_eq!(double::polygamma(n, x), signed, "polygamma{n}({x:e})");
            }
        }
    }
    let least = F32::from_bits(1);
    let rows = [
        (least, [103.278_93, -F32::INFINITY, F32::INFINITY]),
        (-least, [103.278_93, F32::INFINITY, F32::INFINITY]),
        (2.9e-39, [88.736_1, -F32::INFINITY, F32::INFINITY]),
        (F32::MIN_POSITIVE, [87.336_54, -8.507_059e37, F32::INFINITY]),
        (-F32::MIN_POSITIVE, [87.336_54, 8.507_059e37, F32::INFINITY]),
        (F32::MAX, [F32::INFINITY, 88.722_84, F32::from_bits(0x0020_0000)]),
    ];
    for (x, wanted) in rows {
        let got = [single::lgamma(x), single::digamma(x), single::polygamma(1, x)];
        for (got, wanted) in got.iter().zip(wanted) {
            let same = *got == wanted || (got / wanted - 1.0).abs() < 1e-6;
            assert!(same, "at {x:e}: {got:e}, not {wanted:e}");
        }
    }
}

#[test]
fn at_the_poles_and_ends() {
    let (inf, nan) = (F64::INFINITY, F64::NAN);
    let same = |got: F64, wanted: F64| {
        assert!(
            got.to_bits() == wanted.to_bits() || got.is_nan() && wanted.is_nan(),
            "{got}, not {wanted}"
        );
    };
    for pole in [0.0, -0.0, -1.0, -2.0, -17.0, -1e18] {
        same(double::lgamma(pole), inf);
        same(double::digamma(pole), nan);
        for n in [1, 3, 8, 21] {
            same(double::polygamma(n, pole), if n % 2 == 1 { inf } else { nan });
        }
    }
    for function in [
        double::lgamma,
        double::digamma,
        double::erfc,
        double::erf_inv,
        double::asinh,
        double::cosh,
    ] {
        same(function(nan), nan);
    }
    for function in [
        double::acosh,
        double::atanh,
        double::asin,
        double::acos,
        double::cbrt,
        double::log2,
        double::sinh,
    ] {
        same(function(nan), nan);
    }
    same(double::lgamma(inf), inf);
    same(double::lgamma(-inf), inf);
    same(double::lgamma(1.0), 0.0);
    same(double::lgamma(2.0), 0.0);
    same(double::lgamma(2.6e305), inf);
    same(double::digamma(inf), inf);
    same(double::digamma(-inf), nan);
    same(double::polygamma(1, inf), 0.0);
    same(double::polygamma(1, -inf), nan);
    same(double::polygamma(2, nan), nan);
    same(double::erf_inv(1.0), inf);
    same(double::erf_inv(-1.0), -inf);
    same(double::erf_inv(1.1), nan);
    same(double::erf_inv(-0.0), -0.0);
    same(double::erfc(inf), 0.0);
    same(double::erfc(-inf), 2.0);
    same(double::erfc(0.0), 1.0);
    same(double::erfc(27.3), 0.0);
    same(double::asin(-0.0), -0.0);
    same(double::asin(1.0), std::f64::consts::FRAC_PI_2);
    same(double::asin(-1.5), nan);
    same(double::acos(1.0), 0.0);
    same(double::acos(-1.0), std::f64::consts::PI);
    same(double::acos(1.5), nan);
    same(double::asinh(-0.0), -0.0);
    same(double::asinh(-inf), -inf);
    same(double::acosh(1.0), 0.0);
    same(double::acosh(inf), inf);
    same(double::acosh(0.99), nan);
    same(double::acosh(-inf), nan);
    same(double::atanh(1.0), inf);
    same(double::atanh(-1.0), -inf);
    same(double::atanh(-0.0), -0.0);
    same(double::atanh(2.0), nan);
    same(double::sinh(-0.0), -0.0);
    same(double::sinh(-inf), -inf);
    same(double::sinh(711.0), inf);
    same(double::cosh(-inf), inf);
    same(double::cosh(0.0), 1.0);
    same(double::cbrt(-0.0), -0.0);
    same(double::cbrt(-inf), -inf);
    same(double::cbrt(-27.0), -3.0);
    same(double::log2(0.0), -inf);
    same(double::log2(-1.0), nan);
    same(double::log2(inf), inf);
    for k in -1074..1024 {
        same(double::log2(libm::scalbn(1.0, k)), k.into());
    }
}

/// f32 against f64 functions of another source, over every exponent.
#[test]
fn f32_functions_keep_their_bounds_in_every_exponent() {
    use crate::interpret::special;
    let references: [(&str, Function); 13] = [
        ("log2", libm::log2),
        ("asin", libm::asin),
        ("acos", libm::acos),
        ("sinh", libm::sinh),
        ("cosh", libm::cosh),
        ("asinh", libm::asinh),
        ("acosh", special::acosh),
        ("atanh", libm::atanh),
        ("cbrt", libm::cbrt),
        ("erfc", libm::erfc),
        ("erf_inv", special::erf_inv),
        ("lgamma", libm::lgamma),
        ("digamma", special::digamma),
    ];
    for (name, reference) in references {
        let (_, _, function) = of(name);
        for bits in (0..=u32::MAX).step_by(99_991) {
            let x = F32::from_bits(bits);
            let (got, exact) = (F64::from(function(x)), reference(x.into()));
            // At the least such argument f32 is 0 or infinite, and the reference is not.
            if got.is_nan() || exact.is_nan() {
                assert!(got.is_nan() && exact.is_nan(), "{name}({x:e}) = {got:e}, {exact:e}");
                continue;
            }
            if exact.abs() >= F64::from(F32::MAX) {
                assert!(
                    got.abs() >= F64::from(F32::MAX) && got.signum() == exact.signum(),
                    "{name}({x:e}) = {got:e}"
                );
                continue;
            }
            let error = (got - exact).abs() / (unit(exact) * 2f64.powi(29)).max(2f64.powi(-149));
            assert!(error <= 0.51, "{name}({x:e}) = {got:e}, {exact:e}: {error} ULP");
        }
    }
}
