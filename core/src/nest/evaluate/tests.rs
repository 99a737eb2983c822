//! Known values, edge cases, and agreement with wider arithmetic.

use super::*;
use ScalarOp::*;
use half::{bf16, f16};
use proptest::prelude::*;

fn run<T: Native, R: Native>(op: ScalarOp, operands: &[T]) -> R {
    let operands: Vec<Scalar> = operands.iter().map(|x| Scalar::of(*x)).collect();
    evaluate(op, &operands, R::DTYPE).get()
}

fn float_bits(value: f32) -> u32 {
    value.to_bits()
}

#[test]
fn every_checked_instruction_has_a_function() {
    let mut count = 0;
    for op in ScalarOp::ALL {
        for operand in DType::IN_KERNELS {
            for result in DType::IN_KERNELS {
                let mut operands = vec![operand; op.arity()];
                if *op == Select {
                    operands[0] = DType::Bool;
                }
                let exists = evaluator(*op, &operands, result).is_some();
                assert_eq!(
                    exists,
                    op.check(&operands, result).is_ok(),
                    "{op:?} {operand} {result}"
                );
                count += usize::from(exists);
            }
        }
    }
    assert!(count > 300);
}

#[test]
fn integers_divide_without_faults() {
    assert_eq!(run::<i32, i32>(Div, &[7, 0]), -1);
    assert_eq!(run::<u8, u8>(Div, &[7, 0]), 255);
    assert_eq!(run::<i32, i32>(Div, &[i32::MIN, -1]), i32::MIN);
    assert_eq!(run::<i32, i32>(Div, &[-7, 2]), -3);
    assert_eq!(run::<i64, i64>(Rem, &[-7, 2]), -1);
    assert_eq!(run::<i64, i64>(Rem, &[7, 0]), 7);
    assert_eq!(run::<i64, i64>(Rem, &[i64::MIN, -1]), 0);
    assert_eq!(run::<i8, i8>(Abs, &[-128]), -128);
    assert_eq!(run::<u32, u32>(Neg, &[1]), u32::MAX);
}

#[test]
fn shifts_beyond_the_width() {
    assert_eq!(run::<i32, i32>(ShiftLeft, &[1, 31]), i32::MIN);
    assert_eq!(run::<i32, i32>(ShiftLeft, &[1, 32]), 0);
    assert_eq!(run::<i32, i32>(ShiftLeft, &[1, -1]), 0);
    assert_eq!(run::<i8, i8>(ShiftRightLogical, &[-1, 1]), 127);
    assert_eq!(run::<i8, i8>(ShiftRightLogical, &[-1, 8]), 0);
    assert_eq!(run::<i8, i8>(ShiftRightArithmetic, &[-2, 1]), -1);
    assert_eq!(run::<i8, i8>(ShiftRightArithmetic, &[-2, 100]), -1);
    assert_eq!(run::<u8, u8>(ShiftRightArithmetic, &[0x80, 9]), 0xff);
    assert_eq!(run::<u64, u64>(ShiftRightLogical, &[u64::MAX, 63]), 1);
}

#[test]
fn high_products() {
    assert_eq!(run::<u32, u32>(MulHigh, &[0xd2511f53, 0x12345678]), 0x0ef4_b3b8);
    assert_eq!(run::<u64, u64>(MulHigh, &[u64::MAX, u64::MAX]), u64::MAX - 1);
    assert_eq!(run::<i64, i64>(MulHigh, &[-1, 1]), -1);
    assert_eq!(run::<i8, i8>(MulHigh, &[-128, -128]), 64);
}

#[test]
fn min_and_max_order_zeros_and_propagate_nan() {
    assert_eq!(float_bits(run::<f32, f32>(Min, &[0.0, -0.0])), float_bits(-0.0));
    assert_eq!(float_bits(run::<f32, f32>(Min, &[-0.0, 0.0])), float_bits(-0.0));
    assert_eq!(float_bits(run::<f32, f32>(Max, &[-0.0, 0.0])), float_bits(0.0));
    assert_eq!(run::<f32, f32>(Max, &[1.0, 2.0]), 2.0);
    for pair in [[f32::NAN, 1.0], [1.0, f32::NAN], [f32::NAN, f32::INFINITY]] {
        assert!(run::<f32, f32>(Max, &pair).is_nan() && run::<f32, f32>(Min, &pair).is_nan());
        assert!(
            !run::<f32, bool>(Eq, &pair)
                && run::<f32, bool>(Ne, &pair)
                && !run::<f32, bool>(Lt, &pair)
        );
    }
}

