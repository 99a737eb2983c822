//! The functions of f32 against f64 functions of another library, over every exponent and with a
//! stride through all bit patterns.

use super::{f32 as single, ulp_bound};
use crate::dtype::DType;
use crate::nest::ScalarOp::{self, *};
use wengert_testing::Random;

type F32 = f32;
type F64 = f64;
type Case = (ScalarOp, fn(F32) -> F32, fn(F64) -> F64);

const UNARY: [Case; 8] = [
    (Exp, single::exp, libm::exp),
    (Expm1, single::expm1, libm::expm1),
    (Log, single::log, libm::log),
    (Log1p, single::log1p, libm::log1p),
    (Sin, single::sin, libm::sin),
    (Cos, single::cos, libm::cos),
    (Tanh, single::tanh, libm::tanh),
    (Erf, single::erf, libm::erf),
];

/// Error of an f32 result in ULP, as `ulp_bound` defines it.
fn error(got: F32, exact: F64) -> F64 {
    if exact.is_nan() || got.is_nan() {
        return if exact.is_nan() && got.is_nan() { 0.0 } else { F64::INFINITY };
    }
    let beyond = 2.0_f64.powi(128);
    let got = F64::from(got).clamp(-beyond, beyond);
    let exact = exact.clamp(-beyond, beyond);
    let exponent = ((exact.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    (got - exact).abs() / 2.0_f64.powi(exponent.clamp(-126, 127) - 23)
}

fn check(op: ScalarOp, shown: &dyn std::fmt::Debug, got: F32, exact: F64) {
    let bound = ulp_bound(op, DType::F32).expect("defined on f32");
    let error = error(got, exact);
    assert!(
        error <= bound,
        "{op:?}{shown:?} = {got:e}, exactly {exact:e}: {error} ULP, stated {bound}"
    );
    // The sign of a zero counts.
    if exact == 0.0 && got == 0.0 {
        assert_eq!(got.is_sign_negative(), exact.is_sign_negative(), "sign of {op:?}{shown:?}");
    }
}

#[test]
fn f32_functions_keep_their_bounds_over_a_stride_through_all_arguments() {
    for (op, f, reference) in UNARY {
        for bits in (0..=u32::MAX).step_by(997) {
            let x = F32::from_bits(bits);
            check(op, &x, f(x), reference(F64::from(x)));
        }
    }
}

#[test]
fn f32_functions_keep_their_bounds_in_every_exponent() {
    let mut random = Random(1);
    for (op, f, reference) in UNARY {
        for exponent in 0..=255_u32 {
            for k in 0..256 {
                let mantissa = match k {
                    0..8 => k,
                    8..16 => 0x7f_ffff - (k - 8),
                    _ => random.bits() as u32 & 0x7f_ffff,
                };
                for sign in [0, 1 << 31] {
                    let x = F32::from_bits(sign | exponent << 23 | mantissa);
                    check(op, &x, f(x), reference(F64::from(x)));
                }
            }
        }
    }
}

#[test]
fn f32_functions_keep_their_bounds_around_their_seams() {
    let quarter = std::f32::consts::FRAC_PI_4;
    let multiples = (1..4000).map(|k| k as F32 * quarter);
    let seams = [
        0.55,
        0.92,
        4.0,
        9.0,
        10.0,
        0.5,
        1.0,
        2.0,
        0.707_106_77,
        std::f32::consts::SQRT_2,
        88.7,
        103.9,
        104.0,
        17.3,
    ];
    // Arguments closest to a multiple of π/2, and powers of two where the reduction switches to
    // other parts of 2/π.
    let hard = [
        1.681_916_3e38,
        3.389_535_7e12,
        105_032.87,
        2.0_f32.powi(52),
        2.0_f32.powi(79),
        2.0_f32.powi(106),
    ];
    for center in multiples.chain(seams).chain(hard) {
        for offset in -40..=40_i32 {
            let x = F32::from_bits(center.to_bits().wrapping_add_signed(offset));
            for (op, f, reference) in UNARY {
                check(op, &x, f(x), reference(F64::from(x)));
                check(op, &-x, f(-x), reference(-F64::from(x)));
            }
        }
    }
}

#[test]
fn f32_pow_and_atan2_keep_their_bounds() {
    let mut random = Random(7);
    for k in 0..400_000 {
        let (mut x, mut y) =
            (F32::from_bits(random.bits() as u32), F32::from_bits(random.bits() as u32));
        if k % 2 == 0 {
            x = random.bits() as u32 as F32 / 2.0_f32.powi(30);
            y = (random.bits() as u32 as F32 / 2.0_f32.powi(31) - 1.0) * 100.0;
        }
        check(Pow, &(x, y), single::pow(x, y), libm::pow(x.into(), y.into()));
        check(Atan2, &(x, y), single::atan2(x, y), libm::atan2(x.into(), y.into()));
    }
}

#[test]
fn f32_pow_and_atan2_treat_special_values_as_c99_does() {
    let specials = [
        0.0,
        1.0,
        0.5,
        1.5,
        2.0,
        3.0,
        1e-40,
        F32::MIN_POSITIVE,
        F32::MAX,
        F32::INFINITY,
        16_777_215.0,
        16_777_216.0,
        8_388_607.5,
        F32::NAN,
    ];
    for x in specials.into_iter().flat_map(|v| [v, -v]) {
        for y in specials.into_iter().flat_map(|v| [v, -v]) {
            check(Pow, &(x, y), single::pow(x, y), libm::pow(x.into(), y.into()));
            check(Atan2, &(x, y), single::atan2(x, y), libm::atan2(x.into(), y.into()));
        }
    }
}

/// The results of neighbouring arguments are in order up to the error bounds. At the seams between
/// two formulas of these functions they never decrease.
#[test]
fn f32_exp_log_tanh_and_erf_do_not_decrease_over_coarse_steps() {
    for f in [single::exp, single::expm1, single::log, single::log1p, single::tanh, single::erf] {
        let mut last = F32::NEG_INFINITY;
        for k in -20_000..20_000 {
            let y = f(k as F32 / 1000.0);
            if y.is_nan() {
                continue;
            }
            assert!(y >= last, "at {}", k as F32 / 1000.0);
            last = y;
        }
    }
}

#[test]
fn f32_functions_agree_with_sixty_digits_where_arguments_are_f32() {
    let cases: [(ScalarOp, F32, F64); 4] = [
        // 2.71828182845904523536…, ln 2, tanh 1, erf 1.
        (Exp, 1.0, std::f64::consts::E),
        (Log, 2.0, std::f64::consts::LN_2),
        (Tanh, 1.0, 0.761_594_155_955_764_9),
        (Erf, 1.0, 0.842_700_792_949_714_9),
    ];
    for (op, x, exact) in cases {
        let (_, f, _) = UNARY.into_iter().find(|(o, ..)| *o == op).expect("in the table");
        check(op, &x, f(x), exact);
    }
}

#[test]
fn every_elementary_instruction_has_a_bound_and_exact_ones_have_none() {
    for &op in ScalarOp::ALL {
        for dtype in DType::ALL {
            let bound = ulp_bound(op, dtype);
            assert_eq!(bound.is_some(), op.class().contains(dtype));
            if op.is_elementary() {
                assert!(bound.is_none_or(|b| b > 0.5 && b <= 2.0));
            }
        }
    }
}