#[test]
fn arithmetic_makes_canonical_nans() {
    let odd = f32::from_bits(0xffc0_1234);
    for result in [
        run::<f32, f32>(Add, &[odd, 1.0]),
        run(Neg, &[odd]),
        run(Sub, &[f32::INFINITY, f32::INFINITY]),
    ] {
        assert_eq!(float_bits(result), float_bits(f32::NAN));
    }
    let selected = evaluate(Select, &[true.into(), odd.into(), 0.0f32.into()], DType::F32);
    assert_eq!(selected.bits(), 0xffc0_1234);
}

#[test]
fn rounding_instructions() {
    assert_eq!(run::<f32, f32>(RoundEven, &[2.5]), 2.0);
    assert_eq!(run::<f64, f64>(RoundEven, &[-3.5]), -4.0);
    assert_eq!(run::<f32, f32>(Rem, &[-7.5, 2.0]), -1.5);
    assert_eq!(
        run::<f32, f32>(Fma, &[1.0 + f32::EPSILON, 1.0 - f32::EPSILON, -1.0]),
        -f32::EPSILON * f32::EPSILON
    );
}

#[test]
fn conversions_saturate_truncate_and_wrap() {
    assert_eq!(run::<f32, i32>(Convert, &[3e9]), i32::MAX);
    assert_eq!(run::<f32, u8>(Convert, &[-1.5]), 0);
    assert_eq!(run::<f64, i8>(Convert, &[-1.9]), -1);
    assert_eq!(run::<f32, i64>(Convert, &[f32::NAN]), 0);
    assert_eq!(run::<f64, u64>(Convert, &[1e30]), u64::MAX);
    assert_eq!(run::<i32, u8>(Convert, &[-1]), 255);
    assert_eq!(run::<u64, i64>(Convert, &[u64::MAX]), -1);
    assert!(run::<f32, bool>(Convert, &[f32::NAN]) && !run::<f32, bool>(Convert, &[-0.0]));
    assert_eq!(run::<bool, f16>(Convert, &[true]), f16::ONE);
    assert_eq!(run::<i64, f32>(Convert, &[(1 << 24) + 1]), 16_777_216.0);
    assert_eq!(run::<u64, f64>(Convert, &[u64::MAX]), 18_446_744_073_709_551_616.0);
}

#[test]
fn wide_values_round_to_halves_once() {
    // `tie` is halfway between two bf16 values. `tie + 1` must round up; converted to f64 first,
    // it would become `tie` and round to even.
    let tie = (1i64 << 62) + (1 << 54);
    let above = f64::from(run::<i64, bf16>(Convert, &[tie + 1]).to_f32());
    assert_eq!(above, ((1i64 << 62) + (1 << 55)) as f64);
    assert_eq!(run::<i64, bf16>(Convert, &[tie]).to_f64(), (1i64 << 62) as f64);
    let below = run::<i64, bf16>(Convert, &[-tie + 1]).to_f64();
    assert_eq!(below, -((1i64 << 62) as f64));
    assert_eq!(run::<i64, bf16>(Convert, &[-tie - 1]).to_f64(), -((1i64 << 62) + (1 << 55)) as f64);
    let value = 1.0 + f64::powi(2.0, -11) + f64::powi(2.0, -40);
    assert_eq!(run::<f64, f16>(Convert, &[value]).to_f64(), 1.0 + f64::powi(2.0, -10));
    assert_eq!(run::<f64, f16>(Convert, &[1.0 + f64::powi(2.0, -11)]).to_f64(), 1.0);
    assert_eq!(run::<u64, f16>(Convert, &[u64::MAX]), f16::INFINITY);
}

proptest! {
    #[test]
    fn transcendental_functions_are_those_of_math(x: f32, y: f64) {
        prop_assert!(
            run::<f32, f32>(Exp, &[x]).to_bits() == math::f32::exp(x).to_bits() || x.is_nan()
        );
        prop_assert!(
            run::<f64, f64>(Tanh, &[y]).to_bits() == math::f64::tanh(y).to_bits() || y.is_nan()
        );
    }

    #[test]
    fn integers_agree_with_wide_arithmetic(x: i32, y: i32) {
        let (a, b) = (i64::from(x), i64::from(y));
        prop_assert_eq!(run::<i32, i32>(Add, &[x, y]), (a + b) as i32);
        prop_assert_eq!(run::<i32, i32>(Mul, &[x, y]), (a * b) as i32);
        prop_assert_eq!(run::<i32, i32>(MulHigh, &[x, y]), ((a * b) >> 32) as i32);
        prop_assert_eq!(run::<i32, i32>(Sub, &[x, y]), (a - b) as i32);
    }
}
